"""What a run leaves on disk: docs/records.md describes it for those who read it.

::

    RUN/
        manifest.json       what ran where: versions, kernel, sysctls, plan, seed
        trials/0007/        one trial; the folder appears whole or not at all
            trial.json      the system, what was ideal, the verdict, when it began
            flows.parquet intervals.parquet links.parquet events.parquet
            [transfers.parquet] [classes.parquet]
        trials.parquet      a row a trial: what trial.json says of it, in short
        flows.parquet ...   the same tables of all trials together; CSV beside them
        figures/ report.html

All tables are in long form, with the unit in the column's name; moments are seconds after the
trial's barrier. Every table begins with the columns of TRIAL.
"""

from __future__ import annotations

VERSION = 4  # from 4 on, servers in tables have full names, 1.10.dcell; before, short ones

TRIAL = {
    "trial": "int64",
    "system": "string",
    "repeat": "int64",
    "valid": "boolean",  # by the verdict; rows where it is not true are in no average
}
TRIALS = {
    "seed": "int64",  # of its flows and faults
    "status": "string",  # completed, failed
    "reason": "string",
    "flows": "Int64",
    "failed_flows": "Int64",
    "goodput_bps": "float64",  # until the last flow ended; missing if all failed
    "completion_s": "float64",  # of the last flow; missing where one failed
    "fairness": "float64",  # Jain's index over the flows' goodput
    "link_spread": "float64",  # standard deviation over mean of what servers' ports sent
    "ideal_bps": "float64",
    "bound_bps": "float64",  # the network's own: no routing carries more; missing if unknown
    "ideal_s": "float64",  # of the completion; missing where flows have a duration
    # Of flows that arrive, missing for others: see experiments.trials.runs.arrival_results.
    "load": "float64",  # that was asked for, a share; missing for a trace
    "asked_bps": "float64",  # likewise
    "offered_bps": "float64",  # what began in the time that is measured
    "carried_bps": "float64",  # what was delivered in it
    "late_p99_s": "float64",  # by how much flows began after their moments
    "slowdown_mean": "float64",  # of all that are measured; by size: CLASSES
    "slowdown_median": "float64",
    "slowdown_p99": "float64",
    # Of flows that arrive at once (incast, shuffle) and of requests; missing for others.
    "requests": "Int64",
    "request_median_s": "float64",  # from the flows' moment to the last byte of the last
    "request_p99_s": "float64",
    "in_time_share": "float64",  # of the requests, by their deadline; missing without one
    "shuffle_slowdown": "float64",  # mean time over what the busiest port takes; of shuffles
}
FLOWS = {
    "flow": "int64",
    "source": "string",  # full name of a server, such as 4.3.dcell
    "destination": "string",
    "tool": "string",
    "status": "string",  # completed, failed
    "reason": "string",
    "start_s": "float64",  # planned
    "begin_s": "float64",
    "end_s": "float64",
    "volume_bytes": "Int64",
    "delivered_bytes": "int64",
    "goodput_bps": "float64",  # missing where it failed
    "ideal_bps": "float64",  # max-min fair over the routed paths, headers taken off
    "ideal_end_s": "float64",
    "retransmits": "Int64",
    "tries": "int64",
    "path": "string",  # that its servers chose, else the computed one: names, blanks between
    # Of flows that arrive, missing for others.
    "measured": "boolean",  # begins neither in the warm-up nor in the cool-down
    "completion_s": "float64",  # from the planned start to the last byte
    "alone_s": "float64",  # completion time of the flow alone (analysis/fluid/unloaded_time.py)
    "slowdown": "float64",  # the one over the other
}
CLASSES = {  # flows that arrive and are measured, by size
    "sizes": "string",
    "flows": "int64",
    "failed_flows": "int64",
    "mean_bytes": "float64",
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
    "from": "string",  # full name of a server, or name of a switch
    "to": "string",
    "port": "int64",  # of `from`
    "rate_bps": "float64",
    "sent_bytes": "int64",  # frames, from the barrier to the last flow's end
    "dropped_packets": "int64",
    "busy_share": "float64",  # of the time, at that rate
    "conserved": "float64",  # of the time it was backlogged: sent / possible; missing if never
}
EVENTS = {
    "at_s": "float64",
    "event": "string",  # cut, silent cut, kill, switch, rack, healed, revive, ...
    "what": "string",  # names of servers and switches, joined by blanks
    "detected_s": "float64",  # moments after the event; missing where they do not apply
    "rerouted_s": "float64",
    "recovered_s": "float64",
    "stopped_flows": "Int64",  # flows that stood still because of it; missing if unknown
    "reason": "string",  # why it could not be done; empty where it was
}
TRANSFERS = {  # of a collective operation
    "transfer": "int64",
    "flow": "int64",  # whose connection it takes
    "step": "int64",  # as the algorithm counts
    "deed": "string",  # reduce, copy: what its receiver does with it
    "volume_bytes": "int64",
    "ready_s": "float64",  # all that it needs had arrived
    "begin_s": "float64",
    "end_s": "float64",  # of its last byte's arrival; missing if it did not come to that
}
# Columns of servers' and switches' names; several names have blanks between.
ADDRESSES = {
    "flows": ("source", "destination", "path"),
    "links": ("from", "to"),
    "events": ("what",),
}
TABLES = {
    "flows": FLOWS,
    "intervals": INTERVALS,
    "links": LINKS,
    "events": EVENTS,
    "transfers": TRANSFERS,
    "classes": CLASSES,
}
SOME_RUNS = ("transfers", "classes")  # tables that are written only where they have a row
# Columns that records of this version may be without: they were added to it.
LATER = {"flows": ("measured", "completion_s", "alone_s", "slowdown")}
