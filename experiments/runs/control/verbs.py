"""The verbs of a running lab, actions and queries: one function for each verb.

The prompt, the lab's socket, the command line and the Python API all call these functions, with
the same verbs and arguments: ``cut 0.3-4.0 silent``. The answer to a verb consists of data, and of
a text for users.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from pillarbox.experiments.base.arguments import MORE
from pillarbox.experiments.lab.emulation.cable_shapes import CableShape
from pillarbox.experiments.runs.control import queries
from pillarbox.experiments.runs.control.fault_detection import fault_detection_delays
from pillarbox.experiments.runs.control.status_text import lab_text, server_text
from pillarbox.experiments.runs.plans.fault_schedule import nodes_of
from pillarbox.hosts.base.fault_kinds import fault_verbs
from pillarbox.hosts.base.faults import Fault as Written
from pillarbox.hosts.base.faults import ends_of, fault_form, read
from pillarbox.topos.base.addressing import End, EndPorts
from pillarbox.topos.base.errors import PillarboxError, UnknownNameError, meant, require

if TYPE_CHECKING:
    from pillarbox.experiments.lab.emulation.active_faults import ActiveFault
    from pillarbox.experiments.lab.emulation.lab import Lab
    from pillarbox.hosts.base.failures import Failures


class Answer(NamedTuple):
    """Answer to a command of a running lab (a verb, as ``cut``): data, and a text for users."""

    data: dict[str, Any]
    said: str


class Verb(NamedTuple):
    """A command of a running lab: form with arguments, description, function, answer's keys."""

    form: str
    about: str
    do: Callable[[Lab, list[str]], Answer]
    keys: tuple[str, ...]  # top-level keys of the command's answer as JSON


def answer(lab: Lab, verb: str, words: list[str]) -> Answer:
    """Run a command (``cut``, ``ping``) in a lab and return its answer, or raise an error."""
    if verb not in VERBS:
        hint = meant(verb, VERBS)
        raise UnknownNameError(f"there is no {verb!r}: {hint}")
    return VERBS[verb].do(lab, words)


# -- faults --------------------------------------------------------------------------------------


def _begin_fault(verb: str, lab: Lab, words: list[str]) -> Answer:
    fault = _fault_of_command(verb, words)
    nodes_of(lab.topology, fault)
    before = lab.failures()
    active = lab.begin(fault)
    return _change_answer(lab, _fault_sentence(lab, active), before, active.at_s)


def _fault_sentence(lab: Lab, fault: ActiveFault) -> str:
    """Return a sentence about the effect of a fault that has begun."""
    first, *rest = lab.names_in(fault)
    target = f"{first}-{rest[0]}" if fault.of_cable else first
    predicate = fault.definition.predicate.format(first=first, rest=" ".join(rest))
    amounts = fault.definition.amount_text(fault.amounts)
    return f"{target} {predicate} ({amounts})" if amounts else f"{target} {predicate}"


def _revive(lab: Lab, words: list[str]) -> Answer:
    server, before, at_s = _server_argument(lab, words, "revive"), lab.failures(), time.monotonic()
    lab.revive(server)
    return _change_answer(
        lab, f"{lab.name(server)} is alive again, without its programs", before, at_s
    )


def _heal(lab: Lab, words: list[str]) -> Answer:
    require(bool(words), f"write: {VERBS['heal'].form}")
    chosen = lab.faults.active if words == ["all"] else _faults_of(lab, words)
    before, at_s = lab.failures(), time.monotonic()
    for fault in chosen:
        lab.end(fault)
    repaired = ", ".join("-".join(lab.names_in(fault)[: 1 + fault.of_cable]) for fault in chosen)
    dead = ", ".join(map(lab.name, sorted(lab.dead)))
    said = f"{repaired} repaired" if chosen else "nothing was cut or stopped"
    said += f"; {dead} still dead: revive" if dead and words == ["all"] else ""
    return _change_answer(lab, said, before, at_s)


def _faults_of(lab: Lab, words: list[str]) -> list[ActiveFault]:
    require(len(words) == 1, f"write: {VERBS['heal'].form}")
    ends = ends_of(words[0]) if "-" in words[0] else words
    names = [lab.topology.node_name(lab.node(name)) for name in ends]
    found = [
        fault
        for fault in lab.faults.active
        if set(fault.what) == set(names) or [fault.what[0]] == names
    ]
    dead = [server for server in lab.dead if [lab.topology.node_name(server)] == names]
    hint = f": revive {' '.join(words)}" if dead else ""
    require(bool(found), f"nothing of {' '.join(words)} was cut or stopped{hint}")
    return found


