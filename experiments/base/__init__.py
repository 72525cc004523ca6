"""Basics of all districts: texts, units, files, arguments, output, and other processes."""
