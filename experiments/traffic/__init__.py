"""Traffic over a lab: who sends to whom, and the programs that do it and tell how it went."""
