"""Drawings: every cable and server there once, nothing on top of anything, the same each time."""

import os
import re
import stat
from functools import cache
from itertools import combinations

import pytest

pytest.importorskip("matplotlib")

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.bezier import BezierSegment

from pillarbox import topos
from pillarbox.experiments.apps.page.picture import picture_of
from pillarbox.experiments.runs.reporting.drawing import draw_topology
from pillarbox.experiments.runs.reporting.drawing.curves import (
    CLEARANCE,
    CableObstacles,
    control_points,
    straight,
)
from pillarbox.experiments.runs.reporting.drawing.drawing_files import rendered
from pillarbox.experiments.runs.reporting.drawing.network_figure import (
    SERVER_RADIUS,
    topology_figure,
)
from pillarbox.experiments.runs.reporting.drawing.shapes import Shapes
from pillarbox.topos.base.errors import PillarboxError
from pillarbox.topos.base.layout import grid_layout
from pillarbox.topos.tree import Tree

EXAMPLES = [spec for kind in topos.kinds() for spec in topos.network(kind).examples]
SMALL = [spec for spec in EXAMPLES if topos.parse(spec).servers <= 100]


def svg(topology, directory, **options):
    path = directory / "drawing.svg"
    draw_topology(topology, path, **options)
    return path.read_text()


@cache
def drawn(spec):
    """Return the drawing as SVG: made once, and looked at by several tests."""
    return rendered(figure_of(spec), "svg").decode()


@cache
def figure_of(spec):
    return topology_figure(topos.parse(spec))


def shapes_of(figure):
    drawn = [artist for artist in figure.axes[0].artists if isinstance(artist, Shapes)]
    return {shape.name: shape for artist in drawn for shape in artist.shapes}


def cable_id(topology, cable):
    ends = topology.interface(cable.a, cable.a_port), topology.interface(cable.b, cable.b_port)
    return "cable-" + "-".join(ends)


@pytest.mark.parametrize("spec", SMALL)
def test_every_cable_is_one_path(spec):
    topology = topos.parse(spec)
    paths = re.findall(r'<g id="(cable-[^"]*)">\s*<path ', drawn(spec))
    assert sorted(paths) == sorted(cable_id(topology, cable) for cable in topology.links())
    assert len(paths) == topology.cables


@pytest.mark.parametrize("spec", SMALL)
def test_every_server_and_its_label_are_there_once(spec):
    topology = topos.parse(spec)
    text = drawn(spec)
    labels = topology.layout().labels
    for server in range(topology.servers):
        assert text.count(f'<g id="h{server}">') == 1
        label = labels.get(server, topology.address(server))
        written = re.findall(rf'<g id="label-h{server}">.*?<text[^>]*>([^<]*)</text>', text, re.S)
        assert written == [label]


@pytest.mark.parametrize("spec", SMALL)
def test_switches_have_the_names_that_commands_take(spec):
    topology = topos.parse(spec)
    for switch in range(topology.servers, topology.nodes):
        name = topology.name(switch)
        written = re.findall(
            rf'<g id="label-{name}">.*?<text[^>]*>([^<]*)</text>', drawn(spec), re.S
        )
        assert written == [name]
    named = {one["name"]: one["label"] for one in picture_of(topology)["nodes"]}
    assert all(named[name] == name for name in named if name.startswith("s"))


@pytest.mark.parametrize("spec", SMALL)
def test_servers_and_switches_do_not_touch(spec):
    layout = topos.parse(spec).layout()
    points = np.array([*layout.positions.values(), *layout.repeated.values()])
    away = np.hypot(*(points[:, None] - points[None]).transpose(2, 0, 1))
    np.fill_diagonal(away, np.inf)
    assert away.min() > 2 * SERVER_RADIUS


@pytest.mark.parametrize("spec", SMALL)
def test_texts_do_not_overlap_and_none_is_cut_off(spec):
    figure = figure_of(spec)
    canvas = FigureCanvasAgg(figure)
    boxes = [(text, text.get_window_extent(canvas.get_renderer())) for text in figure.axes[0].texts]
    for (one, first), (other, second) in combinations(boxes, 2):
        apart = (
            first.x1 <= second.x0
            or second.x1 <= first.x0
            or first.y1 <= second.y0
            or second.y1 <= first.y0
        )
        assert apart, f"{one.get_text()!r} lies on {other.get_text()!r}"
    for text, box in boxes:
        inside = box.x0 >= 0 and box.y0 >= 0
        inside = inside and box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1
        assert inside, f"{text.get_text()!r} is cut off"


@pytest.mark.parametrize("spec", SMALL)
def test_no_cable_passes_under_another_node(spec):
    topology = topos.parse(spec)
    cables = {cable_id(topology, cable): cable for cable in topology.links()}
    shapes = shapes_of(figure_of(spec))
    boxes = {
        node: shapes[topology.node_name(node)].outline.get_extents()
        for node in range(topology.nodes)
    }
    for name, cable in cables.items():
        points = BezierSegment(shapes[name].outline.vertices)(np.linspace(0, 1, 150))
        for node, box in boxes.items():
            if node in (cable.a, cable.b):
                continue
            if node < topology.servers:
                middle = (np.array(box.min) + np.array(box.max)) / 2
                under = np.hypot(*(points - middle).T) < SERVER_RADIUS
            else:
                under = ((points > box.min) & (points < box.max)).all(axis=1)
            assert not under.any(), f"{name} passes under {topology.node_name(node)}"


