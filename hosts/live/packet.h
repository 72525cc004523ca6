/* Reading and rewriting packets with eBPF helpers, without any decisions. */
#ifndef PACKET_H
#define PACKET_H

#include <linux/bpf.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "forward.h"

/* Words of cb[] with the server's number, and with the size of its range of links (lab_programs.py). */
#define SERVER 0
#define ROOM 1

#define ETH_IP 0x0800
#define ETH_VLAN 0x8100
#define ETH_DCN 0x88B5
#define PACKET_OTHERHOST 3

#define TRACED 0xfc /* type of service: DSCP 63, for local use (RFC 2474) */
#define SYN 0x02
#define TCP_FLAGS_AT 13

#define NIC_BIT 1 /* direction of a tunnel, in its source address: hosts/wire/ipv4.py */
#define IPV4_FIRST 0x45 /* version 4, no options */

#define ICMP 1
#define IP_IN_IP 4
#define TCP 6
#define UDP 17
#define PROBE_MARK 253	   /* protocol of traced packets */
#define FIRST_MESSAGE 0xE0 /* control messages: up to 0xEF */
#define DONT_FRAGMENT bpf_htons(0x4000)
#define IS_FRAGMENT bpf_htons(0x3FFF)
#define FRAGMENT_OFFSET bpf_htons(0x1FFF)

/* -- headers ----------------------------------------------------------------------------------- */

static __always_inline __u16 fold(__u64 total)
{
	total = (total & 0xffffffff) + (total >> 32);
	total = (total & 0xffff) + (total >> 16);
	total = (total & 0xffff) + (total >> 16);
	return (total & 0xffff) + (total >> 16);
}

/* Return the one's complement sum over a header's buffer, which is padded with zeros. */
static __always_inline __u16 sum(const __u32 *words, int size)
{
	__u64 total = 0;

#pragma unroll
	for (int i = 0; i < size / 4; i++)
		total += words[i];
	return fold(total);
}

/* Return 1 if a checksum is correct; of the two forms of zero, only hosts/wire's is. */
static __always_inline int is_right(const __u32 *words, int size, __u16 checksum)
{
	return sum(words, size) == 0xffff && checksum != 0xffff;
}

static __always_inline void set_checksum(union header *header, const int form)
{
	__u16 *checksum = checksum_of(header, form);

	*checksum = 0;
	*checksum = ~sum(header->words, HEADER_WORDS * 4);
}

/* Return 1 for packets that Python must see: control messages and traced packets. */
static __always_inline int is_control(__u8 tos, __u8 protocol)
{
	return tos == TRACED || protocol == PROBE_MARK || (protocol & 0xf0) == FIRST_MESSAGE;
}

/* Copy `size` (a constant) bytes at an offset of a packet. Headers are almost always in the
 * packet's linear part, where they are read without a call; the helper reads all others.
 */
static __always_inline int load(struct __sk_buff *skb, __u32 at, void *to, const __u32 size)
{
	void *from = (void *)(long)skb->data + at;

	if (from + size > (void *)(long)skb->data_end)
		return bpf_skb_load_bytes(skb, at, to, size);
#pragma unroll
	for (__u32 i = 0; i < size / 4; i++) /* whole words, or a single byte */
		((__u32 *)to)[i] = ((__u32 *)from)[i];
	if (size == 1)
		*(__u8 *)to = *(__u8 *)from;
	return 0;
}

/* Write the Ethernet header, and `size` bytes after it. */
static __always_inline int store(struct __sk_buff *skb, const struct front *front, __u32 size)
{
	__u16 *to = (void *)(long)skb->data;
	__u32 *behind = (void *)to + ETHERNET_SIZE;

	if ((void *)behind + HEADER_WORDS * 4 > (void *)(long)skb->data_end) {
		size += ETHERNET_SIZE;
		barrier_var(size); /* or clang 19 removes a check that the verifier needs */
		if (size < ETHERNET_SIZE || size > ETHERNET_SIZE + HEADER_WORDS * 4)
			return -1;
		return bpf_skb_store_bytes(skb, 0, front->macs, size, 0);
	}
#pragma unroll
	for (int i = 0; i < ETHERNET_SIZE / 2; i++)
		to[i] = front->macs[i];
#pragma unroll
	for (__u32 i = 0; i < HEADER_WORDS; i++)
		if (i < size / 4)
			behind[i] = front->words[i];
	return 0;
}

