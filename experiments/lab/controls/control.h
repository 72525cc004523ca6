/* Header of congestion controls in eBPF: the kernel's types, Reno's rules, and CONTROL.
 *
 * A control is a C file that includes this header, defines functions with BPF_PROG, and names them
 * in CONTROL. The kernel calls them for each connection that uses the control:
 *
 *   init(sk)                    a connection begins
 *   cong_avoid(sk, ack, acked)  an ACK for `acked` new segments: let the window grow
 *   ssthresh(sk)                a loss: return the new slow-start threshold (window after it)
 *   undo_cwnd(sk)               the loss was none: return the window to go back to
 *   pkts_acked(sk, sample)      a round-trip time was measured (sample->rtt_us)
 *   in_ack_event(sk, flags)     an ACK arrived, before it is processed
 *   cwnd_event(sk, event)       an event such as CA_EVENT_TX_START or CA_EVENT_ECN_IS_CE
 *   set_state(sk, state)        the connection enters a state such as TCP_CA_Loss
 *
 * ssthresh, cong_avoid and undo_cwnd are required. Offsets of members are those of the running
 * kernel (CO-RE). A control may write to the members marked (w), and to STATE.
 */
#pragma once
#include <linux/types.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#define TCP_CA_CWR 2      /* the window shrinks because of a mark */
#define TCP_CA_Recovery 3 /* lost segments are retransmitted */
#define TCP_CA_Loss 4
#define ACK_DELAYED 2 /* of icsk_ack.pending: the timer of delayed ACKs runs */
#define ACK_NOW 16    /* of icsk_ack.pending: send an ACK immediately */
#define ECE 4         /* of ecn_flags: ACKs tell the sender of marked packets */
#define INFINITE 0x7fffffffu   /* initial slow-start threshold: there was no loss yet */
#define LEAST_SEGMENTS 2       /* segments of a super-packet, as the kernel has it by default */
#define MOST_WINDOW (1u << 20) /* above all windows that receivers offer, in segments */

