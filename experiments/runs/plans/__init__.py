"""Experiment plans as data: experiments, their values and overrides, faults, and trials."""
