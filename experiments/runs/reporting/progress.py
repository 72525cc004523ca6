"""Progress display of a run: bars and a table in a terminal, plain lines elsewhere.

The display has no thread, so that a process may fork at any time: it is redrawn when progress is
reported. Between two trials the live display is empty, so any process may report a trial.
"""

from __future__ import annotations

import sys
import textwrap
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pillarbox.experiments.base import units
from pillarbox.experiments.base.output import styled
from pillarbox.experiments.base.text import printable_lines
from pillarbox.experiments.models.workloads.flows import Flow, Progress
from pillarbox.experiments.runs.trials.trial_process import TrialDisplay

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

WINDOW_S = 1.0  # averaging window of the displayed goodput, in seconds
REDRAW_S = 0.2  # minimum time between two redraws of the progress display, in seconds
LINE_S = 5.0  # minimum time between two progress lines without a terminal, in seconds
SHOWN = 8  # maximum number of flows in the progress table
EVENTS = 3  # number of fault events in the progress display
EARLY = 0.95  # a flow that ends before this share of its duration has failed


@dataclass
class RunningTrial:
    """Progress of the running trial: phase, flows, events and delivered bytes."""

    name: str
    flows: dict[int, Flow]
    label: Callable[[int], str]
    phase: str = "starting"
    now_s: float = 0.0
    told_s: float = -LINE_S  # time of the last progress line, in seconds
    events: deque[str] = field(default_factory=lambda: deque(maxlen=EVENTS))
    samples: deque[tuple[float, dict[int, int]]] = field(default_factory=deque)
    ended: dict[int, float] = field(default_factory=dict)  # time of each flow's reported end
    delivered: dict[int, int] = field(default_factory=dict)

    def take(self, now_s: float, progress: Sequence[Progress]) -> None:
        """Store the delivered bytes and ends of flows from the traffic generator's report."""
        self.now_s = now_s
        for number, delivered_bytes, ended in progress:
            self.delivered[number] = delivered_bytes
            if ended:
                self.ended.setdefault(number, now_s)
        self.samples.append((now_s, dict(self.delivered)))
        while len(self.samples) > 2 and self.samples[1][0] <= now_s - WINDOW_S:
            self.samples.popleft()

    def rates_bps(self) -> dict[int, float]:
        """Return the goodput of each flow over the last second, in bit/s."""
        (then_s, before), (now_s, now) = self.samples[0], self.samples[-1]
        elapsed = max(now_s - then_s, 1e-9)
        return {flow: (now[flow] - before.get(flow, 0)) * 8 / elapsed for flow in now}

    def failed(self) -> list[int]:
        """Return the numbers of flows that ended before their volume or duration was complete."""
        return [number for number, at_s in self.ended.items() if self._is_incomplete(number, at_s)]

    def _is_incomplete(self, number: int, at_s: float) -> bool:
        flow = self.flows[number]
        if flow.volume_bytes is not None:
            return self.delivered[number] < flow.volume_bytes
        return at_s < flow.start_s + EARLY * (flow.duration_s or 0.0)

    def done(self) -> float:
        """Return the completed share of the running trial's volume or duration, from 0 to 1."""
        volumes = [flow.volume_bytes for flow in self.flows.values()]
        if volumes and all(volumes):
            return sum(self.delivered.values()) / sum(filter(None, volumes))
        end_s = max((f.start_s + (f.duration_s or 0.0) for f in self.flows.values()), default=0.0)
        return min(self.now_s / end_s, 1.0) if end_s else 0.0

    def counts(self) -> str:
        """Return the running trial's counts of flows and total goodput as one line of text."""
        failed = len(self.failed())
        total = sum(self.rates_bps().values()) if self.samples else 0.0
        failures = f", {failed} failed" if failed else ""
        return (
            f"{len(self.ended) - failed} of {len(self.flows)} flows done{failures}, "
            f"{units.rate(total)} now"
        )


