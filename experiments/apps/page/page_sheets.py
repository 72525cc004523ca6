"""Lab sheets on the page: their text, a student's values, and marks.

Values and marks come from `pillarbox grade`. It runs without any rights, as the page's server does,
at the lowest priority and one process at a time, and isolates the student's file.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
from contextlib import suppress

from pillarbox.experiments.base.files import SHEETS
from pillarbox.experiments.base.interpreter import module_command
from pillarbox.hosts.linux.calls import die_with_parent
from pillarbox.topos.base.errors import PillarboxError, UnknownNameError, require

LONGEST_FILE = 1 << 18  # maximum size of an uploaded file in bytes; `grade` has its own limit
LONGEST_S = 300.0  # timeout of grading in seconds
# Environment variable of the grading secret. It is not passed on: marks of a page are practice.
SECRET = "PILLARBOX_GRADE_SECRET"
STUDENT = re.compile(r"\w[\w.@+-]{0,63}")  # pattern of a student's name


class Sheets:
    """All lab sheets, read in the constructor: later the process has no rights to read files."""

    def __init__(self) -> None:
        found = {file.parent.name: file for file in SHEETS.glob("*-*/README.md")}
        folders = sorted(found, key=lambda name: int(name.partition("-")[0]))
        self._texts = {
            name.partition("-")[0]: found[name].read_text(encoding="utf-8") for name in folders
        }
        self._busy = asyncio.Lock()

    def titles(self) -> dict[str, str]:
        """Return the title of each sheet by its number."""
        return {number: text[2 : text.index("\n")] for number, text in self._texts.items()}

    def text(self, number: str) -> str:
        """Return the text of a lab sheet in Markdown."""
        known = ", ".join(self._texts)
        require(
            number in self._texts,
            f"sheet {number} does not exist: choose one of {known}",
            UnknownNameError,
        )
        return self._texts[number]

    def part(self, number: str, place: str) -> str:
        """Return the heading of a sheet's part; part 0 is the text before the first heading."""
        parts: list[str] = ["", *re.findall(r"^## (.*)", self.text(number), re.MULTILINE)]
        known = place.isdecimal() and int(place) < len(parts)
        require(known, f"sheet {number} has parts 0 to {len(parts) - 1}: choose one")
        return parts[int(place)]

    async def values(self, number: str, student: str) -> str:
        """Return a sheet's individual values for a student, as text."""
        return await self._run_grade(number, student, "--show")

    async def marks(self, number: str, student: str, file: bytes) -> str:
        """Return the marks of a student's file, as text."""
        return await self._run_grade(number, student, "-", file=file)

    async def _run_grade(self, number: str, student: str, *words: str, file: bytes = b"") -> str:
        self.text(number)
        known = STUDENT.fullmatch(student) is not None
        require(known, "the student's name is not valid: use up to 64 letters and digits")
        require(not self._busy.locked(), "another file is being graded: wait until it is finished")
        async with self._busy:
            return await _command_output(
                "grade", number, f"--student={student}", *words, file_content=file
            )


async def _command_output(*words: str, file_content: bytes) -> str:
    """Return the output of a Pillarbox command; raise PillarboxError if the command fails."""
    memory_file = os.memfd_create("file_content")  # in-memory file for standard input
    try:
        os.write(memory_file, file_content)
        os.lseek(memory_file, 0, os.SEEK_SET)
        process = await asyncio.create_subprocess_exec(
            *module_command("pillarbox", *words),
            stdin=memory_file,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd="/",
            env={name: value for name, value in os.environ.items() if name != SECRET},
            preexec_fn=_lower_priority,
        )
    except OSError as error:
        raise PillarboxError(
            f"the page's server has no rights and cannot start grade ({error.strerror}): "
            "make Pillarbox's folder readable for all users"
        ) from None
    finally:
        os.close(memory_file)
    try:
        output, error_text = await asyncio.wait_for(process.communicate(), LONGEST_S)
    except (TimeoutError, asyncio.TimeoutError):
        raise PillarboxError(
            f"grading took more than {LONGEST_S:.0f} s: run pillarbox grade on the command line"
        ) from None
    finally:
        with suppress(ProcessLookupError):  # cancelled grading: the page has disconnected
            process.kill()
    if process.returncode:
        *_, why = error_text.decode(errors="replace").strip().rpartition("\n")
        why = why.removeprefix("pillarbox: ")
        raise PillarboxError(why or f"grade ended with code {process.returncode}")
    return output.decode(errors="replace")


def _lower_priority() -> None:
    os.nice(19)
    die_with_parent(signal.SIGKILL)
