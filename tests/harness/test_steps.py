"""`pillarbox test` itself: its sections leave no test out, and what fails is shown and named."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from tests.harness import steps as testing

ROOT = Path(__file__).parents[2]


def pytest_of(arguments: list[str], *, everything: bool = False) -> list[str]:
    return testing._pytest_step(None, arguments, everything=everything).command


def test_long_tests_run_with_all_only(pytestconfig: pytest.Config) -> None:
    assert "-m=not long" in pytestconfig.getini("addopts")
    assert "-m" not in pytest_of([])[3:]
    chosen = pytest_of([], everything=True)
    assert chosen[chosen.index("-m", 3) + 1] == ""


class Case:
    """A case of a test marked `few`, as pytest collects it."""

    def __init__(self, **params: object) -> None:
        self.callspec, self.marks = SimpleNamespace(params=params), ["few"]
        self.nodeid = f"test_it[{'-'.join(map(str, params.values()))}]"

    def get_closest_marker(self, name: str) -> str | None:
        return name if name in self.marks else None

    def add_marker(self, mark: pytest.MarkDecorator) -> None:
        self.marks.append(mark.name)


def test_of_few_cases_each_value_of_each_parameter_stays(pytestconfig: pytest.Config) -> None:
    ours = pytestconfig.pluginmanager.get_plugin(str(ROOT / "tests" / "conftest.py"))
    cases = [Case(spec=spec, plane=plane) for spec in range(5) for plane in range(3)]
    ours.pytest_collection_modifyitems(cases)
    kept = [case.callspec.params for case in cases if "long" not in case.marks]
    assert {one["spec"] for one in kept} == set(range(5))
    assert {one["plane"] for one in kept} == set(range(3))
    assert len(kept) < 8


def test_with_arguments_tests_run_in_turn() -> None:
    command = pytest_of(["-k", "dcell"])
    assert command[-2:] == ["-k", "dcell"]
    assert "--side-by-side" not in command
    assert "--side-by-side" in pytest_of([])


def test_bytecode_is_kept_but_where_root_would_leave_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for asked_for in ("", "1"):
        monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", asked_for)
        assert "PYTHONDONTWRITEBYTECODE" not in testing._environment(None)
        assert testing._environment(tmp_path)["PYTHONDONTWRITEBYTECODE"] == "1"


def test_whole_fuzzing_and_the_soak_are_benches_and_all_others_run_quickly() -> None:
    commands = {step.command[4]: step.command[5:] for step in testing._bench_steps()}
    assert set(testing.WHOLE_BENCHES) < set(commands)
    for bench, options in commands.items():
        assert options == ([] if bench in testing.WHOLE_BENCHES else ["--quick"])


def test_what_fails_beside_is_shown_and_named(capsys: pytest.CaptureFixture[str]) -> None:
    programs = {"good": "print('well')", "bad": "print('the reason'); raise SystemExit(3)"}
    steps = [
        testing.TestStep(name, [sys.executable, "-c", code]) for name, code in programs.items()
    ]
    started = {step.name: testing._start_step(step, None) for step in steps}
    assert testing._failed_steps(started) == ["bad"]
    assert capsys.readouterr().out == "\n== good\nwell\n\n== bad\nthe reason\n"


def test_hook_before_a_commit_is_the_static_section() -> None:
    repositories = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"]
    assert [repository["repo"] for repository in repositories] == ["local"]  # nothing is fetched
    ((hook,),) = [repository["hooks"] for repository in repositories]
    assert hook["entry"] == "./pillarbox test --static"
    assert hook["pass_filenames"] is False


def test_citation_has_the_version_of_the_changelog_the_licence_and_the_papers() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    called = ast.parse((ROOT / "setup.py").read_text()).body[-1].value
    packaged = {word.arg: word.value for word in called.keywords}
    assert citation["version"] == packaged["version"].value
    changelog = (ROOT / "CHANGELOG.md").read_text().splitlines()
    assert f"## {citation['version']} - {citation['date-released']}" in changelog
    assert (ROOT / "LICENSE").read_text().startswith(f"{citation['license']} License\n")
    papers = (ROOT / "docs" / "papers.md").read_text()
    listed = re.sub(r"\s+", " ", papers)
    for paper in citation["references"]:
        assert f"*{paper['title']}*" in listed
