/* The programs that carry out decisions on packets: Python decides, the kernel forwards.
 *
 * `app_out` handles packets of applications (egress of dcn0), `port_in` packets received by a port.
 * Each looks a packet up among the decisions that Python installed and, if there is one, treats the
 * packet exactly as the router would. All other packets are passed to Python unchanged: those
 * without a valid decision, control messages, malformed packets that hosts/wire would reject, and
 * packets whose TTL or retry count is used up. Only packets useless to Python are dropped, and
 * counted.
 *
 * Super-packets (TCP segments before segmentation) must stay whole, which makes forwarding fast. So
 * headers are added and removed by helpers that keep the offload fields of a packet (see packet.h).
 */
#include <linux/pkt_cls.h>

#include "liveness.h"
#include "budget.h"

#define GO_ON TC_ACT_UNSPEC /* to Python, and to other programs on the interface */

/* Flags of a received packet for Python, next to its counter: CONTROL marks a control message. */
#define TO_PYTHON 0x100
#define CONTROL 0x200
#define ANY_COUNTER 0xff

/* Tables per server, indexed by its number. Python creates them and installs decisions there. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(
		values, struct {
			__uint(type, BPF_MAP_TYPE_LRU_HASH);
			__uint(max_entries, 1024);
			__uint(key_size, sizeof(struct flow));
			__uint(value_size, sizeof(struct action));
		});
} flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(
		values, struct {
			__uint(type, BPF_MAP_TYPE_LRU_HASH);
			__uint(max_entries, 1024);
			__uint(key_size, sizeof(struct relay));
			__uint(value_size, sizeof(struct action));
		});
} relays SEC(".maps");

/* One entry per server. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct config);
} configs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct counters);
} counters SEC(".maps");

/* -- counters, and look-up of decisions -------------------------------------------------------- */

static __always_inline void count(struct __sk_buff *skb, enum counter which)
{
	__u32 server = skb->cb[SERVER];
	struct counters *counted = bpf_map_lookup_elem(&counters, &server);

	if (counted && which < COUNTERS)
		__sync_fetch_and_add(&counted->of[which], 1);
}

static __always_inline int go_on(struct __sk_buff *skb, enum counter why)
{
	count(skb, why);
	return GO_ON;
}

static __always_inline int drop(struct __sk_buff *skb, enum counter why)
{
	count(skb, why);
	return TC_ACT_SHOT;
}

static __always_inline struct config *config(struct __sk_buff *skb)
{
	__u32 server = skb->cb[SERVER];

	return bpf_map_lookup_elem(&configs, &server);
}

/* Notify Python, once, that its rest has ended; not inlined, since few packets need it. */
static __noinline int wake(struct __sk_buff *skb, struct config *now)
{
	now->rests = 0;
	ring(skb->cb[SERVER], bpf_ktime_get_ns());
	return 0;
}

/* Return the valid decision for a key; NULL, and the reason, if there is none. */
static __always_inline struct action *decided(struct __sk_buff *skb, enum table table, void *tables,
					      const void *key, enum counter *why)
{
	struct config *now = config(skb);
	__u32 server = skb->cb[SERVER];
	void *own = bpf_map_lookup_elem(tables, &server);
	struct action *action = own ? bpf_map_lookup_elem(own, key) : NULL;

	*why = action ? SLOW_OUTDATED : SLOW_UNDECIDED;
	if (!action || !now || action->generation != now->generations[table])
		return NULL;
	if (now->rests)
		wake(skb, now);
	return action;
}

/* Count a use of the decision; return the number of packets counted before. */
static __always_inline __u32 use(struct __sk_buff *skb, struct action *action)
{
	__sync_fetch_and_add(&action->bytes, skb->len);
	return __sync_fetch_and_add(&action->packets, skb->gso_segs ?: 1);
}

/* Return the decision for the next packet of a sprayed flow: its paths take turns. A turn ends when
 * it has carried as many segments as the last packet of the turn before: if the turn ended with each
 * packet, a stream of large super-packets and single segments in turn would stay on one path.
 * Concurrent packets may take the same turn, which only makes turns slightly less even.
 */
static __always_inline struct action *its_turn(struct __sk_buff *skb, struct flow *flow,
					       struct action *first, enum counter *why)
{
	__u32 segments = skb->gso_segs ?: 1;
	__u8 turn = first->turn;

	if (segments < first->left) {
		first->left -= segments;
	} else {
		first->left = segments < 0xff ? segments : 0xff;
		first->turn = turn + 1 < first->paths ? turn + 1 : 0;
	}
	if (!turn)
		return first;
	flow->protocol |= bpf_htonl((__u32)turn << 8);
	return decided(skb, OWN_FLOWS, &flows, flow, why);
}

