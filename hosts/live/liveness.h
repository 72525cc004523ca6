/* Which neighbours live, noted and judged where no process has to be on time.
 *
 * Every heart-beat is noted in its link's entry as it comes in, and goes no further. One timer of
 * the kernel's for all servers of a lab fires when the neighbour that was heard least recently would
 * have been silent for too long. What the process that sends heart-beats (pacer.py) was late, it waits
 * longer: a machine that stood still has silenced nobody. Python is woken up (by the `bell`, which says nothing else) only
 * while the state of a link is not the one that it has taken note of; it writes down which that is,
 * so that news cannot be lost. It also asks a link to forget what it knows.
 *
 * All servers have one table of links, of which each has its part, and each has a bell of its own.
 */
#ifndef LIVENESS_H
#define LIVENESS_H

#include <linux/pkt_cls.h>

#include "packet.h"

#define UNUSED __attribute__((unused))

#define ENOENT 2
#define HEART_BEAT 0xE0
#define NOT_A_UID bpf_htonl(0x80000000)
#define SOURCE_MAC 6
#define SPREAD 0x9E3779B1 /* as liveness.py has both */
#define SPREAD_OVER 20
#define BODY_AT (ETHERNET_SIZE + sizeof(struct dcn))
#define CLOCK_MONOTONIC 1
#define MOST_LATE_NS 1000000000ULL
#define LEAST_WAIT_NS 4000000ULL /* from one look to the next, while nothing is sent */
#define PACKET_HOST 0
#define PAST_SHAPERS (0x5 << 16) /* as devices.py has it */
#define LONGEST_ANSWER 252
#define LEAST_APART_NS 10000000 /* heart-beats that are answered: who floods is not */

enum state { SILENT = 0, HEARD = 1, HEARS_ME = 2 };

/* liveness.py reads and writes these where they are. */
struct link {
	__u64 heard_ns;	     /* when the last heart-beat came */
	__u64 not_before_ns; /* Python's: earlier ones were under way before its cable was cut */
	__be32 uid;	     /* of the neighbour */
	__u32 state, told;   /* as it is, and as Python knows it */
	__u32 heart_beats;   /* that came */
	__u32 mac[2];	     /* of the neighbour's port, from which they come, behind two zeros */
	__u32 ifindex;	     /* of this server's port; 0 where no link is */
	__be32 own_uid;	     /* this server's */
	__u32 segment;	     /* the pacer's: where among `vouched` this link's is; 0 for none */
	__u32 unused[3];     /* so that a link is what a processor gets from memory at once */
};

/* What a server's port sends when a heart-beat to it alone comes by a link: the pacer's, so that
 * heart-beats go round (pacer.py). Nothing if its size is not that of what came.
 */
struct answer {
	__u32 size;
	__u8 frame[LONGEST_ANSWER];
};

struct watch {
	struct bpf_timer timer;
	__u64 timeout_ns;
	__u32 links, of_each; /* of all servers; of one, whose links are one behind the other */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct link);
} links SEC(".maps");

/* When all links of a segment were heard: the pacer's, who saw a part of them that shows it. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, __u64);
} vouched SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct answer);
} answers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct watch);
} watches SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(
		values, struct {
			__uint(type, BPF_MAP_TYPE_RINGBUF);
			__uint(max_entries, 4096);
		});
} bells SEC(".maps");

/* Up to when the pacer has sent what was due (pacer.py writes it); 0 where none tells. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, __u64);
} paced SEC(".maps");

static __always_inline void ring(__u32 server, __u64 now)
{
	void *bell = bpf_map_lookup_elem(&bells, &server);

	if (bell)
		bpf_ringbuf_output(bell, &now, sizeof(now), BPF_RB_FORCE_WAKEUP);
}

/* -- hearing ----------------------------------------------------------------------------------- */

struct body {
	struct __sk_buff *skb;
	__be32 uid; /* looked for */
	__u32 count, found, broken;
	__u64 total;
};

static long look_at(__u32 i, struct body *body)
{
	__be32 uid = 0;

	body->broken |= load(body->skb, BODY_AT + 4 + 4 * (i & 0xff), &uid, sizeof(uid)) ||
			uid & NOT_A_UID;
	body->total += uid;
	body->found |= uid == body->uid;
	return 0;
}

/* Find this server among those that the sender hears; -1 if the body is not as it must be. */
static __always_inline int finds(struct __sk_buff *skb, const struct dcn *header, __be32 uid)
{
	struct {
		__u8 port, count;
		__u16 checksum;
	} head;
	struct body body = {.skb = skb, .uid = uid};

	if (load(skb, BODY_AT, &head, sizeof(head)) ||
	    bpf_ntohs(header->payload_length) != 4 + 4 * head.count)
		return -1;
	body.total = *(__u16 *)&head;
	bpf_loop(head.count, look_at, &body, 0);
	return !body.broken && head.checksum == (__u16)~fold(body.total) ? body.found : -1;
}

struct search {
	__u32 first, mask, begin; /* of the server's places, and of the search in it */
	__u32 ifindex, mac[2];
	__u32 number; /* of what was found */
	struct link *found;
};

static long look_for(__u32 i, struct search *search)
{
	__u32 number = search->first + ((search->begin + i) & search->mask);
	struct link *link = bpf_map_lookup_elem(&links, &number);

	if (!link || link->ifindex != search->ifindex || link->mac[0] != search->mac[0] ||
	    link->mac[1] != search->mac[1])
		return 0;
	search->number = number;
	search->found = link;
	return 1;
}

