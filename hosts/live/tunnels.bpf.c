/* Tunnels between two machines for super-packets with headers that Linux does not know, or cannot
 * segment within a tunnel: those of the papers, and IP in IP as forwarders write it.
 *
 * A VXLAN device passes the whole frame on, and segmentation (by the kernel, if the card cannot)
 * depends on the inner ethertype. So VXLAN's headers are written here, with the same bytes, but the
 * kernel is told that all of them, including the inner Ethernet header and the header after it, are
 * tunnel headers, to be copied to each segment, and that plain IP follows:
 *
 *     Ethernet | IP | UDP | VXLAN | Ethernet | header | IP | TCP ...
 *                `- opaque, copied to each piece ----'  `- segmented
 *
 *     pack    at the far end of a half cable: super-packets into the trunk, others into the tunnel
 *     leave   at the trunk's other end, in the machine's own namespace: on to its card
 *     mend    at the tunnel: each segment has the whole packet's header, whose length is corrected
 *
 * Received packets are plain VXLAN, and handled by the kernel's device.
 */
#include <linux/pkt_cls.h>

#include "packet.h"

#define TUNNEL_PORT 14789 /* as in experiments/lab/emulation/vxlan_cables.py */
#define LONGEST (ETHERNET_SIZE + HEADER_WORDS * 4)

struct cable {
	__u32 vni, tunnel, trunk; /* tunnel, trunk: interfaces */
	__be32 local, remote;
};

struct side { /* a cable's local end: where packets from its tunnel go */
	__u32 ifindex, to_peer;
};

enum tally { PACKED, MENDED, REFUSED, TALLIES };

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u32); /* interface at the far end of the local half cable */
	__type(value, struct cable);
} cables SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, __u32); /* interface of the tunnel */
	__type(value, struct side);
} sides SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} card SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, TALLIES);
	__type(key, __u32);
	__type(value, __u64);
} tallies SEC(".maps");

static __always_inline void note(__u32 which)
{
	__u64 *count = bpf_map_lookup_elem(&tallies, &which);

	if (count)
		__sync_fetch_and_add(count, 1);
}

static __always_inline int refuse(void)
{
	note(REFUSED);
	return TC_ACT_SHOT;
}

/* -- sending ----------------------------------------------------------------------------------- */

struct outside { /* headers after Ethernet's, which is written on the card's side */
	struct ipv4 ip;
	__be16 source_port, port, udp_length, udp_checksum;
	__be32 flags, vni;
} __attribute__((packed, aligned(4)));

static __always_inline void fill(struct __sk_buff *skb, const struct cable *cable,
				 struct outside *outside)
{
	__u32 length = skb->len - ETHERNET_SIZE;

	outside->ip.version_ihl = IPV4_FIRST;
	outside->ip.total_length = bpf_htons(length);
	outside->ip.ttl = 64;
	outside->ip.protocol = UDP;
	outside->ip.source = cable->local;
	outside->ip.destination = cable->remote;
	outside->ip.checksum = ~sum((const __u32 *)&outside->ip, IPV4_SIZE);
	outside->source_port = bpf_htons(49152 | (bpf_get_hash_recalc(skb) & 0x3fff));
	outside->port = bpf_htons(TUNNEL_PORT);
	outside->udp_length = bpf_htons(length - IPV4_SIZE);
	outside->flags = bpf_htonl(1 << 27); /* VNI is valid: RFC 7348, section 5 */
	outside->vni = bpf_htonl(cable->vni << 8);
}

