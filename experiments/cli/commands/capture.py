"""``pillarbox capture``: packets at ports of a running lab, in one file or stream for Wireshark."""

from __future__ import annotations

import errno
import json
import os
import select
import shutil
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import click

from pillarbox.experiments.base.arguments import (
    FILE,
    STANDARD_OUTPUT,
    NumberRange,
    answer,
    json_option,
    lab,
    take_role_as_root,
)

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}  # errors of a file that cannot grow


@click.command()
@click.argument("ports", metavar="[ADDR[:PORT]]...", nargs=-1)
@lab
@click.option(
    "-o",
    "--out",
    type=FILE,
    default=Path("lab.pcapng"),
    show_default=True,
    help="Capture file, or - for a stream to standard output.",
)
@click.option(
    "--seconds",
    type=NumberRange(min=0.0),
    help="Duration of the capture (default: until Ctrl-C).",
)
@click.option("--frames", type=click.IntRange(min=1), help="Maximum number of frames to capture.")
@click.option(
    "--bytes",
    "longest",
    type=click.IntRange(64, 65535),
    default=65535,
    show_default=True,
    help="Maximum number of bytes stored per captured frame.",
)
@click.option(
    "--no-heartbeats",
    is_flag=True,
    help="Capture no heartbeats or link-state messages, which servers send all the time.",
)
@click.option("--force", is_flag=True, help="Overwrite an existing capture file.")
@json_option("file", "frames", "missed")
def command(
    ports: tuple[str, ...],
    number: int | None,
    out: Path,
    no_heartbeats: bool,
    force: bool,
    as_json: bool,
    **limits: Any,
) -> None:
    """Capture packets at ports of a running lab: all, a server's (0.3), or one (0.3:1).

    Wireshark shows the servers' headers after `pillarbox dissector --install`.

    \b
    sudo ./pillarbox capture --seconds 5
    sudo ./pillarbox capture 0.0 1.3:0 -o two.pcapng --no-heartbeats
    sudo ./pillarbox capture -o - | wireshark -k -i -
    """
    from pillarbox.experiments.lab.emulation import lab_registry
    from pillarbox.experiments.lab.observe.port_capture import CapturePort, capture
    from pillarbox.experiments.runs.control.client import ask, entrance_anywhere
    from pillarbox.topos.base.spec import parse

    _check_output(out, force, as_json)
    folder = lab_registry.folder_of(number)
    status = ask(folder, ask="status")
    topology = parse(status["network"])
    chosen = _ports_to_capture(topology, ports)
    stopped: list[int] = []
    with ExitStack() as stack:
        inside: dict[int, int] = {}
        for server in {server for server, _ in chosen}:
            found = entrance_anywhere(folder, topology.address(server))
            if found.reach:
                _capture_on_computers(folder, chosen, status, out, as_json, no_heartbeats, limits)
                return
            for descriptor in found.files:
                stack.callback(os.close, descriptor)
            inside[server] = found.files[0]
        tapped = [
            CapturePort(f"{topology.address(s)} port {p}", topology.interface(s, p), inside[s])
            for s, p in chosen
        ]

        def stop(kind: int, _: object) -> None:
            stopped.append(kind)
            if out == STANDARD_OUTPUT:
                os.set_blocking(1, False)  # ends a write to a reader that does not read

        for kind in (signal.SIGINT, signal.SIGTERM):
            stack.callback(signal.signal, kind, signal.signal(kind, stop))
        with _open_for_writing(out) as file:
            words = f"capturing at {len(tapped)} ports into {_name_of(out)}"

            def begun() -> None:
                take_role_as_root("capture")
                click.echo(words, err=True)

            counts = capture(
                tapped,
                file,
                comment=json.dumps(_lab_facts(status)),
                regular=not no_heartbeats,
                begun=begun,
                stopped=lambda: bool(stopped) or _has_no_reader(file),
                **limits,
            )
    _print_summary(out, counts.written, counts.missed, as_json)


