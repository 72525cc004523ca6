/* Python decides, the kernel forwards: what a server does with packets whose way is decided.
 *
 * `app_out` sees what applications send (egress of dcn0), `port_in` what comes in by a port. Each
 * looks the packet up among the decisions that Python installed and, if there is one, does to the
 * packet just what the router would do. Everything else goes on to Python, as if nothing had been
 * here: what is undecided or outdated, control messages, whatever hosts/wire would refuse, what
 * has used up its hops. Only what Python could do nothing with is dropped, and counted.
 *
 * Super-packets (TCP's segments before they are cut) must stay whole: that is where the speed is.
 * So headers are added and taken off by those helpers that leave the offload fields of a packet
 * alone (see packet.h).
 */
#include <linux/pkt_cls.h>

#include "liveness.h"

#define GO_ON TC_ACT_UNSPEC /* to Python, past whatever other programs are there */

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, struct flow);
	__type(value, struct action);
} flows SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, struct relay);
	__type(value, struct action);
} relays SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct config);
} configs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, COUNTERS);
	__type(key, enum counter);
	__type(value, __u64);
} counters SEC(".maps");

/* -- counting, and looking up ------------------------------------------------------------------ */

static __always_inline void count(enum counter which)
{
	__u64 *counted = bpf_map_lookup_elem(&counters, &which);

	if (counted)
		__sync_fetch_and_add(counted, 1);
}

static __always_inline int go_on(enum counter why)
{
	count(why);
	return GO_ON;
}

static __always_inline int drop(enum counter why)
{
	count(why);
	return TC_ACT_SHOT;
}

static __always_inline const struct config *config(void)
{
	__u32 first = 0;

	return bpf_map_lookup_elem(&configs, &first);
}

/* Return the decision of that key, NULL if there is none that counts. */
static __always_inline struct action *decided(enum table table, void *map, const void *key)
{
	const struct config *now = config();
	struct action *action = bpf_map_lookup_elem(map, key);

	if (!action || !now) {
		count(SLOW_UNDECIDED);
		return NULL;
	}
	if (action->generation != now->generations[table]) {
		count(SLOW_OUTDATED);
		return NULL;
	}
	return action;
}

/* Note that the decision was used; return how many packets it was used for before. */
static __always_inline __u32 use(struct __sk_buff *skb, struct action *action)
{
	__sync_fetch_and_add(&action->bytes, skb->len);
	return __sync_fetch_and_add(&action->packets, skb->gso_segs ?: 1);
}

/* -- verdicts ---------------------------------------------------------------------------------- */

static __always_inline int put(struct __sk_buff *skb, struct front *front, __u32 size,
			       const struct action *action)
{
	__builtin_memcpy(front->macs, action->macs, sizeof(front->macs));
	if (store(skb, front, size))
		return drop(DROP_HEADER_NOT_WRITABLE);
	return bpf_redirect(action->ifindex, 0);
}

static __always_inline int deliver(struct __sk_buff *skb, int header_size, struct action *action)
{
	use(skb, action);
	if (header_size && uncover(skb, header_size))
		return drop(DROP_HEADER_NOT_REMOVABLE);
	count(DONE_DELIVERED);
	return bpf_redirect(action->ifindex, BPF_F_INGRESS);
}

/* -- the source -------------------------------------------------------------------------------- */

/* Fill in the header of the packet around a packet: it has its type of service and DF (RFC 2003). */
static __always_inline int wrap(const struct ipv4 *inner, __u32 number, struct ipv4 *outer)
{
	__u32 length = bpf_ntohs(inner->total_length) + IPV4_SIZE;

	outer->tos = inner->tos;
	outer->total_length = bpf_htons(length);
	outer->identification = bpf_htons(number);
	outer->fragment = inner->fragment & DONT_FRAGMENT;
	outer->checksum = 0;
	outer->checksum = ~sum((const __u32 *)outer, IPV4_SIZE);
	return length > 0xffff;
}

