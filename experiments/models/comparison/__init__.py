"""Comparison of networks as in the papers' tables: sizes, paths, cuts, cost, power and wires."""
