"""Experiments: the plans, the runs with their records, and the checks of a run's validity."""
