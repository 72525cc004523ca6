"""Upper bounds of a network's throughput: flows as fluids that share links, without packets."""
