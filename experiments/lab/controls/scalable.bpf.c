/* Scalable TCP (Kelly 2003), a control to begin from: Reno with a fixed gain and a small cut.
 *
 * Each acknowledged segment adds 0.01 segments, and a loss takes an eighth of the window, so the
 * time between two losses does not depend on the rate. Below 16 segments the rules are Reno's.
 */
#include "control.h"

#define LOWEST 16   /* window above which the rules differ from Reno's */
#define PER_ACK 100 /* acknowledged segments by which the window grows by one */

SEC("struct_ops/ssthresh") __u32 BPF_PROG(scalable_ssthresh, struct sock *sk)
{
    __u32 window = TCP(sk)->snd_cwnd;
    if (window <= LOWEST)
        return tcp_reno_ssthresh(sk);
    return window - window / 8;
}

SEC("struct_ops/cong_avoid")
void BPF_PROG(scalable_cong_avoid, struct sock *sk, __u32 ack, __u32 acked)
{
    struct tcp_sock *tp = TCP(sk);
    if (tp->snd_cwnd <= LOWEST || in_slow_start(tp)) {
        tcp_reno_cong_avoid(sk, ack, acked);
        return;
    }
    tcp_cong_avoid_ai(tp, MIN(tp->snd_cwnd, PER_ACK), acked);
}

SEC("struct_ops/undo_cwnd") __u32 BPF_PROG(scalable_undo_cwnd, struct sock *sk)
{
    return tcp_reno_undo_cwnd(sk);
}

CONTROL(scalable, .ssthresh = FN(scalable_ssthresh), .cong_avoid = FN(scalable_cong_avoid),
        .undo_cwnd = FN(scalable_undo_cwnd));