def _cable(lab: Lab, words: list[str]) -> Answer:
    """Change the given properties of a cable; without values, reset it."""
    require(bool(words), f"write: {VERBS['cable'].form}")
    a, b = (lab.topology.node_name(lab.node(end)) for end in ends_of(words[0]))
    shapes = lab.net.shapes
    given = dict(map(_setting, words[1:]))
    shapes.links(a, b)  # refuses nodes without a cable before their shape is looked up
    initial = shapes.usual(a, b)
    wanted = shapes.of(a, b)._replace(**given) if given else initial
    shapes.change(a, b, wanted)
    ends = [lab.name(lab.node(name)) for name in (a, b)]
    lab.log("cable", what=ends, shape=str(wanted), usual=wanted == initial)
    usual = " as usual" if wanted == initial else ""
    return Answer({"cable": ends, **wanted._asdict()}, f"{'-'.join(ends)} is{usual} now: {wanted}")


def _setting(word: str) -> tuple[str, Any]:
    """Return name and value of a cable's rate, delay or loss, parsed from ``name=value``."""
    name, equals, text = word.partition("=")
    require(bool(equals) and name in CableShape._fields, f"write: {VERBS['cable'].form}")
    if name == "delay":
        return name, text if text.strip("0.msu") else None
    try:
        return name, float(text) if name == "rate_mbit" else float(text) or None
    except ValueError:
        raise PillarboxError(f"{text!r} is not a number: write {name}=20") from None


def _change_answer(lab: Lab, said: str, before: Failures, at_s: float) -> Answer:
    """Return the answer to a fault or repair, with the delays until servers detect it."""
    data, news = fault_detection_delays(lab, before, at_s)
    return Answer({"did": said, **data}, f"{said}; {news}" if news else said)


# -- growing and shrinking -----------------------------------------------------------------------


def _grow(lab: Lab, words: list[str]) -> Answer:
    missing = lab.topology.whole.servers - lab.topology.servers
    require(missing > 0, f"{lab.topology.spec} is complete: no server is missing")
    lab.grow(missing if words == ["all"] else _optional_number(words, "grow"))
    return _size_answer(lab)


def _shrink(lab: Lab, words: list[str]) -> Answer:
    lab.shrink(_optional_number(words, "shrink"))
    return _size_answer(lab)


def _size_answer(lab: Lab) -> Answer:
    topology = lab.topology
    size = {"servers": topology.servers, "switches": topology.switches}
    said = f"{topology.spec}: {topology.servers} servers, {topology.switches} switches"
    return Answer({"network": topology.spec, **size}, said)


# -- queries -------------------------------------------------------------------------------------


def _path(lab: Lab, words: list[str]) -> Answer:
    if words[2:] == ["all"]:
        found = queries.disjoint(lab, *_two_server_arguments(lab, words[:2], "path"))
        return Answer(found, queries.disjoint_text(found))
    found = queries.path(lab, *_servers_and_ports(lab, words, "path"))
    return Answer(found, queries.path_text(found))


def _why(lab: Lab, words: list[str]) -> Answer:
    found = queries.why(lab, *_servers_and_ports(lab, words, "why"))
    return Answer(found, "\n".join(found["because"]))


def _load(lab: Lab, words: list[str]) -> Answer:
    require(not words, f"write: {VERBS['load'].form}")
    rows = queries.load(lab)
    return Answer({"links": rows}, queries.load_text(rows))


def _status(lab: Lab, words: list[str]) -> Answer:
    require(len(words) < 2, f"write: {VERBS['status'].form}")
    if words:
        found = lab.state(lab.server(words[0]))
        return Answer(found, server_text(found))
    found = lab.status()
    return Answer(found, lab_text(found, list(map(str, queries.faults_in_effect(lab)))))


def _ping(lab: Lab, words: list[str]) -> Answer:
    found = queries.ping(lab, *_two_end_arguments(lab, words, "ping"))
    ends = f"{found['destination']} to {found['source']}"
    came = f"an answer from {ends} after {found['ms']:.2f} ms" if found["ms"] else ""
    return Answer(found, came or f"no answer from {ends}: why {words[0]} {words[1]}")


def _pingall(lab: Lab, words: list[str]) -> Answer:
    require(not words, f"write: {VERBS['pingall'].form}")
    found = queries.pingall(lab)
    return Answer(found, queries.pingall_text(found))


def _iperf(lab: Lab, words: list[str]) -> Answer:
    *ends, seconds = words if len(words) == 3 else [*words, "2"]
    require(
        seconds.replace(".", "", 1).isdecimal() and 0 < float(seconds) <= queries.LONGEST_S,
        f"{seconds!r} is not a number of seconds up to {queries.LONGEST_S:.0f}",
    )
    source, destination = _two_server_arguments(lab, ends, "iperf")
    found = queries.iperf(lab, source, destination, float(seconds))
    said = f"{found['mbit']:.1f} Mbit/s from {found['source']} to {found['destination']}"
    return Answer(found, f"{said}, in {found['seconds']:.1f} s, by {found['tool']}")


def _run(lab: Lab, words: list[str]) -> Answer:
    from pillarbox.experiments.runs.control.workload_run import goodput_line, jobs_line, run

    found = run(lab, words)
    return Answer(found, goodput_line(found) + jobs_line(found["jobs"]))


