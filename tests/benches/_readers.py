"""Table of all readers of untrusted input, each with its corpus and its mutator.

A reader receives one damaged input. It may return any value, or raise one of its documented errors,
which is a sentence for the author of the input. Frames and headers, which arrive in millions, have
separate benches (`fuzz`, `fuzz-routers`), and Wireshark's dissector is tested with tshark.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, NamedTuple
from unittest.mock import patch

from pillarbox.topos.base.errors import PillarboxError, require
from pillarbox.topos.base.spec import kinds, network, parse
from tests.benches import _file_readers as files
from tests.benches import _mutations as mutations
from tests.benches import _run_readers as runs
from tests.benches import _socket_readers as sockets
from tests.benches._mutations import Mutator, json_corpus, text_corpus

# Maximum number of flows, or of chunks of a collective operation, in a fuzzed experiment plan.
MOST_FLOWS = 20_000
NETWORKS = ("bcube,2,1", "dcell,2,1", "dpillar,4,2", "ficonn,4,1", "tree,2,2", "fattree,4")

EXPERIMENT = """\
name = "mine"
about = "two networks"
repeats = 2
seed = 7
faults = ["cut 0.0-s0 at 0.5 until 1.5", {fault = "kill", per_minute = 20, lasting_s = 0.5}]

[[systems]]
network = "bcube,2,1"
routing = "bsr"
rate_mbit = 20
mtu = 1500

[[systems]]
network = "tree,2,2"
label = "a tree"
rate_mbit = 20.5
delay = "1ms"

[workload]
pattern = "all-to-all"
duration_s = 2.5
interval_s = 0.1
options = {jitter_s = 0.1}
"""
ARRIVING = """\
[[systems]]
network = "dcell,2,1"
rate_mbit = 20
at_load = 0.3

[workload]
pattern = "incast"
arrivals = "poisson"
load = 0.5
load_of = "servers"
sizes = "1000"
size_scale = 0.5
duration_s = 0.5
warm_up_s = 0.1
cool_down_s = 0.1
options = {senders = 2, deadline_s = 0.1}
"""
COLLECTIVE = """\
[[systems]]
network = "bcube,2,1"
algorithm = "bml"

