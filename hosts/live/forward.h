/* What Python and the kernel agree on (kernel_table.py packs it), and headers as they are on the
 * wire: of IP here, the others in generated.h, which generated.py writes from their declarations.
 * Numbers of the network's byte order have the type __be.
 */
#ifndef FORWARD_H
#define FORWARD_H

#include <linux/types.h>

#include <bpf/bpf_endian.h>

#include "generated.h"

#define ETHERNET_SIZE 14
#define IPV4_SIZE 20

/* -- keys ------------------------------------------------------------------------------------- */

struct flow {
	__be32 source, destination;
	__be16 source_port, destination_port;
	__be32 protocol;
};

enum relay_kind { BY_DESTINATION = 1, BY_FLOW, BY_TUNNEL }; /* from 4 on: headers, see key_of */

struct relay {
	union {
		struct flow flow; /* the longest first: an initializer clears this one */
		struct {
			__be32 direction, outer_destination, destination; /* none depends on a source */
		} tunnel;
		__be32 header[4];   /* the values of a header's key */
		__be32 destination; /* BY_DESTINATION: an address */
	};
	__u32 ifindex; /* by which it came, 0 where that makes no difference */
	__u32 kind;
};

/* -- decisions -------------------------------------------------------------------------------- */

enum action_kind { SEND = 1, DELIVER, UNWRAP };

struct action {
	__u32 generation, ifindex;
	__u16 macs[6]; /* destination, source */
	__u8 kind;
	__u8 header_size; /* as the packet goes on; 0 for plain IP, and for relays that rewrite nothing */
	__u8 at_times;	  /* what is counted at this hop beside what every hop counts: see count_hop */
	__u8 unused;
	__u64 packets, bytes;	    /* for which it was used */
	__u32 header[HEADER_WORDS]; /* zeros behind its end; of relays only what they set: see rewrite */
};

enum table { OWN_FLOWS, RELAYED };

struct config {
	__u32 generations[2]; /* of the tables: decisions of another one do not count any more */
	__u32 by_flow;	  /* plain IP is relayed by flow, else by destination */
	__u32 sees_connections; /* what opens a TCP connection goes to Python */
	__u32 rests; /* Python does, and is to know when anything is forwarded again */
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
	DROP_OVER_BUDGET, /* see budget.h */
	DROP_MESSAGES_OVER_BUDGET,
	DROP_HEADER_NOT_WRITABLE,
	DROP_HEADER_NOT_REMOVABLE,
	COUNTERS,
};

struct counters {
	__u64 of[COUNTERS];
	enum counter named[0]; /* nothing, but so the names are in the object file */
};

/* -- headers ---------------------------------------------------------------------------------- */

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
		union header header; /* any of them */
		struct dcn dcn;
		struct ipv4 ipv4;
	};
};

_Static_assert(sizeof(struct relay) == 24, "kernel_table.py packs the key");
_Static_assert(sizeof(struct action) == 40 + (HEADER_WORDS + 1) / 2 * 8, "and the action");
_Static_assert(sizeof(struct front) == 2 + ETHERNET_SIZE + HEADER_WORDS * 4, "there are no holes");

#endif
