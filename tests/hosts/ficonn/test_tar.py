"""TAR's decision (Li 2009, Algorithm 3): Fig. 5, every pair under any bandwidths, each repair."""

import random
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import permutations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pillarbox import topos
from pillarbox.hosts.base.algorithms import route
from pillarbox.hosts.base.failures import Failures, parse_failures
from pillarbox.hosts.base.path import Path, Step
from pillarbox.hosts.ficonn.paths import tor_path, tor_step
from pillarbox.hosts.ficonn.probe_setup import set_up, tar_path
from pillarbox.hosts.ficonn.rules import BYONE, BYZERO, take
from pillarbox.hosts.ficonn.tar import (
    Back,
    Decision,
    ForwardProbe,
    RouteEntry,
    Sight,
    Stuck,
    TarProbe,
    decide,
    first_probe,
)
from pillarbox.topos.ficonn import BACKUP, SWITCH, FiConn

FICONN = FiConn(4, 2)
A, B = FICONN.server("0.2.1"), FICONN.server("0.0.1")  # of Fig. 5
SPECS = ["ficonn,4,1", "ficonn,4,2", "ficonn,8,1"]


def at(address: str, ficonn: FiConn = FICONN) -> int:
    return ficonn.server(address)


def addresses(path: Path | None, ficonn: FiConn = FICONN) -> str:
    assert path is not None
    return " ".join(map(ficonn.address, path.servers))


def sight(
    backup_bps: float = 1e9,
    switch_bps: float = 1e9,
    *,
    seed: int = 0,
    dead: Iterable[Step] = (),
    switch_works: bool = True,
) -> Sight:
    """Return what a server sees where everything works but these hops."""
    broken = set(dead)

    def works(step: Step) -> bool:
        return step not in broken and (switch_works or step.port != SWITCH)

    return Sight(works, random.Random(seed), backup_bps, switch_bps, switch_works)


def sights(special: dict[str, Sight]) -> Callable[[int], Sight]:
    by_server = {at(address): seen for address, seen in special.items()}
    return lambda server: by_server.get(server) or sight()


BUSY = sight(backup_bps=0.5e9)  # its level-0 link is the better one
EAGER = sight(switch_bps=0.5e9)  # its backup link is
CUT_OFF = sight(switch_bps=0.0, switch_works=False)


def ask(
    server: str,
    to: str,
    came: str | None = None,
    progress: tuple[int, ...] = (BYZERO, BYZERO),
    route_entry: RouteEntry | None = None,
    seen: Sight = BUSY,
    source: str = "0.1.3",
) -> Decision:
    """Return a server's decision; `came` is the address of the hop before, over its own port."""
    here = at(server)
    back = None
    if came is not None:
        port = BACKUP if FICONN.server_plug(here, BACKUP).node == at(came) else SWITCH
        back = Step(port, at(came))
    return decide(FICONN, here, TarProbe(at(source), at(to), progress), back, route_entry, seen)


# -- the paper's example --------------------------------------------------------------------------


def test_figure_5_step_by_step() -> None:
    source, destination = at("0.2.1"), at("0.0.1")
    probe = first_probe(FiConn(4, 1), 9, 1)  # the same servers where there is one FiConn_1 only
    assert probe.progress == (BYZERO,)
    # [2,0] selects [1,2] as the level-1 proxy and sends the probe back.
    busy = decide(
        FICONN,
        at("0.2.0"),
        TarProbe(source, destination, (BYZERO,)),
        Step(SWITCH, source),
        None,
        BUSY,
    )
    assert busy == Back(Step(SWITCH, source), (at("0.1.2"),), virtual=True)
    # [2,1] sees it come from its next hop, and is the source: on to [2,2].
    route_entry = RouteEntry(None, Step(SWITCH, at("0.2.0")))
    again = decide(
        FICONN,
        source,
        TarProbe(source, destination, busy.progress),
        route_entry.next,
        route_entry,
        sight(),
    )
    assert again == ForwardProbe(RouteEntry(None, Step(SWITCH, at("0.2.2"))), (at("0.1.2"),))
    # [1,2] finds that it is the proxy.
    proxy = decide(
        FICONN,
        at("0.1.2"),
        TarProbe(source, destination, (at("0.1.2"),)),
        Step(BACKUP, at("0.2.2")),
        None,
        sight(),
    )
    assert proxy == ForwardProbe(
        RouteEntry(Step(BACKUP, at("0.2.2")), Step(SWITCH, at("0.1.0"))), (BYONE,)
    )


