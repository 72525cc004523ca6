"""Tab completion of commands, addresses, cables, patterns with their options, and programs.

The arguments of a command follow from its form, such as ``cut A-B [silent|one-way]``: A-B is a
cable, and A a server.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from pillarbox.experiments.models.workloads.collectives.plan import ALGORITHMS, OPTIONS
from pillarbox.experiments.models.workloads.patterns import COMMON_OPTIONS, PATTERNS
from pillarbox.experiments.models.workloads.training.training_workload import (
    OPTIONS as TRAINING_OPTIONS,
)
from pillarbox.experiments.models.workloads.workload import TRAINING, Workload
from pillarbox.experiments.runs.plans.values import fields_of
from pillarbox.topos.base.topology import Topology

MOST_CABLES = 2000  # maximum number of cables whose names Tab completes at the lab's prompt
# Forms of the prompt's commands that are not verbs of a lab, for Tab completion.
FORMS = {
    "link": "link A B up|down",
    "switch": "switch SWITCH start|stop",
    "xterm": "xterm A",
    "exec": "exec A CMD",
    "capture": "capture A",
    "trace": "trace A B",
    "pingpair": "pingpair",
    "source": "source FILE",
}


def completions_of_argument(
    topology: Topology, form: str, given: list[str], begun: str
) -> list[str]:
    """Return the words that Tab completes in a command, from its form and the words so far."""
    kinds = form.replace("[", "").replace("]", "").split()[1:]
    if "|" in kinds:  # alternatives for one argument, as up|down
        kinds = ["|".join(kind for kind in kinds if kind != "|")]
    if given[:1] and "NAME=VALUE..." in kinds:
        return _with_prefix(_options(given[0]), begun)
    if len(given) < len(kinds) and "=" not in kinds[len(given)]:
        found = [
            word
            for kind in kinds[len(given)].split("|")
            for word in _words_of_kind(topology, kind, begun)
        ]
        return _with_prefix(found, begun)
    return _with_prefix((f"{kind.partition('=')[0]}=" for kind in kinds if "=" in kind), begun)


def addresses(topology: Topology) -> list[str]:
    """Return the addresses of all servers."""
    return [topology.address(server) for server in range(topology.servers)]


def completions_after_server(topology: Topology, given: list[str], begun: str) -> list[str]:
    """Return the words that Tab completes after a server: a program, then addresses and files."""
    if not given or given[-1] in {"|", ";", "&&", "||", "sudo", "time"}:
        return _with_prefix(programs(os.environ.get("PATH", "")), begun)
    return _with_prefix(addresses(topology), begun) + files(begun)


def files(begun: str) -> list[str]:
    """Return the paths of files that begin with a prefix, for Tab completion."""
    folder, _, name = begun.rpartition("/")
    place = Path(folder or ("/" if begun.startswith("/") else "."))
    try:
        found = sorted(one for one in place.iterdir() if one.name.startswith(name))
    except OSError:
        return []
    before = begun[: len(begun) - len(name)]
    return [
        f"{before}{one.name}{'/' * one.is_dir()}" for one in found if name or one.name[0] != "."
    ]


@cache
def programs(path: str) -> tuple[str, ...]:
    """Return the names of the programs in the folders of a PATH."""
    found: set[str] = set()
    for folder in filter(None, path.split(":")):
        try:
            found.update(one.name for one in Path(folder).iterdir() if os.access(one, os.X_OK))
        except OSError:  # the folder in PATH is missing or unreadable
            continue
    return tuple(sorted(found))


def traffic_patterns() -> list[str]:
    """Return the patterns that `run` accepts: of flows, collective operations and training."""
    return [*PATTERNS, *ALGORITHMS, TRAINING]


def _words_of_kind(topology: Topology, kind: str, begun: str) -> Iterable[str]:
    if kind in ("A", "B"):
        return addresses(topology)
    if kind in ("A-B", "A-C"):
        if topology.cables > MOST_CABLES:
            return ()
        ends = [(topology.name(one.a), topology.name(one.b)) for one in topology.links()]
        # A cable can be named from either end; without a prefix each cable is listed once.
        both = ends + [(b, a) for a, b in ends] if begun else ends
        return (f"{a}-{b}" for a, b in both)
    if kind == "SWITCH":
        return (topology.node_name(topology.servers + one) for one in range(topology.switches))
    if kind == "PATTERN":
        return traffic_patterns()
    return [kind] if kind.islower() else ()


def _options(pattern: str) -> Iterable[str]:
    if pattern == TRAINING:
        own: Iterable[str] = ("job", *(one for one in TRAINING_OPTIONS if one != "jobs"))
    elif pattern in PATTERNS:
        own = [*PATTERNS[pattern].options, *COMMON_OPTIONS]
    else:
        own = OPTIONS
    settings = (name for name in fields_of(Workload) if name not in ("pattern", "options"))
    return (f"{name}=" for name in (*own, *settings))


def _with_prefix(words: Iterable[str], begun: str) -> list[str]:
    return [word for word in words if word.startswith(begun)]
