"""DPillar's simulated figures: what is drawn, and what is made of it."""

from __future__ import annotations

from operator import truediv
from pathlib import Path

import numpy
import pytest

from pillarbox import topos
from pillarbox.experiments.apps import papers as reproductions
from pillarbox.experiments.apps.papers.dpillar import lengths, loads, paths, readings
from pillarbox.experiments.apps.papers.shared import paper_tables
from pillarbox.experiments.apps.papers.shared.draws import Runs, values_by_run
from pillarbox.experiments.apps.papers.shared.figure import FIGURES
from pillarbox.experiments.models.comparison import table_checks
from pillarbox.experiments.models.comparison.table_checks import Erratum, PaperTable, TableCheck
from pillarbox.experiments.models.simulator.failure_sets import draw
from pillarbox.experiments.models.simulator.flow_arrays import random_flows
from pillarbox.experiments.runs.reporting.reproduced.result import (
    AGREES,
    CLAIM_HOLDS,
    DIFFERS,
    ERRATUM,
    Reproduction,
    Settings,
)
from pillarbox.hosts.base.failures import Failures
from pillarbox.hosts.dpillar.paths import mp_paths, pairing_tunnels, sp_path
from pillarbox.topos.dpillar import CLOCKWISE, COUNTER_CLOCKWISE, DPillar


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(tmp_path, workers=1, repeats=3, quick=True, say=lambda _: None)


def value(found: Reproduction, series: str, x: str | float) -> float:
    points = (*found.points, *found.rows)
    ours = next(p.ours for p in points if (p.series, p.x) == (series, x))
    assert ours is not None
    return ours


# -- paths and failures --------------------------------------------------------------------------


def printed_paths(dpillar: DPillar, source: int, destination: int) -> list[int]:
    """Return the hops of Algorithm 2 by its letter: sets, removals and sorting."""
    half, (column, *_) = dpillar.half, dpillar.digits(source)
    last = (dpillar.digits(destination)[0] - 1) % dpillar.k

    def symbol(server: int, place: int) -> int:
        return dpillar.digits(server)[dpillar.k - place]

    def beside(server: int, onward: int, place: int, value: int) -> int:
        digits = list(dpillar.digits(server))
        digits[0] = (digits[0] + onward) % dpillar.k
        digits[dpillar.k - place] = value
        return dpillar.server_at(digits)

    near, far = sorted(range(half)), sorted(range(half))
    first = symbol(destination, column), symbol(source, last)
    near.remove(first[0])
    far.remove(first[1])
    pairs = [first, *zip(near, far, strict=True)]
    ends = [(beside(source, 1, column, a), beside(destination, -1, last, b)) for a, b in pairs]
    return [2 + len(sp_path(dpillar, s, d, CLOCKWISE)) for s, d in ends]


@pytest.mark.parametrize("spec", ["dpillar,8,2", "dpillar,6,3"])
def test_hops_as_printed(spec: str) -> None:
    dpillar = topos.parse(spec)
    sources, destinations = random_flows(dpillar.servers, 50, numpy.random.default_rng(7))
    found = lengths.printed_hops(dpillar, sources, destinations)
    ends = zip(sources.tolist(), destinations.tolist(), strict=True)
    assert found.tolist() == [printed_paths(dpillar, *pair) for pair in ends]


def test_a_run_without_failures_has_the_routers_lengths() -> None:
    dpillar = topos.parse("dpillar,4,2")
    servers = range(dpillar.servers)
    pairs = [(s, d) for s in servers for d in servers if s != d]
    expected = numpy.mean([len(sp_path(dpillar, *pair, CLOCKWISE)) for pair in pairs])
    sets = [mp_paths(dpillar, *pair, CLOCKWISE) for pair in pairs]
    found = paths.measure((dpillar.spec, 0, 0, 1, 0))
    assert found["sp_hops"] == pytest.approx(expected, abs=0.05)
    assert found["mp_available"] == pytest.approx(numpy.mean([*map(len, sets)]), abs=0.05)
    of_pair = [numpy.mean([len(path) for path in of_pair]) for of_pair in sets]
    assert found["mp_hops"] == pytest.approx(numpy.mean(of_pair), abs=0.05)
    assert [found[what] for what in paths.SERIES.values()] == [0] * len(paths.SERIES)