def test_figure_5_without_the_flow_is_tor() -> None:
    assert addresses(set_up(FICONN, at("0.2.1"), at("0.0.1"), sights({})).path) == (
        "0.2.1 0.2.0 0.0.2 0.0.1"
    )


# -- every pair -----------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", SPECS)
def test_alone_in_the_network_tar_is_tor(spec: str) -> None:
    ficonn = topos.parse(spec)
    for a, b in permutations(range(ficonn.servers), 2):
        assert tar_path(ficonn, a, b) == tor_path(ficonn, a, b)


@settings(max_examples=settings.default.max_examples // 10)
@given(seed=st.integers(0, 2**32), levels=st.integers(1, 5))
@pytest.mark.parametrize("spec", SPECS)
def test_every_pair_under_any_bandwidths(spec: str, seed: int, levels: int) -> None:
    ficonn = topos.parse(spec)
    chance = random.Random(seed)
    free = [[chance.randrange(levels + 1) * 1e8 for _ in range(2)] for _ in range(ficonn.servers)]

    def sight_of(server: int) -> Sight:
        return Sight(lambda step: True, chance, free[server][BACKUP], free[server][SWITCH])

    for source, destination in permutations(range(ficonn.servers), 2):
        found = set_up(ficonn, source, destination, sight_of)
        assert found.path is not None, found.stuck
        servers = found.path.servers
        found.path.nodes(ficonn)  # raises where a hop follows no cable
        assert (servers[0], servers[-1]) == (source, destination)
        assert len(set(servers)) == len(servers), "a loop"
        assert len(found.path) <= 2 * 3**ficonn.k - 1, "Theorem 6"
        assert not set(found.virtual) & set(servers), "a bypassing server stays on the path"


def test_the_bound_of_theorem_6_is_reached() -> None:
    chance = random.Random(3)
    most = 0
    for source, destination in permutations(range(FICONN.servers), 2):
        found = set_up(
            FICONN,
            source,
            destination,
            lambda _: Sight(lambda step: True, chance, chance.random(), chance.random()),
        )
        assert found.path
        most = max(most, len(found.path))
    assert most == 17


@given(seed=st.integers(0, 2**32))
@example(seed=1090)  # where a source whose way to a proxy has failed leaves by its backup port
@pytest.mark.parametrize("spec", SPECS)
def test_failures_end_in_a_path_that_works_or_in_a_reason(spec: str, seed: int) -> None:
    ficonn = topos.parse(spec)
    chance = random.Random(seed)
    cables = [frozenset((cable.a, cable.b)) for cable in ficonn.links()]
    failures = Failures(
        frozenset(chance.sample(range(ficonn.nodes), chance.randrange(3))),
        frozenset(chance.sample(cables, chance.randrange(4))),
    )
    for _ in range(20):
        a, b = chance.sample(range(ficonn.servers), 2)
        routed = route(ficonn, "tar", a, b, failures)
        assert routed == route(ficonn, "tar", a, b, failures), "not the same again"
        assert bool(routed.paths) != bool(routed.dropped)
        for path in routed.paths:
            assert failures.first_on(ficonn, path) is None
            assert len(set(path.servers)) == len(path.servers)
            # Where a source has only its backup port left, the path may be one hop longer.
            assert len(path) <= 2 * 3**ficonn.k
        if route(ficonn, "tor", a, b, failures).paths:
            assert routed.paths == [tor_path(ficonn, a, b)]


@pytest.mark.parametrize("spec", SPECS)
def test_any_failed_relay_is_gone_around(spec: str) -> None:
    """Of TOR's path any server, or any level-l cable, may fail: TAR finds another path."""
    ficonn = topos.parse(spec)
    for a, b in random.Random(1).sample(list(permutations(range(ficonn.servers), 2)), 40):
        path = tor_path(ficonn, a, b)
        failures = [Failures(frozenset([server])) for server in path.servers[1:-1]]
        failures += [
            Failures(links=frozenset([frozenset((server, step.peer))]))
            for server, step in zip(path.servers, path.steps, strict=False)
            if step.port == BACKUP
        ]
        for failed in failures:
            if route(ficonn, "shortest", a, b, failed).paths and len(path) > 1:
                assert route(ficonn, "tar", a, b, failed).paths, (a, b, failed)


def test_no_way_is_one_sentence() -> None:
    failures = parse_failures(FICONN, ["cut 0.0.3-s0"])  # a server without a backup cable
    dropped = route(FICONN, "tar", at("0.0.3"), at("1.0.0"), failures).dropped
    assert dropped == "no probe finds a path around the failures"


# -- what Algorithm 3 says ------------------------------------------------------------------------


def test_source_reroute_passes_the_probe_back_hop_by_hop() -> None:
    route_entry = RouteEntry(Step(SWITCH, at("0.2.3")), Step(SWITCH, at("0.2.0")))
    back = ask(
        "0.2.1", "0.0.1", came="0.2.0", progress=(at("0.1.2"), BYZERO), route_entry=route_entry
    )
    assert back == Back(Step(SWITCH, at("0.2.3")), (at("0.1.2"), BYZERO))


def test_equal_bandwidth_is_no_reason_for_a_bypass() -> None:
    step = Step(BACKUP, at("0.0.2"))
    came = Step(SWITCH, at("0.2.1"))
    assert ask("0.2.0", "0.0.1", came="0.2.1", seen=sight()) == ForwardProbe(
        RouteEntry(came, step), (BYZERO, BYZERO)
    )


def test_one_bypass_in_a_ficonn_then_the_next_level_or_none() -> None:
    # Level 1 was bypassed: a third FiConn_1 it is, and PR_1 starts over.
    found = {
        ask("0.2.0", "1.2.1", "0.2.1", (BYONE, BYZERO), seen=sight(0.5e9, seed=seed)).progress
        for seed in range(20)
    }
    assert found == {(BYZERO, at("2.0.1")), (BYZERO, at("3.0.1"))}
    # Level 2 as well: the busy link is taken.
    last = ask("0.2.0", "1.2.1", "0.2.1", (BYONE, BYONE))
    assert isinstance(last, ForwardProbe)
    assert last.route_entry.next == Step(BACKUP, at("0.0.2"))
    # And if it does not even work, the bypass is given up: TOR's way to where it was to lead.
    dead = sight(dead=[Step(BACKUP, at("0.0.2"))])
    given_up = ask("0.2.0", "1.2.1", "0.2.1", (BYONE, BYONE), seen=dead)
    assert given_up == Back(Step(SWITCH, at("0.2.1")), (at("0.0.1"), BYONE))
    assert isinstance(ask("0.2.0", "1.2.1", "0.2.1", given_up.progress, seen=dead), Stuck)


def test_a_third_ficonn_is_drawn_evenly() -> None:
    ficonn = FiConn(8, 1)
    source, destination = ficonn.server("0.1"), ficonn.server("1.1")
    busy = ficonn.server("0.0")
    assert tor_step(ficonn, source, destination).peer == busy
    came = Step(SWITCH, source)
    proxies = Counter(
        decide(
            ficonn,
            busy,
            TarProbe(source, destination, (BYZERO,)),
            came,
            None,
            sight(0.5e9, seed=seed),
        ).progress[0]
        // ficonn.sizes[0]
        for seed in range(300)
    )
    assert set(proxies) == {2, 3, 4}
    assert min(proxies.values()) > 60


def test_drawn_is_a_shuffle() -> None:
    def drawn(chance: random.Random) -> tuple[int, ...]:
        order = [0, 1, 2]
        return tuple(take(order, left, chance) for left in (3, 2, 1))

    orders = Counter(drawn(random.Random(seed)) for seed in range(600))
    assert len(orders) == 6
    assert min(orders.values()) > 60


def test_a_server_whose_level_0_link_failed_routes_back() -> None:
    """Section IV.A: as if the level-l link had failed, by which the probe came."""
    back = ask("0.0.2", "0.0.1", came="0.2.0", seen=CUT_OFF)
    assert back == Back(Step(BACKUP, at("0.2.0")), (at("0.1.2"), BYZERO))
    found = set_up(FICONN, at("0.2.1"), at("0.0.1"), sights({"0.0.2": CUT_OFF}))
    assert addresses(found.path) == "0.2.1 0.2.2 0.1.2 0.1.0 0.0.0 0.0.1"
    # Where the proxy itself is cut off, what is left is the link that it was to bypass.
    special = {"0.2.0": EAGER, "0.0.2": CUT_OFF}
    found = set_up(FICONN, at("0.2.0"), at("0.1.3"), sights(special))
    assert addresses(found.path) == "0.2.0 0.2.2 0.1.2 0.1.3"


def test_a_source_without_its_level_0_link_leaves_by_the_backup_link() -> None:
    # Even to a server on its own switch: by a third FiConn_0, and back.
    found = set_up(FICONN, at("0.2.0"), at("0.2.3"), sights({"0.2.0": CUT_OFF}))
    assert addresses(found.path) == "0.2.0 0.0.2 0.0.0 0.1.0 0.1.2 0.2.2 0.2.3"
    assert isinstance(ask("0.0.3", "0.2.3", progress=(), seen=CUT_OFF), Stuck)  # it has none


def test_neighbours_bypass_the_link_of_a_dead_server() -> None:
    dead = Step(SWITCH, at("0.2.0"))
    special = {address: sight(dead=[dead]) for address in ("0.2.1", "0.2.2", "0.2.3")}
    found = set_up(FICONN, at("0.2.1"), at("0.0.1"), sights(special))
    assert addresses(found.path) == "0.2.1 0.2.2 0.1.2 0.1.0 0.0.0 0.0.1"
    assert not found.virtual


def test_a_bypass_that_meets_a_failure_is_given_up() -> None:
    # [2,0] is busy, so the flow goes by FiConn_0[1]; [1,0]'s cable to [0,0] is down: [2,0] it is.
    cut = sight(dead=[Step(BACKUP, at("0.0.0"))])
    found = set_up(FICONN, A, B, sights({"0.2.0": BUSY, "0.1.0": cut}))
    assert addresses(found.path) == "0.2.1 0.2.0 0.0.2 0.0.1"


def test_a_bypass_that_meets_a_dead_server_is_given_up() -> None:
    dead = sight(dead=[Step(SWITCH, at("0.1.0"))])
    found = set_up(FICONN, A, B, sights({"0.2.0": BUSY, "0.1.2": dead}))
    assert addresses(found.path) == "0.2.1 0.2.0 0.0.2 0.0.1"
    # The same where it fails behind the third FiConn_0: [0,0]'s level-0 link is down.
    found = set_up(FICONN, A, B, sights({"0.2.0": BUSY, "0.0.0": CUT_OFF}))
    assert addresses(found.path) == "0.2.1 0.2.0 0.0.2 0.0.1"


def test_what_a_dead_link_sends_elsewhere_is_no_virtual_flow() -> None:
    dead = sight(dead=[Step(BACKUP, at("0.0.2"))])
    back = ask("0.2.0", "0.0.1", came="0.2.1", seen=dead)
    assert isinstance(back, Back)
    assert not back.virtual


def test_a_destination_without_its_level_0_link_is_reached_by_its_backup_link() -> None:
    # [2,0]'s neighbours send the probe back; it comes by [0,2].
    dead = Step(SWITCH, at("0.2.0"))
    special = {address: sight(dead=[dead]) for address in ("0.2.1", "0.2.2", "0.2.3")}
    found = set_up(FICONN, at("0.1.3"), at("0.2.0"), sights(special))
    assert addresses(found.path) == "0.1.3 0.1.0 0.0.0 0.0.2 0.2.0"
    # From its own FiConn_0 there would be two bypasses.
    assert set_up(FICONN, at("0.2.3"), at("0.2.0"), sights(special)).path is None


def test_where_tor_enters_the_ficonn_of_such_a_destination_the_probe_goes_back() -> None:
    # All paths from TOR's entry [1,0,1] to the backup link cross [1,0,0]: bypass the level-2 cable.
    alone = FICONN.server("1.0.0")
    switch = FICONN.server_plug(alone, SWITCH).node
    failures = Failures(links=frozenset([frozenset((alone, switch))]))
    assert "1.0.1" in addresses(tor_path(FICONN, FICONN.server("0.0.0"), alone))
    for source in set(range(FICONN.servers)) - set(range(12, 16)):
        (path,) = route(FICONN, "tar", source, alone, failures).paths
        assert failures.first_on(FICONN, path) is None
        assert len(set(path.servers)) == len(path.servers)
        assert path.steps[-1].port == BACKUP
        assert len(path) <= 2 * 3**FICONN.k - 1


@pytest.mark.parametrize(
    "switch", [*range(3), *(pytest.param(s, marks=pytest.mark.long) for s in range(3, 12))]
)
def test_departs_probes_may_come_by_the_far_side_of_the_destinations_backup_link(
    switch: int,
) -> None:
    """With a failed switch of ficonn,4,2 TAR finds no way to one of its servers from 34 others."""
    failures = parse_failures(FICONN, [f"stop s{switch}"])
    without = 0
    for a, b in permutations(range(FICONN.servers), 2):
        # Only servers on the failed switch are hard to reach.
        if b // FICONN.n != switch or not route(FICONN, "shortest", a, b, failures).paths:
            continue
        without += not route(FICONN, "tar", a, b, failures).paths
        (path,) = route(FICONN, "tar-far-side", a, b, failures).paths
        assert failures.first_on(FICONN, path) is None
        assert len(set(path.servers)) == len(path.servers), "a loop"
    assert without == 34


# -- each departure from the paper ----------------------------------------------------------------


def test_departs_no_bypass_unless_tor_takes_the_backup_link() -> None:
    # TOR's next hop is [0,2,2]; that the own backup link is busy does not matter.
    decision = ask("0.2.0", "0.1.3", came="0.2.1")
    came = Step(SWITCH, at("0.2.1"))
    assert decision == ForwardProbe(RouteEntry(came, Step(SWITCH, at("0.2.2"))), (BYZERO, BYZERO))


def test_departs_pr_is_reset_only_by_the_crossing_of_a_higher_level() -> None:
    def progress(server: str, to: str, came: str) -> tuple[int, ...]:
        return ask(server, to, came, (BYONE, BYONE), seen=sight()).progress

    assert progress("0.0.1", "1.2.3", "0.0.2") == (BYZERO, BYONE)  # level 2 is crossed
    assert progress("0.0.1", "0.2.3", "1.0.1") == (BYONE, BYONE)  # a level-2 server, level 0 is
    assert progress("0.2.0", "0.0.3", "0.2.1") == (BYONE, BYONE)  # level 1 is


def test_departs_a_new_proxy_starts_the_entries_below_over() -> None:
    pending = (at("0.1.2"), BYZERO)
    dead = sight(dead=[Step(BACKUP, at("0.1.2"))])
    decision = ask("0.2.2", "1.2.1", "0.2.1", pending, seen=dead)
    assert isinstance(decision, Back)
    assert decision.progress[0] == BYZERO
    assert decision.progress[1] in (at("2.0.1"), at("3.0.1"))


def test_departs_a_bypass_decided_at_the_source_needs_no_source_reroute() -> None:
    decision = ask("0.2.0", "0.0.1", source="0.2.0", progress=(BYZERO,))
    assert decision == ForwardProbe(RouteEntry(None, Step(SWITCH, at("0.2.2"))), (at("0.1.2"),))


def test_departs_a_proxy_behind_the_bypassed_link_is_drawn_again() -> None:
    ficonn = FiConn(6, 2)
    busy, destination = ficonn.server("0.3.0"), ficonn.server("1.3.3")
    hidden = ficonn.server("2.0.0")
    assert tor_step(ficonn, busy, destination).port == BACKUP
    assert tor_step(ficonn, busy, hidden).port == BACKUP  # FiConn_1[2] is behind the same link
    thirds = set()
    for seed in range(60):
        probe = TarProbe(ficonn.server("0.3.1"), destination, (BYONE, BYZERO))
        came = Step(SWITCH, probe.source)
        decision = decide(ficonn, busy, probe, came, None, sight(0.5e9, seed=seed))
        thirds.add(decision.progress[1] // ficonn.sizes[1])
    assert thirds == {3, 4, 5, 6}


def test_departs_source_reroute_ends_where_the_probe_entered_the_ficonn() -> None:
    # A pending proxy is inside the FiConn that was entered, and what lies before is not undone.
    came = Step(BACKUP, at("0.0.1"))
    route_entry = RouteEntry(came, Step(SWITCH, at("1.0.2")))
    decision = ask("1.0.1", "1.2.1", "1.0.2", (at("1.1.0"), BYZERO), route_entry, sight())
    assert decision == ForwardProbe(
        RouteEntry(came, Step(SWITCH, at("1.0.0"))), (at("1.1.0"), BYZERO)
    )
    # So bypasses in two FiConn_1s do not undo each other.
    found = set_up(FICONN, at("0.2.1"), at("1.2.1"), sights({"0.2.0": BUSY, "1.0.2": BUSY}))
    assert addresses(found.path) == (
        "0.2.1 0.2.2 0.1.2 0.1.0 0.0.0 0.0.1 1.0.1 1.0.0 1.1.0 1.1.2 1.2.2 1.2.1"
    )
    assert set(found.virtual) == {at("0.2.0"), at("1.0.2")}


def test_departs_a_source_that_prefers_its_backup_link_has_made_the_bypass() -> None:
    decision = ask("0.2.0", "0.1.3", source="0.2.0", progress=(BYZERO,), seen=EAGER)
    assert decision == ForwardProbe(RouteEntry(None, Step(BACKUP, at("0.0.2"))), (at("0.0.2"),))
    special = {"0.2.0": EAGER, "0.0.0": BUSY}
    found = set_up(FICONN, at("0.2.0"), at("0.1.3"), sights(special))
    assert addresses(found.path) == "0.2.0 0.0.2 0.0.0 0.1.0 0.1.3"  # [0,0] may not bypass too
    # On the way to a proxy there is nothing to prefer.
    pending = (BYZERO, at("2.0.1"))
    decision = ask("0.2.0", "1.1.3", source="0.2.0", progress=pending, seen=EAGER)
    assert isinstance(decision, ForwardProbe)
    assert decision.route_entry.next.port == SWITCH


def test_departs_a_source_does_not_prefer_a_link_that_leads_straight_back() -> None:
    decision = ask("0.2.0", "0.2.3", source="0.2.0", progress=(BYZERO,), seen=EAGER)
    assert decision == ForwardProbe(RouteEntry(None, Step(SWITCH, at("0.2.3"))), (BYZERO,))


def test_departs_the_pr_field_has_an_entry_for_the_level_of_the_source() -> None:
    assert first_probe(FICONN, at("0.2.3"), at("0.2.0")).progress == ()
    assert first_probe(FICONN, at("0.2.0"), at("0.2.3")).progress == (BYZERO,)
    assert first_probe(FICONN, at("0.2.1"), at("0.2.3")).progress == (BYZERO, BYZERO)
    assert first_probe(FICONN, at("0.2.0"), at("1.2.3")).progress == (BYZERO, BYZERO)


def test_departs_nearly_equal_bandwidths_count_as_equal() -> None:
    noisy = sight(backup_bps=0.95e9)._replace(equal_share=0.9)
    decision = ask("0.2.0", "0.0.1", came="0.2.1", seen=noisy)
    assert isinstance(decision, ForwardProbe)
    assert decision.route_entry.next.port == BACKUP
    assert isinstance(ask("0.2.0", "0.0.1", "0.2.1", seen=noisy._replace(equal_share=1.0)), Back)


def test_departs_a_proxy_that_the_source_cannot_reach_is_given_up() -> None:
    """[0,2] bypasses its link by the third FiConn; the link to that one is the dead one."""
    ficonn = FiConn(4, 1)
    source, busy = ficonn.server("0.0"), ficonn.server("0.2")
    seen = {source: sight(dead=[Step(BACKUP, ficonn.server("1.0"))]), busy: BUSY}
    found = set_up(ficonn, source, ficonn.server("2.3"), lambda server: seen.get(server) or sight())
    assert addresses(found.path, ficonn) == "0.0 0.2 2.0 2.3"
