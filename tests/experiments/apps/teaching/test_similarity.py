"""Which submissions are alike: renamed, reordered and padded copies, and no others."""

from pathlib import Path

from pillarbox.experiments.apps.teaching import grading_engine, similarity
from pillarbox.experiments.apps.teaching.sheet_catalogue import sheet_of
from pillarbox.experiments.apps.teaching.similarity import (
    THRESHOLD,
    SimilarPair,
    fingerprints,
    similar_by_submission,
)

ANSWERS = Path(__file__).parents[3] / "vagrant" / "labs" / "answers"
MODELS = {file.parent.name: file.read_text() for file in sorted(ANSWERS.glob("lab*/model.py"))}


def alike(sources: dict[str, str], skeleton: str = "") -> list[SimilarPair]:
    known = fingerprints(skeleton)
    return similarity.similar_pairs(
        {name: fingerprints(text) - known for name, text in sources.items()}
    )


def shuffled(source: str) -> str:
    """The same functions in another order, with other names, comments and numbers."""
    first, *functions = source.split("\n\n\n")
    text = "\n\n\n".join([first, *reversed(functions)])
    for name in ("paths", "steps", "found", "server", "dpillar", "label"):
        text = text.replace(name, f"my_{name}")
    return "# All my own work.\n" + text.replace("    ", "  ")


def test_a_disguised_copy_is_named() -> None:
    for lab, source in MODELS.items():
        if lab == "lab7":
            continue  # a file of numbers
        (pair,) = alike({"ada": source, "bob": shuffled(source)})
        assert pair.share > THRESHOLD, lab
        assert similar_by_submission([pair]) == {
            "ada": [("bob", pair.share)],
            "bob": [("ada", pair.share)],
        }


def test_half_a_copy_is_named() -> None:
    source, other = MODELS["lab3"], MODELS["lab6"]
    half = source[: len(source) // 2]
    assert alike({"ada": source, "bob": half + "\n\n" + other}) == []
    assert alike({"ada": source, "bob": half})


def test_work_of_ones_own_is_not() -> None:
    assert alike(MODELS) == []
    networks = ("model", "model_dcell", "model_ficonn", "model_dpillar")
    assert alike({name: (ANSWERS / "lab1" / f"{name}.py").read_text() for name in networks}) == []


def test_what_all_were_given_is_not_counted() -> None:
    lab = sheet_of("4", "ada").lab
    skeleton = grading_engine.skeleton_of(lab)
    assert alike({"ada": skeleton, "bob": skeleton}, skeleton) == []
    assert alike({"ada": skeleton, "bob": skeleton})


def test_files_that_are_no_python_are_compared_as_far_as_they_go() -> None:
    broken = MODELS["lab3"] + "\ndef (:\n  '''"
    assert alike({"ada": broken, "bob": broken, "eve": "\0", "nil": ""})[0][:2] == ("ada", "bob")
