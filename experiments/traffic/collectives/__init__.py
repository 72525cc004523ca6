"""Collective operations over a lab."""
