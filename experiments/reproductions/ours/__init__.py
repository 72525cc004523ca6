"""Figures that no paper has: all networks side by side."""
