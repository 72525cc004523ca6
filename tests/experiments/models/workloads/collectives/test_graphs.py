"""Every collective operation, in memory: all end with the right sums, whatever comes first."""

import re
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillarbox import topos
from pillarbox.experiments.models.workloads.collectives import graph as graphs
from pillarbox.experiments.models.workloads.collectives.bound import collective_time_bound_s
from pillarbox.experiments.models.workloads.collectives.plan import (
    ALGORITHMS,
    CollectivePlan,
    plan_for,
)
from pillarbox.experiments.models.workloads.workload import Workload
from pillarbox.topos.base.errors import PillarboxError
from tests.experiments.models.workloads.collectives.sum_checks import transfer_graph_errors

NETWORKS = [
    "bcube,4,1", "bcube,2,2", "bcube,3,1", "bcube,4,1,servers=8", "dcell,3,1", "dpillar,4,2",
    "ficonn,4,1", "tree,4,4", "fattree,4", "rail,4,2", "mesh,3,3",
]  # fmt: skip
PAIRS = [(operation, name) for operation, known in ALGORITHMS.items() for name in known]


def planned(
    network: str,
    operation: str,
    algorithm: str = "",
    volume_bytes: int = 1 << 20,
    seed: int = 1,
    **options: Any,
) -> CollectivePlan:
    workload = Workload(operation, volume_bytes, options=options)
    return plan_for(topos.parse(network), workload, algorithm, seed)


def refusal(*arguments: Any, **options: Any) -> str:
    with pytest.raises(PillarboxError) as refused:
        planned(*arguments, **options)
    return str(refused.value)


@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize(("operation", "algorithm"), PAIRS)
def test_every_network_ends_with_the_right_sums(
    network: str, operation: str, algorithm: str
) -> None:
    ranks = {} if algorithm == "bml" else {"ranks": 8}
    if network.startswith("bcube") and algorithm in ("bcube", "trees"):
        ranks = {"base": 2, "ranks": 8} if algorithm == "bcube" else {}
    if algorithm == "bml" and not network.startswith(("bcube", "rail", "mesh")):
        assert "BML needs a BCube" in refusal(network, operation, algorithm)
        return
    assert list(transfer_graph_errors(planned(network, operation, algorithm, **ranks).graph)) == []


@given(
    ranks=st.integers(2, 20),
    pair=st.sampled_from([pair for pair in PAIRS if pair[1] not in ("bml", "trees")]),
    placement=st.sampled_from(["paper", "random"]),
    data=st.data(),
)
def test_every_number_of_ranks_is_right_or_refused(
    ranks: int, pair: tuple[str, str], placement: str, data: Any
) -> None:
    operation, algorithm = pair
    options: dict[str, Any] = {"ranks": ranks, "placement": placement}
    if algorithm == "parameter-servers":
        options["parameter_servers"] = data.draw(st.integers(1, ranks))
    if algorithm == "binomial":
        options["root"] = data.draw(st.integers(0, ranks - 1))
        options["pieces"] = data.draw(st.integers(1, 5))
    try:
        plan = planned("dcell,4,1", operation, algorithm, **options)
    except PillarboxError as refused:
        assert algorithm in ("halving-doubling", "bcube")
        assert ranks not in (2, 4, 8, 16)
        assert f"power of 2 as the number of ranks, not {ranks}" in str(refused)  # noqa: PT017
        return
    assert list(transfer_graph_errors(plan.graph)) == []
    assert len(set(plan.servers)) == ranks


@given(
    elements=st.integers(40, 5000),
    pair=st.sampled_from([("all-reduce", "ring"), ("all-reduce", "bml"), ("broadcast", "trees")]),
)
def test_no_byte_is_lost_between_chunks(elements: int, pair: tuple[str, str]) -> None:
    plan = planned("bcube,3,1", *pair, volume_bytes=4 * max(elements, 64) + 3)
    sizes = [plan.bytes_of_chunks(chunk) for chunk in range(plan.graph.chunks)]
    assert sum(sizes) == plan.size_bytes
    assert max(sizes) - min(sizes) <= 4
    assert sum(flow.volume_bytes or 0 for flow in plan.flows()) == sum(plan.volumes)


