"""Several jobs: their traces as one trace, repeated iterations, and options of each job."""

from __future__ import annotations

from typing import Any

import pytest

from pillarbox import topos
from pillarbox.experiments.models.workloads.training import jobs as jobs_module
from pillarbox.experiments.models.workloads.training.jobs import (
    Job,
    operation_trace,
    repeated,
    united,
)
from pillarbox.experiments.models.workloads.training.trace import (
    COLLECTIVE,
    COMPUTE,
    RECEIVE,
    SEND,
    Trace,
    TraceNode,
    check_trace,
)
from pillarbox.experiments.models.workloads.training.training_workload import (
    jobs_of,
    training_plan,
    workload_trace,
)
from pillarbox.experiments.models.workloads.workload import TRAINING, Workload
from pillarbox.topos.base.errors import PillarboxError
from tests.experiments.models.workloads.training.drawn_trace import drawn_trace

SMALL: dict[str, Any] = {"layers": 2, "hidden": 32, "sequence": 16, "micro_batches": 1}


def message_trace(size_bytes: int) -> Trace:
    """Return a trace of two ranks: a message from the first to the second."""
    values = {"size_bytes": size_bytes, "tag": 1}
    return Trace(
        (
            (TraceNode(7, "", SEND, peer=1, **values),),  # type: ignore[arg-type]
            (TraceNode(7, "", RECEIVE, peer=0, **values),),  # type: ignore[arg-type]
        )
    )


def test_united_traces_keep_peers_and_groups_of_each_job() -> None:
    operation = operation_trace({"operation": "all-reduce", "bytes": 8}, 3)
    trace, planned = united(
        [Job("a", drawn_trace(), 1), Job("b", message_trace(4), 1), Job("c", operation, 1)]
    )
    check_trace(trace)
    assert [(job.name, job.ranks) for job in planned] == [
        ("a", range(4)),
        ("b", range(4, 6)),
        ("c", range(6, 9)),
    ]
    assert [trace.ranks[rank][0].peer for rank in (4, 5)] == [5, 4]
    groups = {
        trace.groups[node.group]
        for nodes in trace.ranks
        for node in nodes
        if node.kind == COLLECTIVE
    }
    assert groups == {(0, 1, 2, 3), (6, 7, 8)}


def test_an_iteration_follows_all_last_nodes_of_the_previous_one() -> None:
    first = (
        TraceNode(1, "", COMPUTE, (), 5),
        TraceNode(2, "", COMPUTE, (1,), 5),
        TraceNode(4, "", COMPUTE, (1,), 5),
    )
    trace = repeated(Trace((first, ())), 3)
    check_trace(trace)
    assert [(one.number, one.after) for one in trace.ranks[0]] == [
        *((1, ()), (2, (1,)), (4, (1,))),
        *((6, (2, 4)), (7, (6,)), (9, (6,))),
        *((11, (7, 9)), (12, (11,)), (14, (11,))),
    ]
    assert trace.ranks[1] == ()


def test_limit_of_repeated_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs_module, "MOST_NODES", 4)
    assert len(repeated(message_trace(4), 2).ranks[0]) == 2
    with pytest.raises(PillarboxError, match="3 iterations have 6 nodes, and the limit is 4"):
        repeated(message_trace(4), 3)


def test_options_next_to_jobs_are_their_defaults() -> None:
    options = {**SMALL, "jobs": [{"tp": 2}, {"pp": 2, "layers": 4, "name": "deep"}]}
    first, deep = jobs_of(options, 16, seed=1)
    assert (first.name, len(first.trace.ranks)) == ("0", 8)  # tp 2, and 4 replicas fit into half
    assert (deep.name, len(deep.trace.ranks)) == ("deep", 8)
    alone = workload_trace(options, 16, 1, "deep")
    assert [len(nodes) for nodes in alone.ranks] == [len(nodes) for nodes in deep.trace.ranks]


def test_a_job_alone_keeps_its_servers() -> None:
    network, options = topos.parse("tree,4,4"), {"jobs": [{"dp": 3}, {"tp": 4, "dp": 1}]}
    workload = Workload(TRAINING, options={**SMALL, **options, "placement": "random"})
    together = training_plan(network, workload, "", 5)
    alone = training_plan(network, workload, "", 5, "1")
    assert alone.servers == together.servers[3:]
    assert alone.jobs[0].ranks == range(4)
    sent = [training_plan(network, workload, "", 5, name).bytes_by_label() for name in "01"]
    assert sum(sum(one.values()) for one in sent) == sum(together.bytes_by_label().values())


def test_a_job_with_its_own_dp_may_exceed_its_share() -> None:
    workload = Workload(TRAINING, options={**SMALL, "jobs": [{"dp": 12}, {"dp": 4}]})
    assert len(training_plan(topos.parse("tree,4,4"), workload, "", 1).servers) == 16


@pytest.mark.parametrize(
    ("jobs", "words"),
    [
        ({"tp": 2}, "the option jobs is a list of tables"),
        (["tp=2"], "the option jobs is a list of tables"),
        ([{"tp": 2, "name": "a"}, {"name": "a"}], "each job has a name of its own"),
        ([{"tp": 2, "name": ""}], "each job has a name of its own"),
        ([{"nam": "a"}], "job 0 has no option 'nam': did you mean name"),
        ([{"iterations": 0}], "the option iterations is a whole number from 1"),
        ([{"iterations": True}], "the option iterations is a whole number from 1"),
        ([{"bytes": 4}], "has bytes, but no operation"),
        ([{"operation": "all-reduce"}], "needs its size: add bytes"),
        ([{"operation": "all-reduc", "bytes": 8}], "did you mean all-reduce"),
        ([{"operation": "all-reduce", "bytes": 8, "tp": 2}], "repeats an operation, has no option"),
        ([{"dp": 12}, {"dp": 5}], "has 16 servers, and these 2 jobs have 17 ranks"),
        ([{"trace": "none.%d.et", "tp": 2}], "the option tp describes a transformer"),
        ([{}] * 17, "17 jobs do not fit on 16 servers"),
        ([{}] * 65, "at most 64 jobs"),
    ],
)
def test_wrong_jobs(jobs: Any, words: str) -> None:
    workload = Workload(TRAINING, options={**SMALL, "jobs": jobs})
    with pytest.raises(PillarboxError) as raised:
        training_plan(topos.parse("tree,4,4"), workload, "", 1)
    assert words in str(raised.value)
