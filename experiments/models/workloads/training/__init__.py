"""Training iterations as data: traces, their transfers and computations, and their times."""