enum tcp_ca_event {
    CA_EVENT_TX_START,     /* first packet after all were acknowledged */
    CA_EVENT_CWND_RESTART,
    CA_EVENT_COMPLETE_CWR, /* a reduction for ECN is complete */
    CA_EVENT_LOSS,         /* retransmission timeout */
    CA_EVENT_ECN_NO_CE,    /* a packet without mark came */
    CA_EVENT_ECN_IS_CE,    /* a marked packet came (congestion experienced) */
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct sock {
    unsigned long sk_pacing_rate; /* (w) bytes per second */
};

struct inet_connection_sock {
    __u8 icsk_ca_state : 5; /* TCP_CA_CWR, ... */
    struct {
        __u8 pending; /* (w) ACKs that are due, see ACK_DELAYED and ACK_NOW */
    } icsk_ack;
    __u64 icsk_ca_priv[1]; /* (w) the control's own memory, see STATE */
};

struct tcp_sock {
    __u32 snd_cwnd;     /* (w) congestion window, in segments */
    __u32 snd_cwnd_cnt; /* (w) segments acknowledged since the window last grew */
    __u32 snd_ssthresh; /* (w) slow-start threshold */
    __u32 snd_cwnd_clamp;
    __u32 prior_cwnd;      /* window before the latest reduction */
    __u32 max_packets_out; /* largest number of segments in flight in the latest window */
    __u8 is_cwnd_limited : 1;
    __u32 snd_una, snd_nxt, rcv_nxt;
    __u32 high_seq; /* a reduction ends when more than this is acknowledged */
    __u32 packets_out, sacked_out, lost_out, retrans_out;
    __u32 srtt_us;      /* smoothed round-trip time, in eighths of a microsecond */
    __u32 delivered;    /* segments delivered so far */
    __u32 delivered_ce; /* of which marked by ECN */
    __u32 mss_cache;
    __u8 ecn_flags;     /* (w) see ECE */
    __u64 tcp_mstamp;   /* time of the latest packet, in microseconds */
};

struct ack_sample {
    __u32 pkts_acked;
    __s32 rtt_us; /* -1 if the ACK gives no round-trip time */
};

#pragma clang attribute pop

struct tcp_congestion_ops {
    __u32 (*ssthresh)(struct sock *sk);
    void (*cong_avoid)(struct sock *sk, __u32 ack, __u32 acked);
    __u32 (*min_tso_segs)(struct sock *sk);
    void (*set_state)(struct sock *sk, __u8 new_state);
    void (*cwnd_event)(struct sock *sk, enum tcp_ca_event ev);
    void (*in_ack_event)(struct sock *sk, __u32 flags);
    void (*pkts_acked)(struct sock *sk, const struct ack_sample *sample);
    __u32 (*undo_cwnd)(struct sock *sk);
    void (*init)(struct sock *sk);
    __u32 flags;
    char name[16];
};

/* Flags of a control: any program may choose it; its connections negotiate ECN. */
#define ANYBODY 1
#define NEEDS_ECN 2

#define TCP(sk) ((struct tcp_sock *)(sk))
/* The control's own memory of a connection: at most 104 bytes, zero at its beginning. */
#define STATE(type, sk) ((struct type *)control_memory(sk))

#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define MIN(a, b) ((a) < (b) ? (a) : (b))

static __always_inline void *control_memory(struct sock *sk)
{
    void *memory = ((struct inet_connection_sock *)sk)->icsk_ca_priv;
    asm volatile("" : "+r"(memory)); /* the offset is not part of a member's access */
    return memory;
}

static __always_inline int in_slow_start(const struct tcp_sock *tp)
{
    return tp->snd_cwnd < tp->snd_ssthresh;
}

/* Reno's rules, and its two ways to let a window grow. They replace the kernel's functions of these
 * names, in which a window of 0 segments is a division by zero and ends the machine; in eBPF a
 * division by zero gives 0.
 */
static __always_inline __u32 tcp_reno_ssthresh(struct sock *sk)
{
    return MAX(TCP(sk)->snd_cwnd / 2, 2u);
}

static __always_inline __u32 tcp_reno_undo_cwnd(struct sock *sk)
{
    return MAX(TCP(sk)->snd_cwnd, TCP(sk)->prior_cwnd);
}

/* Grow by a segment for each acknowledged one, up to ssthresh; return the segments that are left. */
static __always_inline __u32 tcp_slow_start(struct tcp_sock *tp, __u32 acked)
{
    __u32 before = tp->snd_cwnd, grown = MAX(MIN(before + acked, tp->snd_ssthresh), before);
    tp->snd_cwnd = MIN(grown, tp->snd_cwnd_clamp);
    return acked - (grown - before);
}

/* Grow by a segment for each `window` acknowledged ones. */
static __always_inline void tcp_cong_avoid_ai(struct tcp_sock *tp, __u32 window, __u32 acked)
{
    __u32 credit = tp->snd_cwnd_cnt + acked, steps = MAX(window, 1u);
    tp->snd_cwnd = MIN(tp->snd_cwnd + credit / steps, tp->snd_cwnd_clamp);
    tp->snd_cwnd_cnt = credit % steps;
}

static __always_inline void tcp_reno_cong_avoid(struct sock *sk, __u32 ack, __u32 acked)
{
    struct tcp_sock *tp = TCP(sk);
    int slow = in_slow_start(tp);
    /* A window that the connection does not use stays. */
    if (!BPF_CORE_READ_BITFIELD(tp, is_cwnd_limited) &&
        !(slow && tp->snd_cwnd < 2 * tp->max_packets_out))
        return;
    if (slow)
        acked = tcp_slow_start(tp, acked);
    if (acked)
        tcp_cong_avoid_ai(tp, tp->snd_cwnd, acked);
}

/* Repair a window that is no window. CONTROL lets the kernel call this before it sends.
 *
 * On AMD processors with the mitigation Safe RET, Linux 6.18 sometimes skips a control's functions
 * and takes a return address for the result of ssthresh, above INFINITE. The kernel then opens the
 * window, and later losses take only a fraction of it.
 */
static __always_inline void repair_window(struct tcp_sock *tp)
{
    __u32 most = MAX(2 * tp->max_packets_out, 2u); /* slow start lets no window grow further */
    if (tp->snd_ssthresh > INFINITE)
        tp->snd_ssthresh = MAX(MIN(tp->prior_cwnd, most) / 2, 2u);
    if (tp->snd_cwnd > MOST_WINDOW)
        tp->snd_cwnd = MIN(tp->snd_ssthresh, most);
}

SEC("struct_ops/min_tso_segs") __u32 BPF_PROG(before_sending, struct sock *sk)
{
    repair_window(TCP(sk));
    return LEAST_SEGMENTS;
}

/* Return whether sequence number a comes before b; they wrap around. */
static __always_inline int before(__u32 a, __u32 b)
{
    return (__s32)(a - b) < 0;
}

static __always_inline __u32 segments_in_flight(const struct tcp_sock *tp)
{
    return tp->packets_out - tp->sacked_out - tp->lost_out + tp->retrans_out;
}

/* Reductions for marks, of a connection that has more in flight than its window: a window was lost.
 *
 * During a reduction a share of ssthresh / window of the arriving segments may follow. If each ACK
 * reports marks, the next reduction begins with the window with which the last one ends. With a
 * window of 2 segments all arriving ones follow, and the connection never slows down. So a reduction
 * ends with at least half of what is in flight (call end_reduction from in_ack_event), and the
 * threshold of the next one has this in proportion (ssthresh returns share_of_flight of it).
 */
static __always_inline void end_reduction(struct tcp_sock *tp)
{
    int state = BPF_CORE_READ_BITFIELD((struct inet_connection_sock *)tp, icsk_ca_state);
    if (state == TCP_CA_CWR && before(tp->high_seq, tp->snd_una))
        tp->snd_ssthresh = MAX(tp->snd_ssthresh, segments_in_flight(tp) / 2);
}

static __always_inline __u32 share_of_flight(const struct tcp_sock *tp, __u32 threshold)
{
    __u32 in_flight = MAX(segments_in_flight(tp), tp->snd_cwnd);
    return MAX((__u64)threshold * tp->snd_cwnd / MAX(in_flight, 1u), 2u);
}

/* CONTROL(name, .ssthresh = ..., ...): declare a control. Its functions are cast by the macro FN. */
#define FN(function) ((void *)(function))
#ifdef CONTROL_NAME /* the name in the kernel, if another lab uses the control's own */
#define NAME_OF(control) CONTROL_NAME
#else
#define NAME_OF(control) #control
#endif
#define DECLARED(control, its_flags, ...)                                                          \
    char LICENSE[] SEC("license") = "GPL";                                                        \
    SEC(".struct_ops") struct tcp_congestion_ops control = {                                      \
        .name = NAME_OF(control), .flags = its_flags, .min_tso_segs = FN(before_sending),         \
        __VA_ARGS__                                                                               \
    }
#define CONTROL(control, ...) DECLARED(control, ANYBODY, __VA_ARGS__)
/* As CONTROL; connections negotiate ECN. */
#define ECN_CONTROL(control, ...) DECLARED(control, ANYBODY | NEEDS_ECN, __VA_ARGS__)
