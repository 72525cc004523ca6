"""Experiments by name: each file defines EXPERIMENT, and is found by its file name.

Cables carry 100 Mbit/s and packets of 9000 bytes: so much two processors emulate faithfully.
"""
