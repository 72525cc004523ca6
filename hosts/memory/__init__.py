"""A network in memory: every server a router, virtual time, faults, nothing real."""
