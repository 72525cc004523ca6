"""Collective operations as data: transfers, their order, and a lower bound of their time."""
