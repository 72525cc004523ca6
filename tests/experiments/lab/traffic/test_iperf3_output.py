"""What iperf3 said on this kernel and what its other versions say: rows, and reasons."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from pillarbox.experiments.lab.traffic.iperf3_output import (
    UNREADABLE,
    cut_intervals,
    intervals_in,
    report_in,
    shifted_intervals,
    version_in,
)
from pillarbox.experiments.models.workloads.flows import Flow, Interval
from pillarbox.topos.base.errors import PillarboxError

REPORTS = Path(__file__).parent / "iperf3_reports"


def recorded(name: str) -> dict[str, Any]:
    return report_in((REPORTS / f"{name}.json").read_text())


def streams(report: dict[str, Any]) -> list[dict[str, Any]]:
    return [interval["streams"][0] for interval in report["intervals"]]


def test_bytes_are_the_receivers_and_the_rest_the_senders() -> None:
    received, sent = recorded("3.12-receiver"), recorded("3.12-sender")
    rows = intervals_in(received, sent)
    assert [row.delivered_bytes for row in rows] == [one["bytes"] for one in streams(received)]
    assert [row.delivered_bytes for row in rows] != [one["bytes"] for one in streams(sent)]
    for row, gave in zip(rows[:3], streams(sent), strict=False):
        assert row[3:] == (gave["retransmits"], gave["rtt"], gave["snd_cwnd"])
    assert rows[0].begin_s == 0.0
    assert all(a.end_s == pytest.approx(b.begin_s) for a, b in pairwise(rows))


@pytest.mark.parametrize("missing", ["retransmits", "rtt", "snd_cwnd"])
def test_what_a_version_does_not_say_is_missing_and_not_zero(missing: str) -> None:
    received, sent = recorded("3.12-receiver"), recorded("3.12-sender")
    for stream in streams(sent):
        del stream[missing]
    row = intervals_in(received, sent)[0]
    field = {"rtt": "rtt_us", "snd_cwnd": "cwnd_bytes"}.get(missing, missing)
    assert getattr(row, field) is None
    assert sum(value is None for value in row) == 1


def test_a_sender_that_was_killed_leaves_the_receivers_rows() -> None:
    report = recorded("3.12-sender-killed")
    assert report["error"] == "control socket has closed unexpectedly"
    rows = intervals_in(report, {})
    assert rows and all(row.rtt_us is None for row in rows)
    assert len(rows) == len(streams(report)) - 1  # the last is told twice
    assert all(a.end_s == pytest.approx(b.begin_s) for a, b in pairwise(rows))


def test_intervals_that_do_not_fit_are_left_without_the_senders_figures() -> None:
    received, sent = recorded("3.12-receiver"), recorded("3.12-sender")
    del sent["intervals"][0]
    assert all(row.retransmits is None for row in intervals_in(received, sent)[:-2])


def test_newer_versions_may_end_with_an_empty_interval_and_omit_the_first() -> None:
    received = recorded("3.12-receiver")
    whole = intervals_in(received, {})
    end_s = whole[-1].end_s
    received["intervals"].append({"streams": [{"start": end_s, "end": end_s, "bytes": 0}]})
    received["intervals"].append({"streams": [], "sum": {}})
    assert intervals_in(received, {}) == whole
    streams({"intervals": received["intervals"][:1]})[0]["omitted"] = True
    assert intervals_in(received, {}) == whole[1:]


def test_a_flow_that_never_began_has_no_rows() -> None:
    # A client that was ended while it waited tells one row, since its machine was started.
    nothing = {"intervals": [{"streams": [{"start": 0, "end": 24305.4, "bytes": 0}]}]}
    assert intervals_in(nothing, {}) == []


@pytest.mark.parametrize("bad", [None, 3, {}, {"streams": 1}, {"streams": [{"start": "x"}]}])
def test_malformed_intervals_are_passed_over(bad: object) -> None:
    received = recorded("3.12-receiver")
    whole = intervals_in(received, {})
    received["intervals"].insert(1, bad)
    assert intervals_in(received, {}) == whole
    assert intervals_in({"intervals": bad}, {}) == []


def test_errors_keep_iperf3s_words() -> None:
    assert recorded("3.12-refused")["error"] == "unable to connect to server: Connection refused"
    usage = "iperf3: unrecognized option '--reverse'\nUsage: iperf3 [-s|-c host] [options]\n"
    assert report_in(usage)["error"] == "unrecognized option '--reverse'"


def test_half_a_report_is_an_error_at_whatever_character_it_ends() -> None:
    text = json.dumps(recorded("3.12-refused"))
    for length in range(len(text)):
        assert report_in(text[:length]) == {"error": UNREADABLE}
    assert report_in("[1]") == {"error": UNREADABLE} | report_in("[1]")


def test_a_warning_before_the_report_is_passed_over() -> None:
    text = json.dumps(recorded("3.12-receiver"))
    assert report_in(f"warning: this system has no zerocopy\n{text}\n") == json.loads(text)


@pytest.mark.parametrize(
    ("text", "version"),
    [("iperf 3.9 (cJSON 1.7.13)\nLinux", (3, 9)), ("iperf 3.18+ (cJSON 1.7.15)", (3, 18))],
)
def test_versions(text: str, version: tuple[int, int]) -> None:
    assert version_in(text) == version


def test_a_program_without_a_version_is_refused() -> None:
    with pytest.raises(PillarboxError, match="install iperf3"):
        version_in("command not found")


ROWS = [Interval(5.0, 5.1, 1000, 1, 20, 30), Interval(5.1, 5.2, 3000), Interval(5.2, 5.25, 500)]


@pytest.mark.parametrize(
    ("volume_bytes", "rows", "end_s"),
    [(1000, 1, 5.1), (1001, 2, 5.1 + 0.1 / 3000), (4500, 3, 5.25), (9000, 3, 5.25)],
)
def test_a_volume_ends_within_the_interval_that_completes_it(
    volume_bytes: int, rows: int, end_s: float
) -> None:
    kept = cut_intervals(Flow(0, 1, 2, volume_bytes=volume_bytes), ROWS)
    assert len(kept) == rows
    assert kept[-1].end_s == pytest.approx(end_s)
    assert sum(row.delivered_bytes for row in kept) == min(volume_bytes, 4500)


def test_a_duration_is_counted_from_the_first_byte() -> None:
    kept = cut_intervals(Flow(0, 1, 2, duration_s=0.15), ROWS)
    assert [row.delivered_bytes for row in kept] == [1000, 1500]
    assert kept[-1].end_s == pytest.approx(5.15)
    assert cut_intervals(Flow(0, 1, 2, duration_s=1.0), ROWS) == ROWS


def test_rows_are_moved_to_where_the_flow_began() -> None:
    assert shifted_intervals([Interval(0.0, 0.1, 7, 1)], 2.0) == [Interval(2.0, 2.1, 7, 1)]