SEC("tc") int app_out(struct __sk_buff *skb)
{
	const struct config *now = config();
	struct flow flow = {};
	struct front front = {};
	struct action *action;
	struct ipv4 ip;
	__u32 size, number;
	int wrapped;

	if (load(skb, 0, &ip, sizeof(ip)) || !is_plain(&ip, skb->len) ||
	    find_flow(skb, &ip, IPV4_SIZE, &flow))
		return go_on(SLOW_NOT_PLAIN_DATA);
	if (is_control(ip.tos, ip.protocol) ||
	    (now && now->sees_connections && opens_connection(skb, &ip, IPV4_SIZE)))
		return go_on(SLOW_CONTROL);
	action = decided(OWN_FLOWS, &flows, &flow);
	if (!action)
		return GO_ON;
	size = action->header_size;
	if (size > BCUBE_SIZE)
		return go_on(SLOW_UNDECIDED);
	/* A TUN that promises no checksums gets these without, and then they are cut on the next
	 * interface, which cannot be done behind a header. Python gets them cut.
	 */
	if (size && skb->gso_size && ip.protocol != TCP)
		return go_on(SLOW_SUPER_PACKET_OTHER_THAN_TCP);
	number = use(skb, action);
	__builtin_memcpy(front.words, action->header, sizeof(front.words));
	wrapped = front.ipv4.version_ihl == IPV4_FIRST;
	front.ethertype = size && !wrapped ? bpf_htons(ETH_DCN) : bpf_htons(ETH_IP);
	if ((wrapped && wrap(&ip, number, &front.ipv4)) || grow(skb, ETHERNET_SIZE + size))
		return go_on(SLOW_NO_ROOM_FOR_THE_HEADER);
	if (size && !wrapped) {
		/* BCube's header begins with the same fields. */
		front.dcn.payload_length = ip.total_length;
		front.dcn.identification = bpf_htonl(number);
		front.dcn.checksum = 0;
		front.dcn.checksum = ~sum(front.words, BCUBE_SIZE);
	}
	count(DONE_PUSHED);
	return put(skb, &front, size, action);
}

/* -- the relays -------------------------------------------------------------------------------- */

/* Tell whether the payload is whole, and could be an IPv4 packet of an application. */
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

/* Send the packet on with its proxy set, replaced, cleared or left (Guo 2008, section 4.3). */
static __always_inline int relay_dcn(struct __sk_buff *skb, struct front *front, int size,
				     struct action *action)
{
	struct dcn *header = &front->dcn;
	__u8 change = action->proxy_change;
	int wanted = change == KEEP ? size : change == SET ? PROXIED_SIZE : PLAIN_SIZE;

	if (header->ttl <= 1 || (action->rerouted && header->retry_flags >> 4 <= 1))
		return go_on(SLOW_TTL_OR_RETRIES_USED_UP);
	if (wanted > size && grow(skb, wanted - size))
		return go_on(SLOW_NO_ROOM_FOR_THE_HEADER);
	use(skb, action);
	if (wanted < size && retype(skb, bpf_htons(ETH_DCN), 1))
		return drop(DROP_HEADER_NOT_REMOVABLE);
	if (change != KEEP) {
		int set = change == SET;

		header->version_dhl = set ? DCN_PROXIED : DCN_PLAIN;
		header->retry_flags = (header->retry_flags & 0xf0) | (set ? DCN_PROXY_FLAG : 0);
		header->proxy = set ? action->proxy : 0;
	}
	header->ttl--;
	header->retry_flags -= action->rerouted ? 0x10 : 0;
	header->checksum = 0;
	header->checksum = ~sum(front->words, PROXIED_SIZE);
	count(DONE_RELAYED);
	return put(skb, front, wanted == PROXIED_SIZE ? PROXIED_SIZE : PLAIN_SIZE, action);
}

static __always_inline int from_dcn(struct __sk_buff *skb, struct front *front, int size)
{
	struct relay relay = {.kind = BY_DCN, .ifindex = skb->ifindex};
	struct dcn *header = &front->dcn;
	int proxied = size == PROXIED_SIZE;
	struct action *action;

	if ((header->retry_flags & 0x0f) != (proxied ? DCN_PROXY_FLAG : 0) ||
	    (header->source | header->proxy) & NOT_A_UID ||
	    !carries_data(skb, header->payload_length, size) ||
	    !is_right(front->words, PROXIED_SIZE, header->checksum))
		return go_on(SLOW_NOT_PLAIN_DATA);
	if (is_control_inside(skb, header->protocol, size))
		return go_on(SLOW_CONTROL);
	relay.dcn.destination = header->destination;
	relay.dcn.proxy = header->proxy;
	relay.dcn.proxied = bpf_htonl(proxied);
	action = decided(RELAYED, &relays, &relay);
	if (!action)
		return GO_ON;
	if (action->kind == DELIVER)
		return deliver(skb, size, action);
	return relay_dcn(skb, front, size, action);
}