def test_failures_cost_more_the_fewer_paths_there_are() -> None:
    found = paths.measure(("dpillar,8,3", 20, 10, 1, 0))
    lost = [found[what] for what in paths.SERIES.values()]
    assert [100, *lost, 0] == sorted({100, *lost, 0}, reverse=True)
    everything = paths.measure(("dpillar,4,2", 0, 4, 1, 0))
    assert everything["sp_hops"] is None and everything["mp_available"] == 0
    assert everything["both_lost"] == everything["cut_off"] == 100


def test_all_pairings_are_tried_as_the_routers_try_them() -> None:
    dpillar = paths.network("dpillar,4,3")
    random = numpy.random.default_rng(4)
    broken = draw(dpillar, random, servers=0.25, switches=0.1)
    alive = numpy.flatnonzero(~broken.servers)
    ends = tuple(alive[end] for end in random_flows(len(alive), 150, random))
    nodes = numpy.flatnonzero(numpy.concatenate([broken.servers, broken.switches]))
    failures = Failures(frozenset(nodes.tolist()))

    def lost(ports: tuple[int, ...]) -> list[bool]:
        return [
            not any(
                failures.first_on(dpillar, path) is None
                for port in ports
                for path in pairing_tunnels(dpillar, int(source), int(destination), port)
            )
            for source, destination in zip(*ends, strict=True)
        ]

    works = broken.works(dpillar)
    one_way = paths.pairing_failures(dpillar, works, *ends, clockwise=True).tolist()
    assert one_way == lost((CLOCKWISE,))
    both = paths.pairing_failures(dpillar, works, *ends).tolist()
    assert both == lost((CLOCKWISE, COUNTER_CLOCKWISE))
    assert 0 < sum(both) < sum(one_way) < len(both)


def test_pairs_whose_ends_have_no_switch_are_counted_apart() -> None:
    found = paths.measure(("dpillar,16,3", 0, 20, 1, 0))
    names = ("no_switch", "cut_off", "any_lost", "both_lost")
    lost = [round(found[name], 6) for name in names]
    assert lost[0] > 0 and lost == sorted(lost)
    (apart,) = paths.lost_with_switches(Runs((), [found]), "any_lost")
    assert 0 < apart < found["any_lost"] - found["no_switch"] + 0.1


def test_every_reading_is_compared_with_every_figure(settings: Settings) -> None:
    found = readings.readings.reproduce(settings)
    assert len(found.points) == 4 * len(readings.READINGS)
    assert found.verdict == AGREES, found.reasons  # no reading is nearer than the one in use
    lost = "Fig. 11: pairs without a working path, %, 500 servers"
    one, other = (value(found, lost, f"{pairing} pairing, both ways") for pairing in ("one", "any"))
    assert other < one


def test_what_is_too_large_is_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "MOST_CUT_OFF", 10)
    found = paths.measure(("dpillar,8,2", 0, 2, 1, 0))
    assert found["cut_off"] is None
    assert paths.routing_failure_points([Runs((), [found])], [2])[-1].ours is None


def test_the_same_seed_gives_the_same_run() -> None:
    *case, run = "dpillar,6,2", 2, 1, 1, 0
    assert paths.measure((*case, run)) == paths.measure((*case, run))
    assert paths.measure((*case, run)) != paths.measure((*case, run + 1))


def test_runs_are_compared_one_by_one() -> None:
    first, second = (
        Runs((), [{"hops": hops} for hops in found])
        for found in ((3.0, None, 9.0), (2.0, 1.0, 4.0))
    )
    assert values_by_run(truediv, (first, "hops"), (second, "hops")) == [1.5, 2.25]


# -- loads ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("routing", loads.ROUTINGS.values())
def test_loads_are_of_all_servers_and_flows(routing: str) -> None:
    servers = loads.measure(("dpillar,8,2", routing, 0.5, 1, 0))
    assert sum(servers) == 32
    flows = 16 * 15
    assert 0 < loads.mean_forwarded_flows(servers) * 32 < flows * 4  # at most 2k hops over others
    halves = loads.measure(("dpillar,8,2", routing, loads.HALVES, 1, 0))
    assert sum(halves) == 32
    assert 0 < loads.mean_forwarded_flows(halves) * 32 <= 16 * 4


