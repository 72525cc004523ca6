"""Traffic over a lab: flows, the programs that send them, and the flows' results."""
