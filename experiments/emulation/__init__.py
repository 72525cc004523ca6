"""Networks that really run: namespaces, bridges and cables made in batches, and their faults.

`lab_network` makes a Mininet network from a topology; `nodes` has its hosts, switches and links,
which also serve Mininet itself; `shaping` its rates, delays and losses; `active_faults` cuts and
stops its parts. `sandbox` lets nothing outlive a lab; where a lab cannot have that, `sweep` finds
what a dead one left behind. `netlink`, `namespaces` and `bpf` are how the kernel is asked.
"""
