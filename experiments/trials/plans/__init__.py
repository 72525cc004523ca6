"""What an experiment is, as data: read from the catalogue or a file, and laid out as trials."""
