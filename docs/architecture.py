"""Draws docs/architecture.svg from the imports of the code: ``.venv/bin/python docs/architecture.py``.

A box is a folder; all networks' own files are one box. An arrow goes from a folder to what it
imports, and is left out where a longer way says the same. Every arrow goes down, or there is no
picture: a circle of folders is an error here.
"""

from __future__ import annotations

from pathlib import Path

import grimp
import matplotlib as mpl
import networkx as nx
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

ROOT = Path(__file__).resolve().parent.parent
NETWORKS = ("dpillar", "dcell", "bcube", "ficonn", "tree", "fattree")
COLOURS = {"topos": "#cfe3f5", "hosts": "#d8eed0", "experiments": "#fbe3c4"}
WIDTH, HEIGHT, GAP = 1.45, 0.46, 0.95


def room_of(module: str) -> str:
    """Return the folder that a module is drawn in: ``hosts.live``, ``topos: networks``."""
    package, _, rest = module.partition(".")
    name = rest.split(".")[0]
    if not name:
        return package
    if name in NETWORKS:
        return f"{package}: networks"
    own = (ROOT / package / name).is_dir()
    return f"{package}.{name}" if own else package


def rooms() -> nx.DiGraph:
    """Return the folders, and which imports which."""
    imports = grimp.build_graph(*COLOURS, exclude_type_checking_imports=True)
    graph = nx.DiGraph()
    for importer in imports.modules:
        graph.add_node(room_of(importer))
        for imported in imports.find_modules_directly_imported_by(importer):
            a, b = room_of(importer), room_of(imported)
            if a != b and "." in imported and "." in importer:
                graph.add_edge(a, b)
    for package in COLOURS:  # files beside the folders: small, and used from everywhere
        if package in graph:
            graph.remove_node(package)
    return graph


def places(graph: nx.DiGraph) -> dict[str, tuple[float, float]]:
    """Return where each box stands: above all that it imports, near what it imports."""
    floor: dict[str, int] = {}
    for room in reversed(list(nx.topological_sort(graph))):
        floor[room] = max((floor[below] + 1 for below in graph[room]), default=0)
    base = 0
    for package in COLOURS:  # a package stands above the one below it, whatever it imports
        mine = [room for room in graph if room.startswith(package)]
        lift = base - min(floor[room] for room in mine)
        for room in mine:
            floor[room] += max(lift, 0)
        base = max(floor[room] for room in mine) + 1
    rows: dict[int, list[str]] = {}
    for room in sorted(graph, key=lambda room: (floor[room], room)):
        rows.setdefault(floor[room], []).append(room)
    at: dict[str, tuple[float, float]] = {}
    for level, (_, row) in enumerate(sorted(rows.items())):
        def wish(room: str) -> float:
            below = [at[other][0] for other in graph[room] if other in at]
            return round(sum(below) / len(below), 6) if below else 0.0  # in whatever order

        row.sort(key=wish)
        for index, room in enumerate(row):
            at[room] = ((index - (len(row) - 1) / 2) * (WIDTH + 0.45), level * GAP)
    return at


def picture(graph: nx.DiGraph) -> Figure:
    """Return the folders as boxes, and the imports that no longer way says as arrows."""
    at = places(graph)
    wide = max(abs(x) for x, _ in at.values()) + WIDTH
    high = max(y for _, y in at.values()) + HEIGHT
    figure = Figure(figsize=(2 * wide, high + 0.6))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(-wide, wide), ylim=(-0.5, high + 0.1))
    axes.axis("off")
    for a, b in sorted(nx.transitive_reduction(graph).edges):  # the same file each time
        (x, y), (to_x, to_y) = at[a], at[b]
        bend = 0.0 if y - to_y <= GAP or x != to_x else 0.25
        axes.add_patch(
            FancyArrowPatch(
                (x, y - HEIGHT / 2),
                (to_x, to_y + HEIGHT / 2),
                connectionstyle=f"arc3,rad={bend}",
                arrowstyle="-|>",
                mutation_scale=9,
                color="#666666",
                linewidth=0.8,
                shrinkA=0,
                shrinkB=0,
            )
        )
    for room, (x, y) in at.items():
        colour = COLOURS[room.replace(":", ".").split(".")[0]]
        corner = (x - WIDTH / 2, y - HEIGHT / 2)
        axes.add_patch(
            FancyBboxPatch(
                corner, WIDTH, HEIGHT, boxstyle="round,pad=0.02", facecolor=colour, edgecolor="#444444"
            )
        )
        package, _, name = room.replace(": ", ".").partition(".")
        axes.text(x, y + 0.07, name, ha="center", va="center", fontsize=10)
        axes.text(x, y - 0.13, package, ha="center", va="center", fontsize=6.5, color="#555555")
    return figure


def draw(path: Path) -> None:
    """Write the picture; the same code gives the same bytes."""
    with mpl.rc_context({"svg.hashsalt": "pillarbox", "svg.fonttype": "none"}):
        picture(rooms()).savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    draw(ROOT / "docs" / "architecture.svg")
