"""Lab 10: a network with a hidden fault, which the student's file has to name in few steps."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pillarbox import topos
from pillarbox.experiments.apps.teaching.grading_engine import (
    RIGHT,
    GradedCase,
    GradedPart,
    Judgement,
    Work,
)
from pillarbox.experiments.apps.teaching.labs.fault_hunt import (
    CABLE,
    KINDS,
    ONE_WAY,
    HiddenFault,
    Hunt,
    MemoryScene,
    injected_fault,
    random_hidden_fault,
    run_hunt,
)
from pillarbox.topos.bcube import BCube

if TYPE_CHECKING:
    from pillarbox.experiments.apps.teaching.live_grading import LiveWork

TITLE = "The hidden fault"
FOLDER = "10-hidden-fault"
MODULES = ("pillarbox.topos.bcube",)
# BCubes with more than two servers per switch, as two servers cannot tell whose port failed.
OWN, HIDDEN = (
    ("bcube,3,1", "bcube,4,1"),
    ("bcube,3,2", "bcube,5,1"),
)
NETWORKS = (*OWN, *HIDDEN)
LIVE_NETWORK, LIVE_ROUTING = "bcube,3,1", "bcube"
HUNTS, OTHER_HUNTS = 12, 4
PLACE = 0.5  # fraction of the points for naming the right nodes with a wrong kind of fault


def values(draw: random.Random) -> dict[str, Any]:
    """Draw the network of a student's sheet, and an example fault."""
    bcube = bcube_of(draw.choice(OWN))
    fault = random_hidden_fault(bcube, draw, draw.choice((CABLE, ONE_WAY)))
    return {
        "network": bcube.spec,
        "a fault": fault.text(bcube),
        "steps for all points": full_points_limit(bcube),
    }


def bcube_of(spec: str) -> BCube:
    """Return the BCube network of a spec such as ``bcube,3,2``."""
    network = topos.parse(spec)
    assert isinstance(network, BCube)
    return network


def full_points_limit(bcube: BCube) -> int:
    """Return the maximum number of measurements for full points: two per switch, and two more."""
    return 2 * bcube.switches + 2


# -- in memory -----------------------------------------------------------------------------------


def faults_with_hunts(
    work: Work, bcube: BCube, name: str, many: int
) -> list[tuple[HiddenFault, Callable[[], Hunt]]]:
    """Return hidden faults, each with a function that runs the student's search for it once."""

    def ask(network: BCube, seen: list[Any]) -> Any:
        return work.call("step", seen, network=network.spec)

    def once(place: int, fault: HiddenFault) -> Hunt:
        key = f"{name} {place}"
        if key not in work.kept:
            work.kept[key] = run_hunt(MemoryScene(bcube, fault), ask)
        found: Hunt = work.kept[key]
        return found

    draw = work.draw(name)
    faults = [random_hidden_fault(bcube, draw, KINDS[place % len(KINDS)]) for place in range(many)]
    return [
        (fault, lambda place=place, fault=fault: once(place, fault))  # type: ignore[misc]
        for place, fault in enumerate(faults)
    ]


def found_fault_cases(work: Work) -> list[GradedCase]:
    """Test cases with hidden faults in the network of the student's sheet."""
    return _naming_cases(work, bcube_of(work.values["network"]), "hunt", HUNTS)


def other_size_cases(work: Work) -> list[GradedCase]:
    """Test cases with hidden faults in a network of another size."""
    return _naming_cases(work, bcube_of(work.draw("size").choice(HIDDEN)), "other", OTHER_HUNTS)


def _naming_cases(work: Work, bcube: BCube, name: str, many: int) -> list[GradedCase]:
    return [
        GradedCase(
            f"{bcube.spec}, hidden fault {place}",
            lambda fault=fault, once=once: judged_naming(bcube, fault, once()),  # type: ignore[misc]
        )
        for place, (fault, once) in enumerate(faults_with_hunts(work, bcube, name, many), 1)
    ]


def judged_naming(bcube: BCube, fault: HiddenFault, done: Hunt) -> Judgement:
    """Judge the fault that the student's file names; the report reveals the hidden fault."""
    if done.named is None:
        return Judgement(0.0, done.wrong)
    said = f"it names {done.named.text(bcube)}, and it was {fault.text(bcube)}"
    if done.named.is_same_fault(fault):
        return RIGHT
    near = {*done.named.nodes} == {*fault.nodes}
    return Judgement(PLACE if near else 0.0, said)


def step_count_cases(work: Work) -> list[GradedCase]:
    """Test cases for the number of measurements in which a fault was found."""
    bcube = bcube_of(work.values["network"])
    return [
        GradedCase(
            f"{bcube.spec}, steps to hidden fault {place}",
            lambda fault=fault, once=once: judged_step_count(bcube, fault, once()),  # type: ignore[misc]
        )
        for place, (fault, once) in enumerate(faults_with_hunts(work, bcube, "hunt", HUNTS), 1)
    ]


def judged_step_count(bcube: BCube, fault: HiddenFault, done: Hunt) -> Judgement:
    """Judge the number of measurements in a fault search; no points if the fault was not found."""
    if done.named is None or not done.named.is_same_fault(fault):
        return Judgement(0.0, "it was not found")
    if done.steps <= full_points_limit(bcube):
        return RIGHT
    return Judgement(
        full_points_limit(bcube) / done.steps,
        f"{done.steps} steps, {full_points_limit(bcube)} are enough",
    )


# -- live ----------------------------------------------------------------------------------------


def live_fault_cases(work: LiveWork) -> list[GradedCase]:
    """Test cases with one hidden fault of each kind in a live network."""
    assert work.student
    bcube, student = bcube_of(work.lab.topology.spec), work.student
    draw = student.draw("live")

    def judge(fault: HiddenFault) -> Judgement:
        work.lab.wait_converged()
        with injected_fault(work, fault) as scene:
            scene.wait_until_fault_is_detected()
            done = run_hunt(scene, lambda net, seen: student.call("step", seen, network=net.spec))
        return judged_naming(bcube, fault, done)

    def case(kind: str) -> GradedCase:
        fault = random_hidden_fault(bcube, draw, kind)
        return GradedCase(f"{bcube.spec}, live, a hidden fault", lambda: judge(fault))

    return [case(kind) for kind in KINDS]


CHECKS = (
    GradedPart("faults are found", 60, found_fault_cases),
    GradedPart("in few steps", 25, step_count_cases),
    GradedPart("a network of another size", 15, other_size_cases),
)
LIVE = (GradedPart("live: faults are found", 20, live_fault_cases),)
