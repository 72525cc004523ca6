"""A class of 20 honest students and 28 hostile ones, each with one attack."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from pillarbox.experiments.apps.teaching.sheet_catalogue import sheet_of
from tests.vagrant.labs.test_answers import model_of

SECRET = "the_word_of_the_teacher"  # an identifier: run as Python, it is a NameError with its text
HALF = "\n\ndef switch(n, k, address, port):\n    return 'half'\n\n\nport_to = switch\n"
RIGHT, PARTLY = [20.0, 35.0, 20.0, 10.0, 15.0], [20.0, 35.0, 0.0, 0.0, 11.25]
HONEST = {f"honest{number:02}": PARTLY if number % 5 == 4 else RIGHT for number in range(20)}
NESTED = 1000  # folders


class Hostile(NamedTuple):
    """One attack, and the remark that its student has to get."""

    says: str  # a regular expression
    source: str = ""  # followed by a right answer, so that only the attack costs marks
    make: Callable[[Path, str], object] | None = None  # makes the submission instead


def nested(folder: Path, name: str) -> None:
    place = folder / name
    place.mkdir()
    (place / "work.py").write_text("def address(*numbers):\n    return address(*numbers)\n")
    at = os.open(place, os.O_RDONLY)
    for _ in range(NESTED):
        os.mkdir("d", dir_fd=at)
        inner = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = inner
    os.close(at)


def linked(folder: Path, name: str) -> None:
    (folder / f"{name}.py").symlink_to(folder.parent / "word")


def linked_inside(folder: Path, name: str) -> None:
    (folder / name).mkdir()
    (folder / name / "work.py").symlink_to(folder.parent / "word")


def sparse(folder: Path, name: str) -> None:
    with (folder / f"{name}.py").open("wb") as file:
        file.truncate(1 << 40)


HOSTILE = {
    # Files that are not regular files.
    "link": Hostile("is a link", make=linked),
    "link-inside": Hostile("is a link", make=linked_inside),
    "link-folder": Hostile("is a link", make=lambda at, me: (at / me).symlink_to(at)),
    "fifo": Hostile("not a regular file", make=lambda at, me: os.mkfifo(at / f"{me}.py")),
    "sparse": Hostile("longer than", make=sparse),
    "nested": Hostile("RecursionError", make=nested),
    "=cmd|' -C calc'!A0": Hostile("not a valid student ID", "x = 1\n"),
    "new\nline\x1b[2J\udcff\u202e": Hostile("not a valid student ID", "x = 1\n"),
    # Code that runs when the file is loaded.
    "brackets": Hostile("when it is loaded|process ended", "x = " + "(" * 90_000),
    "forks": Hostile("PermissionError|BlockingIOError", "import os\nwhile True:\n    os.fork()\n"),
    "hoards": Hostile("memory limit", "x = [bytearray(1 << 20) for _ in range(1 << 20)]\n"),
    "loops": Hostile("no answer|processor time", "while True:\n    pass\n"),
    "sleeps": Hostile("no answer", "import time\ntime.sleep(600)\n"),
    "leaves": Hostile("process ended", "import os\nos._exit(0)\n"),
    "proc": Hostile("PermissionError", "open('/proc/self/environ').read()\n"),
    "mem": Hostile("PermissionError", "import os\nopen(f'/proc/{os.getppid()}/mem', 'r+b')\n"),
    "word": Hostile("PermissionError", "print(open('WORD').read())\n"),
    "neighbour": Hostile("PermissionError", "open('FOLDER/honest00.py').read()\n"),
    "ptrace": Hostile(
        "PermissionError",
        "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        "if libc.ptrace(16, os.getppid(), 0, 0) < 0:\n    raise PermissionError('ptrace')\n",
    ),
    "preload": Hostile(
        "PermissionError",
        "import os\nos.environ['LD_PRELOAD'] = 'FOLDER/mine.so'\n"
        "os.execv('/bin/sh', ['sh', '-c', 'cat WORD'])\n",
    ),
    "disk": Hostile(
        "PermissionError",
        "with open('/tmp/filled', 'wb') as file:\n"
        "    while True:\n        file.write(bytes(1 << 20))\n",
    ),
    "kills": Hostile("PermissionError", "import os\nos.kill(os.getppid(), 9)\n"),
    "kills-all": Hostile("PermissionError", "import os\nos.kill(-1, 9)\n"),
    "sends": Hostile(
        "PermissionError",
        "import socket\nsocket.socket(socket.AF_INET, socket.SOCK_DGRAM)"
        ".sendto(b'100', ('127.0.0.1', 9))\n",
    ),
    "prints": Hostile(
        "no answer|out of turn|process ended",
        "import os\nfor at in range(32):\n    try:\n"
        """        os.write(at, b'{"number": 1, "answer": null}\\n{"marks": [100]}\\n100')\n"""
        "    except OSError:\n        pass\n",
    ),
    "floods": Hostile(
        "no answer|malformed", "import os\nwhile True:\n    os.write(3, b'x' * 65536)\n"
    ),
    "surrogates": Hostile(r"\\ud800\\x1b\[2J", "raise ValueError('\\ud800\\x1b[2J\\u202e')\n"),
    "formula": Hostile("=cmd", "raise type('=cmd', (Exception,), {})('=1+1')\n"),
}  # fmt: skip


def hand_in(folder: Path, honest: int, hostile: list[str]) -> None:
    """Write the class's files, and the teacher's secret beside the folder."""
    folder.mkdir()
    word = folder.parent / "word"
    word.write_text(SECRET + "\n")
    word.chmod(0o644)  # readable by all, so that only the seal protects it
    for student in list(HONEST)[:honest]:
        half = HALF if HONEST[student] == PARTLY else ""
        (folder / f"{student}.py").write_text(model_of(sheet_of("1", student)) + half)
    for name in hostile:
        one = HOSTILE[name]
        if one.make:
            one.make(folder, name)
        else:
            source = one.source.replace("WORD", str(word)).replace("FOLDER", str(folder))
            (folder / f"{name}.py").write_text(source + model_of(sheet_of("1", "anybody")))


def remove(folder: Path) -> None:
    """Remove the folder of a class; some folders are too deep for shutil.rmtree."""
    subprocess.run(["rm", "-rf", str(folder)], check=True)
