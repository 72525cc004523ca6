"""Analysis of networks without running them: bounds, simulations and comparisons."""