/* -- verdicts ---------------------------------------------------------------------------------- */

static __always_inline int put(struct __sk_buff *skb, struct front *front, __u32 size,
			       const struct action *action)
{
	__builtin_memcpy(front->macs, action->macs, sizeof(front->macs));
	if (store(skb, front, size))
		return drop(skb, DROP_HEADER_NOT_WRITABLE);
	return bpf_redirect(action->ifindex, 0);
}

static __always_inline int deliver(struct __sk_buff *skb, int header_size, struct action *action)
{
	use(skb, action);
	if (header_size && uncover(skb, header_size))
		return drop(skb, DROP_HEADER_NOT_REMOVABLE);
	count(skb, DONE_DELIVERED);
	return bpf_redirect(action->ifindex, BPF_F_INGRESS);
}

/* -- packets of applications ------------------------------------------------------------------- */

/* Fill in an outer IP header; TOS, DF and TTL are copied from the packet (RFC 2003). */
static __always_inline int wrap(const struct ipv4 *inner, __u32 number, struct ipv4 *outer)
{
	__u32 length = bpf_ntohs(inner->total_length) + IPV4_SIZE;

	outer->tos = inner->tos;
	outer->ttl = inner->ttl;
	outer->total_length = bpf_htons(length);
	outer->identification = bpf_htons(number);
	outer->fragment = inner->fragment & DONT_FRAGMENT;
	outer->checksum = 0;
	outer->checksum = ~sum((const __u32 *)outer, IPV4_SIZE);
	return length > 0xffff;
}

/* Set a header's length, identification and checksum for one packet. */
static __always_inline void number_header(union header *header, __be16 length, __u32 number)
{
	__u8 first = *(__u8 *)header->words;

	((__be16 *)header->words)[1] = length; /* the same offset in all headers */
#define NUMBER(form)                                                                               \
	if (first == form_first(form)) {                                                           \
		set_number(header, number, form);                                                  \
		set_checksum(header, form);                                                        \
	}
	FORMS(NUMBER)
}

SEC("tc") int app_out(struct __sk_buff *skb)
{
	const struct config *now = config(skb);
	struct flow flow = {};
	struct front front = {};
	struct action *first, *action;
	struct ipv4 ip;
	enum counter why;
	__u32 size, number;
	int wrapped;

	if (load(skb, 0, &ip, sizeof(ip)) || !is_plain(&ip, skb->len) ||
	    find_flow(skb, &ip, IPV4_SIZE, &flow))
		return go_on(skb, SLOW_NOT_PLAIN_DATA);
	if (is_control(ip.tos, ip.protocol) ||
	    (now && now->sees_connections && opens_connection(skb, &ip, IPV4_SIZE)))
		return go_on(skb, SLOW_CONTROL);
	action = first = decided(skb, OWN_FLOWS, &flows, &flow, &why);
	if (first && first->paths)
		action = its_turn(skb, &flow, first, &why);
	if (!action)
		return go_on(skb, why);
	size = action->header_size;
	if (size > HEADER_WORDS * 4)
		return go_on(skb, SLOW_UNDECIDED);
	/* A TUN without checksum offload gets these without checksums, and they are segmented on the
	 * next interface, which is impossible behind a new header. Python receives them segmented.
	 */
	if (size && skb->gso_size && ip.protocol != TCP)
		return go_on(skb, SLOW_SUPER_PACKET_OTHER_THAN_TCP);
	number = use(skb, first);
	__builtin_memcpy(front.words, action->header, sizeof(front.words));
	wrapped = front.ipv4.version_ihl == IPV4_FIRST;
	front.ethertype = size && !wrapped ? bpf_htons(ETH_DCN) : bpf_htons(ETH_IP);
	if ((wrapped && wrap(&ip, number, &front.ipv4)) || grow(skb, ETHERNET_SIZE + size))
		return go_on(skb, SLOW_NO_ROOM_FOR_THE_HEADER);
	if (size && !wrapped)
		number_header(&front.header, ip.total_length, number);
	count(skb, DONE_PUSHED);
	return put(skb, &front, size, action);
}

/* -- received packets -------------------------------------------------------------------------- */

/* Return 1 if the payload is complete, and long enough for an application's IPv4 packet. */
static __always_inline int carries_data(struct __sk_buff *skb, __be16 payload_length, int size)
{
	__u32 length = bpf_ntohs(payload_length);

	return length >= IPV4_SIZE && ETHERNET_SIZE + size + length <= skb->len;
}

