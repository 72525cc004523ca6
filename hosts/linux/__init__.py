"""The door to the kernel: what Linux offers and Python has no function for.

`calls` are system calls, each checked; `bpf` is bpf(2) and libbpf; `interfaces` configures network
interfaces; `sharing` has forked processes share the objects of who forked them. Nothing else in
Pillarbox opens the C library (pyproject.toml holds that).
"""
