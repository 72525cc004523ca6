"""Live networks: namespaces, bridges and cables made in batches, and their faults.

`lab_network` makes a Mininet network from a topology; `nodes` contains its hosts, switches and
links, which also work in Mininet itself; `shaping` sets rates, delays and losses; `active_faults`
cuts cables and stops switches. `sandbox` ends all parts of a lab with the lab; on machines without
sandboxes, `sweep` finds the remains of dead labs. `netlink`, `namespaces` and `bpf` are the
interfaces to the kernel.
"""
