"""Marks as text for people, and as JSON for Gradescope's autograder."""

from __future__ import annotations

import json

from experiments.grading.engine import Report, Sheet


def as_text(report: Report) -> str:
    """Return a line for each check, and below it what was wrong."""
    sheet = report.sheet
    lines = [f"Lab {sheet.number}, {sheet.lab.TITLE}: {sheet.student}", ""]
    for mark in report.marks:
        lines.append(f"{mark.got:6g} of {mark.points:3g}  {mark.name}")
        if mark.got < mark.points:
            lines.append(f"               {mark.why}")
    lines += ["", f"{report.got:6g} of {report.points:3g}"]
    lines += [f"note: {note}" for note in report.notes]
    return "\n".join(lines)


def as_json(report: Report) -> str:
    """Return what Gradescope reads as results.json."""
    tests = [
        {"name": mark.name, "score": mark.got, "max_score": mark.points, "output": mark.why}
        for mark in report.marks
    ]
    output = "\n".join(report.notes)
    return json.dumps({"score": report.got, "output": output, "tests": tests}, indent=2)


def sheet_text(sheet: Sheet) -> str:
    """Return the student's own values."""
    lines = [f"Lab {sheet.number}, {sheet.lab.TITLE}: {sheet.student}"]
    width = max(map(len, sheet.values))
    lines += [f"  {name:{width}}  {value}" for name, value in sheet.values.items()]
    lines.append(f"  sheet and skeleton: vagrant/labs/{sheet.lab.FOLDER}/")
    return "\n".join(lines)
