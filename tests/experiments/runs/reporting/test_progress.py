import io

import pytest
from rich.console import Console

from pillarbox.experiments.models.workloads.flows import Flow, Progress
from pillarbox.experiments.runs.reporting.progress import Live

FLOWS = [Flow(number, 0, number + 1, volume_bytes=1000) for number in range(3)]


def shown(terminal, tell, **options):
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=terminal, width=120, markup=False, **options)
    with Live(2, "cube [bold]against[/bold] tree", console) as live:
        tell(live)
    return stream.getvalue()


def one_trial(live):
    live.begin_trial("cube, repeat 1", FLOWS, address=lambda server: f"0.{server}")
    live.phase("converging")
    live.event("cut 0.0 s0")
    live.progress(0.0, [Progress(0, 0, False), Progress(1, 0, False), Progress(2, 0, False)])
    live.progress(6.0, [Progress(0, 1000, True), Progress(1, 400, True), Progress(2, 100, False)])
    live.end_trial("valid", "1 Mbit/s")


def test_plain_lines_where_there_is_no_terminal():
    lines = shown(False, one_trial).splitlines()
    assert lines[:4] == [
        "cube [bold]against[/bold] tree: 2 trials",
        "[1/2] cube, repeat 1: 3 flows",
        "  converging",
        "  ! cut 0.0 s0",
    ]
    assert lines[5] == "  6 s: 50 %, 1 of 3 flows done, 1 failed, 2.00 kbit/s now"
    assert lines[6:] == ["[1/2] cube, repeat 1 · 1 Mbit/s · valid"]


def test_terminal_shows_bars_flows_and_faults():
    text = shown(True, one_trial)
    for part in ("50 %", "converging", "cut 0.0 s0", "0.1", "failed", "trial 1 of 2", "1 of 3"):
        assert part in text
    assert "[bold]" in text
    assert text.rstrip().endswith("\x1b[?25h")  # the cursor is there again


def test_no_colour_where_none_is_wanted(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    text = shown(True, one_trial)
    assert "\x1b[31m" not in text and "\x1b[33m" not in text
    monkeypatch.delenv("NO_COLOR")
    assert "\x1b[33m" in shown(True, one_trial, color_system="standard")


def test_dumb_terminal_gets_lines(monkeypatch):
    monkeypatch.setenv("TERM", "dumb")
    assert "\x1b" not in shown(True, one_trial)


def test_line_every_few_seconds_however_often_it_is_told():
    def tell(live):
        live.begin_trial("a", FLOWS)
        for step in range(100):
            live.progress(step * 0.1, [Progress(0, step, False)])
        live.end_trial("valid")

    assert len(shown(False, tell).splitlines()) == 2 + 2 + 1


@pytest.mark.parametrize(("ended_s", "failed"), [(1.0, 1), (4.9, 0)])
def test_flow_of_a_duration_that_ends_early_has_failed(ended_s, failed):
    def tell(live):
        live.begin_trial("a", [Flow(0, 0, 1, duration_s=5.0)])
        live.phase("sending")
        live.progress(ended_s, [Progress(0, 500, True)])
        live.end_trial("valid")

    assert (", 1 failed" in shown(False, tell)) == bool(failed)


def test_screen_is_given_back_when_the_run_is_stopped():
    def tell(live):
        live.begin_trial("a", FLOWS)
        raise KeyboardInterrupt

    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True)
    with pytest.raises(KeyboardInterrupt), Live(1, "title", console) as live:
        tell(live)
    assert stream.getvalue().endswith("\x1b[?25h")


def test_table_begins_with_what_failed_and_what_lags():
    flows = [Flow(number, 0, number + 1, volume_bytes=1000) for number in range(4)]
    progress = [Progress(0, 1000, True), Progress(1, 700, False), Progress(2, 300, False)]

    def tell(live):
        live.begin_trial("a", flows)
        live.progress(1.0, [*progress, Progress(3, 900, True)])

    lines = [line.split() for line in shown(True, tell, no_color=True).splitlines()]
    ours = [line for line in lines if len(line) > 4 and line[0] in "0123" and line[1] == "0"]
    assert [line[0] for line in ours[:4]] == ["3", "2", "1", "0"]
    assert ours[0][-1] == "failed" and ours[3][-1] == "done"


@pytest.mark.parametrize("width", [30, 80, 120])
def test_what_stays_of_a_trial_fits_the_terminal(width):
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=width)
    with Live(1, "title", console) as live:
        live.begin_trial("a cube, repeat 1", FLOWS)
        live.end_trial("not valid: the machine was late; end what else runs", "12 Mbit/s")
    kept = stream.getvalue()[stream.getvalue().rindex("[1/1]") :].rstrip("\n\x1b[?25h")
    assert max(map(len, kept.splitlines())) <= width
    assert " ".join(kept.split()).endswith("12 Mbit/s · not valid: the machine was late")


def test_time_left_is_told_from_trials_before():
    now_s = [0.0]
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=120)
    with Live(11, "title", console, lambda: now_s[0]) as live:
        live.begin_trial("a", FLOWS)
        assert "left" not in stream.getvalue()
        live.end_trial("valid")
        now_s[0] = 60.0
        live.begin_trial("b", FLOWS)
    assert "trial 2 of 11, about 10 min left" in stream.getvalue()
