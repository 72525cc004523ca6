"""Artifacts of runs: what is in them, what comes back, and what is refused."""

import hashlib
import json
import shutil
import zipfile
from dataclasses import replace

import pytest

from pillarbox.experiments.runs.plans.experiment import System
from pillarbox.experiments.runs.reporting import artifact
from pillarbox.experiments.runs.reporting.artifact import opened, repeated_plan, write_artifact
from pillarbox.experiments.runs.trials import agreement
from pillarbox.experiments.runs.trials.records import load
from pillarbox.topos.base.errors import PillarboxError


@pytest.fixture
def made(run_folder, tmp_path):
    return write_artifact(load(run_folder), tmp_path / "small.pillarbox.zip")


def entries(file):
    with zipfile.ZipFile(file) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def rewritten(file, changes, *, hashed=True):
    """Write an artifact again with other entries (None removes one), with right hashes or not."""
    found = {name: data for name, data in (entries(file) | changes).items() if data is not None}
    if hashed:
        others = {name: data for name, data in found.items() if name != artifact.SUMS}
        lines = (f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in others.items())
        found[artifact.SUMS] = "".join(lines).encode()
    with zipfile.ZipFile(file, "w") as archive:
        for name, data in found.items():
            archive.writestr(name, data)
    return file


def test_the_same_run_gives_the_same_bytes(run_folder, made, tmp_path):
    again = write_artifact(load(run_folder), tmp_path / "again.pillarbox.zip")
    assert made.read_bytes() == again.read_bytes()


def test_a_reviewer_finds_what_is_needed(made):
    found = entries(made)
    assert {"README.md", "CITATION.cff", "SHA256SUMS", "files.json", "run/manifest.json"} <= {
        *found
    }
    assert "sudo pillarbox repeat" in found["README.md"].decode()
    graph = json.loads(found["ro-crate-metadata.json"])["@graph"]
    described = {one["@id"] for one in graph if one["@type"] == "File"}
    own = {"README.md", "CITATION.cff", "SHA256SUMS", "files.json", "ro-crate-metadata.json"}
    assert described == {*found} - own
    assert {"@id": "https://w3id.org/ro/crate/1.1"} in [one.get("conformsTo") for one in graph]


def test_what_is_opened_is_the_run(run_folder, made, tmp_path):
    first, second = load(run_folder), load(opened(made, tmp_path / "opened"))
    assert first.plan == second.plan
    assert first.flows.equals(second.flows)
    assert agreement.agreement(first, second).agree


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"run/../../evil": b""}, "no plain file with a plain name"),
        ({"/etc/evil": b""}, "no plain file with a plain name"),
        ({"run/a b": b""}, "no plain file with a plain name"),
        ({"run/manifest.json": None}, "it has no run"),
        ({"more": b""}, "does not name exactly its files"),
    ],
)
def test_hostile_names_are_refused(made, tmp_path, changes, told):
    file = rewritten(made, changes, hashed="more" not in changes)
    with pytest.raises(PillarboxError, match=told):
        opened(file, tmp_path / "opened")
    assert not (tmp_path / "evil").exists()


def test_a_changed_file_is_told(made, tmp_path):
    file = rewritten(made, {"README.md": b"better results"}, hashed=False)
    with pytest.raises(PillarboxError, match=r"README\.md was changed after it was written"):
        opened(file, tmp_path / "opened")


def test_a_link_is_refused(made, tmp_path):
    with zipfile.ZipFile(made, "a") as archive:
        entry = zipfile.ZipInfo("run/link")
        entry.external_attr = 0o120777 << 16
        archive.writestr(entry, "/etc/passwd")
    with pytest.raises(PillarboxError, match="no plain file"):
        opened(made, tmp_path / "opened")


@pytest.mark.parametrize("content", [b"", b"no zip", b"PK\x03\x04" + bytes(40)])
def test_no_artifact_is_one_sentence(tmp_path, content):
    file = tmp_path / "file"
    file.write_bytes(content)
    with pytest.raises(PillarboxError, match="is no artifact of a run"):
        opened(file, tmp_path / "opened")


@pytest.fixture
def with_code(run_writer, experiment, tmp_path):
    """Artifact of a run whose first system has a router of its own."""
    router = tmp_path / "mine" / "router.py"
    router.parent.mkdir()
    router.write_text("# a router\n")
    own = replace(experiment.systems[0], routing=str(router), label="mine")
    plan = replace(experiment, systems=(own, experiment.systems[1]))
    folder = run_writer(tmp_path / "coded", plan)
    file = write_artifact(load(folder), tmp_path / "coded.pillarbox.zip")
    shutil.rmtree(router.parent)
    return file


def test_code_runs_only_if_it_is_trusted(with_code, tmp_path):
    folder = tmp_path / "opened"
    plan = load(opened(with_code, folder)).manifest["plan"]
    with pytest.raises(PillarboxError, match=r"0-router\.py; read it, then add --trust-code"):
        repeated_plan(folder, plan, trusted=False)
    found = repeated_plan(folder, plan, trusted=True)
    assert found.systems[0].routing == str(folder / "files" / "0-router.py")
    assert found.systems[1] == System("tree,2,2")


def test_a_plan_names_no_code_outside(with_code, tmp_path):
    folder = tmp_path / "opened"
    plan = load(opened(with_code, folder)).manifest["plan"]
    plan["systems"][1]["routing"] = "/root/other.py"
    with pytest.raises(
        PillarboxError, match=r"names /root/other\.py, which is not in the artifact"
    ):
        repeated_plan(folder, plan, trusted=True)


def test_a_file_that_is_gone_is_told(run_writer, experiment, tmp_path):
    own = replace(experiment.systems[0], routing=str(tmp_path / "gone.py"), label="mine")
    plan = replace(experiment, systems=(own, experiment.systems[1]))
    folder = run_writer(tmp_path / "coded", plan)
    with pytest.raises(PillarboxError, match=r"gone\.py, which is gone: put it back"):
        write_artifact(load(folder), tmp_path / "coded.pillarbox.zip")


@pytest.mark.parametrize(
    ("factor", "agree"), [(1.0, True), (1.04, True), (1.2, False), (0.8, False)]
)
def test_results_agree_within_the_tolerance(run_folder, factor, agree):
    first = load(run_folder)
    records = tuple(
        {**one, "goodput_bps": one["goodput_bps"] * factor, "completion_s": None}
        for one in first.records
    )
    found = agreement.agreement(first, replace(first, records=records))
    assert found.agree is agree
    assert ("do not" not in agreement.text_of(found)) is agree


def test_a_system_without_valid_trials_does_not_agree(run_folder):
    first = load(run_folder)
    lost = first.systems[1]
    records = tuple(
        {**one, "valid": one["valid"] and one["system"] != lost} for one in first.records
    )
    found = agreement.agreement(first, replace(first, records=records))
    assert (found.missing, found.agree) == ((lost,), False)
