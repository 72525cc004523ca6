"""Rail-only's compiled routing, which is BCube's: see bcube.py."""

from experiments.models.simulator.adapting.bcube import ADAPTING

__all__ = ["ADAPTING"]