[workload]
pattern = "all-reduce"
volume_bytes = 12_000
"""


class ReaderCase(NamedTuple):
    """A fuzzed reader of untrusted input: its corpus, its mutator and its read function."""

    corpus: Callable[[], tuple[bytes, ...]]
    mutate: Mutator
    # Context manager that yields the function that reads one input.
    prepare: Callable[[], Any]
    errors: Callable[[], tuple[type[Exception], ...]] = lambda: (PillarboxError,)
    share: int = 1  # a slow reader gets 1/share of the fuzz inputs


def readers() -> dict[str, ReaderCase]:
    """Return all fuzzed readers of untrusted input by name."""
    return {
        "network": ReaderCase(_spec_corpus, mutations.mutated_text, _without_setup(_read_spec)),
        "address": ReaderCase(_address_corpus, mutations.mutated_text, _address_reader),
        "fault": ReaderCase(_fault_corpus, mutations.mutated_text, _fault_reader),
        "experiment": ReaderCase(_experiment_corpus, mutations.mutated_text, _experiment_reader),
        "override": ReaderCase(_override_corpus, mutations.mutated_text, _override_reader),
        "plan": ReaderCase(_plan_corpus, mutations.mutated_json, _plan_reader),
        "hosts": ReaderCase(
            partial(text_corpus, files.HOSTS, 'hosts = ["a", "b"]'),
            mutations.mutated_text,
            files.hosts_file_reader,
        ),
        "trace-csv": ReaderCase(
            files.trace_corpus, mutations.mutated_csv, files.trace_reader(".csv")
        ),
        "trace-parquet": ReaderCase(
            files.parquet_corpus, mutations.mutated_bytes, files.trace_reader(".parquet")
        ),
        "sizes": ReaderCase(
            partial(text_corpus, files.SIZES, "1 0.5\n2 1"),
            mutations.mutated_text,
            files.flow_sizes_reader,
        ),
        "manifest": ReaderCase(
            partial(runs.manifest_corpus, _plan_corpus),
            mutations.mutated_json,
            runs.manifest_reader,
        ),
        "trial": ReaderCase(
            runs.trial_corpus,
            mutations.mutated_json,
            partial(runs.trial_reader, _plan_corpus, runs.read_run),
        ),
        "report": ReaderCase(
            runs.trial_corpus,
            mutations.mutated_json,
            partial(runs.trial_reader, _plan_corpus, runs.report_run),
            share=100,
        ),
        "records": ReaderCase(
            runs.flow_record_corpus, mutations.mutated_bytes, runs.flow_record_reader
        ),
        "capture": ReaderCase(files.capture_corpus, mutations.mutated_bytes, files.capture_reader),
        "page-request": ReaderCase(
            sockets.page_request_corpus,
            mutations.mutated_json,
            _without_setup(sockets.read_page_request),
        ),
        "gate-request": ReaderCase(
            sockets.gate_request_corpus,
            mutations.mutated_json,
            _without_setup(sockets.read_gate_request),
        ),
        "lab-request": ReaderCase(
            sockets.lab_request_corpus, mutations.mutated_json, sockets.lab_request_reader
        ),
        "server-request": ReaderCase(
            sockets.server_request_corpus,
            mutations.mutated_json,
            sockets.server_request_reader,
            tuple,
        ),
        "grader-answer": ReaderCase(
            sockets.grading_answer_corpus,
            mutations.mutated_json,
            sockets.grading_answer_reader,
            sockets.grading_errors,
        ),
        "iperf3": ReaderCase(
            partial(text_corpus, json.dumps(files.REPORT)),
            mutations.mutated_json,
            _without_setup(files.read_report),
        ),
        "handed-in": ReaderCase(
            partial(text_corpus, files.TIMES), mutations.mutated_csv, files.event_times_reader
        ),
        "machine-ready": ReaderCase(
            sockets.machine_ready_corpus, mutations.mutated_json, sockets.machine_ready_reader
        ),
    }


def _argument(data: bytes) -> str:
    """Return a fuzz input as text, decoded as Python decodes command line arguments."""
    return data.decode("utf-8", "surrogateescape")


def _without_setup(read: Callable[[bytes], object]) -> Callable[[], Any]:
    """Return the context of a fuzzed reader that needs no preparation: it only yields `read`."""

    @contextmanager
    def prepared() -> Iterator[Callable[[bytes], object]]:
        yield read

    return prepared


# -- words of the command line ---------------------------------------------------------------------


def _spec_corpus() -> tuple[bytes, ...]:
    examples = (spec for kind in kinds() for spec in network(kind).examples)
    return text_corpus(*examples, "bcube,8,3,servers=2048", "bcube,99999999,99999999")


def _read_spec(data: bytes) -> None:
    topology = parse(_argument(data))
    topology.address(topology.servers - 1)
    topology.server_plug(0, 0)


def _address_corpus() -> tuple[bytes, ...]:
    return text_corpus(
        "0.3", "0.3.dcell", "1.3.7", "s0", "h19", "s1.bcube", "10.0.0.1", "0.2.1.ficonn"
    )


@contextmanager
def _address_reader() -> Iterator[Callable[[bytes], object]]:
    networks = list(map(parse, NETWORKS))

    def read(data: bytes) -> None:
        text = _argument(data)
        for topology in networks:
            for kind in (topology.node, topology.server, topology.switch):
                try:
                    kind(text)
                except PillarboxError:
                    continue

    yield read


def _fault_corpus() -> tuple[bytes, ...]:
    return text_corpus(
        *("cut 0.0-s0", "cut 0.1-1.1 silent at 2 until 4.5s", "kill 1.0", "stop s2", "rack s0"),
        *("cut silent", "server:1.3", "cut 0.0 - s0", "kill 1.1 until 3"),
    )


@contextmanager
def _fault_reader() -> Iterator[Callable[[bytes], object]]:
    from pillarbox.experiments.models.workloads.workload import Workload
    from pillarbox.experiments.runs.plans.experiment import FaultAt
    from pillarbox.experiments.runs.plans.fault_schedule import schedule
    from pillarbox.hosts.base.failures import parse_failures

    topology, workload = parse("bcube,2,1"), Workload(duration_s=10.0)

    def read(data: bytes) -> None:
        text = _argument(data)
        for made in (
            lambda: parse_failures(topology, [text]),
            lambda: schedule(topology, [FaultAt(text)], workload, 1),
        ):
            try:
                made()
            except PillarboxError:
                continue

    yield read


# -- experiments -----------------------------------------------------------------------------------


def _experiment_corpus() -> tuple[bytes, ...]:
    found = (
        "systems = 1",
        '[[systems]]\nnetwork = "bcube,2,1"\n[workload]\nduration_s = 1',
        COLLECTIVE.replace("bcube,2,1", "bcube,2,11"),
        '[[systems]]\nnetwork = "bcube,2,21"\n[workload]\nduration_s = 1',
    )
    return text_corpus(EXPERIMENT, ARRIVING, COLLECTIVE, *found)


@contextmanager
def _experiment_reader() -> Iterator[Callable[[bytes], object]]:
    from pillarbox.experiments.runs.plans import loading

    with (
        _lowered_flow_limits(),
        files.file_reader(
            "mine.toml", lambda file: _compute_orders(loading.load(str(file)))
        ) as read,
    ):
        yield read


@contextmanager
def _lowered_flow_limits() -> Iterator[None]:
    """Lower the limits on an experiment's flows for fuzzing, whose memory limit is small."""
    from pillarbox.experiments.models.workloads import arrivals, patterns
    from pillarbox.experiments.models.workloads.collectives import graph, plan
    from pillarbox.experiments.runs.plans import drawn_arrivals

    with ExitStack() as stack:
        for module in (arrivals, patterns, drawn_arrivals):
            stack.enter_context(patch.object(module, "MOST_FLOWS", MOST_FLOWS))
        for module in (graph, plan):
            stack.enter_context(patch.object(module, "MOST_SENT", MOST_FLOWS))
        yield


