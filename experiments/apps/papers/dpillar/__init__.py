"""Figures and tables of Liao 2012."""
