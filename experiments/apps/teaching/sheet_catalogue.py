"""Numbers of the labs that are graded, and each student's sheet with drawn values."""

from __future__ import annotations

import importlib
import pkgutil
import random
from typing import Any

from pillarbox.experiments.apps.teaching import labs
from pillarbox.experiments.apps.teaching.grading_engine import Sheet
from pillarbox.topos.base.errors import UnknownNameError, require


def numbers() -> list[int]:
    """Return the numbers of all graded labs."""
    names = (module.name for module in pkgutil.iter_modules(labs.__path__))
    return sorted(int(name[3:]) for name in names if name[:3] == "lab" and name[3:].isdecimal())


def sheet_of(lab: str, student: str) -> Sheet:
    """Return a student's sheet of a lab, named by its number or its folder (``2``, ``2-sp``)."""
    require(student.isprintable(), "the student's ID may contain only letters, digits and signs")
    number = lab.partition("-")[0]
    if not number.isdecimal() or int(number) not in numbers():
        known = ", ".join(map(str, numbers()))
        raise UnknownNameError(f"there is no lab {lab!r} to grade: graded labs are {known}")
    found: Any = importlib.import_module(
        f"pillarbox.experiments.apps.teaching.labs.lab{int(number)}"
    )
    draw = random.Random(f"sheet/{int(number)}/{student}")
    return Sheet(int(number), student, found, found.values(draw))
