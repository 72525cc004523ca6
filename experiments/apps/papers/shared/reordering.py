"""TCP's counters of reordering and retransmission, by trial: per 1000 segments that arrived."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pillarbox.experiments.models.fluid.ideal import TCP_IP_BYTES

if TYPE_CHECKING:
    import pandas

LARGEST = "largest reordering"  # quantity: the maximum of all flows, in segments
PER_THOUSAND = 1000
# Columns of the flows' records by quantity.
COUNTERS = {
    "retransmissions": "retransmits",
    "reordering events": "reordering_events",
    "duplicates": "dsack_duplicates",
    LARGEST: "reordering",
}


def counted_by_trial(flows: pandas.DataFrame, quantity: str, mtu: int) -> pandas.Series:
    """Return a counter's value by trial: per 1000 full segments, or the maximum of all flows.

    The traffic tool iperf3 does not report reordering: such values are missing.
    """
    trials = flows.groupby("trial")
    counter = trials[COUNTERS[quantity]]
    if quantity == LARGEST:
        return counter.max().astype("Float64")
    segments = trials.delivered_bytes.sum() / (mtu - TCP_IP_BYTES)
    return counter.sum(min_count=1).astype("Float64") / segments * PER_THOUSAND
