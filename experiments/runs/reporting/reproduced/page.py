"""The report of all reproduced figures in a folder.

FOLDER/
    report.html   HTML page with all figures
    results.md    Markdown page with the compared numbers, without drawings
    tasks/        finished tasks of simulated figures
    NAME/
        NAME.json NAME.svg NAME.png
        ...         records and other files of the figure
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pillarbox.experiments.base.files import output_folder
from pillarbox.experiments.runs.reporting import tables
from pillarbox.experiments.runs.reporting.embedding import embedded
from pillarbox.experiments.runs.reporting.report_page import PAGE, rendered
from pillarbox.experiments.runs.reporting.reproduced import drawing, markdown
from pillarbox.experiments.runs.reporting.reproduced.result import DIFFERS, UNDECIDED, Reproduction
from pillarbox.experiments.runs.trials import store
from pillarbox.topos.base.errors import PillarboxError

RESULTS = "results.md"
MOODS = {DIFFERS: "bad", UNDECIDED: "careful"}
MANY = 12  # maximum number of points of a reproduced figure whose table is unfolded


def keep(made: Reproduction, folder: Path) -> list[Path]:
    """Save a reproduced figure's drawing and points to a folder named after the figure.

    Returns
    -------
    list of Path
        Files of the figure as SVG and PNG, and of its points as JSON.
    """
    own = output_folder(folder / made.name)
    points = own / f"{made.name}.json"
    store.write_json(points, made.as_json())
    return [*drawing.draw_reproduction(made, own), points]


def kept(folder: Path, name: str) -> Reproduction | None:
    """Load a saved reproduced figure, or return None if it is missing or unreadable."""
    try:
        return Reproduction.from_json(store.read_json(folder / name / f"{name}.json"))
    except (PillarboxError, KeyError, TypeError, ValueError):
        return None


def write_page(folder: Path, every: Iterable[str] = ()) -> tuple[Path, list[str]]:
    """Write the HTML page of all reproduced figures of a folder, and the Markdown page.

    `every` are the names of all figures. The Markdown page lists those that are missing.

    Returns
    -------
    Path
        File of the HTML page.
    list of str
        Sentences about unreadable figures.
    """
    shown, missing, found = [], [], []
    for name in _figure_names(folder):
        try:
            found.append(Reproduction.from_json(store.read_json(folder / name / f"{name}.json")))
            shown.append(_template_values(folder / name, found[-1]))
        except (PillarboxError, OSError) as error:
            missing.append(f"{name} is left out: {error}")
        except (KeyError, TypeError, ValueError) as error:
            missing.append(
                f"{name} is left out: its points cannot be read ({type(error).__name__}: {error}); "
                "reproduce it again"
            )
    page = folder / PAGE
    store.write_text(folder / RESULTS, markdown.page(found, every))
    store.write_text(page, rendered("reproductions.html", reproductions=shown, missing=missing))
    return page, missing


def _figure_names(folder: Path) -> Iterator[str]:
    for own in sorted(folder.iterdir()):
        if (own / f"{own.name}.json").is_file():
            yield own.name


def _template_values(own: Path, made: Reproduction) -> dict[str, Any]:
    """Return the HTML template's values for a reproduced figure."""
    caption = f"{made.title}: {made.y_label} over {made.x_label}."
    svg = (own / f"{made.name}.svg").read_text(encoding="utf-8")
    every = _points_table(made, made.points)
    return {
        **{word: getattr(made, word) for word in ("name", "title", "verdict", "reasons", "notes")},
        "record": markdown.record(made),
        "mood": MOODS.get(made.verdict, ""),
        "drawn": None if made.kind == "table" else embedded(svg, made.name, caption),
        "numbers": _points_table(made, made.rows) if made.rows else None,
        "points": every,
        "open": not made.rows and (made.kind == "table" or len(every.rows) <= MANY),
    }


def _points_table(made: Reproduction, points: tuple[Any, ...]) -> tables.Table:
    columns, rows = drawing.table_of(made, points)
    return tables.Table(columns, [tables.Row(row) for row in rows], frozenset(range(2, 9)))
