"""Labs whose files decide for routers of ours: on live networks, with real load on a cable."""

from pathlib import Path

import pytest

from experiments.grading import engine, live

ANSWERS = Path(__file__).parents[2] / "vagrant" / "labs" / "answers"
STAYS = """
def choose(paths, free_bps, using, own_bps):
    return using or 0
"""
ONLY_TOR = """
def choose(ficonn, server, destination, came, progress, backup_bps, switch_bps):
    return next_hop(ficonn, server, destination), progress
"""


@pytest.mark.root
@pytest.mark.parametrize(
    ("lab", "more", "expected"),
    [
        ("5", "", [10, 10, 10]),
        ("5", STAYS, [7.5, 0, 5]),  # three first paths are best; a cut elsewhere harms no ping
        ("6", "", [10, 10, 10]),
        ("6", ONLY_TOR, [10, 0, 0]),
    ],
    ids=["5-model", "5-stays", "6-model", "6-only-tor"],
)
def test_live(lab: str, more: str, expected: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    # Only guards, where answers are right; what does not come about is waited for to the end.
    limits = {"PING_S": 3.0, "RECOVERED_S": 30.0, "SETTLED_S": 1.5 if more else 30.0}
    for limit, seconds in limits.items():
        monkeypatch.setattr(live, limit, seconds)
    source = (ANSWERS / f"lab{lab}" / "model.py").read_text() + more
    report = engine.Report(engine.sheet_of(lab, "s0"), [engine.Mark("in memory", 0, 1, "")])
    live.add_live(report, source)
    assert [mark.got for mark in report.marks[1:]] == expected, report.marks
