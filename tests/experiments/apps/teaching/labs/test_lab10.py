"""Lab 10: what a fault loses, what is asked, and what is named for what."""

from collections.abc import Callable
from typing import Any

import pytest

from pillarbox.experiments.apps.teaching.child import StudentError
from pillarbox.experiments.apps.teaching.labs import fault_hunt, lab10
from pillarbox.experiments.apps.teaching.labs.fault_hunt import (
    HiddenFault,
    Hunt,
    MemoryScene,
    run_hunt,
)

BCUBE = lab10.bcube_of("bcube,3,1")
S0 = BCUBE.servers  # 0.0, 0.1 and 0.2 at port 0
FAULTS = {
    "cable": HiddenFault("cable", (1, S0)),
    "mute": HiddenFault("one way", (1, S0)),
    "deaf": HiddenFault("one way", (S0, 1)),
    "switch": HiddenFault("switch", (S0,)),
    "server": HiddenFault("server", (1,)),
}


@pytest.mark.parametrize(
    ("name", "heard_by_0", "heard_by_1", "missed_by_0"),
    [
        ("cable", {"2"}, set(), [[0, 1]]),
        ("mute", {"2"}, {"0", "2"}, [[0, 1]]),
        ("deaf", {"1", "2"}, set(), [[0, 1]]),
        ("switch", set(), set(), [[0, 1], [0, 2]]),
        ("server", {"2"}, None, [[0, 1]]),
    ],
)
def test_each_fault_has_a_face_of_its_own(
    name: str, heard_by_0: set[str], heard_by_1: set[str] | None, missed_by_0: list[list[int]]
) -> None:
    scene = MemoryScene(BCUBE, FAULTS[name])
    heard = [found and {*found["heard"]} for found in (scene.capture(0, 0), scene.capture(1, 0))]
    assert heard == [heard_by_0, heard_by_1]
    assert scene.why(3, 0) == {"path": [3, 0], "arrived": True, "silent": missed_by_0}
    assert scene.ping(0, 1) is False
    assert scene.ping(3, 6) is True
    counters = fault_hunt.measurement_result(scene, ["counters", 0])
    assert counters[0][0] > 0
    assert (counters[0][1] > 0) == bool(heard_by_0)


def test_hunt_ends_with_a_name_or_after_many_steps() -> None:
    scene: Any = MemoryScene(BCUBE, FAULTS["switch"])

    def asks(*steps: Any) -> Callable[[Any, list[Any]], Any]:
        return lambda _, seen: steps[min(len(seen), len(steps) - 1)]

    named = run_hunt(scene, asks(["ping", 0, 1], ["name", "switch", S0]))
    assert named == Hunt(FAULTS["switch"], 1)
    assert run_hunt(scene, asks(["name", "cable", S0])).named is None
    assert run_hunt(scene, asks(["ping", 3, 6])).steps == fault_hunt.MOST_STEPS
    for step in (["ping", 0, 0], ["ping", 0, 99], ["capture", 0, 2], ["look"], None, [["ping"]]):
        with pytest.raises(StudentError, match=r"is not a step"):
            run_hunt(scene, asks(step))


def test_points_for_the_name_and_for_the_steps() -> None:
    fault = FAULTS["mute"]
    par = lab10.full_points_limit(BCUBE)
    assert lab10.judged_naming(BCUBE, fault, Hunt(fault, 3)).share == 1.0
    assert lab10.judged_naming(BCUBE, fault, Hunt(FAULTS["deaf"], 3)).share == lab10.PLACE
    assert lab10.judged_naming(BCUBE, fault, Hunt(FAULTS["switch"], 3)).share == 0.0
    assert (
        lab10.judged_naming(BCUBE, FAULTS["cable"], Hunt(HiddenFault("cable", (S0, 1)), 3)).share
        == 1.0
    )
    shares = [
        lab10.judged_step_count(BCUBE, fault, Hunt(fault, steps)).share for steps in (par, 2 * par)
    ]
    assert shares == [1.0, 0.5]
