"""Experiments on labs: plans, trials with records, trust in them, reports, and a lab's control."""
