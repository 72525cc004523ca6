"""Rail-only's compiled routing, which is BCube's: see bcube.py."""

from pillarbox.experiments.models.simulator.around.bcube import AROUND

__all__ = ["AROUND"]
