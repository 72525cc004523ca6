"""Experiments from plan to records: what is to run, the runs, and whether to believe them."""
