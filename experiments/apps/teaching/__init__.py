"""Grading of lab work: checks with points, and the sealed processes that student code runs in."""
