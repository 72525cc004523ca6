"""Lab 7: all-to-all on a server-centric network and a tree, computed and measured.

The student's file returns numbers. Predictions are compared with values that this module computes,
measurements with the folders of the two runs, which are validated first (evidence.py).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

from pillarbox import topos
from pillarbox.experiments.apps.teaching.child import StudentError
from pillarbox.experiments.apps.teaching.evidence import (
    Evidence,
    RequiredRun,
    number_of,
    read_submitted_run,
)
from pillarbox.experiments.apps.teaching.grading_engine import (
    RIGHT,
    GradedCase,
    GradedPart,
    Judgement,
    Work,
    all_or_nothing,
)
from pillarbox.experiments.models.fluid.directed_links import link_count, routes_of
from pillarbox.experiments.models.fluid.ideal import header_bytes, header_efficiency, static_paths
from pillarbox.experiments.models.fluid.rates import link_loads, max_min
from pillarbox.experiments.models.workloads.workload import Workload
from pillarbox.experiments.runs.plans.experiment import Experiment, System

TITLE = "All-to-all against the tree"
FOLDER = "7-all-to-all"
MODULES: tuple[str, ...] = ()
NETWORKS: tuple[str, ...] = ()
# Folders of the submitted runs, and the plan's keys that the student chooses in each run.
FIRST, SECOND = RUNS = ("first", "second")
FREE = {FIRST: ["rate_mbit"], SECOND: ["rate_mbit", "volume_bytes"]}

Judge = Callable[[dict[str, Any]], Judgement]


class NetworkPair(NamedTuple):
    """Two networks of equal size to compare in a student's run, and possible flow volumes."""

    network: str
    routing: str
    tree: str
    megabytes: tuple[float, ...]


NETWORK_PAIRS = (
    NetworkPair("bcube,3,1", "bcube", "tree,3,3", (2.0, 2.5)),
    NetworkPair("bcube,4,1", "bcube", "tree,4,4", (0.8, 1.0)),
    NetworkPair("dcell,3,1", "dcell", "tree,3,4", (1.0, 1.5)),
    NetworkPair("dcell,4,1", "dcell", "tree,4,5", (0.4, 0.5)),
)
RATES_MBIT = (15, 20, 25)
SYSTEMS = ("network", "tree")
MTU = 1500  # MTU in the lab sheet's formula, in bytes

EXACT = 1e-9
CLOSE = 0.02  # relative tolerance of values that the student computes (headers add 4 %)
READ = 0.03  # relative tolerance of values that the student reads from a table
OVERLOADED = 1.1  # minimum ratio of an overloaded run's duration to the ideal duration

# Truth of the lab sheet's statements, by letter; each comment repeats the statement.
STATEMENTS = {
    "a": False,  # statement: more repeats of an overloaded run bring the mean nearer to the truth
    "b": True,  # statement: an overloaded machine can hide or invent a difference of networks
    "c": False,  # statement: max-min fair rates have the largest total
    "d": True,  # statement: one leaf switch more makes the tree's slowest flow slower
    "e": False,  # statement: an invalid trial may be averaged with three valid ones
    "f": True,  # statement: a lower rate on all cables can make an invalid run valid
    "g": False,  # statement: a valid run proves the scaled completion time for 10 Gbit/s cables
    "h": True,  # statement: flows inside a leaf of the tree end long before the others
}


def values(draw: random.Random) -> dict[str, Any]:
    """Draw the values of a student's sheet: two networks, cable rate and volume of each flow."""
    own = draw.choice(NETWORK_PAIRS)
    return {
        "network": own.network,
        "routing": own.routing,
        "tree": own.tree,
        "rate_mbit": draw.choice(RATES_MBIT),
        "volume_bytes": round(draw.choice(own.megabytes) * 1e6),
    }


def prepare(values: dict[str, Any]) -> None:
    """Compute the fluid models of both networks: a sealed judge cannot write to Numba's cache."""
    for system in SYSTEMS:
        _fluid_of(values, system)


# -- right answers ---------------------------------------------------------------------------------


