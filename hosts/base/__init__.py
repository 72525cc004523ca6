"""Routing framework of all networks: the Router contract, link states, probing, faults, timers."""
