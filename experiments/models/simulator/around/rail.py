"""Rail-only's compiled routing, which is BCube's: see bcube.py."""

from experiments.models.simulator.around.bcube import AROUND

__all__ = ["AROUND"]
