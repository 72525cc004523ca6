/* Records heartbeats if Python forwards packets (see liveness.h); passes all other frames on. */
#include "liveness.h"

SEC("tc") int port_in(struct __sk_buff *skb)
{
	struct dcn header;

	if (skb->protocol != bpf_htons(ETH_DCN) || skb->vlan_present ||
	    load(skb, ETHERNET_SIZE, &header, sizeof(struct dcn)) ||
	    header.version_dhl != form_first(DCN_FORM) || header.protocol != HEARTBEAT)
		return TC_ACT_UNSPEC;
	return note(skb, &header);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
