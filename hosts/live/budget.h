/* Budgets for packets passed to Python, as routers police the packets that they punt.
 *
 * Packets without a decision need the server's process, and a flood of forged ones would take all
 * of its time. So each port has a budget, and each neighbour on it at most half of that: a flooding
 * neighbour exhausts only its own share. Control messages have separate budgets, so that they get
 * through a flood of data.
 *
 * A budget is a token bucket, stored as one number: the time at which it will be full again. If
 * processors change it simultaneously, a packet more may pass.
 */
#ifndef BUDGET_H
#define BUDGET_H

#include "packet.h"

#define SECOND_NS 1000000000ULL
#define PORT_PER_S 1000
#define CONTROL_FACTOR 2 /* messages are short, and routing waits for them */
#define BURST 1024	 /* first packets of some hundred simultaneous flows */

#define NEIGHBOURS 8 /* distinguished, by the last byte of their MAC address */
#define WHOLE_PORT NEIGHBOURS
#define SOURCE_MAC_END 11

struct budget_key {
	__u32 server, ifindex;
	__u16 whose, control;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 256);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct budget_key);
	__type(value, __u64);
} budgets SEC(".maps");

/* Take a packet from a budget; return 1 if the budget is used up. */
static __always_inline int is_spent(struct budget_key *key, __u32 per_s)
{
	__u64 now = bpf_ktime_get_ns(), each = SECOND_NS / per_s, first = now + each;
	__u64 *known = bpf_map_lookup_elem(&budgets, key), full;

	if (!known) {
		bpf_map_update_elem(&budgets, key, &first, BPF_ANY);
		return 0;
	}
	full = *known > now ? *known : now;
	if (full - now > BURST * each)
		return 1;
	*known = full + each;
	return 0;
}

static __always_inline int is_too_much(struct __sk_buff *skb, int control)
{
	struct budget_key key = {skb->cb[SERVER], skb->ifindex, .control = !!control};
	__u32 per_s = control ? PORT_PER_S * CONTROL_FACTOR : PORT_PER_S;
	__u8 last;

	if (load(skb, SOURCE_MAC_END, &last, sizeof(last)))
		return 1;
	key.whose = last % NEIGHBOURS;
	if (is_spent(&key, per_s / 2))
		return 1;
	key.whose = WHOLE_PORT;
	return is_spent(&key, per_s);
}

#endif
