"""Experiments that run: trials in sandboxes, their records, and what reads the records again."""
