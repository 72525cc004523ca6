"""Compilation of a student's congestion control: a sealed compiler, and bounds for its input.

The compiler is a trusted program with an untrusted input: it could be asked to include any file,
to embed a file with the assembler (``.incbin``), or to work without end. It therefore runs as an
unprivileged user without network, can open nothing but headers and its own files (Landlock), and
has bounded time, memory and output. Its messages are passed on only if they are about the student's
own lines.

The kernel's verifier does not bound all that a control may do (see `CongestionControl`), so the
file is preprocessed first, and the preprocessed text is checked and then compiled: it has no
assembler code, and no sections but a control's.
"""

from __future__ import annotations

import os
import platform
import re
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from pillarbox.experiments.apps.teaching import layers
from pillarbox.experiments.apps.teaching.child import StudentError
from pillarbox.experiments.base.text import printable
from pillarbox.experiments.lab.linux.congestion import CONTROLS
from pillarbox.hosts.live.lab_programs import COMPILER
from pillarbox.topos.base.errors import PillarboxError, UnsupportedError, require

FILE = "mine.bpf.c"  # name of the student's file in messages
HEADER = "control.h"
CPU_S, WALL_S = 10, 30.0  # time limits of the compiler, in seconds
MEMORY_BYTES = 512 << 20  # memory limit of the compiler
MOST_BYTES = 8 << 20  # maximum size of the preprocessed text, of the object and of the messages
MOST_TEXT = 300  # maximum length of a compiler's message in a report, in characters
UNSEALED = 71  # exit code of a compiler's process that could not be sealed
FOLDERS = ("/usr/include", "/usr/lib", "/usr/lib64", "/lib", "/lib64")
RIGHTS = layers.EXECUTE | layers.READ_FILE | layers.READ_DIR

INCLUDE = re.compile(r"^[ \t]*(?:#|%:)[ \t]*(?:include\w*|import|embed)\b[ \t]*(.*?)[ \t]*$", re.M)
OWN_ERROR = re.compile(rf"^(?:{re.escape(FILE)}|<stdin>):\d+:\d+: (?:fatal )?error: .*", re.M)
# Message of the compiler's eBPF back end, which has no column.
SIGNED_DIVISION = re.compile(r"^Error at line (\d+): Unsupport(?:ed)? signed division", re.M)
CRASH = "PLEASE submit a bug report"  # message of a compiler that a limit has stopped
ASSEMBLER = re.compile(r"\b(?:asm|__asm|__asm__)\b")
SECTION = re.compile(r"\b(?:__section__|section)\s*\(\s*([^)]*)\)")
SECTIONS = re.compile(r'"(?:license|\.struct_ops|struct_ops(?:/\w+)?)"\s*')
PRAGMA = re.compile(r"^\s*#\s*pragma\s+(.*)$", re.M)
PRAGMAS = ("GCC diagnostic ", "clang diagnostic ", "clang attribute ", "clang loop ", "unroll")


def wrong_include(source: str) -> str:
    """Return a sentence on the first line that includes another file than the header, or ""."""
    for found in INCLUDE.finditer(source):
        if found[1] != f'"{HEADER}"':
            line = source.count("\n", 0, found.start()) + 1
            return printable(f'line {line} includes {found[1]}: include "{HEADER}" only', MOST_TEXT)
    return ""


def compiled_control(source: str, name: str, *, unsealed: bool = False) -> bytes:
    """Compile a student's file into an eBPF object whose control has a name in the kernel.

    Raises StudentError if the file is refused, and PillarboxError if this machine cannot compile it
    in a seal; with `unsealed` the compiler then runs with the layers that there are.
    """
    require(
        shutil.which(COMPILER[0]) is not None,
        "a congestion control is not compiled: install clang and libbpf-dev",
        UnsupportedError,
    )
    with _headers() as folder:
        text = _compiler_output(
            folder, _preprocessing(name), f'#line 1 "{FILE}"\n{source}', unsealed
        )
        own = _compiler_output(folder, _preprocessing(name), f'#include "{HEADER}"\n', unsealed)
        _check_text(text.decode(errors="replace"), own.decode(errors="replace"))
        return _compiler_output(folder, ("-x", "cpp-output", "-c"), text, unsealed)


