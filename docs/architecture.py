"""Draws docs/architecture.svg from the imports of the code: ``.venv/bin/python docs/architecture.py``.

A box is a folder; the folders of all networks are one box. An arrow goes from a folder to a folder
that it imports; arrows implied by a longer path are omitted. The colours are the packages topos and
hosts, and the districts of experiments. Arrows go down only; a cycle of folders is an error.
"""

from __future__ import annotations

import math
from pathlib import Path

import grimp
import matplotlib as mpl
import networkx as nx
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

ROOT = Path(__file__).resolve().parent.parent
NETWORKS = (
    *("dpillar", "dcell", "bcube", "ficonn", "rail", "mesh", "torus", "bccc"),
    *("tree", "fattree", "vl2", "jellyfish", "domains"),
)
PACKAGES = ("topos", "hosts", "experiments")  # below pillarbox, and left out of the names of boxes
# Packages and districts from bottom to top, each with its colour.
COLOURS = {
    "topos": "#cfe3f5",
    "hosts": "#d8eed0",
    "experiments.base": "#eeeeee",
    "experiments.models": "#fbe3c4",
    "experiments.lab": "#f6d0c8",
    "experiments.runs": "#e6d5ee",
    "experiments.apps": "#d3e8e8",
    "experiments.cli": "#eeeeee",
}
WIDTH, HEIGHT, GAP = 1.45, 0.46, 0.95


def room_of(module: str) -> str:
    """Return the box of a module: ``hosts.live``, ``topos.networks``, ``experiments.lab.linux``."""
    package, *names = module.split(".")
    if not names:
        return package
    if names[0] in NETWORKS:
        return f"{package}.networks"
    deep = 1 if names[0] in ("base", "cli") or package != "experiments" else 2
    folder = Path(package, *names[:deep])
    return ".".join(folder.parts if (ROOT / folder).is_dir() else folder.parts[:-1])


def rooms() -> nx.DiGraph:
    """Return the graph of the folders' imports."""
    imports = grimp.build_graph("pillarbox", exclude_type_checking_imports=True)
    names = {module: module.partition(".")[2] for module in imports.modules}
    names = {module: name for module, name in names.items() if name.startswith(PACKAGES)}
    graph = nx.DiGraph()
    for importer in names:
        graph.add_node(room_of(names[importer]))
        for imported in imports.find_modules_directly_imported_by(importer) & names.keys():
            a, b = room_of(names[importer]), room_of(names[imported])
            if a != b and "." in names[imported] and "." in names[importer]:
                graph.add_edge(a, b)
    for beside in (*PACKAGES, *COLOURS):  # files beside the folders: small, and used everywhere
        if beside in graph and any(room.startswith(f"{beside}.") for room in graph):
            graph.remove_node(beside)
    return graph


def places(graph: nx.DiGraph) -> dict[str, tuple[float, float]]:
    """Return the position of each box: above all boxes that it imports, and near them."""
    floor: dict[str, int] = {}
    for room in reversed(list(nx.topological_sort(graph))):
        floor[room] = max((floor[below] + 1 for below in graph[room]), default=0)
    base = 0
    for district in COLOURS:  # a district stands above the one below it, whatever it imports
        mine = [room for room in graph if room.startswith(district)]
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
            return math.fsum(below) / len(below) if below else 0.0  # fsum: in whatever order

        row.sort(key=wish)
        for index, room in enumerate(row):
            at[room] = ((index - (len(row) - 1) / 2) * (WIDTH + 0.45), level * GAP)
    return at


def picture(graph: nx.DiGraph) -> Figure:
    """Return the folders as boxes, and their imports as arrows."""
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
        colour = next(COLOURS[name] for name in COLOURS if room.startswith(name))
        corner = (x - WIDTH / 2, y - HEIGHT / 2)
        axes.add_patch(
            FancyBboxPatch(
                corner, WIDTH, HEIGHT, boxstyle="round,pad=0.02", facecolor=colour, edgecolor="#444444"
            )
        )
        package, _, name = room.rpartition(".")
        axes.text(x, y + 0.07, name, ha="center", va="center", fontsize=10)
        axes.text(x, y - 0.13, package, ha="center", va="center", fontsize=6.5, color="#555555")
    return figure


def draw(path: Path) -> None:
    """Write the picture; the same code gives the same bytes."""
    with mpl.rc_context({"svg.hashsalt": "pillarbox", "svg.fonttype": "none"}):
        picture(rooms()).savefig(path, metadata={"Date": None})


if __name__ == "__main__":
    draw(ROOT / "docs" / "architecture.svg")
