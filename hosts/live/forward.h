/* Data structures shared by Python and the kernel (kernel_table.py packs them), and headers as on
 * the wire: IP's here, others in generated.h, which generated.py writes from their declarations.
 * Numbers in network byte order have the type __be.
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
	__be32 protocol; /* and, from bit 8 on, the number of a sprayed flow's path: see its_turn */
};

enum relay_kind { BY_DESTINATION = 1, BY_FLOW, BY_TUNNEL }; /* headers follow from 4, see key_of */

struct relay {
	union {
		struct flow flow; /* longest member first: an initializer clears it */
		struct {
			__be32 direction, outer_destination, destination;
		} tunnel;
		__be32 header[4];   /* values of a header's key fields */
		__be32 destination; /* BY_DESTINATION: IP address */
	};
	__u32 ifindex; /* arrival interface, 0 if any */
	__u32 kind;
};

/* -- decisions -------------------------------------------------------------------------------- */

enum action_kind { SEND = 1, DELIVER, UNWRAP };

struct action {
	__u32 generation, ifindex;
	__u16 macs[6]; /* destination, source */
	__u8 kind;
	__u8 header_size; /* when sent; 0 for plain IP, and for relays that rewrite nothing */
	union {
		__u8 at_times; /* of relays: fields counted at this hop only, see count_hop */
		struct { /* of sprayed flows: number of the path in turn, and of all; see its_turn */
			__u8 turn : 4, paths : 4;
		};
	};
	__u8 left; /* of sprayed flows: segments until the turn of the next path */
	__u64 packets, bytes;	    /* use counters */
	__u32 header[HEADER_WORDS]; /* zero-padded; of relays the fields they set: see rewrite */
};

enum table { OWN_FLOWS, RELAYED };

struct config {
	__u32 generations[2]; /* per table: decisions of another generation are invalid */
	__u32 by_flow;	  /* plain IP is relayed by flow, else by destination */
	__u32 sees_connections; /* SYNs are passed to Python */
	__u32 rests; /* Python is at rest: ring its bell at the next packet */
};

/* Packet counters. Python reads their names: DONE_ was forwarded here, SLOW_ was passed to Python,
 * DROP_ was dropped.
 */
enum counter {
	DONE_PUSHED,
	DONE_RELAYED,
	DONE_UNWRAPPED,
	DONE_DELIVERED,
	DONE_HEARD, /* heartbeats: see liveness.h */
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
	enum counter named[0]; /* empty; puts the names into the object file */
};

/* -- headers ---------------------------------------------------------------------------------- */

struct ipv4 {
	__u8 version_ihl, tos;
	__be16 total_length, identification, fragment;
	__u8 ttl, protocol;
	__u16 checksum;
	__be32 source, destination;
};

/* The first bytes of a frame: loaded, changed and stored as one piece. */
struct front {
	__u16 unused; /* aligns the header */
	__u16 macs[6];
	__be16 ethertype;
	union {
		__u32 words[HEADER_WORDS];
		union header header; /* any declared header */
		struct dcn dcn;
		struct ipv4 ipv4;
	};
};

_Static_assert(sizeof(struct relay) == 24, "kernel_table.py packs the key");
_Static_assert(sizeof(struct action) == 40 + (HEADER_WORDS + 1) / 2 * 8, "and the action");
_Static_assert(sizeof(struct front) == 2 + ETHERNET_SIZE + HEADER_WORDS * 4, "there are no holes");

#endif