/* Return 1 if an IPv4 header is valid, without options, and its packet is complete. */
static __always_inline int is_plain(const struct ipv4 *ip, __u32 room)
{
	__u32 length = bpf_ntohs(ip->total_length);

	return ip->version_ihl == IPV4_FIRST && length >= IPV4_SIZE && length <= room &&
	       is_right((const __u32 *)ip, IPV4_SIZE, ip->checksum);
}

static __always_inline void lower_ttl(struct ipv4 *ip)
{
	ip->ttl--;
	ip->checksum = 0;
	ip->checksum = ~sum((const __u32 *)ip, IPV4_SIZE);
}

/* Find the flow of a packet, whose ports are at offset `at`, as hosts/wire/ipv4.py does. */
static __always_inline int find_flow(struct __sk_buff *skb, const struct ipv4 *ip, __u32 at,
				     struct flow *flow)
{
	__be16 ports[4] __attribute__((aligned(4))) = {};
	__u8 protocol = ip->protocol;

	flow->source = ip->source;
	flow->destination = ip->destination;
	flow->protocol = bpf_htonl(protocol);
	if (ip->fragment & FRAGMENT_OFFSET || (protocol != TCP && protocol != UDP && protocol != ICMP))
		return 0;
	if (bpf_ntohs(ip->total_length) < IPV4_SIZE + sizeof(ports) ||
	    load(skb, at, ports, sizeof(ports)))
		return -1;
	if (protocol == ICMP) {
		__u8 type = *(__u8 *)ports;
		__be16 identifier = type == 0 || type == 8 ? ports[2] : 0;

		ports[0] = ports[1] = identifier;
	}
	flow->source_port = ports[0];
	flow->destination_port = ports[1];
	return 0;
}

/* Return 1 for a TCP SYN: the router may then select a new path. */
static __always_inline int opens_connection(struct __sk_buff *skb, const struct ipv4 *ip, __u32 at)
{
	__u8 flags;

	return ip->protocol == TCP && !(ip->fragment & FRAGMENT_OFFSET) &&
	       !load(skb, at + TCP_FLAGS_AT, &flags, sizeof(flags)) && flags & SYN;
}

/* -- adding and removing headers --------------------------------------------------------------- */

/* Set the frame's ethertype, and remove `words` words after it, whose content is lost.
 *
 * No helper does either. But the kernel reads the ethertype again whenever it removes a VLAN tag
 * stored inside the packet, and such a tag is one word: so push two tags (the outer one is stored
 * outside the packet), make the words look like further tags, and pop all of them.
 */
static __always_inline int retype(struct __sk_buff *skb, __be16 ethertype, const int words)
{
	__be16 tags[] = {bpf_htons(ETH_VLAN), bpf_htons(1), ethertype};
	__be16 *stored = tags + (words ? 0 : 2);

	return bpf_skb_vlan_push(skb, tags[0], 1) || bpf_skb_vlan_push(skb, tags[0], 1) ||
	       bpf_skb_store_bytes(skb, ETHERNET_SIZE + 2, stored, words ? 6 : 2, 0) ||
	       bpf_skb_vlan_pop(skb) || bpf_skb_vlan_pop(skb) || (words && bpf_skb_vlan_pop(skb));
}

/* Remove a header after the Ethernet header, with IP's ethertype set first, as the helper requires.
 * The helper also marks super-packets for a check when they are sent, which only IP passes.
 */
static __always_inline int uncover(struct __sk_buff *skb, int bytes)
{
	if (skb->protocol != bpf_htons(ETH_IP) && retype(skb, bpf_htons(ETH_IP), 0))
		return -1;
	return bpf_skb_adjust_room(skb, -bytes, BPF_ADJ_ROOM_MAC, BPF_F_ADJ_ROOM_FIXED_GSO);
}

/* Add room at the front of the frame, to be filled by a following store. */
static __always_inline int grow(struct __sk_buff *skb, int bytes)
{
	return bpf_skb_change_head(skb, bytes, 0);
}

#endif
