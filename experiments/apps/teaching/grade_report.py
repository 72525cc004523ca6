"""Text of a grading report for people, and JSON for Gradescope's autograder."""

from __future__ import annotations

import json

from pillarbox.experiments.apps.teaching.grading_engine import Mark, Replayed, Report, Sheet

COUNTS = "The cases were drawn with the teacher's secret: these marks count."
PRACTICE = "No secret was used: this is practice, and the marks do not count."


def marks_count_text(secret: bool) -> str:
    """Return a sentence that says if the marks count, which requires the grading secret."""
    return COUNTS if secret else PRACTICE


def as_text(report: Report) -> str:
    """Return a grading report as text: a line for each check, with the errors found."""
    sheet = report.sheet
    lines = [
        f"Lab {sheet.number}, {sheet.lab.TITLE}: {sheet.student}",
        marks_count_text(report.secret),
        "",
    ]
    for mark in report.marks:
        lines.append(f"{mark.got:6g} of {mark.points:3g}  {mark.name}")
        if mark.got < mark.points:
            lines += [f"               {text}" for text in (mark.why, *mark.wrong)]
    lines += ["", f"{report.got:6g} of {report.points:3g}"]
    lines += [f"note: {note}" for note in report.notes]
    return "\n".join(lines)


def replayed_text(one: Replayed) -> str:
    """Return a repeated test case as text, with the output of the student's file."""
    lines = [f"asked: {one.asked}", *(f"  | {line}" for line in one.printed)]
    share, wrong = one.judgement
    lines.append("right" if share == 1.0 else f"worth {share:.0%}: {wrong}")
    return "\n".join(lines)


def as_json(report: Report) -> str:
    """Return a grading report in the format of Gradescope's results.json."""
    tests = [
        {
            "name": mark.name,
            "score": mark.got,
            "max_score": mark.points,
            "output": _reason_text(mark),
        }
        for mark in report.marks
    ]
    output = "\n".join([*report.notes, marks_count_text(report.secret)])
    return json.dumps({"score": report.got, "output": output, "tests": tests}, indent=2)


def _reason_text(mark: Mark) -> str:
    return "\n".join((mark.why, *mark.wrong))


def sheet_text(sheet: Sheet) -> str:
    """Return the values of a student's lab sheet as text."""
    lines = [f"Lab {sheet.number}, {sheet.lab.TITLE}: {sheet.student}"]
    width = max(map(len, sheet.values))
    lines += [f"  {name:{width}}  {value}" for name, value in sheet.values.items()]
    lines.append(f"  sheet and skeleton: vagrant/labs/{sheet.lab.FOLDER}/")
    return "\n".join(lines)
