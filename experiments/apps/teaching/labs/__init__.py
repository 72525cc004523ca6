"""The labs, a module each: drawn values, checks and points."""
