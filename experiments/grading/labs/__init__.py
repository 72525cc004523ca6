"""The labs, one file each: what a student is given, what is checked, and for how many points."""
