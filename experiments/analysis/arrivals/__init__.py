"""Event-driven fluid simulation of flows that arrive and end at max-min fair rates: completion
times.
"""