def _check_output(out: Path, force: bool, as_json: bool) -> None:
    """Raise PillarboxError if the capture must not be written to this file or stream."""
    from pillarbox.topos.base.errors import require

    if out != STANDARD_OUTPUT:
        require(force or not out.exists(), f"{out} exists: choose another file, or add --force")
        return
    require(not as_json, "--json prints to standard output, and so does -o -: omit one of them")
    require(
        not os.isatty(1),
        "a capture is binary, and standard output is a terminal: add | wireshark -k -i - or name "
        "a file",
    )


def _name_of(out: Path) -> str:
    return "standard output" if out == STANDARD_OUTPUT else str(out)


@contextmanager
def _open_for_writing(out: Path) -> Iterator[BinaryIO]:
    """Open a capture file, or standard output, for writing, or raise PillarboxError."""
    from pillarbox.experiments.base.files import give_to_user
    from pillarbox.topos.base.errors import PillarboxError

    try:
        file: BinaryIO = os.fdopen(os.dup(1), "wb") if out == STANDARD_OUTPUT else out.open("wb")
    except OSError as error:
        raise PillarboxError(f"{_name_of(out)} cannot be written: {error.strerror}") from None
    if out != STANDARD_OUTPUT:
        give_to_user(out)
    try:
        yield file
    except OSError as error:
        if error.errno not in FULL:
            raise
        raise PillarboxError(f"{_name_of(out)} cannot be written: {error.strerror}") from None
    finally:
        with suppress(OSError):  # only data that could not be written before is left
            file.close()
        if out == STANDARD_OUTPUT:
            os.set_blocking(1, True)


def _has_no_reader(file: BinaryIO) -> bool:
    """Return True if the file is a pipe whose reader has ended."""
    poll = select.poll()
    poll.register(file, 0)  # POLLERR is always reported
    return any(events & select.POLLERR for _, events in poll.poll(0))


def _print_summary(out: Path, frames: int, missed: int, as_json: bool) -> None:
    lost = f"; {missed} were missed (the capture was too slow)" if missed else ""
    text = f"{frames} frames in {_name_of(out)}{lost}"
    if out == STANDARD_OUTPUT:
        click.echo(text, err=True)
    else:
        answer(as_json, {"file": str(out), "frames": frames, "missed": missed}, text)


def _capture_on_computers(
    folder: Path,
    chosen: list[tuple[int, int]],
    status: dict[str, Any],
    out: Path,
    as_json: bool,
    no_heartbeats: bool,
    limits: dict[str, Any],
) -> None:
    """Capture on all computers of a distributed lab; move the merged file to `out`."""
    from pillarbox.experiments.base.files import give_to_user
    from pillarbox.experiments.runs.control.client import ask

    settings = {**limits, "regular": not no_heartbeats}
    comment = json.dumps(_lab_facts(status))
    found = ask(folder, ask="capture", ports=chosen, how=settings, comment=comment)
    if out == STANDARD_OUTPUT:
        merged = Path(found["file"])
        with _open_for_writing(out) as stream, suppress(BrokenPipeError), merged.open("rb") as file:
            shutil.copyfileobj(file, stream)
            stream.flush()
        merged.unlink()
    else:
        shutil.move(found["file"], out)
        give_to_user(out)
    _print_summary(out, found["frames"], found["missed"], as_json)


def _ports_to_capture(topology: Any, texts: tuple[str, ...]) -> list[tuple[int, int]]:
    """Parse ports given as ADDR[:PORT] to servers and port numbers; without texts, return all."""
    from pillarbox.topos.base.errors import require

    found: dict[tuple[int, int], None] = {}
    for text in texts or map(topology.address, range(topology.servers)):
        address, colon, port = text.partition(":")
        server = topology.server(address)
        ports_of_server = [number for number, _ in topology.neighbours(server)]
        wanted = [n for n in ports_of_server if not colon or str(n) == port]
        require(
            bool(wanted),
            f"server {address} has no port {port!r}: it has {' '.join(map(str, ports_of_server))}",
        )
        found |= dict.fromkeys((server, number) for number in wanted)
    return list(found)


def _lab_facts(status: dict[str, Any]) -> dict[str, Any]:
    """Return the lab's network, routing and faults for the comment of a capture file."""
    return {key: status[key] for key in ("network", "routing", "failures")}
