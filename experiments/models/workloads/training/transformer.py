"""Training iteration of a transformer under tensor, pipeline, data and expert parallelism.

Ranks are numbered as by Megatron-LM: tensor parallelism first, then data, then pipeline. The
experts of a layer are distributed over `ep` of the `dp` replicas.

Symbols and schedule as in Narayanan and others, "Efficient Large-Scale Language Model Training on
GPU Clusters Using Megatron-LM", SC 2021 (sections 2.2 to 4.1): b sequences of s tokens per
micro-batch, hidden size h, l layers, and t, p, d ways of tensor, pipeline and data parallelism. An
element has e bytes. Per micro-batch:

- tensor: each layer has two all-reduces of b s h elements in the forward pass and two in the
  backward pass, after attention and MLP;
- pipeline: b s h elements from stage to stage, in each pass, between ranks of one tensor index;
- expert: each layer has two all-to-all exchanges of k b s h elements in each pass, where k experts
  process a token: to the experts and back. Popular experts get more tokens if the gate has uneven
  shares; the bytes in total are the same;

and per iteration

- data: an all-reduce of each layer's gradients, as soon as the last micro-batch has produced them;
  gradients of experts, only among the replicas with the same experts.

A ring all-reduce of M bytes among g ranks sends 2 (g - 1) M bytes in total (Patarasuk, Yuan, JPDC
2009), so a device sends 8 b s h (t - 1) / t elements per layer and micro-batch for tensor
parallelism. Computation counts
matrix multiplications: 8 b s h^2 + 4 b s^2 h operations of a layer's attention, 16 b s h^2 of its
MLP (per expert that processes a token), and twice as many in the backward pass. Embedding, output
layer and the optimizer's step are left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from functools import cached_property

from pillarbox.experiments.models.workloads.collectives.shares import apportioned
from pillarbox.experiments.models.workloads.training.trace import (
    COLLECTIVE,
    COMPUTE,
    MOST_NODES,
    RECEIVE,
    SEND,
    Trace,
    TraceNode,
)
from pillarbox.topos.base.errors import require

TENSOR, PIPELINE, DATA, EXPERT = "tensor", "pipeline", "data", "expert"
ALL_REDUCE, EXCHANGE = "all-reduce", "total-exchange"
MOST = 1 << 20  # maximum of each of the model's numbers
LEAST_TFLOPS = 1e-9  # minimum speed of a rank, at which durations are finite
# Maximum number of nodes of a layer in both passes of a micro-batch: computations, all-reduces and
# exchanges.
LAYER_NODES = 12
ELEMENT_UNIT = 4  # sizes of transfers are multiples of 4 bytes


@dataclass(frozen=True)
class Transformer:
    """A transformer, the size of its batch, and the ways in which its training is parallel."""

    tp: int = 1  # ways of tensor parallelism
    pp: int = 1  # ways of pipeline parallelism (stages)
    dp: int = 1  # ways of data parallelism (replicas)
    ep: int = 1  # ways of expert parallelism: a divisor of dp
    layers: int = 4
    hidden: int = 512
    sequence: int = 256  # tokens of a sequence
    micro_batch: int = 1  # sequences of a micro-batch
    micro_batches: int = 4  # micro-batches of a replica per iteration
    experts: int = 0  # experts of each layer; 0 is an MLP without experts
    top_k: int = 2  # experts that process each token
    element_bytes: int = 2  # size of an activation and of a gradient
    # Share of each expert in all tokens; empty if all are equal.
    gate: tuple[float, ...] = ()
    # Operations per second of a rank, in 10^12. For a cable of 100 Mbit/s, as in the paper, whose
    # GPUs have 163 at 200 Gbit/s of network each.
    tflops: float = 0.08

    def __post_init__(self) -> None:
        for one in fields(self):
            value, least = getattr(self, one.name), 0 if one.name == "experts" else 1
            if one.name == "tflops":
                require(
                    isinstance(value, int | float) and value >= LEAST_TFLOPS,
                    f"tflops of a transformer is a number of at least {LEAST_TFLOPS:g}, not "
                    f"{value!r}",
                )
            elif one.name != "gate":
                require(
                    isinstance(value, int)
                    and not isinstance(value, bool)
                    and least <= value <= MOST,
                    f"{one.name} of a transformer is a whole number from {least} to {MOST}, not "
                    f"{value!r}",
                )
        self._require_divisor("pp", self.pp, "layers", self.layers)
        nodes = self.ranks * self.stage_layers * self.micro_batches * LAYER_NODES
        require(
            nodes <= MOST_NODES,
            f"the iteration of this transformer has up to {nodes:,} nodes, and the limit is "
            f"{MOST_NODES:,}: choose fewer ranks, layers or micro-batches",
        )
        self._require_divisor("ep", self.ep, "dp", self.dp)
        self._require_divisor("4 tp", 4 * self.tp, "hidden", self.hidden)
        if self.experts:
            self._require_divisor("ep", self.ep, "experts", self.experts)
            require(
                self.top_k <= self.experts,
                f"top_k ({self.top_k}) is at most the number of experts ({self.experts})",
            )
            require(
                len(self.gate) in (0, self.experts),
                f"the gate has {len(self.gate)} shares, and there are {self.experts} experts",
            )
            if not self.gate:
                self._require_divisor(
                    "4 ep", ELEMENT_UNIT * self.ep, "bytes of an all-to-all", self.exchange_bytes
                )
        require(
            bool(self.experts) or self.ep == 1,
            f"expert parallelism (ep = {self.ep}) needs experts: set experts to a multiple of "
            f"{self.ep}",
        )

    @staticmethod
    def _require_divisor(name: str, divisor: int, of: str, number: int) -> None:
        require(
            number % divisor == 0,
            f"{of} ({number}) must be a multiple of {name} ({divisor})",
        )

    @property
    def ranks(self) -> int:
        """Number of ranks of the training job."""
        return self.tp * self.pp * self.dp

    @property
    def stage_layers(self) -> int:
        """Number of layers of each pipeline stage."""
        return self.layers // self.pp

    @property
    def activation_bytes(self) -> int:
        """Size of a micro-batch's activations: b s h elements."""
        return self.micro_batch * self.sequence * self.hidden * self.element_bytes

    @property
    def exchange_bytes(self) -> int:
        """Size of a rank's data in an all-to-all: its tokens, once for each chosen expert."""
        return self.top_k * self.activation_bytes

    @property
    def dense_parameters(self) -> int:
        """Parameters of a layer on a rank whose gradients all replicas sum.

        Attention has 4 h^2 weights and 4 h biases, the MLP 8 h^2 and 5 h, and two layer
        normalisations 4 h: 12 h^2 + 13 h in total. Tensor parallelism splits all but 6 h of them.
        With experts, the MLP is replaced by a router of h weights per expert.
        """
        h, t = self.hidden, self.tp
        attention = (4 * h * h + 3 * h) // t + h + 4 * h
        return attention + (h * self.experts if self.experts else self._mlp_parameters)

    @property
    def _mlp_parameters(self) -> int:
        return (8 * self.hidden**2 + 4 * self.hidden) // self.tp + self.hidden

    @property
    def expert_parameters(self) -> int:
        """Parameters of the experts of a layer on a rank; 0 without experts."""
        return self.experts // self.ep * self._mlp_parameters

    @cached_property
    def tokens_of(self) -> tuple[int, ...]:
        """Tokens of a micro-batch that a replica sends to the experts of each `ep` rank.

        A token counts once for each expert that processes it.
        """
        tokens = self.micro_batch * self.sequence * self.top_k
        shares = self.gate or (1 / self.experts,) * self.experts
        by_expert = apportioned(tokens, shares)
        count = self.experts // self.ep
        return tuple(sum(by_expert[at * count :][:count]) for at in range(self.ep))

    def bytes_moved(self) -> dict[str, int]:
        """Return the bytes that each parallelism sends in an iteration, by closed formula.

        >>> Transformer(tp=2, pp=2, dp=2, layers=2, hidden=64, sequence=16).bytes_moved()
        {'data': 402944, 'pipeline': 65536, 'tensor': 262144}
        """
        t, p, d, ep = self.tp, self.pp, self.dp, self.ep
        passes, e = self.layers * self.micro_batches, self.element_bytes
        dense, experts = self.dense_parameters * e, self.expert_parameters * e
        found = {
            # d p groups of t ranks; each has 4 all-reduces per micro-batch and layer of its stage.
            TENSOR: d * passes * 4 * 2 * (t - 1) * self.activation_bytes,
            PIPELINE: t * d * (p - 1) * self.micro_batches * 2 * self.activation_bytes,
            DATA: t * self.layers * (2 * (d - 1) * dense + 2 * (d - ep) * experts),
            EXPERT: (
                t * (d // ep) * passes * 4 * (ep - 1) * self.exchange_bytes if self.experts else 0
            ),
        }
        return {name: count for name, count in sorted(found.items()) if count}

    def duration_us(self, part: str, expert_index: int = 0, *, backward: bool) -> int:
        """Return the duration of a layer's attention or MLP on a rank, in microseconds.

        The experts of a rank, given by its index among `ep`, process the tokens of `ep` replicas.
        """
        tokens = self.micro_batch * self.sequence
        if part == "attention":
            operations = 8 * tokens * self.hidden**2 + 4 * tokens * self.sequence * self.hidden
        elif self.gate:
            operations = 16 * self.ep * self.tokens_of[expert_index] * self.hidden**2
        else:
            operations = 16 * tokens * self.hidden**2 * (self.top_k if self.experts else 1)
        return round(operations * (1 + backward) / (self.tp * self.tflops * 1e6))

    def trace(self) -> Trace:
        """Return the trace of one training iteration.

        >>> trace = Transformer(tp=2, pp=2, dp=2).trace()
        >>> len(trace.ranks), trace.groups["1"], len(trace.ranks[0])
        (8, (0, 1), 74)
        """
        groups = _Groups(self)
        ranks = tuple(tuple(_RankTrace(self, groups, rank).nodes()) for rank in range(self.ranks))
        return Trace(ranks, groups.members)


class _Groups:
    """Process groups of a training job; names are numbers, as other programs expect."""

    def __init__(self, model: Transformer) -> None:
        self._model = model
        self.members: dict[str, tuple[int, ...]] = {}
        self._name_of: dict[tuple[int, ...], str] = {}
        for parallelism in (TENSOR, EXPERT, DATA, f"{DATA} of {EXPERT}"):
            for rank in range(model.ranks):
                self.name(parallelism, rank)

    def name(self, parallelism: str, rank: int) -> str:
        """Return the name of a rank's process group; "" for a group of one rank."""
        ranks = self._ranks(parallelism, rank)
        if len(ranks) == 1:
            return ""
        if ranks not in self._name_of:
            self._name_of[ranks] = str(len(self._name_of) + 1)
            self.members[self._name_of[ranks]] = ranks
        return self._name_of[ranks]

    def _ranks(self, parallelism: str, rank: int) -> tuple[int, ...]:
        t, d, ep = self._model.tp, self._model.dp, self._model.ep
        tensor, replica, stage = rank % t, rank // t % d, rank // (t * d)
        if parallelism == TENSOR:
            return tuple(rank - tensor + other for other in range(t))
        replicas = {
            EXPERT: range(replica - replica % ep, replica - replica % ep + ep),
            DATA: range(d),
        }.get(parallelism, range(replica % ep, d, ep))
        return tuple(tensor + t * (other + d * stage) for other in replicas)


@dataclass
class _RankTrace:
    """Builder of a rank's nodes, in the order of the pipeline's schedule (1F1B)."""

    model: Transformer
    groups: _Groups
    rank: int
    found: list[TraceNode] = field(default_factory=list)
    previous: int | None = None  # node after which the next one of the rank's sequence begins

    def nodes(self) -> list[TraceNode]:
        """Return the rank's nodes of an iteration."""
        model = self.model
        stage = self.rank // (model.tp * model.dp)
        for backward, micro_batch in one_forward_one_backward(
            model.pp - 1 - stage, model.micro_batches
        ):
            self._add_message(RECEIVE, stage + 1 if backward else stage - 1, micro_batch, backward)
            layers = range(stage * model.stage_layers, (stage + 1) * model.stage_layers)
            for layer in reversed(layers) if backward else layers:
                self._add_layer(layer, micro_batch, backward)
            self._add_message(SEND, stage - 1 if backward else stage + 1, micro_batch, backward)
        return self.found

    def _add(self, name: str, kind: str, *, in_sequence: bool = True, **values: object) -> None:
        """Add a node after the previous one; nodes in sequence delay those that follow."""
        number = len(self.found)
        after = () if self.previous is None else (self.previous,)
        self.found.append(TraceNode(number, name, kind, after, **values))  # type: ignore[arg-type]
        if in_sequence:
            self.previous = number

    def _add_message(self, kind: str, stage: int, micro_batch: int, backward: bool) -> None:
        """Add a message's end between this rank and its peer in another stage, if that exists."""
        model = self.model
        if not 0 <= stage < model.pp:
            return
        own_stage = self.rank // (model.tp * model.dp)
        self._add(
            f"{kind} {_pass_name(backward)} of micro-batch {micro_batch}",
            kind,
            in_sequence=kind == RECEIVE,
            peer=self.rank + (stage - own_stage) * model.tp * model.dp,
            tag=2 * micro_batch + backward,
            size_bytes=model.activation_bytes,
            parallelism=PIPELINE,
        )

    def _add_layer(self, layer: int, micro_batch: int, backward: bool) -> None:
        """Add the nodes of a layer for a micro-batch, in one pass."""
        model = self.model
        expert_index = self.rank // model.tp % model.ep
        to_experts, back = self._exchange_parts(expert_index)
        parts = ("mlp", "attention") if backward else ("attention", "mlp")
        text = f"layer {layer}, micro-batch {micro_batch}, {_pass_name(backward)}"
        for part in parts:
            exchanges = part == "mlp" and model.experts
            if exchanges:
                self._add_exchange(f"dispatch {text}", to_experts)
            self._add(
                f"{part} {text}",
                COMPUTE,
                duration_us=model.duration_us(part, expert_index, backward=backward),
            )
            if exchanges:
                self._add_exchange(f"combine {text}", back)
            self._add_collective(TENSOR, ALL_REDUCE, model.activation_bytes, f"{part} {text}")
        if backward and micro_batch == model.micro_batches - 1:
            for group, parameters in (
                (DATA, model.dense_parameters),
                (f"{DATA} of {EXPERT}", model.expert_parameters),
            ):
                self._add_collective(
                    group,
                    ALL_REDUCE,
                    parameters * model.element_bytes,
                    f"gradients of layer {layer}",
                    in_sequence=False,
                )

    def _exchange_parts(self, expert_index: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the bytes of a rank to each `ep` rank: to the experts, and back from its own.

        Both are empty if the gate has equal shares.
        """
        model = self.model
        if not model.gate:
            return (), ()
        row_bytes = model.hidden * model.element_bytes
        to_experts = tuple(tokens * row_bytes for tokens in model.tokens_of)
        return to_experts, (to_experts[expert_index],) * model.ep

    def _add_exchange(self, name: str, parts: tuple[int, ...]) -> None:
        """Add an all-to-all between the ranks that share a layer's experts."""
        size_bytes = sum(parts) if parts else self.model.exchange_bytes
        self._add_collective(EXPERT, EXCHANGE, size_bytes, name, parts=parts)

    def _add_collective(
        self,
        group: str,
        operation: str,
        size_bytes: int,
        name: str,
        *,
        in_sequence: bool = True,
        parts: tuple[int, ...] = (),
    ) -> None:
        process_group = self.groups.name(group, self.rank)
        if process_group and (size_bytes or parts):
            self._add(
                f"{operation} {name}",
                COLLECTIVE,
                in_sequence=in_sequence,
                operation=operation,
                size_bytes=size_bytes,
                parts=parts,
                group=process_group,
                parallelism=group.split(maxsplit=1)[0],
            )


def _pass_name(backward: bool) -> str:
    return "backward" if backward else "forward"


def one_forward_one_backward(later_stages: int, micro_batches: int) -> Iterator[tuple[bool, int]]:
    """Yield the passes of a pipeline stage in order: whether backward, and the micro-batch.

    A stage begins with one forward pass for each later stage, then alternates (Narayanan and
    others, SC 2021, section 2.2.1).

    >>> "".join("FB"[backward] for backward, _ in one_forward_one_backward(2, 4))
    'FFFBFBBB'
    """
    forward = 0
    for backward in range(micro_batches):
        while forward < min(micro_batches, backward + later_stages + 1):
            yield False, forward
            forward += 1
        yield True, backward
