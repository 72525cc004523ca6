/* Log of TCP packets with the times at which servers and switches send and receive them.
 *
 * The program runs before all others at an interface, changes no packet and drops none. Python
 * attaches it with the number of the link that a packet has just passed, or NO_LINK at the interface
 * by which programs send, and reads the log after the traffic has ended.
 */
#include <linux/pkt_cls.h>

#include "packet.h"

struct sighting {
	__u64 at_ns; /* CLOCK_MONOTONIC */
	__u32 link;
	__be32 source, destination;
	__be16 source_port, destination_port;
	__be32 sequence, acknowledged;
	__be16 identification; /* of the IP header */
	__u16 payload;	       /* bytes of data */
	__u32 bytes;	       /* of the frame, or of the super-packet */
};

struct tcp {
	__be16 source_port, destination_port;
	__be32 sequence, acknowledged;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sighting);
} sightings SEC(".maps");

/* Number of packets seen so far: more than the log has entries if it is full. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} seen SEC(".maps");

/* Log a packet whose IP header is at an offset. */
static __always_inline int record(struct __sk_buff *skb, __u32 at, const struct ipv4 *ip)
{
	__u32 zero = 0, place, length = bpf_ntohs(ip->total_length);
	__u64 *count = bpf_map_lookup_elem(&seen, &zero);
	struct sighting *made;
	struct tcp tcp;
	__u8 offset;

	if (ip->protocol != TCP || load(skb, at + IPV4_SIZE, &tcp, sizeof(tcp)) ||
	    load(skb, at + IPV4_SIZE + TCP_FLAGS_AT - 1, &offset, sizeof(offset)) || !count)
		return TC_ACT_UNSPEC;
	place = __sync_fetch_and_add(count, 1);
	made = bpf_map_lookup_elem(&sightings, &place);
	if (!made)
		return TC_ACT_UNSPEC;
	made->at_ns = bpf_ktime_get_ns();
	made->link = skb->cb[SERVER];
	made->source = ip->source;
	made->destination = ip->destination;
	made->source_port = tcp.source_port;
	made->destination_port = tcp.destination_port;
	made->sequence = tcp.sequence;
	made->acknowledged = tcp.acknowledged;
	made->identification = ip->identification;
	made->payload = length - IPV4_SIZE - (offset >> 4) * 4;
	made->bytes = skb->len;
	return TC_ACT_UNSPEC;
}

/* Packets at an interface without Ethernet headers. */
SEC("tc") int log_ip(struct __sk_buff *skb)
{
	struct ipv4 ip;

	if (load(skb, 0, &ip, sizeof(ip)))
		return TC_ACT_UNSPEC;
	return record(skb, 0, &ip);
}

/* Packets at an interface with Ethernet headers, below any header of a server. */
SEC("tc") int log_frame(struct __sk_buff *skb)
{
	int is_dcn = skb->protocol == bpf_htons(ETH_DCN), is_ip = skb->protocol == bpf_htons(ETH_IP);
	__u32 at = ETHERNET_SIZE;
	struct ipv4 ip;
	__u8 first;

	if ((!is_dcn && !is_ip) || load(skb, at, &first, sizeof(first)))
		return TC_ACT_UNSPEC;
	if (is_dcn) {
#define SKIP(form)                                                                                 \
	if (first == form_first(form))                                                             \
		at = ETHERNET_SIZE + form_size(form);
		FORMS(SKIP)
	}
	if (load(skb, at, &ip, sizeof(ip)))
		return TC_ACT_UNSPEC;
	if (ip.protocol == IP_IN_IP) {
		at += IPV4_SIZE;
		if (load(skb, at, &ip, sizeof(ip)))
			return TC_ACT_UNSPEC;
	}
	return record(skb, at, &ip);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