def test_ring_and_bml_send_the_least_of_all() -> None:
    for algorithm in ("ring", "bml", "halving-doubling", "bcube"):
        network = "bcube,4,1"
        plan = planned(network, "all-reduce", algorithm, volume_bytes=128_000)
        assert sum(plan.volumes) == 2 * 15 * 128_000
        sent: Counter[int] = Counter()
        for flow in plan.flows():
            sent[flow.source] += flow.volume_bytes or 0
        assert set(sent.values()) == {2 * 15 * 128_000 // 16}
        assert collective_time_bound_s(topos.parse(network), plan, 8.0) == 2 * 15 / 16 * 128_000 / 2


def test_every_bml_transfer_is_one_hop_and_all_ports_are_busy_in_every_step() -> None:
    network = topos.parse("bcube,3,1")
    graph = planned("bcube,3,1", "all-reduce", "bml").graph
    for step in range(4):
        used: Counter[tuple[int, int]] = Counter()
        for one in graph.transfers:
            if one.step == step:
                (port,) = [p for p in range(2) if one.receiver in network.peers(one.sender, p)]
                used[one.sender, port] += one.size
        assert len(used) == 18
        assert set(used.values()) == {6 if step in (0, 3) else 2}


def test_reads_are_one_after_the_other_and_of_a_whole_block() -> None:
    network, block = topos.parse("bcube,4,1"), 120_000
    options = {"fan_in": [1, 4, 15], "reads": 2}
    plan = planned("bcube,4,1", "synchronized-reads", volume_bytes=block, **options)
    by_step: dict[int, list[int]] = {}
    for number, one in enumerate(plan.graph.transfers):
        by_step.setdefault(one.step, []).append(number)
        assert one.after == tuple(by_step.get(one.step - 1, ()))
        assert one.receiver == 0
    assert [len(numbers) for numbers in by_step.values()] == [1, 1, 4, 4, 15, 15]
    assert all(sum(plan.volumes[n] for n in numbers) == block for numbers in by_step.values())
    # Six blocks enter rank 0 by two ports.
    assert collective_time_bound_s(network, plan, 8.0) == 6 * block / 2


@pytest.mark.parametrize("change", ["forgets", "doubles", "races", "lacks", "loops"])
def test_the_check_finds_what_is_wrong(change: str) -> None:
    graph = planned("tree,2,2", "all-reduce", "ring").graph
    first, *others = graph.transfers
    changed = {
        "forgets": graph.transfers[:-1],
        "doubles": (*graph.transfers, first._replace(after=(len(others),))),
        "races": tuple(one._replace(after=()) for one in graph.transfers),
        "lacks": graph.transfers,
        "loops": (first._replace(after=(3,)), *others),
    }[change]
    begins = ((), *graph.begins[1:]) if change == "lacks" else graph.begins
    words = {
        "forgets": "does not end with the whole",
        "doubles": "a part that is already in it",
        "races": "race for chunk",
        "lacks": "does not have",
        "loops": "is not before it",
    }
    found = list(transfer_graph_errors(replace(graph, transfers=tuple(changed), begins=begins)))
    assert any(words[change] in one for one in found)


@pytest.mark.parametrize(
    ("arguments", "options", "words"),
    [
        (("tree,4,4", "all-reduce", "halving-doubling"), {"ranks": 12}, "choose 8 or 16 ranks"),
        (("bcube,4,1", "all-reduce", "bml"), {"ranks": 8}, "BML needs all 16 servers"),
        (("bcube,4,1", "all-reduce", "ring"), {"ranks": 17}, "takes 2 to 16 ranks, not 17"),
        (("bcube,4,1", "all-reduce", "ring"), {"ranks": 1}, "takes 2 to 16 ranks, not 1"),
        (("bcube,4,1", "all-reduce", "rings"), {}, "did you mean ring?"),
        (("bcube,4,1", "all-reduce", "ring"), {"rank": 4}, "did you mean ranks?"),
        (("bcube,4,1", "all-reduce", "ring", 0), {}, "volume_bytes must be 64 or more, not 0"),
        (("bcube,4,1", "all-reduce", "ring", 1 << 30), {}, "17.2 GB of memory"),
        (("bcube,4,1", "all-reduce", "parameter-servers"), {"parameter_servers": 17}, "1 to 16"),
        (("bcube,4,1", "broadcast", "trees"), {"root": "0.1"}, "root is a whole number"),
        (("bcube,4,1", "broadcast", "trees"), {"ranks": 3}, "pass servers that are no ranks"),
        (("bcube,4,1", "all-reduce", "ring"), {"placement": "best"}, "not 'best'"),
        (("bcube,4,1", "synchronized-reads"), {"fan_in": 16}, "from 1 to 15 here"),
        (("bcube,4,1", "synchronized-reads"), {"fan_in": [4, 0]}, "a list of such numbers, not 0"),
        (("bcube,4,1", "synchronized-reads"), {"fan_in": []}, "an empty list"),
        (("bcube,4,1", "synchronized-reads"), {"reads": 0}, "a number of at least 1 here, not 0"),
        (("bcube,4,1", "synchronized-reads", "", 59), {"fan_in": [1, 15]}, "60 or more, not 59"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(
    arguments: tuple[Any, ...], options: dict[str, Any], words: str
) -> None:
    assert words in refusal(*arguments, **options)


@pytest.mark.parametrize(
    ("bound", "words"), [("MOST_SENT", "more than 23 chunks"), ("MOST_NEEDED", "dependencies")]
)
def test_more_transfers_than_memory_holds_are_refused(
    bound: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    transfers = planned("tree,2,2", "all-reduce", "ring").graph.transfers
    used = sum(one.size if bound == "MOST_SENT" else len(one.after) for one in transfers)
    monkeypatch.setattr(graphs, bound, used)
    planned("tree,2,2", "all-reduce", "ring")
    monkeypatch.setattr(graphs, bound, used - 1)
    assert re.search(words, refusal("tree,2,2", "all-reduce", "ring"))


def test_more_ranks_than_memory_holds_are_refused() -> None:
    words = "at most 2,000,000 ranks, not 2,097,152: choose fewer (options.ranks)"
    assert words in refusal("bcube,2,20", "broadcast", "binomial")


def test_a_duration_is_refused() -> None:
    with pytest.raises(PillarboxError, match="set volume_bytes"):
        plan_for(topos.parse("tree,2,2"), Workload("all-reduce", duration_s=1.0), "", 1)


def test_another_tool_is_refused() -> None:
    workload = Workload("all-reduce", 1 << 20, tool="iperf3")
    with pytest.raises(PillarboxError, match="omit tool = iperf3"):
        plan_for(topos.parse("tree,2,2"), workload, "", 1)


def test_the_placement_follows_the_seed() -> None:
    servers = [
        planned("tree,4,4", "all-reduce", seed=s, placement="random").servers for s in (1, 1, 2)
    ]
    assert servers[0] == servers[1] != servers[2]
    assert sorted(servers[0]) == list(range(16))


@pytest.mark.parametrize(("network", "inner"), [("tree,4,4", 4), ("bcube,4,1", 4), ("mesh,3,3", 1)])
def test_hierarchical_rings_take_few_steps(network: str, inner: int) -> None:
    """Each rank sends as much as in one ring; without a common switch it is one ring."""
    plan = planned(network, "all-reduce", "hierarchical", volume_bytes=1 << 14, ranks=8)
    assert plan.graph.steps == 2 * (inner - 1) + 2 * (8 // inner - 1)
    sent: Counter[int] = Counter()
    for one, volume in zip(plan.graph.transfers, plan.volumes, strict=True):
        sent[one.sender] += volume
    assert set(sent.values()) == {2 * 7 * (1 << 14) // 8}
    groups = {(one.sender // inner, one.receiver // inner) for one in plan.graph.transfers}
    assert len(groups) == (8 // inner) * (1 if inner == 1 else 2)


def test_groups_of_a_hierarchical_all_reduce_have_one_size() -> None:
    for inner in (1, 2, 8):
        plan = planned("tree,4,4", "all-reduce", "hierarchical", ranks=8, inner=inner)
        assert list(transfer_graph_errors(plan.graph)) == []
    assert "8 ranks are no multiple of 3" in refusal(
        "tree,4,4", "all-reduce", "hierarchical", ranks=8, inner=3
    )
