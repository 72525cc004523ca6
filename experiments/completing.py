"""What a shell can complete: addresses, routings, experiments, labs, benches and figures.

Each is asked for with the context of a line that is not finished. What cannot be known, such as the
labs of another user, completes to nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

import click

from topos.base.errors import PillarboxError
from topos.base.topology import Topology

MOST = 500  # of a list that a shell shows

Known = Callable[[click.Context], Iterable[str]]
Completion = Callable[[click.Context, click.Parameter, str], list[str]]


def completes(known: Known) -> Completion:
    """Return what click asks to complete a word."""

    @wraps(known)
    def completed(ctx: click.Context, _param: click.Parameter, begun: str) -> list[str]:
        try:
            return [name for name in known(ctx) if name.startswith(begun)][:MOST]
        except (PillarboxError, OSError):
            return []

    return completed


@completes
def servers(ctx: click.Context) -> Iterable[str]:
    """Return the addresses of the network of the line, or of the lab that is running."""
    topology = _topology(ctx)
    return map(topology.address, range(topology.servers))


@completes
def nodes(ctx: click.Context) -> Iterable[str]:
    """Return the addresses, and the names of switches."""
    topology = _topology(ctx)
    return map(topology.name, range(topology.nodes))


@completes
def routings(ctx: click.Context) -> Iterable[str]:
    """Return the routings of the line's network; of all, where it names none yet."""
    from hosts.base.algorithms import algorithms
    from topos.base.spec import kinds, network, parse

    named = ctx.params.get("topology")
    found = [named] if named else [parse(network(kind).examples[0]) for kind in kinds()]
    return dict.fromkeys(name for topology in found for name in algorithms(topology))


@completes
def experiments(_ctx: click.Context) -> Iterable[str]:
    """Return the catalogue."""
    from experiments.trials.loading import names

    return names()


@completes
def labs(_ctx: click.Context) -> Iterable[str]:
    """Return the numbers of the labs that run."""
    from experiments.emulation.lab_registry import living_labs

    return map(str, living_labs())


@completes
def benches(_ctx: click.Context) -> Iterable[str]:
    """Return the benchmarks."""
    from experiments.benches._frame import titles

    return titles()


@completes
def figures(_ctx: click.Context) -> Iterable[str]:
    """Return the papers' figures that can be made again."""
    from experiments.reproductions import names

    return names()


def _topology(ctx: click.Context) -> Topology:
    from topos.base.spec import parse

    named: Any = ctx.params.get("topology")
    if isinstance(named, Topology):
        return named
    from experiments.control.client import ask
    from experiments.emulation import lab_registry

    return parse(ask(lab_registry.folder_of(ctx.params.get("number")), ask="about")["network"])
