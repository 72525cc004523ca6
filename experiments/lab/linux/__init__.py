"""Interface to the kernel: links, namespaces, queues, eBPF programs, and removal of leftovers.

Nothing here depends on networks, servers or experiments.
"""
