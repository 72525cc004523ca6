"""Figures and tables of Guo 2008."""
