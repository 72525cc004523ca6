"""Figures that are in no paper: comparisons of all networks."""