class FluidModel(NamedTuple):
    """Fluid model of all-to-all: flow rates as fractions of a cable's rate, and load per cable."""

    busiest_flows: int
    slowest: float
    fastest: float
    total: float
    cable_bits: float  # bits on the busiest cable per payload bit of a flow
    hops: float  # sum of the numbers of cables on the paths of all flows


@cache
def fluid_model(spec: str, routing: str) -> FluidModel:
    """Return the fluid model of all-to-all traffic on a network."""
    network = topos.parse(spec)
    servers = range(network.servers)
    routes = routes_of(network, static_paths(network, routing, _all_server_pairs(servers)))
    links = link_count(network)
    rates, loads = max_min(routes, 1.0, links), link_loads(routes, None, links)
    return FluidModel(
        busiest_flows=int(loads.max()),
        slowest=float(rates.min()),
        fastest=float(rates.max()),
        total=float(rates.sum()),
        cable_bits=float(loads.max()) / header_efficiency(header_bytes(network, routing)),
        hops=float(loads.sum()),
    )


def _all_server_pairs(servers: range) -> list[tuple[int, int]]:
    return [(a, b) for a in servers for b in servers if a != b]


def fluid_model_of_system(work: Work, system: str) -> FluidModel:
    """Return the fluid model of one of the student's two networks."""
    return _fluid_of(work.values, system)


def _fluid_of(values: dict[str, Any], system: str) -> FluidModel:
    return fluid_model(values[system], values["routing"] if system == "network" else "")


def completion_s(work: Work, system: str, rate_mbit: float, volume_bytes: float) -> float:
    """Return the ideal completion time of the last flow in seconds, header overhead included."""
    return fluid_model_of_system(work, system).cable_bits * 8 * volume_bytes / (rate_mbit * 1e6)


# -- answers of the student ----------------------------------------------------------------------


def answers_of(work: Work, function: str) -> dict[str, Any]:
    """Return the dict that a student's function returns; raise StudentError for another type."""
    answer = work.call(function)
    if not isinstance(answer, dict):
        raise StudentError(f"{function}() returns {answer!r:.40}, not a dict")
    return answer


def number_in_answers(answers: Any, *keys: str) -> float:
    """Return a number from a student's dict of answers; raise StudentError if it has none."""
    for key in keys:
        answers = answers.get(key) if isinstance(answers, dict) else None
    return number_of(answers)


def judged_by_tolerance(got: float, right: float, tolerance: float) -> Judgement:
    """Judge a student's number by a relative tolerance, without revealing the correct number."""
    side = "small" if got < right else "large"
    return all_or_nothing(abs(got - right) <= tolerance * right, f"{got:g} is too {side}")


def _answers_case(work: Work, function: str, keys: Sequence[str], judge: Judge) -> GradedCase:
    """Return a test case whose judge receives the answers of the student's function."""
    asked = "".join([f"{function}()", *(f'["{key}"]' for key in keys)])
    return GradedCase(asked, lambda: judge(answers_of(work, function)))


# -- predicted -----------------------------------------------------------------------------------


def predicted_number_case(
    work: Work, keys: Sequence[str], right: float, tolerance: float = CLOSE
) -> GradedCase:
    """Return the test case of one number that the student predicts."""
    return _answers_case(
        work,
        "predicted",
        keys,
        lambda answers: judged_by_tolerance(number_in_answers(answers, *keys), right, tolerance),
    )


def busiest_cable_cases(work: Work) -> list[GradedCase]:
    """Test cases for the number of flows on the busiest cable, in one direction."""
    return [
        predicted_number_case(
            work,
            (system, "busiest_flows"),
            fluid_model_of_system(work, system).busiest_flows,
            EXACT,
        )
        for system in SYSTEMS
    ]


def flow_rate_cases(work: Work) -> list[GradedCase]:
    """Test cases for max-min fair flow rates, headers included."""
    rate = work.values["rate_mbit"]
    return [
        predicted_number_case(
            work,
            (system, f"{name}_mbit"),
            rate * getattr(fluid_model_of_system(work, system), name),
        )
        for system in SYSTEMS
        for name in ("slowest", "fastest", "total")
    ]


