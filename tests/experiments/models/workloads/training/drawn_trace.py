"""A trace of 20 nodes, drawn by hand, whose critical path is known.

::

    rank 0   A 0.2 s --- S1 ---.      D ------------------------------- .- S4 -- all-reduce
    rank 1   . 0.1 s           '--- B 0.3 s --- S2 ---.                 |          |
    rank 2   . 0.4 s                                  '- C 0.15 s- S3 - | -.       |
    rank 3   . 0.7 s                                                    E 0.1 s    |

Its time is A + S1 + B + S2 + C + S3 + E + S4 + all-reduce; no two messages are under way at a time.
"""

from __future__ import annotations

from pillarbox.experiments.models.workloads.training.trace import (
    COLLECTIVE,
    COMPUTE,
    RECEIVE,
    SEND,
    Trace,
    TraceNode,
)

RANKS = 4
MESSAGE_BYTES = 600_000
ALL_REDUCE_BYTES = 960_000
COMPUTE_US = (200_000, 300_000, 150_000, 100_000)  # on the critical path: A, B, C and E
IDLE_US = (50_000, 100_000, 400_000, 700_000)  # off the critical path


def _message(number: int, kind: str, peer: int, after: tuple[int, ...]) -> TraceNode:
    return TraceNode(number, f"S {kind}", kind, after, size_bytes=MESSAGE_BYTES, peer=peer)


def _computation(number: int, duration_us: int, after: tuple[int, ...]) -> TraceNode:
    return TraceNode(number, "computation", COMPUTE, after, duration_us)


def _all_reduce(number: int, after: tuple[int, ...]) -> TraceNode:
    return TraceNode(
        number,
        "sum",
        COLLECTIVE,
        after,
        size_bytes=ALL_REDUCE_BYTES,
        operation="all-reduce",
        group="1",
    )


def drawn_trace() -> Trace:
    """Return the trace: 5 nodes on each of 4 ranks."""
    first = (
        _computation(0, COMPUTE_US[0], ()),
        _message(1, SEND, 1, (0,)),
        _computation(2, IDLE_US[0], (0,)),
        _message(3, RECEIVE, 3, ()),
        _all_reduce(4, (2, 3)),
    )
    others = [
        (
            _computation(0, IDLE_US[rank], ()),
            _message(1, RECEIVE, rank - 1, ()),
            _computation(2, COMPUTE_US[rank], (0, 1)),
            _message(3, SEND, (rank + 1) % RANKS, (2,)),
            _all_reduce(4, (2,)),
        )
        for rank in range(1, RANKS)
    ]
    return Trace((first, *others), {"1": tuple(range(RANKS))})


def drawn_time_s(message_bps: float, ring_bps: float) -> float:
    """Return the iteration's time: one message at a time, then 2 (N - 1) steps of the ring."""
    messages_s = RANKS * MESSAGE_BYTES * 8 / message_bps
    ring_s = 2 * (RANKS - 1) / RANKS * ALL_REDUCE_BYTES * 8 / ring_bps
    return sum(COMPUTE_US) / 1e6 + messages_s + ring_s