@pytest.mark.parametrize("suffix", [".svg", ".png", ".SVG"])
def test_two_runs_give_the_same_bytes(suffix, tmp_path):
    first, second = tmp_path / f"a{suffix}", tmp_path / f"b{suffix}"
    for path in (first, second):
        draw_topology(topos.parse("dpillar,4,2"), path)
    assert first.read_bytes() == second.read_bytes()
    assert first.read_bytes()[:5] in (b"<?xml", b"\x89PNG\r")


def test_caption_tells_name_spec_and_counts(tmp_path):
    topology = topos.parse("bcube,4,1")
    text = svg(topology, tmp_path)
    assert "BCube  bcube,4,1" in text
    assert "16 servers, 8 switches, 32 cables" in text
    assert "bcube,4,1" not in svg(topology, tmp_path, title=False)


def test_dpillars_column_0_stands_on_both_sides(tmp_path):
    topology = topos.parse("dpillar,4,3")
    text = svg(topology, tmp_path)
    assert len(re.findall(r'<g id="again-h\d+">', text)) == topology.column_servers


def test_network_without_own_layout_is_drawn(tmp_path, monkeypatch):
    monkeypatch.setattr(Tree, "layout", lambda tree: grid_layout(tree.servers, tree.switches))
    topology = topos.parse("tree,4,5")
    assert len(re.findall('<g id="cable-', svg(topology, tmp_path))) == topology.cables


def test_report_chooses_widths_and_colours():
    topology = topos.parse("dcell,4,1")
    figure = topology_figure(
        topology,
        width_of=lambda cable: 1.0 + cable.level,
        colour_of=lambda cable: "#ff0000" if cable.a == 0 else "#0000ff",
    )
    shapes = shapes_of(figure)
    for cable in topology.links():
        shape = shapes[cable_id(topology, cable)]
        assert shape.width == 1.0 + cable.level
        assert shape.edge == ("#ff0000" if cable.a == 0 else "#0000ff")


@pytest.mark.parametrize("between", [(2.0, 0.0), (7.0, 0.0)])
def test_cable_bends_around_what_stands_between(between):
    def obstacles(middle):
        return CableObstacles(
            np.array([(0.0, 0.0), (10.0, 0.0), middle]),
            np.zeros((3, 2)),
            np.full(3, SERVER_RADIUS),
            np.array((-1.0, -3.0)),
            np.array((11.0, 3.0)),
        )

    blocked, free = obstacles(between), obstacles((between[0], 2.0))
    assert (straight(blocked, [(0, 1)]), straight(free, [(0, 1)])) == (False, True)
    assert control_points(blocked, (0, 1)) is not None
    assert control_points(free, (0, 1)) is None


def test_what_is_near_a_curve_is_found_among_all_obstacles():
    random = np.random.default_rng(3)
    halves = random.uniform(0, 2, (60, 2))
    obstacles = CableObstacles(
        random.uniform(0, 30, (60, 2)),
        halves,
        random.uniform(0, 0.5, 60),
        np.zeros(2),
        np.array((30.0, 30.0)),
    )
    curves = random.uniform(-3, 33, (20, 50, 2))
    outside = np.maximum(-curves, 0) + np.maximum(curves - 30, 0)
    away = np.abs(curves[:, :, None] - obstacles.centres) - halves
    distances = np.hypot(*np.moveaxis(np.maximum(away, 0), -1, 0)) - obstacles.radii
    hidden = np.where(distances < CLEARANCE, CLEARANCE - distances + 0.5, 0)
    hidden[..., [4, 9]] = 0
    expected = (outside.sum(-1) + hidden.sum(-1)).mean(-1)
    assert obstacles.depths(curves, (4, 9)) == pytest.approx(expected)


def test_drawing_says_that_names_were_left_out(tmp_path, monkeypatch):
    assert "left out" not in svg(topos.parse("tree,3,1"), tmp_path)
    monkeypatch.setattr("pillarbox.experiments.runs.reporting.drawing.network_figure.SMALLEST", 50)
    assert "illegible names left out" in svg(topos.parse("tree,3,1"), tmp_path)


def test_file_is_readable_as_the_umask_says_and_nothing_is_left_beside(tmp_path):
    path = tmp_path / "tree.svg"
    path.write_text("old")
    before = os.umask(0o022)
    try:
        draw_topology(topos.parse("tree,3,1"), path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("spec", "name", "sentence"),
    [
        ("tree,3,1", "tree.pdf", r"suffix \.svg or \.png"),
        ("tree,3,1", "tree", r"suffix \.svg or \.png"),
        ("tree,3,1", "absent/tree.svg", "directory that exists"),
        ("tree,3,1", "directory.svg", "cannot be written"),
        ("bcube,8,3", "bcube.svg", "4096 servers.*choose smaller parameters"),
    ],
)
def test_what_cannot_be_drawn_is_refused(spec, name, sentence, tmp_path):
    (tmp_path / "directory.svg").mkdir()
    with pytest.raises(PillarboxError, match=sentence):
        draw_topology(topos.parse(spec), tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["directory.svg"]


def test_full_disk_is_told_in_a_sentence(tmp_path, monkeypatch):
    def full(path, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.replace", full)
    with pytest.raises(PillarboxError, match="No space left"):
        draw_topology(topos.parse("tree,3,1"), tmp_path / "tree.svg")
    assert not list(tmp_path.iterdir())