/* Find the link by which a frame came. The places of a server's links are a hash table, which
 * liveness.py fills: mostly the first look finds it, and all it takes out of memory is the link.
 */
static __always_inline struct link *came_by(struct __sk_buff *skb, __u32 *number)
{
	__u32 room = skb->cb[ROOM];
	struct search search = {
		.first = skb->cb[SERVER] * room, .mask = room - 1, .ifindex = skb->ifindex};

	if (load(skb, SOURCE_MAC - 2, search.mac, sizeof(search.mac)))
		return NULL;
	*(__u16 *)search.mac = 0;
	search.begin = bpf_ntohl(search.mac[1]) * SPREAD >> SPREAD_OVER;
	bpf_loop(room, look_for, &search, 0);
	*number = search.number;
	return search.found;
}

/* Send the answer to a heart-beat in its place. */
static __always_inline int answer(struct __sk_buff *skb, __u32 number)
{
	struct answer *answer = bpf_map_lookup_elem(&answers, &number);
	__u64 size = skb->len;

	if (!answer || answer->size != size || size > LONGEST_ANSWER)
		return TC_ACT_SHOT;
	/* Or clang joins both bounds, and Linux 6.12 finds neither. 6.1 learns nothing from `!size`. */
	barrier_var(size);
	if (size < ETHERNET_SIZE || bpf_skb_store_bytes(skb, 0, answer->frame, size, 0))
		return TC_ACT_SHOT;
	skb->priority = PAST_SHAPERS;
	return bpf_redirect(skb->ifindex, 0);
}

/* Note a heart-beat; return what becomes of the frame: TC_ACT_UNSPEC if Python has to see it. */
static __always_inline int note(struct __sk_buff *skb, const struct dcn *header)
{
	__u64 now = bpf_ktime_get_ns();
	__s64 apart_ns;
	__u32 number = 0;
	struct link *link;
	int hears_me;

	if (header->retry_flags & 0x0f || header->source & NOT_A_UID ||
	    !is_right((const __u32 *)header, sizeof(struct dcn), header->checksum))
		return TC_ACT_UNSPEC;
	link = came_by(skb, &number);
	if (!link || link->uid != header->source)
		return TC_ACT_UNSPEC; /* Python refuses it, and counts that */
	hears_me = finds(skb, header, link->own_uid);
	if (hears_me < 0)
		return TC_ACT_UNSPEC;
	__sync_fetch_and_add(&link->heart_beats, 1);
	if (now < link->not_before_ns)
		return TC_ACT_SHOT;
	apart_ns = now - link->heard_ns;
	link->heard_ns = now;
	link->state = HEARD | (hears_me ? HEARS_ME : 0);
	if (link->state != link->told)
		ring(skb->cb[SERVER], now);
	else if (hears_me && skb->pkt_type == PACKET_HOST && apart_ns > LEAST_APART_NS)
		return answer(skb, number);
	return TC_ACT_SHOT;
}

/* -- silence ----------------------------------------------------------------------------------- */

struct round {
	__u64 now, timeout_ns, next_ns; /* the next of them all to be silent */
	__u32 of_each;
};

static long look(__u32 number, struct round *round)
{
	struct link *link = bpf_map_lookup_elem(&links, &number);
	__u64 lived_ns, silent_ns, *vouched_ns;

	if (!link)
		return 1;
	lived_ns = link->heard_ns;
	vouched_ns = bpf_map_lookup_elem(&vouched, &link->segment);
	if (vouched_ns && *vouched_ns > lived_ns)
		lived_ns = *vouched_ns;
	silent_ns = lived_ns + round->timeout_ns;
	if (link->state && silent_ns <= round->now)
		link->state = SILENT;
	if (link->state && silent_ns < round->next_ns)
		round->next_ns = silent_ns;
	if (link->state != link->told && round->of_each)
		ring(number / round->of_each, round->now);
	return 0;
}

/* The time by which to judge: nobody is silent who could not be heard yet, as the pacer is late. */
static __always_inline __u64 senders_time(__u64 now)
{
	__u32 first = 0;
	__u64 *paced_ns = bpf_map_lookup_elem(&paced, &first);
	__u64 to_ns = paced_ns ? *paced_ns : 0;

	if (!to_ns || to_ns > now)
		return now;
	return to_ns + MOST_LATE_NS < now ? now - MOST_LATE_NS : to_ns;
}

static int look_round(void *map UNUSED, __u32 *first UNUSED, struct watch *all)
{
	__u64 now = senders_time(bpf_ktime_get_ns()), wait_ns;
	struct round round = {now, all->timeout_ns, now + all->timeout_ns, all->of_each};

	bpf_loop(all->links, look, &round, 0);
	wait_ns = round.next_ns - now;
	bpf_timer_start(&all->timer, wait_ns > LEAST_WAIT_NS ? wait_ns : LEAST_WAIT_NS, 0);
	return 0;
}

/* Python runs this once, when it has written what is to be watched; it returns an errno. */
SEC("syscall") int begin(void *nothing UNUSED)
{
	__u32 first = 0;
	struct watch *all = bpf_map_lookup_elem(&watches, &first);
	long error = all ? bpf_timer_init(&all->timer, &watches, CLOCK_MONOTONIC) : -ENOENT;

	if (error)
		return -error;
	bpf_timer_set_callback(&all->timer, look_round);
	return -bpf_timer_start(&all->timer, all->timeout_ns, 0);
}

#endif
