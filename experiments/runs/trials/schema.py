"""Schema of a run's records on disk; docs/records.md is the users' guide.

::

    RUN/
        manifest.json       versions, kernel, sysctls, plan, seed
        trials/0007/        one trial; the folder appears only when it is complete
            trial.json      system, ideal, verdict, start time
            flows.parquet intervals.parquet links.parquet events.parquet
            [transfers.parquet] [classes.parquet] [subflows.parquet]
        trials.parquet      one row for each trial: summary of its trial.json
        flows.parquet ...   the same tables of all trials together, also as CSV
        figures/ report.html

All tables are in long form, with the unit in the column's name; times are seconds after the trial's
barrier. Every table begins with the columns of TRIAL.
"""

from __future__ import annotations

# Version of the records. Since version 4 tables have full names of servers, 1.10.dcell, and not
# short addresses.
VERSION = 4

TRIAL = {
    "trial": "int64",
    "system": "string",
    "repeat": "int64",
    "valid": "boolean",  # Verdict of the trial; averages exclude invalid trials.
}
TRIALS = {
    "seed": "int64",  # Seed of the trial's flows and faults.
    "status": "string",  # Values: completed, failed.
    "reason": "string",
    "flows": "Int64",
    "failed_flows": "Int64",
    "goodput_bps": "float64",  # Total goodput until the last flow ended; missing if all failed.
    "completion_s": "float64",  # End of the last flow; missing if a flow failed.
    "fairness": "float64",  # Jain's index over the flows' goodput.
    "link_spread": "float64",  # Coefficient of variation of the bytes that server ports sent.
    "ideal_bps": "float64",
    "bound_bps": "float64",  # Upper bound of the goodput under any routing; missing if unknown.
    "ideal_s": "float64",  # Ideal completion time; missing for flows with a duration.
    # Columns of arriving flows, missing for others: see
    # pillarbox.experiments.runs.trials.arrival_results.
    "load": "float64",  # Requested load as a share of the capacity; missing for a trace.
    "asked_bps": "float64",  # Requested load in bit/s; missing for a trace.
    "offered_bps": "float64",  # Load of the flows that began in the measured window.
    "carried_bps": "float64",  # Goodput in the measured window.
    "late_p99_s": "float64",  # 99th percentile of flow start delays (actual - planned).
    "slowdown_mean": "float64",  # Mean over all measured flows; CLASSES has it by size.
    "slowdown_median": "float64",
    "slowdown_p99": "float64",
    # Columns of simultaneous flows (incast, shuffle) and of requests; missing for others.
    "requests": "Int64",
    "request_median_s": "float64",  # Time from a request's start to the last byte of its answers.
    "request_p99_s": "float64",
    "in_time_share": "float64",  # Share of requests that met the deadline; missing without one.
    # Columns of a training iteration, means over its ranks; missing for others.
    "compute_s": "float64",
    "exposed_s": "float64",  # Time of transfers to or from a rank that does not compute.
    "waiting_s": "float64",  # Time in which neither happens; the three add up to completion_s.
    "shuffle_slowdown": "float64",  # Mean completion time of shuffles / time of the busiest port.
}
FLOWS = {
    "flow": "int64",
    "source": "string",  # Full name of a server, such as 4.3.dcell.
    "destination": "string",
    "tool": "string",
    "status": "string",  # Values: completed, failed.
    "reason": "string",
    "start_s": "float64",  # Planned start of the flow.
    "begin_s": "float64",
    "end_s": "float64",
    "volume_bytes": "Int64",
    "delivered_bytes": "int64",
    "goodput_bps": "float64",  # Goodput of the flow; missing if it failed.
    "ideal_bps": "float64",  # Max-min fair goodput over the routed paths, without headers.
    "ideal_end_s": "float64",
    "retransmits": "Int64",
    "tries": "int64",
    "connect_s": "float64",  # Time of the TCP handshake before the barrier; generator only.
    # Chosen or else computed path: names of servers, separated by blanks. Empty if sprayed.
    "path": "string",
    # TCP_INFO of the sender: tcpi_reordering, tcpi_reord_seen, tcpi_dsack_dups; generator only.
    "reordering": "Int64",
    "reordering_events": "Int64",
    "dsack_duplicates": "Int64",
    "source_port": "Int64",  # TCP port at the source; generator only.
    # Columns of arriving flows, missing for others.
    "measured": "boolean",  # True if the flow begins after the warm-up and before the cool-down.
    "completion_s": "float64",  # Time from the planned start to the last byte.
    "alone_s": "float64",  # Ideal: bytes / rate, and hops (models/fluid/unloaded_time.py).
    "slowdown": "float64",  # Ratio of completion_s to alone_s.
    "burst_bytes": "float64",  # Burst that the path's slowest port forwards without waiting.
}
# Table of the measured arriving flows by size class.
CLASSES = {
    "sizes": "string",
    "flows": "int64",
    "failed_flows": "int64",
    "mean_bytes": "float64",
    "burst_bytes": "float64",  # Largest burst of the flows' ports; missing if unknown.
    "burst_flows": "Int64",  # Number of flows that fit into the burst of their port.
    "completion_mean_s": "float64",
    "completion_median_s": "float64",
    "completion_p95_s": "float64",
    "completion_p99_s": "float64",
    "slowdown_mean": "float64",
    "slowdown_median": "float64",
    "slowdown_p95": "float64",
    "slowdown_p99": "float64",
}
INTERVALS = {
    "flow": "int64",
    "begin_s": "float64",
    "end_s": "float64",
    "delivered_bytes": "int64",
    "retransmits": "Int64",
    "rtt_us": "Int64",
    "cwnd_bytes": "Int64",
}
LINKS = {
    "from": "string",  # Full name of a server, or name of a switch.
    "to": "string",
    "port": "int64",  # Port number of the node `from`.
    "rate_bps": "float64",
    "sent_bytes": "int64",  # Bytes of frames from the barrier to the end of the last flow.
    "dropped_packets": "int64",
    "busy_share": "float64",  # Share of the time in which the link was busy at its rate.
    "conserved": "float64",  # Sent / possible bytes while packets queue; missing if rarely.
    # Length of the queue, by samples after the first second; missing for shorter trials.
    "queue_median_bytes": "float64",
    "queue_p99_bytes": "float64",
}
EVENTS = {
    "at_s": "float64",
    "event": "string",  # Values: cut, silent cut, kill, switch, rack, healed, revive, ...
    "what": "string",  # Names of servers and switches, joined by blanks.
    "detected_s": "float64",  # Seconds after the event, as the next two; missing if undefined.
    "rerouted_s": "float64",
    "recovered_s": "float64",
    "stopped_flows": "Int64",  # Number of flows that the event stopped; missing if unknown.
    "reason": "string",  # Reason why the event failed; empty if it succeeded.
}
# Table of the transfers of a collective operation.
TRANSFERS = {
    "transfer": "int64",
    "flow": "int64",  # Number of the flow whose connection the transfer uses.
    "step": "int64",  # Step number of the algorithm.
    "deed": "string",  # Action of the receiver: reduce or copy.
    "volume_bytes": "int64",
    "ready_s": "float64",  # Arrival of all data that the transfer needs.
    "begin_s": "float64",
    "end_s": "float64",  # Arrival of the last byte; missing if the transfer did not finish.
}
# Table of the ranks of a training iteration.
RANKS = {
    "rank": "int64",
    "server": "string",
    "compute_s": "float64",
    "exposed_s": "float64",
    "waiting_s": "float64",
    "waits_for": "Int64",  # Rank that this rank waits for longest; missing if it never waits.
    "waits_for_s": "float64",
}
# Table of the nodes of a training iteration's trace.
NODES = {
    "rank": "int64",
    "node": "int64",  # Number of the node in the rank's trace.
    "name": "string",
    "kind": "string",  # Values: compute, send, receive, or a collective operation.
    "begin_s": "float64",
    "end_s": "float64",
}
# Table of the jobs of a workload with several jobs; times are those of one iteration.
JOBS = {
    "job": "string",
    "together": "string",  # Name of the system in which all jobs run.
    "alone": "boolean",  # True if the trial ran this job only.
    "ranks": "int64",
    "iterations": "int64",
    "iteration_s": "float64",  # Mean over the job's iterations, as the next ones.
    "ideal_s": "float64",  # Simulated over the paths in use; missing if unknown.
    "compute_s": "float64",  # Mean over ranks, as the next two.
    "exposed_s": "float64",
    "waiting_s": "float64",
}
# Table of the subflows of Multipath TCP flows in each interval.
SUBFLOWS = {
    "flow": "int64",
    "subflow": "int64",  # Number of the subflow in its connection.
    "port": "int64",  # Port of the flow's source to which the subflow is pinned.
    "path": "string",  # Pinned path: names of servers, separated by blanks.
    "begin_s": "float64",
    "end_s": "float64",
    "acked_bytes": "int64",  # Acknowledged bytes; data sent again by another subflow counts twice.
    "retransmits": "int64",
    "rtt_us": "int64",
    "cwnd_bytes": "int64",
}
# Columns with names of servers and switches; several names are separated by blanks.
ADDRESSES = {
    "flows": ("source", "destination", "path"),
    "links": ("from", "to"),
    "events": ("what",),
    "ranks": ("server",),
    "subflows": ("path",),
}
TABLES = {
    "flows": FLOWS,
    "intervals": INTERVALS,
    "links": LINKS,
    "events": EVENTS,
    "transfers": TRANSFERS,
    "classes": CLASSES,
    "ranks": RANKS,
    "nodes": NODES,
    "jobs": JOBS,
    "subflows": SUBFLOWS,
}
SOME_RUNS = (
    "transfers",
    "classes",
    "ranks",
    "nodes",
    "jobs",
    "subflows",
)  # Tables of records written only if they have rows.
# Columns that older records of this version may lack.
LATER = {
    "flows": (
        *("measured", "completion_s", "alone_s", "slowdown", "connect_s", "burst_bytes"),
        *("reordering", "reordering_events", "dsack_duplicates", "source_port"),
    ),
    "classes": ("burst_bytes", "burst_flows"),
    "links": ("queue_median_bytes", "queue_p99_bytes"),
}
