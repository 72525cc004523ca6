"""Rail-only's compiled routing, which is BCube's: see bcube.py."""

from pillarbox.experiments.models.simulator.adapting.bcube import ADAPTING

__all__ = ["ADAPTING"]
