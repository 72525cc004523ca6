"""Guo 2008's figures and tables."""
