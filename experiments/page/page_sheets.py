"""Lab sheets beside the picture: their text, a student's own values, and marks.

What is a student's comes from `pillarbox grade`, which runs as the page's server does, without any
rights, at the least priority and one at a time, and seals the file by itself.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
from contextlib import suppress

from experiments.files import SHEETS
from experiments.interpreter import module_command
from hosts.linux.calls import die_with_parent
from topos.base.errors import PillarboxError, require

LONGEST_FILE = 1 << 18  # that is taken; `grade` says what it takes itself
LONGEST_S = 300.0
SECRET = "PILLARBOX_GRADE_SECRET"  # what is graded from a page is practice
STUDENT = re.compile(r"\w[\w.@+-]{0,63}")


class Sheets:
    """All sheets, read when it is made: afterwards this process may not be able to."""

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
        """Return a sheet as it is written, in Markdown."""
        require(number in self._texts, f"there is no sheet {number}: {', '.join(self._texts)}")
        return self._texts[number]

    def part(self, number: str, place: str) -> str:
        """Return the heading of a part; the first, 0, is what stands before all others."""
        parts: list[str] = ["", *re.findall(r"^## (.*)", self.text(number), re.MULTILINE)]
        known = place.isdecimal() and int(place) < len(parts)
        require(known, f"sheet {number} has parts 0 to {len(parts) - 1}")
        return parts[int(place)]

    async def values(self, number: str, student: str) -> str:
        """Return the values that are drawn for a student, as text."""
        return await self._grade(number, student, "--show")

    async def marks(self, number: str, student: str, file: bytes) -> str:
        """Return what a student's file is worth, as text."""
        return await self._grade(number, student, "-", file=file)

    async def _grade(self, number: str, student: str, *words: str, file: bytes = b"") -> str:
        self.text(number)
        known = STUDENT.fullmatch(student) is not None
        require(known, "write the student's name: letters and digits, up to 64")
        require(not self._busy.locked(), "another file is being graded: wait for its marks")
        async with self._busy:
            return await _output("grade", number, f"--student={student}", *words, given=file)


async def _output(*words: str, given: bytes) -> str:
    """Return what a command of Pillarbox prints; raise PillarboxError where it fails."""
    inside = os.memfd_create("given")  # a file, but on no disk
    try:
        os.write(inside, given)
        os.lseek(inside, 0, os.SEEK_SET)
        process = await asyncio.create_subprocess_exec(
            *module_command("experiments", *words),
            stdin=inside,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd="/",
            env={name: value for name, value in os.environ.items() if name != SECRET},
            preexec_fn=_humble,
        )
    except OSError as error:
        raise PillarboxError(
            f"the page's server has no rights, and may not start grade ({error.strerror}): "
            "let all read the folder that Pillarbox is in"
        ) from None
    finally:
        os.close(inside)
    try:
        output, complaint = await asyncio.wait_for(process.communicate(), LONGEST_S)
    except (TimeoutError, asyncio.TimeoutError):
        raise PillarboxError(f"no marks after {LONGEST_S:.0f} s: grade it by itself") from None
    finally:
        with suppress(ProcessLookupError):  # who asked has gone: its sealed processes end with it
            process.kill()
    if process.returncode:
        *_, why = complaint.decode(errors="replace").strip().rpartition("\n")
        why = why.removeprefix("pillarbox: ")
        raise PillarboxError(why or f"grade ended with code {process.returncode}")
    return output.decode(errors="replace")


def _humble() -> None:
    os.nice(19)
    die_with_parent(signal.SIGKILL)
