"""Figures of Wang, Li and others, "BML", NeurIPS 2018: gradient sums over BCube."""