/* Tell whether the path is as it must be: hops that are left, and zeros behind the last. */
static __always_inline int is_path(const struct bcube *header)
{
	__u8 length = header->path_length, behind = 0;

#pragma unroll
	for (int i = 0; i < MOST_HOPS; i++)
		behind |= i >= length ? header->nhas[i] : 0;
	return length <= MOST_HOPS && header->next_hop <= length && !behind && !header->reserved &&
	       !header->reserved_too;
}

static __always_inline __u8 next_nha(const struct bcube *header)
{
	__u8 nha = 0;

#pragma unroll
	for (int i = 0; i < MOST_HOPS; i++)
		nha = i == header->next_hop ? header->nhas[i] : nha;
	return nha;
}

static __always_inline int from_bcube(struct __sk_buff *skb, struct front *front)
{
	struct bcube *header = &front->bcube;
	int at_end = header->next_hop == header->path_length;
	struct relay relay = {.kind = at_end ? BY_END : BY_HOP};
	struct action *action;

	if (header->retry_flags || header->source & NOT_A_UID || !is_path(header) ||
	    !carries_data(skb, header->payload_length, BCUBE_SIZE) ||
	    !is_right(front->words, BCUBE_SIZE, header->checksum))
		return go_on(SLOW_NOT_PLAIN_DATA);
	if (is_control_inside(skb, header->protocol, BCUBE_SIZE))
		return go_on(SLOW_CONTROL);
	if (at_end)
		relay.destination = header->destination;
	else
		relay.nha = bpf_htonl(next_nha(header));
	action = decided(RELAYED, &relays, &relay);
	if (!action)
		return GO_ON;
	if (action->kind == DELIVER)
		return deliver(skb, BCUBE_SIZE, action);
	use(skb, action);
	header->next_hop++;
	header->checksum = 0;
	header->checksum = ~sum(front->words, BCUBE_SIZE);
	count(DONE_RELAYED);
	return put(skb, front, BCUBE_SIZE, action);
}

static __always_inline int relay_ip(struct __sk_buff *skb, struct front *front,
				    struct action *action)
{
	if (action->kind == DELIVER)
		return deliver(skb, 0, action);
	if (front->ipv4.ttl <= 1)
		return go_on(SLOW_TTL_OR_RETRIES_USED_UP);
	use(skb, action);
	lower_ttl(&front->ipv4);
	count(DONE_RELAYED);
	return put(skb, front, IPV4_SIZE, action);
}

/* Behind its tunnel a packet is forwarded as by any router (RFC 2003, section 3.1). */
static __always_inline int unwrap(struct __sk_buff *skb, struct front *front,
				  const struct ipv4 *inner, struct action *action)
{
	if (inner->ttl <= 1)
		return go_on(SLOW_TTL_OR_RETRIES_USED_UP);
	use(skb, action);
	if (uncover(skb, IPV4_SIZE))
		return drop(DROP_HEADER_NOT_REMOVABLE);
	front->ipv4 = *inner;
	lower_ttl(&front->ipv4);
	count(DONE_UNWRAPPED);
	return put(skb, front, IPV4_SIZE, action);
}

static __always_inline int from_tunnel(struct __sk_buff *skb, struct front *front)
{
	struct ipv4 *outer = &front->ipv4, inner;
	struct relay relay = {.kind = BY_TUNNEL};
	struct action *action;

	if (outer->fragment & IS_FRAGMENT ||
	    load(skb, ETHERNET_SIZE + IPV4_SIZE, &inner, sizeof(inner)) ||
	    !is_plain(&inner, bpf_ntohs(outer->total_length) - IPV4_SIZE))
		return go_on(SLOW_NOT_PLAIN_DATA);
	if (is_control(inner.tos, inner.protocol))
		return go_on(SLOW_CONTROL);
	relay.tunnel.outer_source = outer->source;
	relay.tunnel.outer_destination = outer->destination;
	relay.tunnel.source = inner.source;
	relay.tunnel.destination = inner.destination;
	action = decided(RELAYED, &relays, &relay);
	if (!action)
		return GO_ON;
	if (action->kind == DELIVER)
		return deliver(skb, IPV4_SIZE, action);
	if (outer->ttl <= 1)
		return go_on(SLOW_TTL_OR_RETRIES_USED_UP);
	if (action->kind == UNWRAP)
		return unwrap(skb, front, &inner, action);
	return relay_ip(skb, front, action);
}

