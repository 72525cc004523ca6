"""Models: workloads, and results that are computed without a network that runs.

Nothing here uses the kernel's network functions: bounds, simulations and comparisons.
"""
