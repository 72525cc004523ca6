"""FiConn's traffic-aware routing (simulator/compiled_tar.py), in which each probe is a step."""

from __future__ import annotations

from functools import partial

from pillarbox.experiments.models.simulator.compiled_tar import TarFlows

ADAPTING = {"tar": TarFlows, "tar-far-side": partial(TarFlows, far_side=True)}
