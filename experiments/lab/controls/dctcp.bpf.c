/* DCTCP (RFC 8257), for `queue = "ecn"`: the window shrinks by the share of marked packets. */
#include "control.h"

#define SHIFT_G 4       /* estimation gain g = 1/16 (section 4.2) */
#define ONE (1u << 10)  /* alpha = 1 */

struct dctcp {
    __u32 alpha;         /* DCTCP.Alpha, in units of 1 / ONE */
    __u32 window_end;    /* DCTCP.WindowEnd: the observation window ends with this byte */
    __u32 delivered, delivered_ce; /* counters at the beginning of the observation window */
    __u32 before_loss;   /* window before a loss or mark, to return to if a loss was none */
    __u32 last_ce, received; /* DCTCP.CE, and first byte missing when the latest packet came */
};

SEC("struct_ops/init") void BPF_PROG(dctcp_init, struct sock *sk)
{
    STATE(dctcp, sk)->alpha = ONE; /* section 4.2: initially 1 */
    STATE(dctcp, sk)->received = TCP(sk)->rcv_nxt;
    STATE(dctcp, sk)->window_end = TCP(sk)->snd_nxt;
}

/* Section 3.3: update alpha once in each observation window, about a round-trip time. */
SEC("struct_ops/in_ack_event") void BPF_PROG(dctcp_in_ack_event, struct sock *sk, __u32 flags)
{
    struct tcp_sock *tp = TCP(sk);
    struct dctcp *own = STATE(dctcp, sk);
    end_reduction(tp);
    if (before(tp->snd_una, own->window_end))
        return;
    __u32 all = tp->delivered - own->delivered, marked = tp->delivered_ce - own->delivered_ce;
    __u32 share = all ? MIN((__u64)marked * ONE / all, ONE) : 0; /* M; an ACK's marks count late */
    own->alpha += (share >> SHIFT_G) - (own->alpha >> SHIFT_G);
    own->window_end = tp->snd_nxt, own->delivered = tp->delivered;
    own->delivered_ce = tp->delivered_ce;
}

SEC("struct_ops/ssthresh") __u32 BPF_PROG(dctcp_ssthresh, struct sock *sk)
{
    __u64 window = STATE(dctcp, sk)->before_loss = TCP(sk)->snd_cwnd;
    return share_of_flight(TCP(sk), window - window * STATE(dctcp, sk)->alpha / ONE / 2);
}

SEC("struct_ops/set_state") void BPF_PROG(dctcp_set_state, struct sock *sk, __u8 state)
{
    if (state == TCP_CA_Recovery || state == TCP_CA_Loss)
        TCP(sk)->snd_ssthresh = MAX(STATE(dctcp, sk)->before_loss / 2, 2u); /* section 3.5 */
}

SEC("struct_ops/undo_cwnd") __u32 BPF_PROG(dctcp_undo_cwnd, struct sock *sk)
{
    return MAX(TCP(sk)->snd_cwnd, STATE(dctcp, sk)->before_loss);
}

SEC("struct_ops/cong_avoid") void BPF_PROG(dctcp_cong_avoid, struct sock *sk, __u32 ack, __u32 n)
{
    tcp_reno_cong_avoid(sk, ack, n);
}

/* Section 3.2, the receiver: ACKs say exactly which packets were marked. */
SEC("struct_ops/cwnd_event") void BPF_PROG(dctcp_cwnd_event, struct sock *sk, enum tcp_ca_event ev)
{
    struct tcp_sock *tp = TCP(sk);
    struct inet_connection_sock *icsk = (struct inet_connection_sock *)sk;
    struct dctcp *own = STATE(dctcp, sk);
    __u32 marked = ev == CA_EVENT_ECN_IS_CE;
    if (!marked && ev != CA_EVENT_ECN_NO_CE)
        return;
    if (own->last_ce != marked) {
        if (icsk->icsk_ack.pending & ACK_DELAYED) /* for the packets before this one */
            bpf_tcp_send_ack(tp, own->received);
        icsk->icsk_ack.pending |= ACK_NOW;
    }
    own->received = tp->rcv_nxt, own->last_ce = marked;
    tp->ecn_flags = marked ? tp->ecn_flags | ECE : tp->ecn_flags & ~ECE;
}

ECN_CONTROL(dctcp, .init = FN(dctcp_init), .in_ack_event = FN(dctcp_in_ack_event),
        .ssthresh = FN(dctcp_ssthresh), .set_state = FN(dctcp_set_state),
        .undo_cwnd = FN(dctcp_undo_cwnd), .cong_avoid = FN(dctcp_cong_avoid),
        .cwnd_event = FN(dctcp_cwnd_event));