/* Send a super-packet with tunnel headers, which include its own header of `size` bytes. */
static __always_inline int pack_super(struct __sk_buff *skb, const struct cable *cable,
				      const int size)
{
	const __u64 inner = 8 + ETHERNET_SIZE + size, outer = IPV4_SIZE + 8 + inner;
	__u8 front[LONGEST] __attribute__((aligned(4)));
	struct outside outside = {};

	if (bpf_skb_load_bytes(skb, 0, front, ETHERNET_SIZE + size) || uncover(skb, size) ||
	    bpf_skb_adjust_room(skb, outer, BPF_ADJ_ROOM_MAC,
				BPF_F_ADJ_ROOM_ENCAP_L3_IPV4 | BPF_F_ADJ_ROOM_ENCAP_L4_UDP |
					BPF_F_ADJ_ROOM_ENCAP_L2(inner) | BPF_F_ADJ_ROOM_FIXED_GSO))
		return refuse();
	fill(skb, cable, &outside);
	if (bpf_skb_store_bytes(skb, ETHERNET_SIZE, &outside, sizeof(outside), 0) ||
	    bpf_skb_store_bytes(skb, ETHERNET_SIZE + sizeof(outside), front, ETHERNET_SIZE + size, 0))
		return refuse();
	note(PACKED);
	return bpf_redirect(cable->trunk, 0);
}

SEC("tc") int pack(struct __sk_buff *skb)
{
	__u32 here = skb->ifindex;
	const struct cable *cable = bpf_map_lookup_elem(&cables, &here);
	__u8 first, protocol;

	if (!cable || bpf_skb_load_bytes(skb, ETHERNET_SIZE, &first, 1) ||
	    bpf_skb_load_bytes(skb, ETHERNET_SIZE + 9, &protocol, 1))
		return refuse();
	if (skb->gso_size && skb->protocol == bpf_htons(ETH_DCN)) {
#define PACK(form)                                                                                 \
	if (first == form_first(form))                                                             \
		return pack_super(skb, cable, form_size(form));
		FORMS(PACK)
	}
	if (skb->gso_size && first == IPV4_FIRST && protocol == IP_IN_IP)
		return pack_super(skb, cable, IPV4_SIZE);
	return bpf_redirect(cable->tunnel, 0);
}

SEC("tc") int leave(struct __sk_buff *skb)
{
	__u32 only = 0, *to = bpf_map_lookup_elem(&card, &only);

	(void)skb;
	return to ? bpf_redirect_neigh(*to, NULL, 0, 0) : TC_ACT_SHOT;
}

/* -- receiving --------------------------------------------------------------------------------- */

/* Fix a header's length, which is the second half-word of all headers: that of the IP packet after
 * it, plus `more`. A header that was invalid stays invalid.
 */
static __always_inline void mend_header(struct __sk_buff *skb, const int size, const int more)
{
	__u32 words[HEADER_WORDS] = {};
	__be16 length, *halves = (__be16 *)words;

	if (bpf_skb_load_bytes(skb, ETHERNET_SIZE, words, size) ||
	    bpf_skb_load_bytes(skb, ETHERNET_SIZE + size + 2, &length, 2))
		return;
	length = bpf_htons(bpf_ntohs(length) + more);
	if (halves[1] == length || !is_right(words, HEADER_WORDS * 4, halves[5]))
		return;
	halves[1] = length;
	halves[5] = 0; /* the checksum, in all headers */
	halves[5] = ~sum(words, HEADER_WORDS * 4);
	if (!bpf_skb_store_bytes(skb, ETHERNET_SIZE, words, size, 0))
		note(MENDED);
}

SEC("tc") int mend(struct __sk_buff *skb)
{
	__u32 here = skb->ifindex;
	const struct side *side = bpf_map_lookup_elem(&sides, &here);
	__u8 front[10];

	if (!side)
		return refuse();
	if (!skb->gso_size && !bpf_skb_load_bytes(skb, ETHERNET_SIZE, front, sizeof(front))) {
		if (skb->protocol == bpf_htons(ETH_DCN) && front[1] == IP_IN_IP) { /* not a message */
#define MEND(form)                                                                                 \
	if (front[0] == form_first(form))                                                          \
		mend_header(skb, form_size(form), 0);
			FORMS(MEND)
		}
		if (skb->protocol == bpf_htons(ETH_IP) && front[0] == IPV4_FIRST &&
		    front[9] == IP_IN_IP)
			mend_header(skb, IPV4_SIZE, IPV4_SIZE);
	}
	return side->to_peer ? bpf_redirect_peer(side->ifindex, 0) : bpf_redirect(side->ifindex, 0);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
