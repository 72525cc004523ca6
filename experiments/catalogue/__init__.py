"""The catalogue: one experiment a file, found by its name."""
