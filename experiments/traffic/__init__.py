"""Traffic over a lab: its flows, the programs that send them, and what became of each."""
