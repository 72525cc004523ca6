"""Workloads as data: patterns, arrivals, sizes, collectives, and the flows that they make."""
