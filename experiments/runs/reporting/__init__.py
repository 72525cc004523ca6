"""Reports of runs: figures, tables and an HTML page, created from the run's records."""