static __always_inline int from_ip(struct __sk_buff *skb, struct front *front)
{
	const struct config *now = config();
	struct relay relay = {.ifindex = skb->ifindex};
	struct ipv4 *ip = &front->ipv4;
	struct action *action;

	if (!is_plain(ip, skb->len - ETHERNET_SIZE))
		return go_on(SLOW_NOT_PLAIN_DATA);
	if (is_control(ip->tos, ip->protocol))
		return go_on(SLOW_CONTROL);
	if (ip->protocol == IP_IN_IP)
		return from_tunnel(skb, front);
	if (now && now->by_flow) {
		relay.kind = BY_FLOW;
		if (find_flow(skb, ip, ETHERNET_SIZE + IPV4_SIZE, &relay.flow))
			return go_on(SLOW_NOT_PLAIN_DATA);
	} else {
		relay.kind = BY_DESTINATION;
		relay.destination = ip->destination;
	}
	action = decided(RELAYED, &relays, &relay);
	return action ? relay_ip(skb, front, action) : GO_ON;
}

static __always_inline int from_neighbour(struct __sk_buff *skb, const struct dcn *header)
{
	if (!note(skb, header))
		return go_on(SLOW_CONTROL);
	count(DONE_HEARD);
	return TC_ACT_SHOT;
}

static __always_inline int from_port(struct __sk_buff *skb, int is_dcn)
{
	struct front front = {.ethertype = skb->protocol};
	__u8 first;

	if (load(skb, ETHERNET_SIZE, front.words, PLAIN_SIZE))
		return go_on(SLOW_NOT_PLAIN_DATA);
	if (!is_dcn)
		return from_ip(skb, &front);
	first = front.dcn.version_dhl;
	if (first == BCUBE_FIRST && !load(skb, ETHERNET_SIZE, front.words, BCUBE_SIZE))
		return from_bcube(skb, &front);
	if (first == DCN_PROXIED && !load(skb, ETHERNET_SIZE, front.words, PROXIED_SIZE))
		return from_dcn(skb, &front, PROXIED_SIZE);
	if (first == DCN_PLAIN && front.dcn.protocol == HEART_BEAT)
		return from_neighbour(skb, &front.dcn);
	if (first == DCN_PLAIN)
		return from_dcn(skb, &front, PLAIN_SIZE);
	return go_on(SLOW_NOT_PLAIN_DATA);
}

SEC("tc") int port_in(struct __sk_buff *skb)
{
	int is_dcn = skb->protocol == bpf_htons(ETH_DCN), is_ip = skb->protocol == bpf_htons(ETH_IP);
	int verdict;

	if ((!is_dcn && !is_ip) || skb->vlan_present)
		return GO_ON;
	/* A bridge floods what it has not learned: every neighbour would send its copy on. */
	if (skb->pkt_type == PACKET_OTHERHOST)
		return drop(DROP_FOR_ANOTHER_MAC);
	verdict = from_port(skb, is_dcn);
	if (verdict == GO_ON && is_dcn)
		/* When it came: heart-beats wait until Python has something to do. */
		skb->tstamp = bpf_ktime_get_ns();
	if (verdict == GO_ON && is_ip)
		/* Python's socket still sees it; the server's own IP stack must not take it too. */
		bpf_skb_change_type(skb, PACKET_OTHERHOST);
	return verdict;
}

/* -- what is attached -------------------------------------------------------------------------- */

/* A filter outlives the process that attached it, and a server that is dead must not forward. The
 * kernel empties this table as soon as no process holds it: filters go by way of it.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 2);
	__uint(key_size, sizeof(__u32));
	__array(values, int(struct __sk_buff *));
} alive SEC(".maps") = {.values = {(void *)app_out, (void *)port_in}};

SEC("tc") int app_out_while_alive(struct __sk_buff *skb)
{
	bpf_tail_call(skb, &alive, 0);
	return TC_ACT_SHOT;
}

SEC("tc") int port_in_while_alive(struct __sk_buff *skb)
{
	bpf_tail_call(skb, &alive, 1);
	return TC_ACT_SHOT;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
