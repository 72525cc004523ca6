"""Runs a notebook's cells in order and keeps what they show, as Jupyter does, without Jupyter.

    cd docs/notebook && ../../.venv/bin/python execute.py cut.ipynb

Known are printed text, the value of a cell's last line, and matplotlib's figures: all that the
notebooks here use. The tests run the same cells, and compare what they say with what is on file.
"""

from __future__ import annotations

import ast
import base64
import io
import json
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import matplotlib as mpl

Output = dict[str, Any]
DOTS_PER_INCH = 90


def executed(notebook: dict[str, Any]) -> dict[str, Any]:
    """Return the notebook with the outputs of its cells, all run in one namespace."""
    mpl.use("agg")
    names: dict[str, Any] = {"__name__": "__main__"}
    cells, count = [], 0
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            count += 1
            outputs = _run("".join(cell["source"]), names, count)
            cell = {**cell, "execution_count": count, "outputs": outputs}
        cells.append(cell)
    return {**notebook, "cells": cells}


def _run(source: str, names: dict[str, Any], count: int) -> list[Output]:
    """Run one cell and return what it shows: what it prints, its value, its figures."""
    body = ast.parse(source).body
    last = body.pop() if isinstance(body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with redirect_stdout(printed):
        exec(compile(ast.Module(body, []), f"cell {count}", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), f"cell {count}", "eval"), names)
    outputs: list[Output] = []
    if printed.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": printed.getvalue()})
    if value is not None and not source.rstrip().endswith(";"):
        shown = {"output_type": "execute_result", "execution_count": count, "metadata": {}}
        outputs.append({**shown, "data": _looks(value)})
    return outputs + _figures()


def _looks(value: Any) -> dict[str, str]:
    """Return a value as text, and as HTML if it knows how."""
    looks = {"text/plain": repr(value)}
    if hasattr(value, "_repr_html_"):
        looks["text/html"] = value._repr_html_()
    return looks


def _figures() -> list[Output]:
    """Return the figures that a cell left open, as pictures, and close them."""
    from matplotlib import pyplot

    outputs = []
    for number in pyplot.get_fignums():
        picture, figure = io.BytesIO(), pyplot.figure(number)
        # Without matplotlib's version in it: the same points make the same file.
        figure.savefig(picture, dpi=DOTS_PER_INCH, bbox_inches="tight", metadata={"Software": None})
        data = base64.b64encode(picture.getvalue()).decode()
        text = f"<Figure with {len(figure.axes)} axes>"
        outputs.append(
            {
                "output_type": "display_data",
                "metadata": {},
                "data": {"image/png": data, "text/plain": text},
            }
        )
    pyplot.close("all")
    return outputs


if __name__ == "__main__":
    for name in sys.argv[1:]:
        file = Path(name)
        made = executed(json.loads(file.read_text(encoding="utf-8")))
        file.write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
