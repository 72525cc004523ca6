/* Model answer of lab 11: a control by delay that leaves slow start when a queue builds up.
 *
 * The window follows the number of packets in the queue, window * (round - shortest) / round, as in
 * TCP Vegas (Brakmo and Peterson): it grows below LOW and shrinks above HIGH, once in a round trip.
 * `round` is the shortest round-trip time since the latest decision, since single ones are noisy.
 */
#include "control.h"

#define LOW 10  /* packets in the queue below which the window grows */
#define HIGH 16 /* packets above which it shrinks */

struct mine {
    __u32 shortest_us, round_us;
    __u32 decided_at; /* the next decision comes when this byte is acknowledged */
};

SEC("struct_ops/pkts_acked")
void BPF_PROG(mine_pkts_acked, struct sock *sk, const struct ack_sample *sample)
{
    struct mine *own = STATE(mine, sk);
    if (sample->rtt_us <= 0)
        return;
    __u32 trip_us = sample->rtt_us;
    if (!own->round_us || trip_us < own->round_us)
        own->round_us = trip_us;
    if (!own->shortest_us || trip_us < own->shortest_us)
        own->shortest_us = trip_us;
}

SEC("struct_ops/cong_avoid")
void BPF_PROG(mine_cong_avoid, struct sock *sk, __u32 ack, __u32 acked)
{
    struct tcp_sock *tp = TCP(sk);
    struct mine *own = STATE(mine, sk);
    __u32 window = tp->snd_cwnd, slow = in_slow_start(tp);
    int wait = own->decided_at && before(tp->snd_una, own->decided_at);
    __u32 queued = (__u64)window * (own->round_us - own->shortest_us) / own->round_us;
    if (!wait) {
        own->decided_at = tp->snd_nxt;
        own->round_us = 0;
    }
    if (slow && (wait || queued < LOW))
        tcp_reno_cong_avoid(sk, ack, acked);
    if (wait || (slow && queued < LOW))
        return;
    if (slow)
        window = MAX(window - queued, 2u);
    else if (queued < LOW)
        window += 1 + window / 16;
    else if (queued > HIGH)
        window = MAX(window - MAX((queued - HIGH) / 2, 1u), 2u);
    tp->snd_cwnd = MIN(window, tp->snd_cwnd_clamp);
    tp->snd_ssthresh = MIN(tp->snd_ssthresh, tp->snd_cwnd);
}

SEC("struct_ops/ssthresh") __u32 BPF_PROG(mine_ssthresh, struct sock *sk)
{
    return tcp_reno_ssthresh(sk);
}

SEC("struct_ops/undo_cwnd") __u32 BPF_PROG(mine_undo_cwnd, struct sock *sk)
{
    return tcp_reno_undo_cwnd(sk);
}

CONTROL(mine, .pkts_acked = FN(mine_pkts_acked), .cong_avoid = FN(mine_cong_avoid),
        .ssthresh = FN(mine_ssthresh), .undo_cwnd = FN(mine_undo_cwnd));
