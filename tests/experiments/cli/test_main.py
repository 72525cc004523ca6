"""The command line itself: what --help shows, and how commands refuse."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from pillarbox.experiments.base.arguments import NumberRange
from pillarbox.experiments.cli import main as cli_module
from pillarbox.experiments.cli.main import cli
from pillarbox.experiments.lab.observe.port_capture import _is_control_message
from pillarbox.hosts.wire.dcn import DcnHeader, Protocol


def helped(*words: str) -> str:
    return CliRunner().invoke(cli, [*words, "--help"], prog_name="pillarbox").output


def test_no_summary_is_cut_off() -> None:
    said = helped()
    assert "..." not in said.partition("Commands:")[2]
    assert all(f"\n  {name} " in said for name in cli.list_commands(click.Context(cli)))


@pytest.mark.parametrize("name", cli.list_commands(click.Context(cli)))
def test_help_is_formatted(name: str) -> None:
    said = helped(name)
    assert "\\b" not in said and "see below" not in said


@pytest.mark.parametrize("name", cli.list_commands(click.Context(cli)))
def test_numbers_are_finite(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command
    kinds = [option.type for option in command.params]
    assert all(isinstance(k, NumberRange) for k in kinds if isinstance(k, click.FloatRange))


@pytest.mark.parametrize("word", ["nan", "inf", "-1", "0", "1e400"])
def test_a_number_that_is_not_finite_or_not_in_range_is_refused(word: str) -> None:
    found = CliRunner().invoke(cli, ["forecast", "bcube,4,1", "--server-mbit", word])
    assert found.exit_code == 2
    assert "--server-mbit" in found.output


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["forecast", "bcube,4,1", "--seconds", "long"], "'long' is not a valid number."),
        (["why-slow", ".", "first"], "'first' is not a valid integer."),
        (["torchrun", "--rank", "8", "train.py"], "Did you mean one of: '--on', '--ranks'?"),
    ],
)
def test_a_wrong_word_is_refused(
    words: list[str], reason: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        cli_module.main(words)
    assert caught.value.code == 2
    assert reason in capfd.readouterr().err


@pytest.mark.parametrize("words", ["gap bcube,2,1", "simulate bcube,2,1", "reproduce efficiency"])
def test_a_seed_below_0_is_refused(words: str) -> None:
    found = CliRunner().invoke(cli, [*words.split(), "--seed", "-1"])
    assert found.exit_code == 2
    assert "--seed" in found.output


def test_a_capture_is_not_written_over(tmp_path: Path) -> None:
    from pillarbox.experiments.cli.main import main

    there = tmp_path / "lab.pcapng"
    there.write_bytes(b"kept")
    with pytest.raises(SystemExit) as caught:
        main(["capture", "-o", str(there)])
    assert caught.value.code == 2
    assert there.read_bytes() == b"kept"


@pytest.mark.parametrize(
    ("number", "file", "says"),
    [
        (errno.EACCES, "/root/x", "/root/x is not accessible to this user: Permission denied"),
        (errno.ENOSPC, "/root/x", "/root/x cannot be written: No space left on device"),
        (errno.ENOSPC, None, "a file cannot be written: No space left on device"),
    ],
)
def test_a_file_that_this_user_cannot_use_is_named(
    number: int,
    file: str | None,
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number), file)

    monkeypatch.setattr(cli, "main", refused)
    with pytest.raises(SystemExit) as caught:
        cli_module.main([])
    assert caught.value.code == 2
    assert capfd.readouterr().err == f"pillarbox: {says}\n"


def test_a_stream_of_frames_leaves_no_place_for_json(capfd: pytest.CaptureFixture[str]) -> None:
    from pillarbox.experiments.cli.main import main

    with pytest.raises(SystemExit) as caught:
        main(["capture", "-o", "-", "--json"])
    assert caught.value.code == 2
    out, err = capfd.readouterr()
    assert not out
    assert "omit one of them" in err


def test_what_is_sent_all_the_time_can_be_left_out() -> None:
    def frame(protocol: Protocol) -> bytes:
        return bytes(12) + b"\x88\xb5" + DcnHeader(1, 2, protocol, 0).pack(b"")

    assert _is_control_message(frame(Protocol.HEARTBEAT))
    assert _is_control_message(frame(Protocol.LINK_STATE))
    assert not _is_control_message(frame(Protocol.IPV4))
    assert not _is_control_message(b"")


def test_a_part_that_is_missing_is_installed_by_the_launcher_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[tuple[str, list[str]]] = []
    (tmp_path / "pillarbox.stamp").touch()
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["pillarbox", "gap", "bcube,4,1"])
    monkeypatch.setattr(os, "execv", lambda path, words: ran.append((Path(path).name, words[1:])))
    monkeypatch.setenv(cli_module.PARTS_VARIABLE, "machines")
    error = ModuleNotFoundError("No module named 'numba'", name="numba.core")
    cli_module._install_part(error)
    assert ran == [("pillarbox", ["gap", "bcube,4,1"])]
    assert os.environ[cli_module.PARTS_VARIABLE] == "machines simulator"
    cli_module._install_part(error)  # it is asked for, and is missing all the same
    (tmp_path / "pillarbox.stamp").unlink()
    monkeypatch.delenv(cli_module.PARTS_VARIABLE)
    cli_module._install_part(error)  # an environment that pip alone has made
    assert len(ran) == 1
    assert "installing numba, which this command needs" in capsys.readouterr().err


def test_parts_bring_what_no_lab_needs() -> None:
    lock = (Path(__file__).parents[3] / "vagrant/requirements.lock").read_text()
    for part, modules in cli_module.PARTS.items():
        text = lock.partition(f"# Part: {part}\n")[2].partition("# Part: ")[0]
        for module in modules:
            name = {"importlinter": "import-linter"}.get(module, module)
            assert f"\n{name}==" in f"\n{text}", (part, module)
