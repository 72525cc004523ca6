/* Lab 11: your own TCP congestion control. Fill in what is marked TODO.
 *
 * As it stands this is Reno with a gentler cut, and it works. `control.h` lists the members of a
 * connection that you may read, and those, marked (w), that you may write.
 */
#include "control.h"

/* The control's own memory of a connection: at most 104 bytes, zero at its beginning. */
struct mine {
    __u32 shortest_us; /* shortest round-trip time so far, in microseconds */
    __u32 latest_us;   /* latest round-trip time, or the shortest one since the latest decision */
    __u32 decided_at;  /* the next decision comes when this byte is acknowledged */
};

/* The kernel has measured a round-trip time: sample->rtt_us, -1 if there is none. */
SEC("struct_ops/pkts_acked")
void BPF_PROG(mine_pkts_acked, struct sock *sk, const struct ack_sample *sample)
{
    struct mine *own = STATE(mine, sk);
    /* TODO: store the latest and the shortest round-trip time in own. */
}

/* An ACK for `acked` new segments: change the window, TCP(sk)->snd_cwnd, in segments. */
SEC("struct_ops/cong_avoid")
void BPF_PROG(mine_cong_avoid, struct sock *sk, __u32 ack, __u32 acked)
{
    /* TODO: grow while the queue is short; else shrink, at most once in a round trip. */
    tcp_reno_cong_avoid(sk, ack, acked);
}

/* A loss: return the new slow-start threshold, the window after the loss. */
SEC("struct_ops/ssthresh") __u32 BPF_PROG(mine_ssthresh, struct sock *sk)
{
    __u32 window = TCP(sk)->snd_cwnd;
    return MAX(window - window / 4, 2u); /* TODO: is a quarter enough? */
}

/* The loss was none: return the window to go back to. */
SEC("struct_ops/undo_cwnd") __u32 BPF_PROG(mine_undo_cwnd, struct sock *sk)
{
    return tcp_reno_undo_cwnd(sk);
}

CONTROL(mine, .pkts_acked = FN(mine_pkts_acked), .cong_avoid = FN(mine_cong_avoid),
        .ssthresh = FN(mine_ssthresh), .undo_cwnd = FN(mine_undo_cwnd));
