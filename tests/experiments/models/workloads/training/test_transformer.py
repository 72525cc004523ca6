"""Traces of transformers: each parallelism moves the bytes of its closed formula, to the byte."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pillarbox import topos
from pillarbox.experiments.models.workloads.training.iteration_plan import iteration_plan
from pillarbox.experiments.models.workloads.training.trace import COLLECTIVE, COMPUTE, check_trace
from pillarbox.experiments.models.workloads.training.transformer import (
    LAYER_NODES,
    MOST,
    Transformer,
    one_forward_one_backward,
)
from pillarbox.topos.base.errors import PillarboxError


def sent_bytes(model: Transformer, algorithm: str = "") -> dict[str, int]:
    trace = model.trace()
    check_trace(trace)
    network = topos.parse(f"tree,{max(2, model.ranks)},1")
    return iteration_plan(network, trace, range(model.ranks), algorithm).bytes_by_label()


ways = st.sampled_from([1, 2, 3, 4])


@settings(max_examples=40, deadline=None)
@given(ways, ways, ways, st.sampled_from([1, 2]), st.integers(1, 3), st.integers(1, 3), st.data())
def test_bytes_moved_are_those_of_the_formula(
    tp: int, pp: int, dp: int, ep: int, stage_layers: int, micro_batches: int, data: st.DataObject
) -> None:
    assume(tp * pp * dp <= 24 and dp % ep == 0)
    experts = (
        ep * data.draw(st.sampled_from([1, 2])) if ep > 1 else data.draw(st.sampled_from([0, 2]))
    )
    model = Transformer(
        tp=tp,
        pp=pp,
        dp=dp,
        ep=ep,
        layers=pp * stage_layers,
        hidden=4 * tp * data.draw(st.integers(1, 5)),
        sequence=8 * data.draw(st.integers(1, 3)),
        micro_batches=micro_batches,
        experts=experts,
        top_k=min(2, experts) or 1,
        element_bytes=data.draw(st.sampled_from([1, 2, 4])),
    )
    assert sent_bytes(model) == model.bytes_moved()


@pytest.mark.parametrize("algorithm", ["ring", "halving-doubling", "bcube"])
def test_bytes_do_not_depend_on_the_algorithm(algorithm: str) -> None:
    model = Transformer(tp=2, pp=2, dp=4, ep=2, experts=4)
    assert sent_bytes(model, algorithm) == model.bytes_moved()


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from([(1, 1, 2, 2), (2, 2, 4, 2), (1, 1, 4, 4), (1, 2, 2, 1), (1, 1, 6, 3)]),
    st.integers(1, 2),
    st.data(),
)
def test_uneven_gates_move_the_same_bytes(
    ways: tuple[int, int, int, int], per_rank: int, data: st.DataObject
) -> None:
    tp, pp, dp, ep = ways
    experts = ep * per_rank
    share = st.floats(0, 1).filter(lambda one: one == 0 or one > 1e-3)
    gate = data.draw(st.lists(share, min_size=experts, max_size=experts).filter(any))
    model = Transformer(
        tp=tp, pp=pp, dp=dp, ep=ep, experts=experts, top_k=1, gate=tuple(gate), layers=2,
        hidden=4 * tp, sequence=7, micro_batches=2, element_bytes=1,
    )  # fmt: skip
    assert sent_bytes(model) == model.bytes_moved()
    assert sum(model.tokens_of) == 7


def test_popular_experts_compute_longer() -> None:
    model = Transformer(dp=2, ep=2, experts=2, top_k=1, gate=(0.75, 0.25), sequence=256)
    assert model.tokens_of == (192, 64)
    popular, other = (model.duration_us("mlp", at, backward=False) for at in (0, 1))
    assert popular == pytest.approx(3 * other, abs=3)
    even = Transformer(dp=2, ep=2, experts=2, top_k=1).duration_us("mlp", backward=False)
    assert popular + other == pytest.approx(2 * even, abs=2)


def test_formula_by_hand() -> None:
    """Per device and micro-batch, tensor parallelism sends 8 b s h (t - 1) / t elements per layer.

    Two ring all-reduces of b s h elements in each pass (Narayanan and others, SC 2021, section 2.3;
    Patarasuk, Yuan, JPDC 2009); and b s h elements from stage to stage (section 4.1).
    """
    model = Transformer(tp=4, pp=2, dp=2, layers=8, hidden=64, sequence=32, micro_batches=3)
    elements = 32 * 64
    found = model.bytes_moved()
    assert found["tensor"] == model.ranks * 4 * 3 * (8 * elements * 3 // 4) * 2
    assert found["pipeline"] == 4 * 2 * 3 * 2 * elements * 2
    # A rank has 4 layers with 12 h^2 + 13 h parameters, all but 6 h of them split in 4.
    parameters = 4 * ((12 * 64**2 + 7 * 64) // 4 + 6 * 64)
    assert found["data"] == 4 * 2 * 2 * parameters * 2
    assert "expert" not in found


def test_parameters_of_a_layer() -> None:
    model = Transformer(hidden=64)
    assert model.dense_parameters == 12 * 64**2 + 13 * 64
    moe = Transformer(hidden=64, experts=8, dp=4, ep=4)
    mlp = 8 * 64**2 + 5 * 64
    assert moe.dense_parameters == 12 * 64**2 + 13 * 64 - mlp + 8 * 64
    assert moe.expert_parameters == 2 * mlp


def test_durations_count_matrix_multiplications() -> None:
    """Forward 24 b s h^2 + 4 b s^2 h operations of a layer, twice as many backward."""
    model = Transformer(hidden=512, sequence=256, micro_batch=2, tp=2, tflops=0.01)
    operations = 24 * 2 * 256 * 512**2 + 4 * 2 * 256**2 * 512
    forward, backward = (
        sum(model.duration_us(part, backward=backward) for part in ("attention", "mlp"))
        for backward in (False, True)
    )
    assert forward == pytest.approx(operations / 2 / 0.01 / 1e6, abs=1)
    assert backward == pytest.approx(2 * forward, abs=2)


def test_no_trace_has_more_nodes_than_the_limit_assumes() -> None:
    model = Transformer(tp=2, pp=2, dp=2, ep=2, experts=2, layers=2, micro_batches=1)
    messages, sums = 2, 2  # of a stage with a neighbour; of a layer's gradients
    assert max(map(len, model.trace().ranks)) <= LAYER_NODES + messages + sums


def test_groups_are_numbered_as_by_megatron() -> None:
    """Tensor first, then data, then pipeline; experts on neighbouring replicas."""
    trace = Transformer(tp=2, pp=2, dp=4, ep=2, experts=2).trace()
    groups = set(trace.groups.values())
    assert {(0, 1), (2, 3), (14, 15)} <= groups  # tensor
    assert {(0, 2, 4, 6), (9, 11, 13, 15)} <= groups  # data
    assert {(0, 2), (4, 6), (1, 3)} <= groups  # expert
    assert {(0, 4), (2, 6)} <= groups  # replicas of the same experts
    assert all(name.isdecimal() for name in trace.groups)


def test_gradients_are_summed_while_the_backward_pass_goes_on() -> None:
    nodes = Transformer(dp=2, layers=2, micro_batches=2).trace().ranks[0]
    sums = [node for node in nodes if node.kind == COLLECTIVE]
    assert [node.name for node in sums] == [
        f"all-reduce gradients of layer {layer}" for layer in (1, 0)
    ]
    needed = {number for node in nodes for number in node.after}
    assert not needed & {node.number for node in sums}
    assert sum(node.kind == COMPUTE for node in nodes) == 2 * 2 * 2 * 2


@given(st.integers(0, 9), st.integers(1, 9))
def test_schedule_has_each_pass_once(later: int, micro_batches: int) -> None:
    found = list(one_forward_one_backward(later, micro_batches))
    assert sorted(found) == [(way, n) for way in (False, True) for n in range(micro_batches)]
    for number in range(micro_batches):
        assert found.index((False, number)) < found.index((True, number))
    waiting = 0
    for backward, _ in found:
        waiting += -1 if backward else 1
        assert waiting <= later + 1


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"tp": 0}, "tp of a transformer is a whole number from 1"),
        ({"layers": True}, "layers of a transformer is a whole number"),
        ({"hidden": 2.0}, "hidden of a transformer is a whole number"),
        ({"sequence": MOST + 1}, "sequence of a transformer"),
        ({"experts": -1}, "experts of a transformer is a whole number from 0"),
        ({"tflops": 0.0}, "tflops of a transformer is a number of at least 1e-09, not 0.0"),
        ({"tflops": "fast"}, "tflops of a transformer is a number of at least 1e-09, not 'fast'"),
        ({"tflops": 1e-320}, "of at least 1e-09, not 1e-320"),
        ({"layers": 10**6}, "has up to 48,000,000 nodes, and the limit is 500,000"),
        ({"pp": 3}, r"layers \(4\) must be a multiple of pp \(3\)"),
        ({"dp": 3, "ep": 2}, r"dp \(3\) must be a multiple of ep \(2\)"),
        ({"hidden": 36, "tp": 2}, r"hidden \(36\) must be a multiple of 4 tp \(8\)"),
        ({"dp": 2, "ep": 2}, "needs experts: set experts to a multiple of 2"),
        ({"dp": 2, "ep": 2, "experts": 3}, r"experts \(3\) must be a multiple of ep \(2\)"),
        ({"experts": 1}, r"top_k \(2\) is at most the number of experts \(1\)"),
        ({"experts": 2, "gate": (1.0,)}, "the gate has 1 shares, and there are 2 experts"),
        (
            {"dp": 3, "ep": 3, "experts": 3, "hidden": 4, "sequence": 1},
            r"bytes of an all-to-all \(16\) must be a multiple of 4 ep \(12\)",
        ),
    ],
)
def test_impossible_models(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(PillarboxError, match=sentence):
        Transformer(**values)