def completion_time_cases(work: Work) -> list[GradedCase]:
    """Test cases for the predicted completion times of both networks, and their ratio."""
    sheet = work.values["rate_mbit"], work.values["volume_bytes"]
    ends = {system: completion_s(work, system, *sheet) for system in SYSTEMS}
    cases = [
        predicted_number_case(work, (system, "completion_s"), ends[system]) for system in SYSTEMS
    ]
    return [*cases, predicted_number_case(work, ("speed_up",), ends["tree"] / ends["network"])]


# -- measured ------------------------------------------------------------------------------------


def submitted_run(work: Work, name: str) -> Evidence:
    """Return a submitted run's trials; raise StudentError if the run violates a requirement."""
    if name not in work.kept:
        work.kept[name] = read_submitted_run(work.files, name, run_requirements(work, name))
    found: Evidence = work.kept[name]
    return found


def run_requirements(work: Work, name: str) -> RequiredRun:
    """Return the requirements of a submitted run: the plan with the student's values."""
    sheet = work.values
    systems = [
        System(
            sheet[system],
            routing=routing,
            timers="paper",
            mtu=MTU,
            rate_mbit=sheet["rate_mbit"],
        )
        for system, routing in zip(SYSTEMS, (sheet["routing"], ""), strict=True)
    ]
    workload = Workload("all-to-all", sheet["volume_bytes"], tool="generator")
    fluids = {
        system.name: fluid_model_of_system(work, key)
        for key, system in zip(SYSTEMS, systems, strict=True)
    }
    return RequiredRun(
        Experiment(name, "", tuple(systems), workload),
        FREE[name],
        ideals={system: one.cable_bits * 8 for system, one in fluids.items()},
        sent={system: one.hops for system, one in fluids.items()},
    )


def trial_durations_s(work: Work, name: str, system: str, *, valid: bool) -> list[float]:
    """Return the durations of a network's valid (or invalid) trials in a run, in seconds."""
    sheet, run = work.values, submitted_run(work, name)
    known = sheet["network"] + " " + sheet["routing"] if system == "network" else sheet["tree"]
    return [one.completion_s for one in run.trials_of(known, valid=valid)]


def judged_completion_time(
    answers: Any, system: str, took_s: Sequence[float], *, valid: bool
) -> Judgement:
    """Judge a time in the student's file, which has to be in the range of the run's trials."""
    if answers[system].get("valid") is not valid:
        return Judgement(0.0, f"`valid` has to be {valid} for this run")
    took = number_in_answers(answers, system, "completion_s")
    low, high = min(took_s) * (1 - READ), max(took_s) * (1 + READ)
    return all_or_nothing(
        low <= took <= high, f"{took:g} s differs from the times of the run's trials"
    )


def measured_run_cases(work: Work) -> list[GradedCase]:
    """Test cases that compare the measurements in the student's file with the submitted run."""
    volume = work.values["volume_bytes"]

    def in_run(answers: Any, system: str) -> Judgement:
        took_s = trial_durations_s(work, FIRST, system, valid=True)
        if not took_s:
            return Judgement(0.0, "repeat the run, at a lower rate if necessary, until it is valid")
        ran, said = submitted_run(work, FIRST).rate_mbit, number_in_answers(answers, "rate_mbit")
        if said != ran:
            return Judgement(
                0.0, f"the run's cables had {ran:g} Mbit/s, but the file says {said:g}"
            )
        return judged_completion_time(answers, system, took_s, valid=True)

    def fits(answers: Any, system: str) -> Judgement:
        took = number_in_answers(answers, system, "completion_s")
        best = completion_s(work, system, number_in_answers(answers, "rate_mbit"), volume)
        return judged_by_tolerance(
            number_in_answers(answers, system, "of_ideal"), best / took, READ
        )

    return [
        _system_case(work, "measured", system, key, judge)
        for system in SYSTEMS
        for key, judge in (("completion_s", in_run), ("of_ideal", fits))
    ]


