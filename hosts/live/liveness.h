/* Liveness of neighbours, recorded and evaluated in the kernel: no process has to be on time.
 *
 * Every heartbeat is recorded in its link's entry on arrival, and goes no further. One timer for
 * all servers of a lab fires when the neighbour that was heard least recently would time out.
 * The timeout is extended by the lag of the process that sends heartbeats (heartbeat_pacer.py): a machine
 * that stood still has silenced no neighbour. Python is woken up by the `bell`, which carries no
 * data, only while the state of a link differs from the state that Python has processed; Python
 * writes the processed state, so that no change is lost. It also resets links to silent.
 *
 * All servers share one table of links, in which each has a range; each server has its own bell.
 */
#ifndef LIVENESS_H
#define LIVENESS_H

#include <linux/pkt_cls.h>

#include "packet.h"

#define UNUSED __attribute__((unused))

#define ENOENT 2
#define HEARTBEAT 0xE0
#define NOT_A_UID bpf_htonl(0x80000000)
#define SOURCE_MAC 6
#define SPREAD 0x9E3779B1 /* both as in liveness.py */
#define SPREAD_OVER 20
#define BODY_AT (ETHERNET_SIZE + sizeof(struct dcn))
#define CLOCK_MONOTONIC 1
#define MOST_LATE_NS 1000000000ULL
#define LEAST_WAIT_NS 4000000ULL /* between two checks, while nothing is sent */
#define PACKET_HOST 0
#define PAST_SHAPERS (0x5 << 16) /* as in devices.py */
#define LONGEST_ANSWER 252
#define LEAST_APART_NS 10000000 /* minimum between answered heartbeats: floods get no answers */

enum state { SILENT = 0, HEARD = 1, HEARS_ME = 2 };

/* An entry that the kernel and liveness.py share in memory. */
struct link {
	__u64 heard_ns;	     /* arrival time of the last heartbeat */
	__u64 not_before_ns; /* set by Python: earlier heartbeats predate the link's failure */
	__be32 uid;	     /* neighbour's address */
	__u32 state, told;   /* current state, and the state processed by Python */
	__u32 heartbeats;   /* number received */
	__u32 mac[2];	     /* MAC address of the neighbour's port, after two zero bytes */
	__u32 ifindex;	     /* this server's port; 0 for an empty entry */
	__be32 own_uid;	     /* this server's address */
	__u32 segment;	     /* set by the pacer: this link's index in `vouched`, 0 for none */
	__u32 unused[3];     /* pads a link to a cache line */
};

/* The frame that a server's port sends in response to a unicast heartbeat received by a link: set
 * by the pacer, so that heartbeats go round (heartbeat_pacer.py). Not sent if its size differs from that of
 * the received frame.
 */
struct answer {
	__u32 size;
	__u8 frame[LONGEST_ANSWER];
};

struct watch {
	struct bpf_timer timer;
	__u64 timeout_ns;
	__u32 links, of_each; /* entries in total; consecutive entries per server */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct link);
} links SEC(".maps");

/* When all links of a segment were heard: set by the pacer, which checks a sufficient subset. */
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

/* Time up to which the pacer has sent all due heartbeats (set by heartbeat_pacer.py); 0 without a pacer. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, __u64);
} paced SEC(".maps");

/* Wake up a server's process, unless it has not read an earlier event yet: the bell stays readable
 * until `disable_events`, after which the process reads all states. On a busy machine a process that
 * waits for a processor is then not woken up again and again.
 */
static __always_inline void ring(__u32 server, __u64 now)
{
	void *bell = bpf_map_lookup_elem(&bells, &server);

	if (bell)
		bpf_ringbuf_output(bell, &now, sizeof(now), 0);
}

/* -- received heartbeats ---------------------------------------------------------------------- */

struct body {
	struct __sk_buff *skb;
	__be32 uid; /* address to find */
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

/* Return 1 if the heartbeat names this server as heard, 0 if not, -1 if its body is invalid. */
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
	__u32 first, mask, begin; /* the server's range, its size - 1, and the start */
	__u32 ifindex, mac[2];
	__u32 number; /* entry number of the found link */
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

/* Find the link by which a frame came. A server's range of links is a hash table, filled by
 * liveness.py: the first probe almost always succeeds, so only one link is fetched from memory.
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

/* Send the response to a heartbeat, reusing the received frame. */
static __always_inline int answer(struct __sk_buff *skb, __u32 number)
{
	struct answer *answer = bpf_map_lookup_elem(&answers, &number);
	__u64 size = skb->len;

	if (!answer || answer->size != size || size > LONGEST_ANSWER)
		return TC_ACT_SHOT;
	/* Otherwise clang merges both bounds, and Linux 6.12 sees neither. 6.1 ignores `!size`. */
	barrier_var(size);
	if (size < ETHERNET_SIZE || bpf_skb_store_bytes(skb, 0, answer->frame, size, 0))
		return TC_ACT_SHOT;
	skb->priority = PAST_SHAPERS;
	return bpf_redirect(skb->ifindex, 0);
}

/* Record a heartbeat; return the verdict on the frame: TC_ACT_UNSPEC if Python has to see it. */
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
		return TC_ACT_UNSPEC; /* Python rejects and counts it */
	hears_me = finds(skb, header, link->own_uid);
	if (hears_me < 0)
		return TC_ACT_UNSPEC;
	__sync_fetch_and_add(&link->heartbeats, 1);
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

/* -- detection of silent neighbours ------------------------------------------------------------ */

struct round {
	__u64 now, timeout_ns, next_ns; /* next_ns: earliest next timeout of all links */
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

/* The time for evaluation, less the pacer's lag: heartbeats not sent yet are not missing. */
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

/* Python runs this once, when `watches` is filled; it returns an errno. */
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
