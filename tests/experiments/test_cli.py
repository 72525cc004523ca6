"""The command line itself: what --help shows, and how commands refuse."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from experiments.cli import cli
from experiments.observe.sniff import _is_regular
from hosts.wire.dcn import DcnHeader, Protocol


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


def test_a_capture_is_not_written_over(tmp_path: Path) -> None:
    from experiments.cli import main

    there = tmp_path / "lab.pcapng"
    there.write_bytes(b"kept")
    with pytest.raises(SystemExit) as caught:
        main(["capture", "-o", str(there)])
    assert caught.value.code == 2
    assert there.read_bytes() == b"kept"


def test_what_is_sent_all_the_time_can_be_left_out() -> None:
    def frame(protocol: Protocol) -> bytes:
        return bytes(12) + b"\x88\xb5" + DcnHeader(1, 2, protocol, 0).pack(b"")

    assert _is_regular(frame(Protocol.HEART_BEAT))
    assert _is_regular(frame(Protocol.LINK_STATE))
    assert not _is_regular(frame(Protocol.IPV4))
    assert not _is_regular(b"")
