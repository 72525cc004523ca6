"""Drawings of networks. This package imports matplotlib only when a figure is drawn."""

from pillarbox.experiments.runs.reporting.drawing.drawing_files import draw_topology

__all__ = ["draw_topology"]