def _finish(lab: Lab, words: list[str]) -> Answer:
    from pillarbox.experiments.runs.control.active_workload import finish

    require(not words, f"write: {VERBS['finish'].form}")
    what = finish(lab)
    return Answer({"finished": what}, f"{what} ends now")


# -- words ---------------------------------------------------------------------------------------


def _fault_of_command(verb: str, words: list[str]) -> Written:
    """Return the fault that a command such as ``cut 0.3-4.0`` describes, to begin now."""
    fault = read([verb, *words])
    require(
        (fault.at_s, fault.until_s) == (0.0, None),
        f"at and until are for experiments; here the fault begins now: write {fault.named!r}",
    )
    return fault


def _two_server_arguments(lab: Lab, words: list[str], verb: str) -> tuple[int, int]:
    require(len(words) == 2, f"write: {VERBS[verb].form}")
    servers = lab.server(words[0]), lab.server(words[1])
    _require_two(servers, words)
    return servers


def _two_end_arguments(lab: Lab, words: list[str], verb: str) -> tuple[End, End]:
    require(len(words) == 2, f"write: {VERBS[verb].form}")
    ends = lab.packet_end(words[0]), lab.packet_end(words[1])
    _require_two((ends[0].server, ends[1].server), words)
    return ends


def _servers_and_ports(lab: Lab, words: list[str], verb: str) -> tuple[int, int, EndPorts]:
    source, destination = _two_end_arguments(lab, words, verb)
    return source.server, destination.server, (source.port, destination.port)


def _require_two(servers: tuple[int, int], words: list[str]) -> None:
    require(
        servers[0] != servers[1],
        f"{words[0]} and {words[1]} are the same server: name two different servers",
    )


def _server_argument(lab: Lab, words: list[str], verb: str) -> int:
    require(len(words) == 1, f"write: {VERBS[verb].form}")
    return lab.server(words[0])


def _optional_number(words: list[str], verb: str) -> int | None:
    """Return the only argument of `grow` or `shrink` as a number, None without arguments."""
    require(len(words) < 2 and all(map(str.isdecimal, words)), f"write: {VERBS[verb].form}")
    return int(words[0]) if words else None


TAKEN = ("path", "delivered", "dropped", "lost_to", "lost_port", "computed")
DONE = ("did", "noticed_ms", "not_noticed")
MADE_OF = ("network", "servers", "routing", "plane", "timers", "rate_mbit", "queue_bytes")
HOW = (*MADE_OF, "dead", "faults")

VERBS = {
    "path": Verb(
        "path A B [all]",
        "show the computed path, and the path of a packet sent now; all: all disjoint paths",
        _path,
        TAKEN,
    ),
    "why": Verb(
        "why A B",
        "explain why packets from A to B arrive or are lost, and name the command that helps",
        _why,
        (*TAKEN, "because"),
    ),
    "load": Verb("load", "show the busiest links of the next second", _load, ("links",)),
    "status": Verb(
        "status [A]",
        "show faults and dropped packets of the lab; or links and counters of a server",
        _status,
        (*HOW, MORE),
    ),
    **{
        verb: Verb(fault_form(verb), about, partial(_begin_fault, verb), DONE)
        for verb, about in fault_verbs().items()
    },
    "heal": Verb("heal A-B | SWITCH | all", "repair a cable, a switch, or everything", _heal, DONE),
    "cable": Verb(
        "cable A-B [rate_mbit=R] [delay=D] [loss=PERCENT]",
        "change rate, delay or loss of a cable; without values: reset it",
        _cable,
        ("cable", *CableShape._fields),
    ),
    "revive": Verb("revive A", "start a dead server again", _revive, DONE),
    "grow": Verb(
        "grow [SERVERS | all]",
        "add servers: the smallest number that can join, or this many",
        _grow,
        ("network", "servers", "switches"),
    ),
    "shrink": Verb(
        "shrink [SERVERS]",
        "remove the servers that joined last",
        _shrink,
        ("network", "servers", "switches"),
    ),
    "ping": Verb("ping A B", "ping once from A to B", _ping, ("source", "destination", "ms")),
    "pingall": Verb(
        "pingall",
        "ping every server from every other",
        _pingall,
        ("sent", "received", "ms"),
    ),
    "run": Verb(
        "run PATTERN [NAME=VALUE]...",
        "send the flows of a pattern; show goodput, ideal and verdict (default: 3 s, or 1 MB)",
        _run,
        ("rows", "jobs", MORE),
    ),
    "finish": Verb(
        "finish", "end the running workload and show its result", _finish, ("finished",)
    ),
    "iperf": Verb(
        "iperf A B [SECONDS]",
        "measure the throughput of one TCP connection from A to B",
        _iperf,
        ("source", "destination", "mbit", "seconds", "bytes", "retransmits", "tool"),
    ),
}