def _compute_orders(experiment: Any) -> None:
    """Compute the trial orders of a fuzzed experiment plan, as `run --dry-run` does."""
    from pillarbox.experiments.runs.plans.trials import blocks
    from pillarbox.experiments.runs.trials.experiment_run import order_of

    for trial in next(blocks(experiment)):
        for fault in order_of(experiment, trial).faults:
            str(fault)


def _override_corpus() -> tuple[bytes, ...]:
    return text_corpus(
        *("rate_mbit=30", "systems.0.routing=bsr", "workload.duration_s=none", "repeats=2"),
        *("options.flows=4", "workload.options.source=0.3", "faults.0.fault=kill 0.0", "seed=-1"),
    )


@contextmanager
def _override_reader() -> Iterator[Callable[[bytes], object]]:
    from pillarbox.experiments.runs.plans import loading
    from pillarbox.experiments.runs.plans.overrides import overridden
    from pillarbox.experiments.runs.plans.values import plain

    quick = loading.load("quick")

    def read(data: bytes) -> None:
        loading.experiment_of(overridden(plain(quick), [_argument(data)]))

    yield read


def _plan_corpus() -> tuple[bytes, ...]:
    import tomllib

    found = COLLECTIVE.replace("12_000", "1e308")
    return json_corpus(
        *(
            {"name": "", "about": ""} | tomllib.loads(one)
            for one in (EXPERIMENT, ARRIVING, COLLECTIVE, found)
        )
    )


@contextmanager
def _plan_reader() -> Iterator[Callable[[bytes], object]]:
    from pillarbox.experiments.runs.plans.loading import experiment_of

    with _lowered_flow_limits():
        yield lambda data: _compute_orders(experiment_of(_table(data)))


def _table(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        found = None
    require(isinstance(found, dict), "no table")
    return dict(found)
