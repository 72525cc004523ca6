"""Runs of experiments: trials in sandboxes, their records, and summaries of the records."""
