"""Figures and tables of Li 2009."""