def overloaded_run_cases(work: Work) -> list[GradedCase]:
    """Test cases for the results of a run on an overloaded machine, and the rate they would fit."""

    def best(answers: Any, system: str) -> float:
        rate, volume = (
            number_in_answers(answers, "rate_mbit"),
            number_in_answers(answers, "volume_bytes"),
        )
        return completion_s(work, system, rate, volume)

    def late(answers: Any, system: str) -> Judgement:
        run, took_s = (
            submitted_run(work, SECOND),
            trial_durations_s(work, SECOND, system, valid=False),
        )
        if not took_s:
            return Judgement(0.0, "the run has to be invalid")
        said = number_in_answers(answers, "rate_mbit"), number_in_answers(answers, "volume_bytes")
        if said != (run.rate_mbit, float(run.volume_bytes)):
            return Judgement(0.0, f"the run had {run.rate_mbit:g} Mbit/s, {run.volume_bytes} bytes")
        took = number_in_answers(answers, system, "completion_s")
        if took < OVERLOADED * best(answers, system):
            wanted = f"{OVERLOADED:g} times the ideal: raise the rate"
            return Judgement(0.0, f"{took:g} s is less than {wanted}")
        return judged_completion_time(answers, system, took_s, valid=False)

    def ideal_s(answers: Any, system: str) -> Judgement:
        return judged_by_tolerance(
            number_in_answers(answers, system, "ideal_s"), best(answers, system), CLOSE
        )

    def as_if(answers: Any, system: str) -> Judgement:
        share = best(answers, system) / number_in_answers(answers, system, "completion_s")
        right = number_in_answers(answers, "rate_mbit") * share
        return judged_by_tolerance(number_in_answers(answers, system, "as_if_mbit"), right, CLOSE)

    def speed_up(answers: Any) -> Judgement:
        took = {system: number_in_answers(answers, system, "completion_s") for system in SYSTEMS}
        return judged_by_tolerance(
            number_in_answers(answers, "speed_up"), took["tree"] / took["network"], CLOSE
        )

    def whole(judge: Any) -> Any:
        """Return a judge that first validates the submitted run: invented runs earn no points."""

        def first(*arguments: Any) -> Judgement:
            submitted_run(work, SECOND)
            return Judgement(*judge(*arguments))

        return first

    cases = [
        _system_case(work, "overloaded", system, key, whole(judge))
        for system in SYSTEMS
        for key, judge in (("ideal_s", ideal_s), ("as_if_mbit", as_if))
    ]
    return [
        _system_case(work, "overloaded", "network", "completion_s", late),
        *cases,
        _answers_case(work, "overloaded", ("speed_up",), whole(speed_up)),
    ]


def _system_case(work: Work, function: str, system: str, key: str, judge: Any) -> GradedCase:
    return _answers_case(work, function, (system, key), lambda answers: judge(answers, system))


# -- explained -----------------------------------------------------------------------------------


def statement_cases(work: Work) -> list[GradedCase]:
    """Test cases for the lab sheet's true statements; a wrong answer cancels a correct one."""

    def judge(answers: Any) -> Judgement:
        given = {letter: answers.get(letter) for letter in STATEMENTS}
        right = sum(given[letter] is holds for letter, holds in STATEMENTS.items())
        wrong = sum(given[letter] is (not holds) for letter, holds in STATEMENTS.items())
        if right == len(STATEMENTS):
            return RIGHT
        share = max(0, right - wrong) / len(STATEMENTS)
        return Judgement(share, f"{right} right, {wrong} wrong, {len(STATEMENTS)} in all")

    return [_answers_case(work, "explained", (), judge)]


CHECKS = (
    GradedPart("flows on the busiest cable", 20, busiest_cable_cases),
    GradedPart("max-min fair rates", 30, flow_rate_cases),
    GradedPart("completion times", 15, completion_time_cases),
    GradedPart("a valid run", 10, measured_run_cases),
    GradedPart("a run on an overloaded machine", 15, overloaded_run_cases),
    GradedPart("true statements", 10, statement_cases),
)
