"""A stranger's network: what its class says, of which only what makes sense counts."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pillarbox.experiments.apps.teaching.child import ChildKeeper, StudentError
from pillarbox.experiments.apps.teaching.grading_engine import Work
from pillarbox.experiments.apps.teaching.labs import lab8
from pillarbox.experiments.apps.teaching.recorded_network import RecordedNetwork
from pillarbox.experiments.apps.teaching.sheet_catalogue import sheet_of
from pillarbox.topos.base.check import problems

ANSWERS = Path(__file__).parents[3] / "vagrant" / "labs" / "answers" / "lab8"
MODEL = (ANSWERS / "model.py").read_text()
HEAD = """
from pillarbox.topos.base.polymorphic import NOTHING
from pillarbox.topos.base.topology import Bound, Plug, Topology

class Mine(Topology):
    examples = ("mine,4", "mine,6")
    def __init__(self, m):
        super().__init__(m=m)
        self.servers, self.switches, self.cables, self.ports, self.switch_ports = m, 0, m, 2, 0
    def server_plug(self, server, port):
        return Plug((server + 1 - 2 * port) % self.servers, 1 - port, 0)
    def switch_plug(self, switch, port): return Plug(NOTHING, 0, 0)
    def digits(self, server): return (server,)
    def server_at(self, digits): return digits[0]
    def radices(self): return (self.servers,)
    def switch_label(self, switch): return str(switch)
    def diameter_bound(self): return Bound(self.servers // 2, "m/2", "here")
    def bisection(self): return Bound(2, "2", "here")
    def disjoint_paths(self): return Bound(2, "2", "here")
"""


@contextmanager
def work(source: str) -> Iterator[Work]:
    with ChildKeeper(source, lab8.MODULES, ()) as keeper:
        yield Work(sheet_of("8", "s4"), keeper, "")


def test_what_is_recorded_keeps_the_contract_and_is_the_network() -> None:
    with work(MODEL) as asked:
        recorded = RecordedNetwork(asked, "mine,13")
    assert problems(recorded) == []
    assert (recorded.servers, recorded.switches, recorded.cables) == (26, 13, 52)
    assert recorded.address(recorded.server("3.1")) == "3.1"
    # Switch 3 of the ring: the servers 3.0 and 3.1, and those that end there.
    assert [recorded.address(plug.node) for _, plug in recorded.neighbours(26 + 3)] == [
        "3.0",
        "3.1",
        "2.0",
        "11.1",
    ]
    assert not recorded.contradictions
    assert not recorded.misaddressed


def test_ring_of_servers_alone() -> None:
    with work(HEAD) as asked:
        recorded = RecordedNetwork(asked, "mine,6")
    assert problems(recorded) == []
    assert lab8.disjoint_paths_and_diameter(recorded) == (2, 3)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("1 - port, 0)", "port, 0)", "does not lead back"),
        ("1 - port, 0)", "1 - port, port)", "does not lead back"),
        ("1 - port, 0)", "2, 0)", "does not exist"),
        ("(server + 1 - 2 * port) % self.servers", "server", "leads to itself"),
        ("(server + 1 - 2 * port) % self.servers", "10**30", "does not exist"),
        ("(server + 1 - 2 * port) % self.servers", "-2", "does not exist"),
        ("(server + 1 - 2 * port) % self.servers", "'x'", "does not exist"),
        ("(server + 1 - 2 * port) % self.servers", "True", "does not exist"),
        ("return Plug((server", "return 1 // 0, Plug((server", "ZeroDivisionError"),
        ("return Plug((server", "return None and Plug((server", "does not exist"),
    ],
)
def test_cable_that_only_one_end_knows_is_none(old: str, new: str, says: str) -> None:
    assert HEAD.count(old) == 1
    with work(HEAD.replace(old, new)) as asked:
        recorded = RecordedNetwork(asked, "mine,4")
    assert recorded.cables == 0
    assert problems(recorded) == []
    assert says in recorded.contradictions[0]
    assert lab8.disjoint_paths_and_diameter(recorded) == (0, 0)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("return (server,)", "return (server // 2,)", "another server has too"),
        ("return (server,)", "return (server + 1,)", "server_at"),
        ("return (server,)", "return (-server,)", "radices"),
        ("return (server,)", "return server", "radices"),
        ("return digits[0]", "return digits[1]", "IndexError"),
        ("return (self.servers,)", "return ()", "radices"),
        ("return (self.servers,)", "return ('x',)", "radices"),
        ("return (self.servers,)", "return (10**30,)", "radices"),
    ],
)
def test_address_that_does_not_lead_back(old: str, new: str, says: str) -> None:
    assert HEAD.count(old) == 1
    with work(HEAD.replace(old, new)) as asked:
        recorded = RecordedNetwork(asked, "mine,4")
    assert any(says in wrong for wrong in recorded.misaddressed.values())
    assert problems(recorded) == []  # servers are called by their numbers then


@pytest.mark.parametrize("size", ["1", "65", "'x'", "True", "10**30", "None"])
def test_size_that_cannot_be_graded_is_a_mistake(size: str) -> None:
    source = HEAD.replace("self.servers, self.switches", f"m = {size}; self.servers, self.switches")
    with (
        work(source) as asked,
        pytest.raises(StudentError, match=r"servers of mine,4 is .*2 to 64"),
    ):
        RecordedNetwork(asked, "mine,4")
