"""Parser of the output of iperf3 with ``--json``.

iperf3's versions report different fields of a stream, and an early end leaves half a report, a
report with an ``error``, or no JSON. The data flows from the iperf3 *server* to the *client* (see
`pillarbox.experiments.lab.traffic.iperf3`), so the client's report is the receiver's.
"""

from __future__ import annotations

import json
import re
from itertools import zip_longest
from typing import Any

from pillarbox.experiments.models.workloads.flows import Flow, Interval
from pillarbox.topos.base.errors import require

UNREADABLE = "iperf3 ended without a report that can be read"
LARGEST = 2.0**63  # upper bound for byte counts and times in an iperf3 report
NEVER_CONNECTED = "unable to connect"


def version_in(text: str) -> tuple[int, int]:
    """Return the major and minor version in the output of ``iperf3 --version``.

    >>> version_in("iperf 3.12 (cJSON 1.7.15)")
    (3, 12)
    """
    found = re.match(r"iperf (\d+)\.(\d+)", text)
    require(found is not None, "`iperf3 --version` prints no version: install iperf3 3.9 or newer")
    assert found is not None
    return int(found[1]), int(found[2])


def report_in(text: str) -> dict[str, Any]:
    """Return the JSON report in iperf3's output, or a dict with only an ``error``.

    Warnings before the report are skipped.
    """
    begin = text.find("{")
    try:
        report, _ = json.JSONDecoder().raw_decode(text, begin if begin >= 0 else 0)
    except (ValueError, RecursionError):
        lines = text.strip().splitlines()
        # Output without JSON: the error message of an iperf3 that does not know an option.
        said = lines[0].removeprefix("iperf3: ") if lines and begin < 0 else ""
        return {"error": said or UNREADABLE}
    return report if isinstance(report, dict) else {"error": UNREADABLE}


def intervals_in(received: dict[str, Any], sent: dict[str, Any]) -> list[Interval]:
    """Return a flow's intervals from its two iperf3 reports; none if nothing arrived.

    Times count from the flow's start.

    Parameters
    ----------
    received, sent : dict
        The reports of the two ends: bytes are taken from the receiver's, other values from the
        sender's, which may be missing.
    """
    rows = []
    for got, gave in zip_longest(_stream_intervals(received), _stream_intervals(sent)):
        if got is None:
            break
        length_s = got["end"] - got["start"]
        # iperf3's client and server may disagree on the last interval, which is shorter.
        if gave is None or abs(gave["start"] - got["start"]) > length_s / 2:
            gave = {}
        if length_s > 0:
            of_sender = (gave.get(key) for key in ("retransmits", "rtt", "snd_cwnd"))
            rows.append(Interval(got["start"], got["end"], int(got["bytes"]), *of_sender))
    return rows if any(row.delivered_bytes for row in rows) else []


def _stream_intervals(report: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the complete intervals of the only stream in an iperf3 report.

    A report that ends with an error may contain its last interval twice.
    """
    found: list[dict[str, Any]] = []
    for interval in _as_list(report.get("intervals")):
        streams = _as_list(interval.get("streams")) if isinstance(interval, dict) else []
        stream = streams[0] if streams else None
        if not isinstance(stream, dict) or stream.get("omitted"):
            continue
        if not all(_is_number(stream.get(key)) for key in ("start", "end", "bytes")):
            continue
        if not found or stream["start"] > found[-1]["start"]:
            found.append(stream)
    return found


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and abs(value) < LARGEST


def _as_list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def shifted_intervals(rows: list[Interval], by_s: float) -> list[Interval]:
    """Return the intervals of a flow with `by_s` seconds added to their begin and end."""
    return [row._replace(begin_s=row.begin_s + by_s, end_s=row.end_s + by_s) for row in rows]


def cut_intervals(flow: Flow, rows: list[Interval]) -> list[Interval]:
    """Return iperf3's intervals up to the end of the flow's volume or duration.

    A signal ends iperf3 a little later.

    >>> rows = [Interval(0.0, 0.1, 100), Interval(0.1, 0.2, 100)]
    >>> cut_intervals(Flow(0, 1, 2, volume_bytes=150), rows)[-1]
    Interval(begin_s=0.1, end_s=0.15..., delivered_bytes=50, retransmits=None, ...)
    """
    kept: list[Interval] = []
    missing_bytes = flow.volume_bytes
    for row in rows:
        share = 1.0
        if missing_bytes is not None:
            share = missing_bytes / max(row.delivered_bytes, 1)
            missing_bytes -= row.delivered_bytes
        elif flow.duration_s is not None:
            left_s = rows[0].begin_s + flow.duration_s - row.begin_s
            share = left_s / (row.end_s - row.begin_s)
        if share >= 1.0:
            kept.append(row)
        elif share > 0.0:
            end_s = row.begin_s + (row.end_s - row.begin_s) * share
            delivered_bytes = round(row.delivered_bytes * share)
            return [*kept, row._replace(end_s=end_s, delivered_bytes=delivered_bytes)]
    return kept
