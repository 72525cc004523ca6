"""Figures and tables of Guo 2009."""
