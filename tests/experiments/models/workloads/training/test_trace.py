"""Checks of traces: one sentence for each thing that is wrong."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from pillarbox.experiments.models.workloads.training import trace as traces
from pillarbox.experiments.models.workloads.training.trace import (
    COLLECTIVE,
    COMPUTE,
    RECEIVE,
    SEND,
    Place,
    Trace,
    TraceNode,
    check_trace,
)
from pillarbox.topos.base.errors import PillarboxError
from tests.experiments.models.workloads.training.drawn_trace import drawn_trace


def compute(number: int, *after: int, duration_us: int = 1) -> TraceNode:
    return TraceNode(number, f"c{number}", COMPUTE, after, duration_us)


def message(number: int, kind: str, peer: int | None, *after: int, size: int = 8) -> TraceNode:
    return TraceNode(number, f"m{number}", kind, after, peer=peer, size_bytes=size)


def collective(number: int, *after: int, group: str = "", **values: object) -> TraceNode:
    node = TraceNode(
        number, "sum", COLLECTIVE, after, size_bytes=64, operation="all-reduce", group=group
    )
    return replace(node, **values)  # type: ignore[arg-type]


def test_order_has_every_node_after_its_dependencies() -> None:
    trace = drawn_trace()
    check_trace(trace)
    at = {place: number for number, place in enumerate(trace.order)}
    assert len(at) == 20
    for rank, nodes in enumerate(trace.ranks):
        for index, node in enumerate(nodes):
            assert all(at[Place(rank, other)] < at[Place(rank, index)] for other in node.after)
    assert all(at[sent] < at[received] for received, sent in trace.messages.items())


def test_messages_of_one_pair_are_matched_in_order() -> None:
    sends = message(0, SEND, 1), message(1, SEND, 1, 0)
    receives = message(5, RECEIVE, 0), message(6, RECEIVE, 0)
    found = Trace((sends, receives)).messages
    assert found == {Place(1, 0): Place(0, 0), Place(1, 1): Place(0, 1)}


def test_collectives_of_a_group_are_matched_in_order() -> None:
    trace = Trace(
        (
            (collective(0), collective(1, group="7")),
            (collective(0),),
            (collective(3), collective(4, group="7")),
        ),
        {"7": (2, 0)},
    )
    found = trace.operations[Place(0, 1)]
    assert found.members == (2, 0)
    assert found.places == (Place(2, 1), Place(0, 1))


@pytest.mark.parametrize(
    ("ranks", "groups", "sentence"),
    [
        (((compute(0, 1), compute(1, 0)),), {}, "cycle of dependencies: rank 0, node 0 'c0' waits"),
        (((compute(0, 0),),), {}, "cycle of dependencies"),
        (((compute(0, 9),),), {}, "depends on node 9, which rank 0 does not have"),
        (((compute(0), compute(0)),), {}, "rank 0 has two nodes 0"),
        (((compute(0, duration_us=-1),),), {}, "negative duration: -1 microseconds"),
        (((compute(0, duration_us=traces.MOST_DURATION_US + 1),),), {}, "are allowed"),
        (((message(0, SEND, 2),), ()), {}, "unknown rank 2: ranks are 0 to 1"),
        (((message(0, SEND, -1),), ()), {}, "unknown rank -1"),
        (((message(0, SEND, 0),), ()), {}, "sends to its own rank"),
        (((message(0, SEND, 1),), (compute(0),)), {}, "has no matching receive from rank 0 to"),
        (((message(0, RECEIVE, 1),), (compute(0),)), {}, "has no matching send from rank 1 to"),
        (((message(0, SEND, None),), ()), {}, "needs the attribute comm_dst"),
        (
            ((message(0, SEND, 1),), (message(0, RECEIVE, 0, size=9),)),
            {},
            "sends 8 bytes and rank 1, node 0 'm0' receives 9",
        ),
        (((message(0, SEND, 1, size=-1),), ()), {}, "a size of -1 bytes"),
        (((collective(0),), (compute(0),)), {}, "rank 1 has 0 collective operations of all ranks"),
        (((collective(0, group="x"),), ()), {}, "unknown process group 'x'"),
        (((collective(0, group="1"),), ()), {"1": (1,)}, "which does not contain it"),
        (((compute(0),), ()), {"1": (0, 2)}, "unknown rank 2"),
        (((compute(0),), ()), {"1": ()}, "no ranks, or one rank twice"),
        (((compute(0),), ()), {"1": (0, 0)}, "no ranks, or one rank twice"),
        (((collective(0, root=2),), ()), {}, "unknown root 2"),
        (
            ((collective(0),), (collective(0, operation="broadcast"),)),
            {},
            "differ in operation: all-reduce and broadcast",
        ),
        (((collective(0),), (collective(0, size_bytes=65),)), {}, "64 bytes and 65 bytes"),
        (((collective(0),), (collective(0, root=1),)), {}, "root 0 and root 1"),
        (
            (
                (collective(0, operation="total-exchange", parts=(32, 32)),),
                (collective(0, operation="total-exchange"),),
            ),
            {},
            "differ in parts: uneven parts and even parts",
        ),
        (((collective(0, parts=(32, 32)),), ()), {}, "they are for total-exchange"),
        *(
            (
                ((collective(0, operation="total-exchange", parts=parts),), ()),
                {},
                f"has {len(parts)} parts of {sum(parts)} bytes in total",
            )
            for parts in ((64,), (32, 33), (65, -1))
        ),
        (((), ()), {}, "no nodes"),
        (
            (
                (message(0, RECEIVE, 1), message(1, SEND, 1, 0)),
                (message(0, RECEIVE, 0), message(1, SEND, 0, 0)),
            ),
            {},
            "cycle of dependencies",
        ),
        (
            (
                (collective(0, group="1"), collective(1, 0, group="2")),
                (collective(1, group="2"), collective(0, 1, group="1")),
            ),
            {"1": (0, 1), "2": (0, 1)},
            "cycle of dependencies",
        ),
    ],
)
def test_a_trace_that_cannot_be_run(
    ranks: tuple[tuple[TraceNode, ...], ...], groups: dict[str, tuple[int, ...]], sentence: str
) -> None:
    with pytest.raises(PillarboxError) as caught:
        check_trace(Trace(ranks, groups))
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_long_cycle_is_found_in_linear_time() -> None:
    count = 100_000
    nodes = tuple(compute(number, (number - 1) % count) for number in range(count))
    began_s = time.process_time()
    with pytest.raises(PillarboxError, match=r"node 0 'c0' waits for .* waits for \.\.\.$"):
        check_trace(Trace((nodes,)))
    assert time.process_time() - began_s < 20.0  # 0.5 s; a quadratic search takes minutes


def test_extreme_values_are_allowed() -> None:
    check_trace(Trace(((compute(0, duration_us=traces.MOST_DURATION_US),),)))
    size = traces.MOST_MESSAGE_BYTES
    check_trace(Trace(((message(0, SEND, 1, size=size),), (message(0, RECEIVE, 0, size=size),))))
    size += 1
    with pytest.raises(PillarboxError, match="it is from 0 to"):
        check_trace(
            Trace(((message(0, SEND, 1, size=size),), (message(0, RECEIVE, 0, size=size),)))
        )


def test_ranks_of_an_uneven_exchange_have_data_of_their_own_sizes() -> None:
    sizes = (64, 32)
    check_trace(
        Trace(
            tuple(
                (collective(0, operation="total-exchange", size_bytes=size, parts=(size, 0)),)
                for size in sizes
            )
        )
    )


def test_number_of_nodes_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = tuple(map(compute, range(3)))
    monkeypatch.setattr(traces, "MOST_NODES", 3)
    check_trace(Trace((nodes,)))
    monkeypatch.setattr(traces, "MOST_NODES", 2)
    with pytest.raises(PillarboxError, match="at most 2 nodes, not 3"):
        check_trace(Trace((nodes,)))


def test_a_long_cycle_is_cut_off() -> None:
    nodes = tuple(compute(number, (number + 1) % 50) for number in range(50))
    with pytest.raises(PillarboxError) as caught:
        check_trace(Trace((nodes,)))
    assert str(caught.value).count("waits for") == traces.LONGEST_CYCLE
