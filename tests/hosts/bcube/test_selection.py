"""PathSelection of one flow (Guo 2009, Fig. 7), step by step and without a network."""

from typing import Any

from pillarbox import topos
from pillarbox.hosts.base.failures import NONE, Failures
from pillarbox.hosts.bcube.paths import path_set
from pillarbox.hosts.bcube.selection import Selection, parallel_paths, replacement
from pillarbox.topos.bcube import BCube

BCUBE = topos.parse("bcube,4,1")
SOURCE, DESTINATION = BCUBE.server("0.0"), BCUBE.server("1.3")
P_1, P_0 = path_set(BCUBE, SOURCE, DESTINATION)
LINK_1, LINK_0 = (frozenset(path.servers[:2]) for path in (P_1, P_0))


def cut(*cuts: frozenset[int]) -> Failures:
    return Failures(links=frozenset(cuts))


def begun() -> Selection:
    selection = Selection(BCUBE, SOURCE, DESTINATION, NONE)
    assert selection.begin_round(NONE) == [0, 1]
    return selection


def test_untried_path_is_used_until_probes_tell() -> None:
    selection = begun()
    assert selection.path == P_1
    selection.lose({LINK_1})
    assert selection.path == P_0
    assert not selection.works, "untried, but the best there is"


def test_failed_path_is_replaced_beside_those_that_are_left() -> None:
    selection = begun()
    selection.lose({LINK_1})
    assert selection.replace(cut(LINK_1)) == [2]
    assert selection.candidates[2].path == replacement(
        BCUBE, SOURCE, DESTINATION, [P_0], cut(LINK_1)
    )
    assert selection.replace(cut(LINK_1)) == [], "there are k + 1 again"


def test_silent_path_is_left_at_once_and_avoided_for_the_round() -> None:
    selection = begun()
    assert selection.process_answer(1, P_0, 1e9)
    [probe] = selection.time_out(NONE)
    assert selection.path == P_0, "while the replacement is not answered yet"
    assert not selection.finished
    assert selection.candidates[probe].path.links.isdisjoint(P_1.links)


def test_first_answer_ends_the_time_without_a_path() -> None:
    selection = begun()
    for link in (LINK_1, LINK_0):
        selection.lose({link})
    assert selection.path is None
    first, second = selection.replace(cut(LINK_1, LINK_0))
    assert selection.path is None
    path = selection.candidates[second].path
    assert not selection.process_answer(first, path, 1e9), "an answer by the wrong way"
    assert not selection.process_answer(200, path, 1e9)
    assert selection.process_answer(second, path, 1e9)
    assert selection.path == path
    assert not selection.finished


def test_path_that_failed_gets_another_chance_in_the_next_round() -> None:
    selection = begun()
    selection.lose({LINK_1})
    assert selection.process_answer(1, P_0, 1e9)
    selection.begin_round(NONE)
    selection.lose({LINK_1})
    assert selection.process_answer(1, P_0, 1e9)
    assert selection.finished, "its failure was told, nothing is waited for"


def test_working_path_in_use_takes_the_place_of_a_failed_one() -> None:
    # Found when another link had failed as well, it is not what a search would find now.
    found = replacement(BCUBE, SOURCE, DESTINATION, [P_0], cut(LINK_1))
    assert found is not None
    other = frozenset(found.servers[1:3])
    selection = Selection(BCUBE, SOURCE, DESTINATION, cut(LINK_1, other))
    selection.lose({LINK_0})
    in_use = selection.path
    assert in_use not in (None, found, P_1, P_0)

    assert selection.begin_round(NONE) == [0, 1]
    assert selection.path == in_use, "kept while the usual paths are probed again"
    selection.rate_bps = 5e8
    selection.lose({LINK_1})
    [probe] = selection.replace(cut(LINK_1))
    assert selection.candidates[probe].path == in_use
    # It is the one in use, so its own traffic counts as available.
    assert selection.process_answer(1, P_0, 5e8)
    assert selection.process_answer(probe, in_use, 3e8)
    assert not selection.settle()
    selection.rate_bps = 0.0
    assert selection.settle()
    assert selection.path == P_0


def test_path_in_use_that_has_failed_is_not_kept() -> None:
    selection = Selection(BCUBE, SOURCE, DESTINATION, cut(LINK_1))
    selection.lose({LINK_0})
    in_use = selection.path
    assert in_use is not None
    selection.begin_round(NONE)
    broken = frozenset(in_use.servers[1:3])
    selection.lose({broken})
    assert selection.path != in_use
    selection.lose({LINK_1})
    [probe] = selection.replace(cut(LINK_1, broken))
    assert broken not in selection.candidates[probe].path.links


def test_path_changes_are_counted() -> None:
    selection = begun()
    for index, (path, bps) in enumerate([(P_1, 2e8), (P_0, 9e8)]):
        assert selection.process_answer(index, path, bps)
    assert selection.settle()
    assert not selection.settle()
    assert selection.changes == 1


class Counting(BCube):
    """Counts how often the search looks at a port."""

    looked = 0

    def server_plug(self, server: Any, port: int) -> Any:
        """Count, and answer."""
        self.looked += 1
        return super().server_plug(server, port)


def test_search_stops_early_at_an_end_without_ports() -> None:
    bcube = Counting(8, 3)
    ends = 0, bcube.servers - 1
    for end in ends:
        ports = [super(Counting, bcube).server_plug(end, port).node for port in range(4)]
        dead = Failures(frozenset(ports))
        bcube.looked = 0
        assert replacement(bcube, *ends, [], dead) is None
        assert bcube.looked < bcube.servers / 10


def test_search_looks_at_each_port_once() -> None:
    """When there is no path at all, from either end."""
    bcube = Counting(4, 2)
    middle = bcube.servers // 2
    # The top level is dead: both halves are searched through and found closed.
    dead = Failures(frozenset(range(bcube.nodes - bcube.growth, bcube.nodes)))
    assert parallel_paths(bcube, 0, bcube.servers - 1, dead) == []
    bcube.looked = 0
    assert replacement(bcube, 0, middle, [], dead) is None
    assert bcube.looked <= bcube.servers * bcube.ports
