"""What was seen of a trial on a machine that was quiet, for tests that change a part of it."""

from __future__ import annotations

from pillarbox.experiments.runs.trust.readings import DurationStatistics, Readings

QUIET = DurationStatistics(1000, 1e-5, 2e-5, 3e-5)
SEEN = Readings(
    duration_s=2.0,
    rate_bps=20e6,
    base_rtt_s=1e-3,
    links=[],
    samples=100,
    interval_s=0.1,
    round_trip=QUIET,
    lost=0,
    lateness=QUIET,
    pacing=QUIET,
    pacing_lost=0,
    pressure=0.0,
    steal=0.0,
    idle=0.5,
    foreign=0.0,
    programs_forward=False,
    packets=10_000,
)
