"""What is run, measured and drawn; the command line."""
