"""Run programs on servers of another computer through its Dask worker, with this terminal.

    run       on the server's machine: Dask's worker passes it a connection, which uses the worker's
              listening port and the lab's TLS keys, so that no further port is open
    main      here: a process that represents the program, with its input, output, terminal size,
              signals and exit code

    python -m pillarbox.experiments.apps.cluster.worker_program ORDER WORDS...

Without WORDS it runs a shell: see `part_program`.

Both sides send dictionaries: ``in``, ``out`` and ``err`` are bytes, where no bytes mean end of
file; ``size`` is the terminal's size, ``signal`` a signal number, ``code`` the program's exit code.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import pty
import signal
import struct
import sys
import termios
import threading
import tty
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from pillarbox.experiments.base.interpreter import module_command
from pillarbox.experiments.runs.control.server_program import end_as
from pillarbox.topos.base.errors import PillarboxError

OPERATION = "pillarbox-program"
CHUNK = 1 << 16
CONNECT_S = 10.0
PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
FAILED = 255

_background: set[asyncio.Task[None]] = (
    set()
)  # tasks that still read the output of background programs


# -- on the server's machine -----------------------------------------------------------------------


async def run(
    comm: Any, folder: str, server: str, words: list[str], size: list[int] | None
) -> None:
    """Run a program on a server of the part in a folder, for the peer of a connection."""
    command = module_command(
        "pillarbox.experiments.apps.cluster.part_program", folder, server, *words
    )
    near: int | None = None
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), asyncio.subprocess.PIPE)
    if size:
        near, far = pty.openpty()
        _resize(near, size)
        pipes = {"stdin": far, "stdout": far, "stderr": far}
        command = ["setsid", "--ctty", *command]
    # The program always gets its own session; with a terminal, `setsid` creates the session.
    process = await asyncio.create_subprocess_exec(*command, start_new_session=not size, **pipes)
    turn = asyncio.Lock()
    if near is None:
        readers = {"out": process.stdout, "err": process.stderr}
    else:
        os.close(far)
        readers = {"out": await _reader(near)}
    outputs = [
        asyncio.create_task(_send_output(comm, turn, what, one)) for what, one in readers.items()
    ]
    inputs = asyncio.create_task(_pass_input(comm, process, near))
    try:
        code = await process.wait()
        # output of programs that still run in the background is read as well
        await asyncio.wait(outputs, timeout=0.2)
        async with turn:
            with suppress(OSError):
                await comm.write({"code": code})
    finally:
        inputs.cancel()
        _background.update(task for task in outputs if not task.done())
        for task in outputs:
            task.add_done_callback(_background.discard)
        await comm.close()


async def _reader(terminal: int) -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    file = os.fdopen(os.dup(terminal), "rb", buffering=0)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), file)
    return reader


async def _send_output(comm: Any, turn: asyncio.Lock, what: str, reader: Any) -> None:
    """Send a program's output to the peer; discard it once the connection is closed."""
    with suppress(OSError):  # EIO: all processes have closed the terminal
        while data := await reader.read(CHUNK):
            async with turn:
                with suppress(OSError):
                    await comm.write({what: data})


async def _pass_input(comm: Any, process: Any, near: int | None) -> None:
    """Pass the peer's input, signals and terminal size to the program; kill it on disconnection."""
    try:
        while True:
            said = await comm.read()
            if "signal" in said:
                os.killpg(process.pid, said["signal"])
            elif "size" in said and near is not None:
                _resize(near, said["size"])
            elif near is not None:
                os.write(near, said["in"])
            elif said["in"]:
                process.stdin.write(said["in"])
            else:
                process.stdin.close()
    except (OSError, ProcessLookupError):
        with suppress(ProcessLookupError):
            process.kill()


def _resize(terminal: int, size: list[int]) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("=4H", *size, 0, 0))


# -- here ------------------------------------------------------------------------------------------


def command_for(address: str, keys: Path | None, folder: Path, server: str) -> list[str]:
    """Return the local command that runs a program on another computer's server; words follow."""
    order = {"address": address, "keys": str(keys or ""), "folder": str(folder), "server": server}
    return module_command("pillarbox.experiments.apps.cluster.worker_program", json.dumps(order))


def main() -> None:
    """Stand for a program on another computer: pass its input, output and exit code."""
    order, words = json.loads(sys.argv[1]), sys.argv[2:]
    before = termios.tcgetattr(0) if os.isatty(0) else None
    try:
        if before:
            tty.setraw(0, termios.TCSADRAIN)
        code = asyncio.run(_relay(order, words, with_terminal=before is not None))
    except (PillarboxError, OSError) as error:
        os.write(2, f"pillarbox: the machine of {order['server']} is lost: {error}\n".encode())
        code = FAILED
    finally:
        if before:
            termios.tcsetattr(0, termios.TCSADRAIN, before)
    if code == -signal.SIGKILL:
        what = words[0] if words else "the shell"
        said = f"pillarbox: {what} was killed: the server, or the lab, has died\n"
        os.write(2, said.encode())
    end_as(code)


async def _relay(order: dict[str, Any], words: list[str], *, with_terminal: bool) -> int:
    import logging

    from distributed.comm.core import connect

    from pillarbox.experiments.apps.cluster.cluster_registry import security_in

    # standard error is reserved for the remote program's output
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    security = security_in(Path(order["keys"])) if order["keys"] else None
    how = security.get_connection_args("client") if security else {}
    comm = await connect(order["address"], timeout=CONNECT_S, **how)
    size = list(os.get_terminal_size(0))[::-1] if with_terminal else None
    asked = {name: order[name] for name in ("folder", "server")}
    await comm.write({"op": OPERATION, "reply": False, **asked, "words": words, "size": size})
    loop, turn = asyncio.get_running_loop(), asyncio.Lock()

    def say(**what: Any) -> None:
        asyncio.run_coroutine_threadsafe(_send(comm, turn, what), loop)

    for number in () if with_terminal else PASSED_ON:
        loop.add_signal_handler(number, partial(say, signal=int(number)))
    if with_terminal:
        loop.add_signal_handler(
            signal.SIGWINCH, lambda: say(size=list(os.get_terminal_size(0))[::-1])
        )
    # a daemon thread, as it may block in a read of standard input
    threading.Thread(target=_read_input, args=[say], daemon=True).start()
    while True:
        said = await comm.read()
        for what, descriptor in (("out", 1), ("err", 2)):
            if said.get(what):
                _write(descriptor, said[what])
        if "code" in said:
            return int(said["code"])


async def _send(comm: Any, turn: asyncio.Lock, what: dict[str, Any]) -> None:
    async with turn:
        with suppress(OSError):  # the remote program has ended
            await comm.write(what)


def _read_input(say: Any) -> None:
    data = b"?"
    while data:
        try:
            data = os.read(0, CHUNK)
        except OSError:
            data = b""
        say(**{"in": data})


def _write(descriptor: int, data: bytes) -> None:
    with suppress(BrokenPipeError):
        while data:
            data = data[os.write(descriptor, data) :]


if __name__ == "__main__":
    main()
