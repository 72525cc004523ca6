"""What a lab counts, as Prometheus reads it, and the dashboard that shows it."""

from __future__ import annotations

import json
import re
import threading
import urllib.request
from pathlib import Path
from urllib.error import HTTPError

import pytest

from pillarbox import topos
from pillarbox.experiments.runs.control import prometheus
from pillarbox.experiments.runs.control.prometheus import CONTENT, FAMILIES, metrics_text, server_at
from pillarbox.topos.base.errors import PillarboxError

DASHBOARD = Path(__file__).parents[4] / "docs" / "grafana.json"
DCELL = topos.parse("dcell,2,1")
SAMPLE = {
    "network": DCELL.spec,
    "rate_mbit": 100.0,
    "sent_bytes": list(range(10**10, 10**10 + 2 * DCELL.cables)),
    "waiting_bytes": [0, 3028, *[0] * (2 * DCELL.cables - 2)],
    "dropped": [9, *[0] * (2 * DCELL.cables - 1)],
    "received_bytes": [7] * DCELL.servers,
    "faults": [["cut", "0.0", "s0"], ["cut", "1.0", "s1"], ["rack", "s2", "2.0"]],
    "dead": ["2.0"],
}
STATUS = {
    "network": DCELL.spec,
    "routing": "dfr",
    "plane": "ebpf",
    "timers": "fast",
    "links_down": 3,
    "drops": {'no way "there"': 5},
}
LINE = re.compile(r"([a-z_]+)(?:\{([^}]*)\})? ([0-9.e+]+)")
OF_ALL = {"pillarbox_cable_rate_bits_per_second"}
LABEL = re.compile(r'([a-z]+)="((?:[^"\\]|\\.)*)"')


def read(text: str) -> dict[str, dict[tuple[str, ...], float]]:
    """Return what a scraper would: each line must be a comment or a sample of a family."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for line in text.splitlines():
        if line.startswith("# "):
            continue
        match = LINE.fullmatch(line)
        assert match, line
        labels = LABEL.findall(match[2] or "")
        names = tuple(name for name, _ in labels)
        # One row without labels is of all cables.
        assert names == FAMILIES[match[1]].labels or (not names and match[1] in OF_ALL)
        row = tuple(value for _, value in labels)
        assert row not in found.setdefault(match[1], {}), line
        found[match[1]][row] = float(match[3])
    return found


def test_each_number_of_a_lab_is_a_sample_with_its_names() -> None:
    text = metrics_text(DCELL, SAMPLE, STATUS)
    found = read(text)
    assert set(found) == set(FAMILIES)
    assert text.endswith("\n")
    sent = found["pillarbox_cable_sent_bytes_total"]
    first = next(iter(DCELL.links()))
    ends = DCELL.name(first.a), DCELL.name(first.b)
    assert (sent[ends], sent[ends[::-1]]) == (10**10, 10**10 + 1)
    assert len(sent) == 2 * DCELL.cables
    waiting = found["pillarbox_cable_waiting_bytes"]
    assert {end: count for end, count in waiting.items() if count} == {ends[::-1]: 3028}
    dropped = found["pillarbox_cable_dropped_packets_total"]
    assert {end: count for end, count in dropped.items() if count} == {ends: 9}
    assert found["pillarbox_faults"] == {("cut",): 2, ("rack",): 1}
    up = found["pillarbox_server_up"]
    assert [server for (server,), value in up.items() if not value] == ["2.0"]
    assert found["pillarbox_dropped_packets_total"] == {('no way \\"there\\"',): 5}
    assert found["pillarbox_cable_rate_bits_per_second"] == {(): 1e8}


def test_levels_with_rates_have_a_rate_for_each_direction() -> None:
    dcell = topos.parse("dcell,2,1,rates=9:1")
    found = read(metrics_text(dcell, {**SAMPLE, "rate_mbit": 10.0}, STATUS))
    rates = found["pillarbox_cable_rate_bits_per_second"]
    assert len(rates) == 2 * dcell.cables
    assert rates["0.0", "s0"] == rates["s0", "0.0"] == 9e7
    assert rates["0.0", "1.0"] == 1e7


def test_without_a_limit_no_rate_is_claimed() -> None:
    found = read(metrics_text(DCELL, {**SAMPLE, "rate_mbit": None}, STATUS))
    assert "pillarbox_cable_rate_bits_per_second" not in found


def test_dashboard_shows_every_metric_and_no_other() -> None:
    board = json.loads(DASHBOARD.read_text())
    shown = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    assert set(re.findall(r"pillarbox_\w+", " ".join(shown))) == set(FAMILIES)
    numbers = [panel["id"] for panel in board["panels"]]
    assert len(set(numbers)) == len(numbers)


def test_metrics_are_served_on_the_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        prometheus, "lab_metrics_text", lambda folder: metrics_text(DCELL, SAMPLE, STATUS)
    )
    with server_at("127.0.0.1:0", Path()) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_address[1]}"
        with urllib.request.urlopen(f"{address}/metrics", timeout=10) as answer:
            assert answer.headers["Content-Type"] == CONTENT
            assert set(read(answer.read().decode())) == set(FAMILIES)
        with pytest.raises(HTTPError) as other:
            urllib.request.urlopen(f"{address}/", timeout=10)
        assert other.value.code == 404
        other.value.close()

        def ended(folder: Path) -> str:
            raise PillarboxError("the lab has ended")

        monkeypatch.setattr(prometheus, "lab_metrics_text", ended)
        with pytest.raises(HTTPError) as gone:
            urllib.request.urlopen(f"{address}/metrics", timeout=10)
        assert (gone.value.code, gone.value.read()) == (503, b"the lab has ended\n")
        gone.value.close()
        server.shutdown()


@pytest.mark.parametrize(
    ("address", "sentence"),
    [
        ("0.0.0.0:9200", "can be reached from outside"),
        ("192.0.2.7:9200", "can be reached from outside"),
        ("localhost", "write 127.0.0.1:9200"),
    ],
)
def test_no_other_address_is_listened_at(address: str, sentence: str) -> None:
    with pytest.raises(PillarboxError, match=sentence.replace(".", r"\.")):
        server_at(address, Path())