@contextmanager
def _headers() -> Iterator[str]:
    """Yield a folder with the header of controls, readable by every user."""
    with tempfile.TemporaryDirectory(prefix="pillarbox-control-") as folder:
        Path(folder).chmod(0o755)
        Path(folder, HEADER).write_bytes((CONTROLS / HEADER).read_bytes())
        Path(folder, HEADER).chmod(0o644)
        yield folder


def _preprocessing(name: str) -> Sequence[str]:
    """Return the preprocessor's options; the header always comes first."""
    architecture = f"-I/usr/include/{platform.machine()}-linux-gnu"
    return ("-x", "c", "-E", f'-DCONTROL_NAME="{name}"', architecture, "-include", HEADER)


def _check_text(text: str, of_header: str) -> None:
    """Raise StudentError for a preprocessed file that controls more than a control's functions."""
    if len(ASSEMBLER.findall(text)) > len(ASSEMBLER.findall(of_header)):
        raise StudentError("the file has assembler code: write C only")
    for found in SECTION.finditer(text):
        if not SECTIONS.fullmatch(found[1]):
            section = printable(found[1], MOST_TEXT)
            raise StudentError(f"the file has the section {section}: use BPF_PROG and CONTROL only")
    for found in PRAGMA.finditer(text):
        if not found[1].startswith(PRAGMAS):
            raise StudentError(f"the file has #pragma {printable(found[1], MOST_TEXT)}: remove it")


def _compiler_output(
    folder: str, options: Sequence[str], text: str | bytes, unsealed: bool
) -> bytes:
    """Return the output of the sealed compiler for an input; raise StudentError for its errors."""
    program = str(Path(shutil.which(COMPILER[0]) or COMPILER[0]).resolve())
    # The folder of the compiler's own files is another one where it is not part of the system.
    folders = [folder, str(Path(program).parents[1]), *FOLDERS]
    command = [program, *COMPILER[1:], "-w", "-fno-crash-diagnostics", f"-I{folder}", *options]
    parent = os.getpid()

    def seal() -> None:
        try:
            _seal_compiler([one for one in folders if Path(one).is_dir()], parent)
        except OSError as error:
            if not unsealed:
                os.write(2, (error.strerror or str(error)).encode())
                os._exit(UNSEALED)

    with (
        tempfile.TemporaryFile() as given,
        tempfile.TemporaryFile() as made,
        tempfile.TemporaryFile() as said,
    ):
        given.write(text.encode(errors="replace") if isinstance(text, str) else text)
        given.seek(0)
        process = subprocess.Popen(
            [*command, "-o", "-", "-"],
            stdin=given,
            stdout=made,
            stderr=said,
            cwd="/",
            env={"PATH": "/usr/bin:/bin"},
            start_new_session=True,
            preexec_fn=seal,  # noqa: PLW1509 - the grader has no threads
        )
        try:
            code = process.wait(WALL_S)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        messages, output = _content(said).decode(errors="replace"), _content(made)
        if code == UNSEALED:
            raise PillarboxError(
                f"this machine cannot seal the compiler ({messages}); --unsealed grades it anyway"
            )
        if code == 0 and len(output) < MOST_BYTES:
            return output
        if reason := _own_error(messages):
            raise StudentError(f"the file does not compile: {reason}")
        if code != 1 or CRASH in messages or len(output) >= MOST_BYTES:
            raise StudentError("the compiler was stopped: the file needs too much time or memory")
        raise StudentError(f"the file does not compile: an error outside of it, or in {HEADER}")


def _seal_compiler(readable: Sequence[str], parent: int) -> None:
    """Seal the process that becomes the compiler; raise OSError if a layer is not available."""
    layers.namespaces()
    layers.limit_judge(CPU_S, MEMORY_BYTES, written_bytes=MOST_BYTES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (layers.OPEN_FILES, layers.OPEN_FILES))
    layers.user()
    # Set after the change of user: the kernel refuses exec to a user with too many processes.
    resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))
    layers.end_with_parent(parent)
    layers.landlock(readable, RIGHTS)


def _content(file: IO[bytes]) -> bytes:
    file.seek(0)
    return file.read(MOST_BYTES)


def _own_error(messages: str) -> str:
    """Return the compiler's first message about the student's own lines, or ""."""
    if found := OWN_ERROR.search(messages):
        return printable(found[0], MOST_TEXT)
    if found := SIGNED_DIVISION.search(messages):
        return f"{FILE}, line {found[1]}: eBPF has no signed division: use unsigned numbers"
    return ""
