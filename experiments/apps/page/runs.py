"""A recording of a finished run: one trial, from its records.

Goodput is counted by the receivers. A cable's load is the mean over the trial, as records have no
other load.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pillarbox.experiments.apps.page.picture import recording_head
from pillarbox.experiments.apps.page.recording import Recording
from pillarbox.experiments.apps.page.standalone import files, standalone
from pillarbox.experiments.base.files import give_to_user, write_atomically
from pillarbox.experiments.runs.reporting import series, slow_flows
from pillarbox.experiments.runs.trials import packet_records, records
from pillarbox.experiments.runs.trials.trial_faults import (
    FAULT_EVENTS,
    HEALED,
    KILL,
    REVIVE,
    killed_by,
)
from pillarbox.topos.base.errors import PillarboxError, require
from pillarbox.topos.base.topology import Topology

PAGE = "page.html"  # file name of a run's recording in the report's folder
SLOW_FLOWS = 10  # number of slowest flows that a recording explains
MOST_SERVERS = 1000  # maximum network size for a recording, in servers
# Recovery times in a trial's event table, and the kinds of page events that show them.
AFTERWARDS = {"detected_s": "noticed", "rerouted_s": "rerouted", "recovered_s": "recovered"}


def save(run: Path, trial: int | None, file: Path) -> None:
    """Write a trial's recording as one HTML file; by default the trial `recording_of` selects."""
    write_atomically(file, standalone(recording_of(run, trial).text(), files()).encode())
    give_to_user(file)


def save_beside(report: Path, run: Path) -> str:
    """Write a run's recording to the report's folder; return the file name, empty on failure."""
    try:
        save(run, None, report.with_name(PAGE))
    # The report names broken or missing records of the run.
    except (PillarboxError, AttributeError, LookupError, TypeError, ValueError):
        return ""
    return PAGE


def recording_of(folder: Path, number: int | None = None) -> Recording:
    """Return the recording of a run's trial; trial numbers begin at 1.

    By default a trial with faults is selected if the run has one, and a valid trial if possible.
    """
    run = records.load(folder)
    record = _selected_record(run, number)
    topology = next(one.topology for one in run.plan.systems if one.name == record["system"])
    few = topology.servers <= MOST_SERVERS
    require(
        few,
        f"the page is limited to {MOST_SERVERS} servers: choose a run smaller than {topology.spec}",
    )
    tables = {
        name: table[table["trial"] == record["trial"]]
        for name, table in (
            ("intervals", run.intervals),
            ("links", run.links),
            ("events", run.events),
        )
    }
    recording = Recording(
        {
            **recording_head(topology),
            "about": [
                ["run", folder.resolve().name],
                ["experiment", run.plan.name],
                ["trial", str(record["trial"] + 1)],
                ["system", record["system"]],
                ["verdict", "valid" if record["valid"] else "not valid"],
                ["cables", "mean load of the trial"],
            ],
            "rate_mbit": _rate_mbit(topology, tables["links"]),
            "begun_s": 0.0,
        }
    )
    _add_samples(recording, topology, tables, record)
    _add_events(recording, topology, tables["events"].to_dict("records"))
    if packet_records.has_packets(records.trial_folder(folder, record["trial"])):
        _add_slow_flows(recording, run, record["trial"])
    return recording


def _selected_record(run: records.Run, number: int | None) -> dict[str, Any]:
    finished = {one["trial"] + 1: one for one in run.records if one["status"] == "completed"}
    require(bool(finished), f"{run.folder} has no completed trial: run the experiment again")
    if number is None:
        shown = series.shown_trial(run.records, run.events, run.systems)
        assert shown is not None
        number = shown + 1
    numbers = ", ".join(map(str, finished))
    require(number in finished, f"{run.folder} has no completed trial {number}: use {numbers}")
    return finished[number]