class Live(TrialDisplay):
    """Progress display of an experiment run in the terminal, as a context manager.

    Parameters
    ----------
    trials : int
        Expected number of trials.
    title : str
        Name of the run.
    console : rich.console.Console, optional
        Output console. The default is standard error, so that results can be piped.
    clock : callable
        Clock that returns seconds.
    """

    def __init__(
        self,
        trials: int,
        title: str,
        console: Console | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        from rich.console import Console

        self.trials, self.title, self.clock = trials, title, clock
        self._begun_s, self._ended = clock(), 0  # start time and number of completed trials
        self.console = console or Console(file=styled(sys.stderr), markup=False, highlight=False)
        self.moving = self.console.is_terminal and not self.console.is_dumb_terminal
        self.number = 0
        self._current: RunningTrial | None = None
        self._screen: Any = None

    def __enter__(self) -> Live:
        self._print_line(f"{self.title}: {self.trials} trial{'' if self.trials == 1 else 's'}")
        return self

    def __exit__(self, *failure: object) -> None:
        self._stop_screen()
        if self.moving:
            self.console.print()  # empty line between progress display and results
            self.console.show_cursor(True)  # a killed process may have left the cursor hidden

    # -- reports of the runner -----------------------------------------------------------------

    def begin_trial(
        self,
        name: str,
        flows: Sequence[Flow],
        *,
        number: int | None = None,
        address: Callable[[int], str] = str,
    ) -> None:
        """Start the display of a trial; `number` counts from 1, `address` names a server."""
        self._stop_screen()
        self.number = self.number + 1 if number is None else number
        self.trials = max(self.trials, self.number)
        self._current = RunningTrial(name, {flow.number: flow for flow in flows}, address)
        if self.moving:
            from rich.live import Live as Screen

            self._screen = Screen(console=self.console, auto_refresh=False, transient=True)
            self._screen.start()
            self._redraw()
        else:
            self._print_line(f"{self._trial_count()} {name}: {len(flows)} flows")

    def phase(self, text: str) -> None:
        """Show the current phase of the trial, such as "converging"."""
        trial = self._current_trial()
        trial.phase, trial.told_s = text, trial.now_s - LINE_S
        self._redraw() if self.moving else self._print_line(f"  {text}")

    def progress(self, now_s: float, progress: Sequence[Progress]) -> None:
        """Update the displayed progress of the flows; frequent calls are cheap."""
        trial = self._current_trial()
        trial.take(now_s, progress)
        if now_s - trial.told_s < (REDRAW_S if self.moving else LINE_S):
            return
        trial.told_s = now_s
        if self.moving:
            self._redraw()
        else:
            self._print_line(f"  {now_s:.0f} s: {trial.done() * 100:.0f} %, {trial.counts()}")

    def event(self, text: str) -> None:
        """Show a fault or a repair in the progress display."""
        trial = self._current_trial()
        trial.events.append(text)
        self._redraw() if self.moving else self._print_line(f"  ! {text}")

    def end_trial(self, verdict: str, summary: str = "") -> None:
        """End a trial's display and print its verdict; a terminal omits the verdict's advice."""
        trial = self._current_trial()
        self._stop_screen()
        if self.moving:
            verdict = verdict.partition("; ")[0]
        line = " · ".join(filter(None, (f"{self._trial_count()} {trial.name}", summary, verdict)))
        self._print_line(self._wrapped_text(line) if self.moving else line)
        self._current = None
        self._ended += 1

    # -- drawing -------------------------------------------------------------------------------

    def _current_trial(self) -> RunningTrial:
        if self._current is None:
            raise RuntimeError("no trial is running: call begin_trial first")
        return self._current

    def _trial_count(self) -> str:
        return f"[{self.number}/{self.trials}]"

    def _print_line(self, text: str) -> None:
        text = printable_lines(text)
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def _wrapped_text(self, text: str) -> str:
        return textwrap.fill(text, max(self.console.width, 20), subsequent_indent="    ")

    def _remaining_time(self) -> str:
        """Return the estimated remaining time of the run, from the mean time of earlier trials."""
        if not self._ended:
            return ""
        each_s = (self.clock() - self._begun_s) / (self._ended + self._current_trial().done())
        left_s = each_s * (self.trials - self.number + 1 - self._current_trial().done())
        return f", about {left_s / 60:.0f} min left" if left_s >= 90 else f", {left_s:.0f} s left"

    def _stop_screen(self) -> None:
        if self._screen is not None:
            self._screen.stop()
            self._screen = None

    def _redraw(self) -> None:
        if self._screen is not None:
            from rich.console import Group

            trial = self._current_trial()
            parts: list[Table | Text] = [self._bars(trial)]
            if trial.samples:
                parts += [_plain_text(trial.counts()), _flow_table(trial)]
            parts += [_plain_text(f"! {text}", style="yellow") for text in trial.events]
            self._screen.update(Group(*parts), refresh=True)

    def _bars(self, trial: RunningTrial) -> Table:
        """Return the progress bars of the run and of the current trial."""
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        whole = (self.number - 1 + trial.done()) / max(self.trials, 1)
        grid = Table.grid(padding=(0, 1))
        grid.add_column(no_wrap=True)
        grid.add_column(width=24)
        grid.add_column(no_wrap=True)
        bars = (
            (self.title, whole, f"trial {self.number} of {self.trials}{self._remaining_time()}"),
            (trial.name, trial.done(), trial.phase),
        )
        for name, done, text in bars:
            bar = ProgressBar(total=1.0, completed=done, width=24)
            grid.add_row(
                _plain_text(name), bar, _plain_text(f"{done:4.0%}  {text}".replace("%", " %"))
            )
        return grid


def _plain_text(text: str, style: str = "") -> Text:
    """Return text for the terminal without control characters and without rich markup."""
    from rich.text import Text

    return Text(printable_lines(text), style=style, overflow="ellipsis")


def _flow_table(trial: RunningTrial) -> Table:
    """Return the progress table of flows: failed, active (slowest first), then completed."""
    from rich.table import Table

    failed, rates = set(trial.failed()), trial.rates_bps()

    def place(flow: int) -> tuple[bool, bool, int]:
        return flow not in failed, flow in trial.ended, trial.delivered[flow]

    order = sorted(trial.delivered, key=place)
    table = Table(box=None, padding=(0, 2), header_style="dim")
    for title in ("flow", "from", "to"):
        table.add_column(title)
    table.add_column("delivered", justify="right", min_width=9)
    table.add_column("now", justify="right", min_width=11)
    for number in order[:SHOWN]:
        flow = trial.flows[number]
        state = "failed" if number in failed else "done" if number in trial.ended else ""
        table.add_row(
            str(number),
            _plain_text(trial.label(flow.source)),
            _plain_text(trial.label(flow.destination)),
            units.size(trial.delivered[number]),
            state or units.rate(rates[number]),
            style="red" if number in failed else "",
        )
    if len(order) > SHOWN:
        table.add_row("", "", "", f"{len(order) - SHOWN} more", "", style="dim")
    return table
