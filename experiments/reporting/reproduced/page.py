"""The page of the papers' figures that were made again: all of a folder, whenever each was made.

FOLDER/
    report.html   in any browser, with all figures
    results.md    the numbers that verdicts are about, and no figures: for a guide
    tasks/        of simulated figures, what is finished
    NAME/
        NAME.json NAME.svg NAME.png
        ...         records and whatever else the figure kept
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from experiments.files import output_folder
from experiments.reporting import tables
from experiments.reporting.embedding import embedded
from experiments.reporting.report_page import PAGE, rendered
from experiments.reporting.reproduced import drawing, markdown
from experiments.reporting.reproduced.result import AGREES, DIFFERS, Reproduction
from experiments.trials.runs import store
from topos.base.errors import PillarboxError

RESULTS = "results.md"
MOODS = {AGREES: "", DIFFERS: "bad"}
MANY = (
    12  # points, beyond which the page shows the numbers the verdict is about, and folds the rest
)


def keep(made: Reproduction, folder: Path) -> list[Path]:
    """Write a figure made again, and its points, into its own folder of that one.

    Returns
    -------
    list of Path
        The figure as SVG and PNG, and the points as JSON.
    """
    own = output_folder(folder / made.name)
    points = own / f"{made.name}.json"
    store.write_json(points, made.as_json())
    return [*drawing.draw_reproduction(made, own), points]


def kept(folder: Path, name: str) -> Reproduction | None:
    """Return a figure that the folder keeps, None where it has none that can be read."""
    try:
        return Reproduction.from_json(store.read_json(folder / name / f"{name}.json"))
    except (PillarboxError, KeyError, TypeError, ValueError):
        return None


def write_page(folder: Path, every: Iterable[str] = ()) -> tuple[Path, list[str]]:
    """Make one page of all figures that the folder keeps, and a smaller one without drawings.

    `every` names all that there are: the smaller page says which are not there.

    Returns
    -------
    Path
        The page.
    list of str
        Sentences about what could not be read.
    """
    shown, missing, found = [], [], []
    for name in _kept(folder):
        try:
            found.append(Reproduction.from_json(store.read_json(folder / name / f"{name}.json")))
            shown.append(_contents(folder / name, found[-1]))
        except (PillarboxError, OSError) as error:
            missing.append(f"{name} is left out: {error}")
        except (KeyError, TypeError, ValueError) as error:
            missing.append(
                f"{name} is left out: its points cannot be read ({type(error).__name__}: {error}); "
                "make it again"
            )
    page = folder / PAGE
    store.write_text(folder / RESULTS, markdown.page(found, every))
    store.write_text(page, rendered("reproductions.html", reproductions=shown, missing=missing))
    return page, missing


def _kept(folder: Path) -> Iterator[str]:
    for own in sorted(folder.iterdir()):
        if (own / f"{own.name}.json").is_file():
            yield own.name


def _contents(own: Path, made: Reproduction) -> dict[str, Any]:
    """Return what the page shows of one figure."""
    caption = f"{made.title}: {made.y_label} over {made.x_label}."
    svg = (own / f"{made.name}.svg").read_text(encoding="utf-8")
    every = _table(made, made.points)
    return {
        **{word: getattr(made, word) for word in ("name", "title", "verdict", "reasons", "notes")},
        "record": markdown.record(made),
        "mood": MOODS.get(made.verdict, "careful"),
        "drawn": None if made.kind == "table" else embedded(svg, made.name, caption),
        "numbers": _table(made, made.rows) if made.rows else None,
        "points": every,
        "open": not made.rows and (made.kind == "table" or len(every.rows) <= MANY),
    }


def _table(made: Reproduction, points: tuple[Any, ...]) -> tables.Table:
    columns, rows = drawing.table_of(made, points)
    return tables.Table(columns, [tables.Row(row) for row in rows], frozenset(range(2, 9)))