def _rate_mbit(topology: Topology, links: Any) -> float | None:
    """Return the rate in Mbit/s of cables of relative rate 1; None without a rate."""
    rates, fastest = links["rate_bps"].dropna(), max(topology.factors.rates, default=1)
    return float(rates.max()) / 1e6 / fastest if len(rates) else None


def _add_samples(
    recording: Recording, topology: Topology, tables: dict[str, Any], record: dict[str, Any]
) -> None:
    intervals = tables["intervals"]
    if intervals.empty:
        return
    bin_s = series.bin_width_s(intervals)
    goodput = series.of_whole_bins(series.goodput_over_time(intervals, bin_s), intervals, bin_s)
    sent = _mean_loads(topology, tables["links"], float(intervals["end_s"].max()))
    ideals = series.ideal_over_time([record])
    for row in goodput.itertuples():
        before = ideals.loc[ideals["at_s"] <= row.at_s, "ideal_bps"]
        ideal = round(before.iloc[-1] / 1e3) if len(before) else 0
        received = round(row.goodput_bps / 1e3)
        at_s = round(float(row.at_s), 4)
        recording.add_sample({"at_s": at_s, "sent": sent, "received": received, "ideal": ideal})


def _mean_loads(topology: Topology, links: Any, seconds: float) -> list[int]:
    """Return a flat list of link directions and mean loads in kbit/s, as in `Recorder.rates`."""
    ports = {}
    for number, cable in enumerate(topology.links()):
        ports[topology.name(cable.a), cable.a_port] = 2 * number
        ports[topology.name(cable.b), cable.b_port] = 2 * number + 1
    sent: list[int] = []
    for name, port, octets in zip(links["from"], links["port"], links["sent_bytes"], strict=True):
        kbit = round(octets * 8e-3 / seconds)
        if kbit:
            sent += [ports[name, int(port)], kbit]
    return sent


def _add_slow_flows(recording: Recording, run: records.Run, trial: int) -> None:
    """Add an event at the end of each of the slowest flows, with its explanation."""
    logged = slow_flows.logged_trial(run, trial)
    chosen = slow_flows.slowest(logged.flows, SLOW_FLOWS)
    for one in slow_flows.explained(logged, chosen):
        ends = [one.source, one.destination]
        at_s, said = round(one.start_s + one.seconds, 4), one.sentence()
        recording.add_event(
            {"at_s": at_s, "kind": "slow flow", "what": ends, "flow": one.flow, "said": said}
        )


def _add_events(recording: Recording, topology: Topology, rows: list[dict[str, Any]]) -> None:
    """Add a trial's events, their recovery times, and the failed nodes and cables after each."""
    faults: list[list[str]] = []
    dead: set[str] = set()
    for row in sorted(rows, key=lambda row: float(row["at_s"])):
        if row["reason"]:  # the planned fault could not be injected
            continue
        at_s, kind, what = float(row["at_s"]), row["event"], str(row["what"]).split()
        recording.add_event({"at_s": at_s, "kind": kind, "what": what})
        for column, name in AFTERWARDS.items():
            if row[column] == row[column]:  # NaN means that the recovery time is missing
                later = {"at_s": round(at_s + float(row[column]), 4), "kind": name, "what": what}
                recording.add_event({**later, "up": kind in (HEALED, REVIVE)})
        dead |= _servers_killed_by(topology, [kind, *what])
        if kind == REVIVE:
            dead -= set(what)
        elif kind == HEALED:
            over = [fault for fault in faults if fault[1:] == what]
            faults = [fault for fault in faults if fault not in over]
            dead -= {name for fault in over for name in _servers_killed_by(topology, fault)}
        elif kind in FAULT_EVENTS - {KILL}:
            faults = [*faults, [kind, *what]]
        recording.add_state({"at_s": at_s, "faults": faults, "dead": sorted(dead)})


def _servers_killed_by(topology: Topology, fault: list[str]) -> set[str]:
    """Return the servers that a trial's fault event kills."""
    event = {"event": fault[0], "what": " ".join(fault[1:])}
    return {topology.name(server) for server in killed_by(topology, event)}