static __always_inline int is_control_inside(struct __sk_buff *skb, __u8 protocol, int size)
{
	struct ipv4 inside;

	if (protocol != IP_IN_IP)
		return 1;
	return load(skb, ETHERNET_SIZE + size, &inside, sizeof(inside)) ||
	       is_control(inside.tos, inside.protocol);
}

/* Forward the packet, its header changed as its declaration and the decision require. */
static __always_inline int relay_header(struct __sk_buff *skb, struct front *front,
					struct action *action, const int form)
{
	const int size = form_size(form), other = other_size(form);
	int wanted = action->header_size == other ? other : size;

	if (is_used_up(&front->header, action->at_times, form))
		return TO_PYTHON | SLOW_TTL_OR_RETRIES_USED_UP;
	if (wanted > size && grow(skb, wanted - size))
		return TO_PYTHON | SLOW_NO_ROOM_FOR_THE_HEADER;
	use(skb, action);
	if (wanted < size && retype(skb, bpf_htons(ETH_DCN), 1))
		return drop(skb, DROP_HEADER_NOT_REMOVABLE);
	if (action->header_size)
		rewrite(&front->header, action->header, form);
	count_hop(&front->header, action->at_times, form);
	set_checksum(&front->header, form);
	count(skb, DONE_RELAYED);
	return put(skb, front, wanted == other ? other : size, action);
}

static __always_inline int from_header(struct __sk_buff *skb, struct front *front, const int form)
{
	const __u8 *begin = (const __u8 *)front->words; /* all headers share the first four bytes */
	const int size = form_size(form);
	struct relay relay = {};
	struct action *action;
	enum counter why;

#pragma unroll
	for (int i = size / 4; i < IPV4_SIZE / 4; i++)
		front->words[i] = 0; /* clear bytes loaded after a short header */
	if (!is_form(&front->header, form) ||
	    !carries_data(skb, *(const __be16 *)(begin + 2), size) ||
	    !is_right(front->words, size, *checksum_of(&front->header, form)))
		return TO_PYTHON | (begin[1] == IP_IN_IP ? 0 : CONTROL) | SLOW_NOT_PLAIN_DATA;
	if (is_control_inside(skb, begin[1], size))
		return TO_PYTHON | CONTROL | SLOW_CONTROL;
	relay.kind = key_of(&front->header, relay.header, form);
	relay.ifindex = has_route(form) ? 0 : skb->ifindex;
	action = decided(skb, RELAYED, &relays, &relay, &why);
	if (!action)
		return TO_PYTHON | why;
	if (action->kind == DELIVER)
		return deliver(skb, size, action);
	return relay_header(skb, front, action, form);
}

static __always_inline int relay_ip(struct __sk_buff *skb, struct front *front,
				    struct action *action)
{
	if (action->kind == DELIVER)
		return deliver(skb, 0, action);
	if (front->ipv4.ttl <= 1)
		return TO_PYTHON | SLOW_TTL_OR_RETRIES_USED_UP;
	use(skb, action);
	lower_ttl(&front->ipv4);
	count(skb, DONE_RELAYED);
	return put(skb, front, IPV4_SIZE, action);
}

/* A packet leaving its tunnel is forwarded as by any router (RFC 2003, section 3.1). */
static __always_inline int unwrap(struct __sk_buff *skb, struct front *front,
				  const struct ipv4 *inner, struct action *action)
{
	if (inner->ttl <= 1)
		return TO_PYTHON | SLOW_TTL_OR_RETRIES_USED_UP;
	use(skb, action);
	if (uncover(skb, IPV4_SIZE))
		return drop(skb, DROP_HEADER_NOT_REMOVABLE);
	front->ipv4 = *inner;
	lower_ttl(&front->ipv4);
	count(skb, DONE_UNWRAPPED);
	return put(skb, front, IPV4_SIZE, action);
}

static __always_inline int from_tunnel(struct __sk_buff *skb, struct front *front)
{
	struct ipv4 *outer = &front->ipv4, inner;
	struct relay relay = {.kind = BY_TUNNEL};
	struct action *action;
	enum counter why;

	if (outer->fragment & IS_FRAGMENT ||
	    load(skb, ETHERNET_SIZE + IPV4_SIZE, &inner, sizeof(inner)) ||
	    !is_plain(&inner, bpf_ntohs(outer->total_length) - IPV4_SIZE))
		return TO_PYTHON | SLOW_NOT_PLAIN_DATA;
	if (is_control(inner.tos, inner.protocol))
		return TO_PYTHON | CONTROL | SLOW_CONTROL;
	relay.tunnel.direction = outer->source & bpf_htonl(NIC_BIT);
	relay.tunnel.outer_destination = outer->destination;
	relay.tunnel.destination = inner.destination;
	action = decided(skb, RELAYED, &relays, &relay, &why);
	if (!action)
		return TO_PYTHON | why;
	if (action->kind == DELIVER)
		return deliver(skb, IPV4_SIZE, action);
	if (outer->ttl <= 1)
		return TO_PYTHON | SLOW_TTL_OR_RETRIES_USED_UP;
	if (action->kind == UNWRAP)
		return unwrap(skb, front, &inner, action);
	return relay_ip(skb, front, action);
}

