"""Collective operations: graphs of transfers, made, checked, and run with real bytes and sums."""
