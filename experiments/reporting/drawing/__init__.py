"""Drawings of networks. Nothing here imports matplotlib before there is something to draw."""

from experiments.reporting.drawing.drawing_files import draw_topology

__all__ = ["draw_topology"]
