"""Linux interfaces that Python's standard library does not provide.

`calls` wraps system calls and checks their results; `bpf` wraps bpf(2) and libbpf; `interfaces`
configures network interfaces; `forked_memory` lets forked processes share their parent's objects.
No other package of Pillarbox opens the C library (pyproject.toml enforces this).
"""
