/* A control by delay, in the manner of Swift (Kumar et al., SIGCOMM 2020).
 *
 * The target is the connection's shortest round-trip time plus TARGET_US of queueing. Below it the
 * window grows by a segment in each round trip; above it the window shrinks in proportion to the
 * excess, at most once in a round trip. Swift's scaling of the target by hops and flows, and
 * windows below one segment, are left out.
 */
#include "control.h"

#define TARGET_US 4000 /* queueing delay that is wanted, in microseconds */
#define BETA 80        /* a window shrinks by BETA % of the excess, as a share of the delay, */
#define MOST 50        /* and by MOST % at most */

struct delay {
    __u32 shortest_us, latest_us; /* round-trip times */
    __u64 shrunk_us;              /* time of the latest reduction */
};

SEC("struct_ops/pkts_acked")
void BPF_PROG(delay_pkts_acked, struct sock *sk, const struct ack_sample *sample)
{
    struct delay *own = STATE(delay, sk);
    if (sample->rtt_us <= 0)
        return;
    own->latest_us = sample->rtt_us;
    if (!own->shortest_us || own->latest_us < own->shortest_us)
        own->shortest_us = own->latest_us;
}

SEC("struct_ops/cong_avoid")
void BPF_PROG(delay_cong_avoid, struct sock *sk, __u32 ack, __u32 acked)
{
    struct tcp_sock *tp = TCP(sk);
    struct delay *own = STATE(delay, sk);
    __u32 target_us = own->shortest_us + TARGET_US, latest_us = own->latest_us;
    if (latest_us <= target_us) {
        tcp_reno_cong_avoid(sk, ack, acked);
        return;
    }
    if (tp->tcp_mstamp - own->shrunk_us < latest_us)
        return;
    own->shrunk_us = tp->tcp_mstamp;
    __u32 percent = (__u64)BETA * (latest_us - target_us) / latest_us;
    __u32 window = tp->snd_cwnd - (__u64)tp->snd_cwnd * MIN(percent, MOST) / 100;
    tp->snd_cwnd = MAX(window, 2u);
    tp->snd_ssthresh = tp->snd_cwnd;
}

SEC("struct_ops/ssthresh") __u32 BPF_PROG(delay_ssthresh, struct sock *sk)
{
    return tcp_reno_ssthresh(sk);
}

SEC("struct_ops/undo_cwnd") __u32 BPF_PROG(delay_undo_cwnd, struct sock *sk)
{
    return tcp_reno_undo_cwnd(sk);
}

CONTROL(delay, .pkts_acked = FN(delay_pkts_acked), .cong_avoid = FN(delay_cong_avoid),
        .ssthresh = FN(delay_ssthresh), .undo_cwnd = FN(delay_undo_cwnd));
