"""One door to the kernel: interfaces, namespaces, queues and eBPF programs, and sweeping up.

Nothing here knows of networks, servers or experiments.
"""
