"""Liao 2012's figures and tables."""
