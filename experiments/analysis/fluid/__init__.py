"""What a network could carry at best: flows as fluids that share links, without packets."""
