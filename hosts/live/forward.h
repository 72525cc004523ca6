/* What Python and the kernel agree on (kernel_table.py packs it), and headers as they are on the
 * wire: hosts/wire declares them. Numbers of the network's byte order have the type __be.
 */
#ifndef FORWARD_H
#define FORWARD_H

#include <linux/types.h>

#define ETHERNET_SIZE 14
#define IPV4_SIZE 20
#define PLAIN_SIZE 20
#define PROXIED_SIZE 24
#define BCUBE_SIZE 36
#define MOST_HOPS 8
#define HEADER_WORDS (BCUBE_SIZE / 4) /* the largest header */

/* -- keys ------------------------------------------------------------------------------------- */

struct flow {
	__be32 source, destination;
	__be16 source_port, destination_port;
	__be32 protocol;
};

enum relay_kind { BY_DCN = 1, BY_HOP, BY_END, BY_DESTINATION, BY_FLOW, BY_TUNNEL };

struct relay {
	union {
		struct flow flow; /* the longest first: an initializer clears this one */
		struct {
			__be32 outer_source, outer_destination, source, destination;
		} tunnel;
		struct {
			__be32 destination, proxy, proxied;
		} dcn;
		__be32 nha;	    /* BY_HOP */
		__be32 destination; /* BY_END: a uid; BY_DESTINATION: an address */
	};
	__u32 ifindex; /* by which it came, 0 where that makes no difference */
	__u32 kind;
};

/* -- decisions -------------------------------------------------------------------------------- */

enum action_kind { SEND = 1, DELIVER, UNWRAP };
enum proxy_change { KEEP, SET, CLEAR };

struct action {
	__u32 generation, ifindex;
	__u16 macs[6]; /* destination, source */
	__u8 kind;
	__u8 header_size; /* of flows: 0 for plain IP */
	__u8 proxy_change;
	__u8 rerouted; /* the hop costs one retry */
	__be32 proxy;
	__u32 header[HEADER_WORDS]; /* of flows; zeros behind its end */
	__u64 packets, bytes; /* for which it was used */
};

enum table { OWN_FLOWS, RELAYED };

struct config {
	__u32 generations[2]; /* of the tables: decisions of another one do not count any more */
	__u32 by_flow;	  /* plain IP is relayed by flow, else by destination */
	__u32 sees_connections; /* what opens a TCP connection goes to Python */
};

/* What became of packets. Python reads the names: DONE_ was forwarded here, SLOW_ goes on to
 * Python, DROP_ is lost.
 */
enum counter {
	DONE_PUSHED,
	DONE_RELAYED,
	DONE_UNWRAPPED,
	DONE_DELIVERED,
	DONE_HEARD, /* heart-beats: see liveness.h */
	SLOW_UNDECIDED,
	SLOW_OUTDATED,
	SLOW_CONTROL,
	SLOW_NOT_PLAIN_DATA,
	SLOW_TTL_OR_RETRIES_USED_UP,
	SLOW_NO_ROOM_FOR_THE_HEADER,
	SLOW_SUPER_PACKET_OTHER_THAN_TCP,
	DROP_FOR_ANOTHER_MAC,
	DROP_HEADER_NOT_WRITABLE,
	DROP_HEADER_NOT_REMOVABLE,
	COUNTERS,
};

/* -- headers ---------------------------------------------------------------------------------- */

struct dcn {
	__u8 version_dhl, protocol;
	__be16 payload_length;
	__be32 identification;
	__u8 retry_flags, ttl;
	__u16 checksum;
	__be32 source, destination;
	__be32 proxy; /* with PROXY_FLAG only */
};

struct bcube {
	struct {
		__u8 version_dhl, protocol;
		__be16 payload_length;
		__be32 identification;
		__u8 retry_flags, ttl;
		__u16 checksum;
		__be32 source, destination;
	};
	__u8 path_length, next_hop;
	__be16 reserved;
	__u8 nhas[MOST_HOPS];
	__be32 reserved_too;
};

struct ipv4 {
	__u8 version_ihl, tos;
	__be16 total_length, identification, fragment;
	__u8 ttl, protocol;
	__u16 checksum;
	__be32 source, destination;
};

/* What stands in front of a frame: it is loaded, changed and stored as one piece. */
struct front {
	__u16 unused; /* so that the header is aligned */
	__u16 macs[6];
	__be16 ethertype;
	union {
		__u32 words[HEADER_WORDS];
		struct dcn dcn;
		struct bcube bcube;
		struct ipv4 ipv4;
	};
};

_Static_assert(sizeof(struct relay) == 24, "kernel_table.py packs the key");
_Static_assert(sizeof(struct action) == 80, "kernel_table.py packs the action");
_Static_assert(sizeof(struct bcube) == BCUBE_SIZE, "the header has no holes");
_Static_assert(sizeof(struct front) == 2 + ETHERNET_SIZE + BCUBE_SIZE, "nor has what is before it");

#endif
