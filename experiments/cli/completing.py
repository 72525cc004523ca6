"""Shell completion of addresses, routings, experiments, labs and figures.

Each function gets the click context of an unfinished command line. Words that cannot be determined,
such as the labs of another user, complete to an empty list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

import click

from pillarbox.topos.base.errors import PillarboxError
from pillarbox.topos.base.topology import Topology

MOST = 500  # Maximum number of words that Tab completion offers.

Known = Callable[[click.Context], Iterable[str]]
Completion = Callable[[click.Context, click.Parameter, str], list[str]]


def completes(known: Known) -> Completion:
    """Convert a function that lists all words to click's completion function of a word."""

    @wraps(known)
    def completed(ctx: click.Context, _param: click.Parameter, begun: str) -> list[str]:
        try:
            return [name for name in known(ctx) if name.startswith(begun)][:MOST]
        except (PillarboxError, OSError):
            return []

    return completed


@completes
def servers(ctx: click.Context) -> Iterable[str]:
    """Return the server addresses of the network on the command line, or of the running lab."""
    topology = _topology(ctx)
    return map(topology.address, range(topology.servers))


@completes
def nodes(ctx: click.Context) -> Iterable[str]:
    """Return the server addresses and switch names of the network or the running lab."""
    topology = _topology(ctx)
    return map(topology.name, range(topology.nodes))


@completes
def routings(ctx: click.Context) -> Iterable[str]:
    """Return the routings of the network on the command line, or those of all networks."""
    from pillarbox.hosts.base.algorithms import algorithms
    from pillarbox.topos.base.spec import kinds, network, parse

    named = ctx.params.get("topology")
    found = [named] if named else [parse(network(kind).examples[0]) for kind in kinds()]
    return dict.fromkeys(name for topology in found for name in algorithms(topology))


@completes
def experiments(_ctx: click.Context) -> Iterable[str]:
    """Return the names of the catalogue's experiments."""
    from pillarbox.experiments.runs.plans.loading import names

    return names()


@completes
def labs(_ctx: click.Context) -> Iterable[str]:
    """Return the numbers of the running labs."""
    from pillarbox.experiments.lab.emulation.lab_registry import living_labs

    return map(str, living_labs())


@completes
def figures(_ctx: click.Context) -> Iterable[str]:
    """Return the names of the papers' figures that can be reproduced."""
    from pillarbox.experiments.apps.papers import names

    return names()


def _topology(ctx: click.Context) -> Topology:
    from pillarbox.topos.base.spec import parse

    named: Any = ctx.params.get("topology")
    if isinstance(named, Topology):
        return named
    from pillarbox.experiments.lab.emulation import lab_registry
    from pillarbox.experiments.runs.control.client import ask

    return parse(ask(lab_registry.folder_of(ctx.params.get("number")), ask="about")["network"])