def test_fig_13_sees_a_difference(settings: Settings) -> None:
    def found(most: int) -> Reproduction:
        of_network = {"dpillar,16,3": [900, 600], "dpillar,24,3": [2600, 2000]}
        runs = {
            (spec, pattern, routing): Runs((), [[*servers, *[0] * (most - 2), 1]] * 2)
            for spec, servers in of_network.items()
            for pattern in loads.PATTERNS
            for routing in loads.ROUTINGS
        }
        return loads.fig13.of(loads.made_13(settings, runs))

    assert "flows of the most loaded: ours is 20, the paper's at most 11" in found(20).reasons[1]
    (held,) = [reason for reason in found(12).reasons if "most loaded" in reason]
    assert held.startswith('"The most loaded servers forward no more than 11 flows."')
    assert "ours is 12" in held
    assert any("at most 4 flows, %: ours is 99.9" in reason for reason in found(12).reasons)


# -- whole figures -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "verdict"),
    [
        ("dpillar-fig8", CLAIM_HOLDS),
        ("dpillar-fig9", CLAIM_HOLDS),
        ("dpillar-fig10", CLAIM_HOLDS),
        ("dpillar-fig11", AGREES),
        ("dpillar-fig12", DIFFERS),
        ("dpillar-fig13", CLAIM_HOLDS),
        ("dpillar-fig14", AGREES),
        ("dpillar-large", AGREES),
        ("dpillar-table1", AGREES),
        ("dpillar-table2", ERRATUM),
    ],
)
def test_verdicts(name: str, verdict: str, settings: Settings) -> None:
    found = reproductions.figure(name).reproduce(settings)
    assert found.name == name
    assert found.verdict == verdict, found.reasons
    assert bool(found.reasons) == (verdict != AGREES)
    assert found.points


def test_what_no_routing_reaches_is_less_than_what_mp_loses(settings: Settings) -> None:
    found = reproductions.figure("dpillar-fig12").reproduce(settings)
    ours = [value(found, series, 20) for series in paths.SERIES]
    assert ours == sorted(ours, reverse=True)
    assert "no routing reaches those" in found.reasons[-1]


def test_fig_8_compares_the_paths_as_printed(settings: Settings) -> None:
    def found(sp: float, printed: float, repaired: float) -> Reproduction:
        hops = {"SP": sp * 5, "MP, as printed": printed * 7, "MP, repaired": repaired * 7}
        return lengths.fig8.of(lengths.made(settings, {3: Runs((), [hops] * 2)}))

    assert found(0.8, 0.75, 0.75).verdict == CLAIM_HOLDS
    other = found(0.8, 0.75, 0.6)
    assert other.verdict == CLAIM_HOLDS
    assert any(row.series == "MP, repaired" for row in other.rows)
    assert other.notes[0] == lengths.READING
    assert found(0.8, 0.6, 0.75).verdict == DIFFERS
    longer = found(0.2, 0.75, 0.7)  # MP's paths are more than two hops longer
    assert longer.verdict == DIFFERS
    assert longer.reasons[-1].startswith('"The inflation is always within 2 hops."')


def test_a_printed_table_differs_where_a_check_does() -> None:
    checks = [
        TableCheck("bcube,4,1 servers", "n^(l+1) = 16", 16, True),
        TableCheck("bcube,4,1 cables", "32", 31, False, "one is missing"),
        TableCheck("bcube,4,1 bisection", "N / 2 = 8", None, None),
        TableCheck("bcube,4,1 diameter", "O(k)", 2, None),
    ]
    figure = FIGURES["bcube-table1"]
    found = figure.of(paper_tables.printed(PaperTable("A table", "Nobody 2000", checks)))
    assert found.verdict == DIFFERS
    assert found.reasons == ("bcube,4,1 cables: ours is 31, in print 32: one is missing.",)
    assert [point.paper for point in found.points] == [16, 32, 8, None]
    assert "bcube,4,1 bisection" in found.notes[1]
    assert figure.of(paper_tables.printed(PaperTable("", "", checks[:1]))).verdict == AGREES


@pytest.mark.parametrize(
    ("ours", "word"), [(4.532, ERRATUM), (4.4, AGREES), (4.7, DIFFERS), (4.3, DIFFERS)]
)
def test_an_erratum_has_the_derived_value(ours: float, word: str) -> None:
    erratum = Erratum("Power (Nobody 2000, Table 1)", 44 * 103 / 1000)
    check = table_checks.number_check("tree: power, kW", "4.4", ours, "44 x 103 W", erratum)
    found = FIGURES["bcube-table2"].of(paper_tables.printed(PaperTable("", "", [check])))
    assert found.verdict == word
    assert found.errata == ((erratum.entry,) if word == ERRATUM else ())
    assert check.mark == {ERRATUM: "erratum", AGREES: "agree", DIFFERS: "differs"}[word]
