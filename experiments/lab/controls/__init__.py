"""TCP congestion controls in C, which a lab compiles as eBPF; `control.h` is what they share."""
