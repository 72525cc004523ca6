"""A check that cannot fail proves nothing: each of these mutants must be caught, in each network.

A mutant is a sound network of which one answer is changed, mostly for one node only.
"""

from collections.abc import Callable
from typing import Any

import numpy
import pytest

from pillarbox import topos
from pillarbox.topos.base.check import problems
from pillarbox.topos.base.layout import Layout
from pillarbox.topos.base.polymorphic import NOTHING, select
from pillarbox.topos.base.topology import Plug, Topology

# With a partial network and both kinds of cables between switches.
SPECS = (
    "bcube,3,1",
    "bcube,3,2,servers=18",
    "dcell,3,1",
    "dcell,2,2,servers=17",
    "dpillar,4,2",
    "ficonn,4,1",
    "tree,3,3,servers=8",
    "fattree,4",
)
# Of the middle, lest an error at the edge be the only one that is seen.
VICTIM = 4


def mutant(spec: str, **answers: Any) -> Topology:
    """Return that network with other methods; their first argument is the network."""
    network = topos.parse(spec)
    sound = type(network)
    names = {"__module__": sound.__module__, **answers}  # the module's name stands in the spec
    network.__class__ = type("Mutant", (sound,), names)
    return network


def plug_changed(
    which: str, change: Callable[[Topology, Plug], Plug], victim: int = VICTIM, port: int = 0
) -> Callable[[str], Topology]:
    """Return what makes a network with another answer for one port of one server or switch."""

    def make(spec: str) -> Topology:
        sound = getattr(type(topos.parse(spec)), which)

        def plug(self: Topology, node: Any, asked: int) -> Plug:
            told = sound(self, node, asked)
            if asked != port:
                return told
            changed = change(self, told)
            return Plug(
                *(select(node == victim, *both) for both in zip(changed, told, strict=True))
            )

        return mutant(spec, **{which: plug})

    return make


def answers_changed(**changes: Callable[..., Any]) -> Callable[[str], Topology]:
    """Return what makes a network with methods that get the sound answer and the arguments."""

    def make(spec: str) -> Topology:
        def wrapped(name: str, change: Callable[..., Any]) -> Callable[..., Any]:
            sound = getattr(type(topos.parse(spec)), name)

            def answer(self: Topology, *arguments: Any) -> Any:
                return change(sound(self, *arguments), *arguments)

            return answer

        return mutant(spec, **{name: wrapped(name, change) for name, change in changes.items()})

    return make


def for_arrays(change: Callable[[Any], Any]) -> Callable[..., Any]:
    """Return a change of the answers about many nodes, not of those about one."""

    def changed(told: Any, asked: Any, *_: Any) -> Any:
        return change(told) if isinstance(asked, numpy.ndarray) else told

    return changed


def counted(name: str, by: int) -> Callable[[str], Topology]:
    def make(spec: str) -> Topology:
        network = topos.parse(spec)
        setattr(network, name, getattr(network, name) + by)
        return network

    return make


MUTANTS = {
    "far port off by one": plug_changed("server_plug", lambda _, p: p._replace(port=p.port + 1)),
    "wrong peer": plug_changed("server_plug", lambda _, p: p._replace(node=p.node - 1)),
    "wrong level": plug_changed("server_plug", lambda _, p: p._replace(level=p.level + 1)),
    "peer that does not exist": plug_changed("server_plug", lambda t, p: p._replace(node=t.nodes)),
    "server without its cable": plug_changed("server_plug", lambda _, p: Plug(NOTHING, 0, 0)),
    "server cabled to itself": plug_changed("server_plug", lambda _, p: Plug(VICTIM, 0, 0)),
    "switch: far port off by one": plug_changed(
        "switch_plug", lambda _, p: p._replace(port=p.port + 1), victim=1
    ),
    "switch: wrong peer": plug_changed(
        "switch_plug", lambda _, p: p._replace(node=p.node + 1), victim=1
    ),
    "switch: wrong level": plug_changed(
        "switch_plug", lambda _, p: p._replace(level=p.level + 1), victim=1
    ),
    "switch without a cable": plug_changed(
        "switch_plug", lambda _, p: Plug(NOTHING, 0, 0), victim=1
    ),
    "one cable too many counted": counted("cables", 1),
    "one cable too few counted": counted("cables", -1),
    "one server too few counted": counted("servers", -1),
    "one server too many counted": counted("servers", 1),
    "one switch too few counted": counted("switches", -1),
    "digits of two servers alike": answers_changed(
        digits=lambda told, server: (*told[:-1], select(told[-1] == 1, 0, told[-1]))
    ),
    "digits in the wrong order": answers_changed(digits=lambda told, _: told[::-1]),
    "digit out of range": answers_changed(radices=lambda told: (*told[:-1], told[-1] - 1)),
    "server_at off by one": answers_changed(server_at=lambda told, _: told + 1),
    "address of another server": answers_changed(
        address=lambda told, server: "0." + told.partition(".")[2]
    ),
    "uid that leads elsewhere": answers_changed(uid=lambda told, _: told + 1),
    "IPv4 address of two servers": answers_changed(ipv4=lambda told, *_: told // 8 * 8),
    "MAC address of two ports": answers_changed(mac=lambda told, *_: "02:00:00:00:00:00"),
    "two switches of one label": answers_changed(switch_label=lambda told, _: "switch"),
    "interface of two ports": answers_changed(interface=lambda told, *_: "h0-eth0"),
    "node without a place": answers_changed(layout=lambda told: Layout({0: (0.0, 0.0)})),
    "arrays: another peer": answers_changed(
        server_plug=for_arrays(lambda p: p._replace(node=numpy.roll(p.node, 1)))
    ),
    "arrays: another level": answers_changed(
        server_plug=for_arrays(lambda p: p._replace(level=p.level + 1))
    ),
    "arrays: switch's other peer": answers_changed(
        switch_plug=for_arrays(lambda p: p._replace(node=p.node + 1))
    ),
    "arrays: other digits": answers_changed(digits=for_arrays(lambda d: d[::-1])),
    "arrays: other IPv4 addresses": answers_changed(ipv4=for_arrays(lambda told: told + 1)),
    "arrays: other uids": answers_changed(uid=for_arrays(lambda told: told + 1)),
    "numpy numbers for one server": answers_changed(
        digits=lambda told, _: tuple(numpy.asarray(digit)[()] for digit in told)
    ),
    "no peers": answers_changed(peers=lambda *_: []),
    "links() forgets one": answers_changed(links=lambda told: iter(list(told)[:-1])),
    "links() repeats one": answers_changed(links=lambda told: iter([*(t := list(told)), t[0]])),
    "links() swaps two far ends": answers_changed(
        links=lambda told: iter(
            [
                (t := list(told))[0]._replace(b=t[1].b, b_port=t[1].b_port),
                t[1]._replace(b=t[0].b, b_port=t[0].b_port),
                *t[2:],
            ]
        )
    ),
    "cable_arrays() swaps two far ends": answers_changed(
        cable_arrays=lambda told: told._replace(
            b=numpy.roll(told.b, 1), b_port=numpy.roll(told.b_port, 1)
        )
    ),
}


@pytest.mark.parametrize("spec", SPECS)
def test_sound_network_has_no_problem(spec: str) -> None:
    assert problems(topos.parse(spec)) == []


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("name", MUTANTS)
def test_mutant_is_caught_and_told_in_a_sentence(name: str, spec: str) -> None:
    """Whoever asked for --check reads one line, and not a traceback of the check itself."""
    found = problems(MUTANTS[name](spec))
    assert found
    assert all(found)
