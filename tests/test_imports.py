"""No modules import one another in a circle; pyproject.toml holds the other rules of importing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import grimp
import networkx
import pytest


def circles(*packages: str) -> Iterator[list[str]]:
    """Yield modules that import one another, also in functions or for type checkers alone."""
    graph = grimp.build_graph(*packages, cache_dir=None)
    imports = networkx.DiGraph()
    for module in graph.modules:
        imported = graph.find_modules_directly_imported_by(module)
        imports.add_edges_from((module, other) for other in imported)
    for found in networkx.strongly_connected_components(imports):
        if len(found) > 1:
            yield sorted(found)


def test_modules_import_one_another_in_no_circle() -> None:
    assert list(circles("pillarbox")) == []


def test_rooms_import_one_another_in_no_circle() -> None:
    graph = grimp.build_graph("pillarbox", cache_dir=None)
    rooms = [module for module in graph.modules if graph.find_children(module)]
    tied = {room: graph.nominate_cycle_breakers(room) for room in rooms}
    assert {room: found for room, found in tied.items() if found} == {}


@pytest.mark.parametrize(
    "back",
    [
        "import roundabout.a",
        "def late():\n    from roundabout import a",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from roundabout import a",
    ],
    ids=["plain", "in a function", "for type checkers"],
)
def test_a_circle_is_found(back: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "roundabout"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "a.py").write_text("from roundabout import b")
    (folder / "b.py").write_text(back)
    monkeypatch.syspath_prepend(tmp_path)
    assert list(circles("roundabout")) == [["roundabout.a", "roundabout.b"]]
