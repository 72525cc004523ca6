"""What can be said of a network without running it: bounds, simulations and comparisons."""
