"""``pillarbox path`` as a user sees it."""

import json
from typing import Any

import pytest
from click.testing import CliRunner, Result

from pillarbox.experiments.cli.main import cli, main


def path(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["path", *arguments])


def paths(*arguments: str) -> Any:
    return json.loads(path(*arguments, "--json").stdout)["paths"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("dcell,4,1", "0.0", "4.3"), ["0.0", "0.3", "4.0", "4.3"]),
        (("bcube,4,1", "0.0", "2.3"), ["0.0", "2.0", "2.3"]),
        (
            ("ficonn,4,2", "0.2.1", "1.2.1"),
            ["0.2.1", "0.2.0", "0.0.2", "0.0.1", "1.0.1", "1.0.2", "1.2.0", "1.2.1"],
        ),
        (("dpillar,8,2", "1.0.0", "1.1.3"), ["1.0.0", "0.1.0", "1.1.3"]),
        (("dpillar,8,2", "1.0.0", "1.1.3", "--direction", "ccw"), ["1.0.0", "0.0.3", "1.1.3"]),
        (("tree,4,5", "0.0", "4.3"), ["0.0", "4.3"]),
    ],
)
def test_path_of_the_paper(arguments: tuple[str, ...], expected: list[str]) -> None:
    assert paths(*arguments) == [expected]


def test_all_gives_the_disjoint_set() -> None:
    assert len(paths("dpillar,8,2", "0.0.0", "0.3.3", "--all")) == 4
    assert len(paths("bcube,8,3", "0.0.0.1", "1.0.1.1", "--all")) == 4


def test_text_names_ports_and_switches() -> None:
    assert "port 0 over s4 [4] to 4.3" in path("dcell,4,1", "0.0", "4.3").stdout


def test_drop_is_told_with_its_reason_and_exit_code_1() -> None:
    dropped = path("dcell,4,1", "0.0", "4.3", "--fail", "cut 0.3-4.0", "--json")
    assert dropped.exit_code == 1
    assert json.loads(dropped.stdout) == {
        "schema": 2,
        "paths": [],
        "dropped": "link 0.3-4.0 has failed",
    }


def test_mp_takes_another_path_when_one_fails() -> None:
    usual = paths("dpillar,8,2", "0.0.0", "0.3.3", "--routing", "mp")[0]
    other = paths(
        *("dpillar,8,2", "0.0.0", "0.3.3", "--routing", "mp", "--fail", f"kill {usual[1]}")
    )
    assert other
    assert other[0] != usual


@pytest.mark.parametrize(
    ("spec", "ends", "shown", "disjoint"),
    [("dpillar,8,2", ("0.0.0", "0.3.3"), 4, 2), ("ficonn,4,2", ("0.2.1", "1.2.1"), 2, 2)],
)
def test_all_says_how_many_are_disjoint_as_compare_counts(spec, ends, shown, disjoint) -> None:
    said = path(spec, *ends, "--all").output
    assert said.count("hops)") == shown
    assert f"paths: {shown}; at most {disjoint} are node-disjoint" in said


def test_algorithm_is_called_routing(capsys) -> None:
    with pytest.raises(SystemExit):
        main(["path", "dcell,4,1", "0.0", "4.3", "--algorithm", "dfr"])
    assert "Did you mean --routing?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("bcube,4,1", "0.0", "9.9"), "from 0 to 3"),
        (("bcube,4,1", "0.0", "1.0", "--routing", "tor"), "no routing 'tor'"),
        (("bcube,4,1", "0.0", "1.0", "--direction", "ccw"), "no direction"),
        (("bcube,4,1", "0.0", "1.0", "--fail", "x"), "no fault 'x'"),
    ],
)
def test_bad_input_is_refused(arguments: tuple[str, ...], says: str) -> None:
    refused = path(*arguments)
    assert refused.exit_code != 0
    assert says in str(refused.exception)


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        (("0.0%1", "3.3"), ["0.0", "3.0", "3.3"]),
        (("0.0%0", "3.3"), ["0.0", "0.3", "3.3"]),
        (("3.3", "0.0%1"), ["3.3", "3.0", "0.0"]),
        (("h0-1", "3.3%0"), ["0.0", "3.0", "3.3"]),
    ],
)
def test_ports_decide_the_path(ends: tuple[str, str], expected: list[str]) -> None:
    assert paths("bcube,4,1", *ends) == [expected]
    assert path("bcube,4,1", *ends).stdout.startswith("bcube,4,1, pinned to the ports\n")


def test_failed_path_of_ports_is_the_routings() -> None:
    fail = ("--fail", "kill 3.0", "--routing", "bsr")
    assert "pinned" not in path("bcube,4,1", "0.0%1", "3.3", *fail).stdout
    assert paths("bcube,4,1", "0.0%1", "3.3", *fail) == [["0.0", "0.3", "3.3"]]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("0.0%2", "3.3"), "0.0%2 is not a port's address"),
        (("0.0%1", "3.3", "--all"), "the ports decide the path"),
        (("0.0%1", "3.3", "--protocol"), "the ports decide the path"),
    ],
)
def test_wrong_uses_of_ports(
    arguments: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["path", "bcube,4,1", *arguments])
    assert sentence in capsys.readouterr().err
