"""What `why` says of routings that go around a failure where the lab's own does not."""

from types import SimpleNamespace
from typing import Any

from pillarbox import topos
from pillarbox.experiments.runs.control.queries import _routings_around
from pillarbox.hosts.base.failures import parse_failures


def said(spec: str, routing: str, source: str, destination: str, *faults: str) -> list[str]:
    topology = topos.parse(spec)
    lab: Any = SimpleNamespace(
        topology=topology, routing=routing, failures=lambda: parse_failures(topology, faults)
    )
    return list(_routings_around(lab, topology.server(source), topology.server(destination)))


def test_routings_that_have_a_path_are_named() -> None:
    ends = "0.0.0", "0.0.1"
    assert said("dpillar,4,2", "mp-both", *ends, "stop s0") == [
        "mp-both has no path around this failure, mp-far-side and shortest would have one: "
        "up dpillar,4,2 --routing mp-far-side"
    ]


def test_nothing_is_named_where_the_own_routing_has_a_path_or_none_has() -> None:
    ends = "0.0.0", "0.0.1"
    assert said("dpillar,4,2", "mp-far-side", *ends, "stop s0") == []
    assert said("dpillar,4,2", "mp-both", *ends, "stop s0", "stop s2", "stop s3") == []
    assert said("dpillar,4,2", "mine.py", *ends, "stop s0") == [], "a student's own router"
