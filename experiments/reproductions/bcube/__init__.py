"""Guo 2009's figures and tables."""
