"""Lab 8 asks for a network that nobody has yet, and a file that misbehaves costs only itself."""

from itertools import product
from pathlib import Path

import pytest

from pillarbox import topos
from pillarbox.experiments.apps.teaching import grading_engine
from pillarbox.experiments.apps.teaching.labs import lab8
from pillarbox.experiments.apps.teaching.sheet_catalogue import sheet_of
from pillarbox.experiments.models.comparison.path_metrics import diameter, disjoint_paths
from pillarbox.topos.base.errors import PillarboxError
from pillarbox.topos.base.topology import Topology

MODEL = Path(__file__).parents[4] / "vagrant" / "labs" / "answers" / "lab8" / "model.py"
NUMBERS = range(1, 9)
SPECS = [
    *(f"{kind},{n},{k}" for kind, n, k in product(topos.kinds(), NUMBERS, NUMBERS)),
    *(f"{kind},{n}" for kind, n in product(topos.kinds(), NUMBERS)),
]


def known() -> list[Topology]:
    """Return the networks that Pillarbox has of sizes and ports that sheets ask for."""
    found = []
    for spec in SPECS:
        try:
            network = topos.parse(spec)
        except PillarboxError:
            continue
        few = network.ports <= lab8.SERVER_PORTS and network.switch_ports <= lab8.SWITCH_PORTS
        if few and network.servers <= max(most for _, most, _ in lab8.BRIEFS):
            found.append(network)
    return found


def test_no_network_that_there_is_does_what_a_sheet_asks_for() -> None:
    networks = known()
    assert {"bcube,4,1", "dcell,4,1", "dpillar,4,3"} <= {network.spec for network in networks}
    for network in networks:
        hops, apart = diameter(network).value, disjoint_paths(network).least or 0
        for least, most, enough in lab8.BRIEFS:
            fits = least <= network.servers <= most
            assert not (fits and hops and hops <= enough and apart >= lab8.DISJOINT), network.spec


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('examples = ("mine,13", "mine,8")', "examples = 7", "return two sizes"),
        (
            'examples = ("mine,13", "mine,8")',
            'examples = ("mine,\\x1b[2J", "b")',
            "return two sizes",
        ),
        ("super().__init__(m=m)\n", "while True: pass\n", "no answer within"),
        ("class Chords(Topology)", "class Chords", "0 networks, not one"),
        ("class Nearer(HopByHop)", "class Nearer", "0 routers, not one"),
    ],
)
def test_misbehaviour_is_told(
    old: str, new: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Only code that never answers may meet the time limit, also on a busy machine.
    limit_s = 1.0 if says == "no answer within" else 60.0
    monkeypatch.setattr("pillarbox.experiments.apps.teaching.child.DECISION_S", limit_s)
    source = MODEL.read_text()
    assert source.count(old) == 1
    report = grading_engine.grade(sheet_of("8", "s4"), source.replace(old, new))
    assert any(says in mark.why for mark in report.marks)
    assert all("\x1b" not in mark.why for mark in report.marks)
    router = "routers" in says
    assert report.got == (65 if router else 0)
