"""Figures, tables and the page that shows a run, from its records alone."""
