"""Congestion controls of simulated TCP, a module each; `congestion` calls them by number."""