static __always_inline int from_ip(struct __sk_buff *skb, struct front *front)
{
	const struct config *now = config(skb);
	struct relay relay = {.ifindex = skb->ifindex};
	struct ipv4 *ip = &front->ipv4;
	struct action *action;
	enum counter why;

	if (!is_plain(ip, skb->len - ETHERNET_SIZE))
		return TO_PYTHON | SLOW_NOT_PLAIN_DATA;
	if (is_control(ip->tos, ip->protocol))
		return TO_PYTHON | CONTROL | SLOW_CONTROL;
	if (ip->protocol == IP_IN_IP)
		return from_tunnel(skb, front);
	if (now && now->by_flow) {
		relay.kind = BY_FLOW;
		if (find_flow(skb, ip, ETHERNET_SIZE + IPV4_SIZE, &relay.flow))
			return TO_PYTHON | SLOW_NOT_PLAIN_DATA;
	} else {
		relay.kind = BY_DESTINATION;
		relay.destination = ip->destination;
	}
	action = decided(skb, RELAYED, &relays, &relay, &why);
	return action ? relay_ip(skb, front, action) : (int)(TO_PYTHON | why);
}

static __always_inline int from_neighbour(struct __sk_buff *skb, const struct dcn *header)
{
	int verdict = note(skb, header);

	if (verdict == TC_ACT_UNSPEC)
		return TO_PYTHON | CONTROL | SLOW_NOT_PLAIN_DATA;
	count(skb, DONE_HEARD);
	return verdict;
}

static __always_inline int from_port(struct __sk_buff *skb, int is_dcn)
{
	struct front front = {.ethertype = skb->protocol};
	__u8 first;

	if (load(skb, ETHERNET_SIZE, front.words, IPV4_SIZE)) /* minimum of a header with IP inside */
		return TO_PYTHON | SLOW_NOT_PLAIN_DATA;
	if (!is_dcn)
		return from_ip(skb, &front);
	first = *(__u8 *)front.words;
	if (first == form_first(DCN_FORM) && front.dcn.protocol == HEARTBEAT)
		return from_neighbour(skb, &front.dcn);
#define FROM(form)                                                                                 \
	if (first == form_first(form) &&                                                           \
	    (form_size(form) <= IPV4_SIZE ||                                                       \
	     !load(skb, ETHERNET_SIZE, front.words, form_size(form))))                             \
		return from_header(skb, &front, form);
	FORMS(FROM)
	return TO_PYTHON | SLOW_NOT_PLAIN_DATA;
}

/* Pass the packet to Python if its budget allows, else drop it. */
static __always_inline int ask_python(struct __sk_buff *skb, int why)
{
	if (!is_too_much(skb, why & CONTROL))
		return go_on(skb, why & ANY_COUNTER);
	return drop(skb, why & CONTROL ? DROP_MESSAGES_OVER_BUDGET : DROP_OVER_BUDGET);
}

SEC("tc") int port_in(struct __sk_buff *skb)
{
	int is_dcn = skb->protocol == bpf_htons(ETH_DCN), is_ip = skb->protocol == bpf_htons(ETH_IP);
	int verdict;

	if ((!is_dcn && !is_ip) || skb->vlan_present)
		return GO_ON;
	/* Bridges flood frames for unknown MAC addresses: every neighbour would forward its copy. */
	if (skb->pkt_type == PACKET_OTHERHOST)
		return drop(skb, DROP_FOR_ANOTHER_MAC);
	verdict = from_port(skb, is_dcn);
	if (verdict & TO_PYTHON)
		verdict = ask_python(skb, verdict);
	if (verdict == GO_ON && is_dcn)
		/* Receive time: heartbeats wait until Python's next timer. */
		skb->tstamp = bpf_ktime_get_ns();
	if (verdict == GO_ON && is_ip)
		/* Python's socket still receives it; the server's own IP stack must not. */
		bpf_skb_change_type(skb, PACKET_OTHERHOST);
	return verdict;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
