"""Flows that come and go at max-min fair rates, event by event: completion times at any scale."""
