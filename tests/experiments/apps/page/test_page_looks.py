"""The page's picture: nothing covers anything else, load is no alarm, and all of it has a name."""

from __future__ import annotations

import colorsys
import json
import re
from functools import cache
from itertools import cycle, pairwise, product
from pathlib import Path
from typing import Any

import pytest

from pillarbox import topos
from pillarbox.experiments.apps.page.picture import picture_of, recording_head
from pillarbox.experiments.apps.page.recording import Recording
from pillarbox.experiments.apps.page.standalone import WEB, files, standalone
from pillarbox.topos.base.topology import Topology
from tests.experiments.apps.page.protocol import SCHEMA, faults_of
from tests.experiments.apps.page.visiting import run_client
from tests.harness.chromium import CHROMIUM, Browser, browser

LARGE = ("ficonn,8,2", "bcube,4,2", "dcell,3,2", "dpillar,4,5", "tree,40,4", "fattree,10")
RATE_MBIT, QUEUE_BYTES = 100.0, 151_400
WINDOWS = ((1280, 800), (420, 900))
BROWSER_S = 300.0
LEAST_CONTRAST = 3.0
BLUE = range(195, 225)  # hue, in degrees

BASE_WIDTHS = """
[...document.querySelectorAll(".cable")].map((cable) => [
  Number(cable.id.replace("cable-", "")),
  parseFloat(getComputedStyle(cable.querySelector(".base")).strokeWidth),
  cable.querySelector(".lane").dataset.level,
])
"""
# What lies on what, each as a sentence: servers and switches, folded groups, queues and names.
OVERLAPS = """
(() => {
  const TOLERANCE = 0.7; // pixels, of outlines and rounding
  const svg = document.getElementById("picture");
  const rect = (shape) => shape.getBoundingClientRect();
  const outline = (body) => {
    const { left, top, width, height } = rect(body);
    const middle = { x: left + width / 2, y: top + height / 2 };
    if (body.tagName === "circle") return { ...middle, radius: width / 2, wide: 0, high: 0 };
    return { ...middle, radius: 0, wide: width / 2, high: height / 2 };
  };
  const gap = (one, other) => {
    const across = Math.abs(one.x - other.x) - one.wide - other.wide;
    const up = Math.abs(one.y - other.y) - one.high - other.high;
    const outside = Math.hypot(Math.max(0, across), Math.max(0, up));
    const apart = outside || Math.max(across, up);
    return apart - one.radius - other.radius;
  };
  const nameOf = (node) => node.querySelector("text").textContent || node.id;
  const nodes = [...svg.querySelectorAll(".node")].map((node) => (
    { name: nameOf(node), ...outline(node.querySelector(".body")) }
  ));
  const texts = [...svg.querySelectorAll(".note:not(.small), .shape")].map((text) => {
    const { left, top, width, height } = rect(text);
    const [x, y] = [left + width / 2, top + height / 2];
    return { name: text.textContent, x, y, radius: 0, wide: width / 2, high: 0.35 * height };
  });
  const queues = [...svg.querySelectorAll(".queue")].flatMap((queue) => {
    const bars = queue.querySelector(".bars");
    const [matrix, length] = [bars.getScreenCTM(), bars.getTotalLength()];
    const radius = parseFloat(bars.style.strokeWidth) / 2;
    const points = [0, 0.25, 0.5, 0.75, 1].map((share) => bars.getPointAtLength(share * length));
    const drops = queue.querySelector(".drops");
    const tip = drops ? [{ ...drops.getPointAtLength(0) }] : [];
    if (drops) [tip[0].x, tip[0].y] = drops.getAttribute("d").match(/-?[0-9.e-]+/g).map(Number);
    return [...points.map((point) => [point, radius]), ...tip.map((point) => [point, 0])].map(
      ([{ x, y }, wide]) => {
        const at = new DOMPoint(x, y).matrixTransform(matrix);
        return { name: "a queue", x: at.x, y: at.y, radius: wide, wide: 0, high: 0 };
      },
    );
  });
  const found = [];
  const compare = (one, other) => {
    if (gap(one, other) < -TOLERANCE) found.push(`${one.name} lies on ${other.name}`);
  };
  nodes.forEach((node, i) => nodes.slice(i + 1).forEach((other) => compare(node, other)));
  queues.forEach((queue) => nodes.forEach((node) => compare(queue, node)));
  texts.forEach((text, i) => {
    nodes.forEach((node) => compare(text, node));
    texts.slice(i + 1).forEach((other) => compare(text, other));
  });
  const edge = rect(svg);
  for (const { name, x, y, radius, wide, high } of [...nodes, ...texts]) {
    const [across, up] = [radius + wide, radius + high];
    const outside = x - across < edge.left - 1 || x + across > edge.right + 1;
    const beyond = outside || y - up < edge.top - 1 || y + up > edge.bottom + 1;
    if (beyond) found.push(`${name} is cut off`);
  }
  for (const group of svg.querySelectorAll(".group")) {
    const body = outline(group.querySelector(".body"));
    for (const text of group.querySelectorAll("text:not(.small)")) {
      if (text.textContent && rect(text).width > 2 * (body.radius + body.wide)) {
        found.push(`${text.textContent} is wider than its group`);
      }
    }
  }
  const [top, zoom] = ["description", "zoom"].map((id) => rect(document.getElementById(id)));
  const apart = top.right <= zoom.left + 1 || top.bottom <= zoom.top + 1;
  if (!apart) found.push("the buttons lie on the description");
  if (document.documentElement.scrollWidth > innerWidth) found.push("the page is too wide");
  return [found, { nodes: nodes.length, texts: texts.length, queues: queues.length }];
})()
"""
OPEN = "document.getElementById('group-0').dispatchEvent(new Event('click'))"


def specs_of(kind: str) -> list[str]:
    examples = topos.network(kind).examples
    return [*examples, *(spec for spec in LARGE if spec.startswith(f"{kind},"))]


EVERY_SPEC = [spec for kind in topos.kinds() for spec in specs_of(kind)]


@cache
def told_of(spec: str) -> dict[str, Any]:
    return recording_of(topos.parse(spec))


def recording_of(topology: Topology) -> dict[str, Any]:
    """Return a recording: at rest, then with every cable and queue full and faults."""
    directions = range(2 * topology.cables)
    recording = Recording(
        {
            **recording_head(topology),
            "about": [],
            "rate_mbit": RATE_MBIT,
            "queue_bytes": QUEUE_BYTES,
            "begun_s": 0.0,
        }
    )
    recording.add_sample({"at_s": 0.0, "sent": [], "received": 0})
    full = {
        "sent": [value for way in directions for value in (way, int(RATE_MBIT * 980))],
        "waiting": [value for way in directions for value in (way, QUEUE_BYTES)],
        "dropped": [value for way in directions[::5] for value in (way, 9)],
    }
    recording.add_sample({"at_s": 1.0, "received": 0, **full})
    first, *_, last = list(topology.links())
    ends = [[topology.name(cable.a), topology.name(cable.b)] for cable in (first, last)]
    state = {"faults": [["cut", *ends[0]]], "dead": [topology.name(topology.servers - 1)]}
    shapes = [[*ends[1], "20 Mbit/s 5 ms", 20.0]]
    recording.add_state({"at_s": 1.0, **state, "shapes": shapes})
    told: dict[str, Any] = json.loads(recording.text())
    assert faults_of(told, SCHEMA["$defs"]["recording"]) == []
    return told


async def draw(tab: Browser, told: dict[str, Any], file: Path, at_s: float) -> None:
    """Open a recording as a saved page, and go to a moment."""
    file.write_text(standalone(json.dumps(told), files()))
    await tab.open(file.as_uri())
    await tab.until("Number(document.getElementById('moment').max) > 0")
    await tab.value(
        f"""(() => {{
          const slider = document.getElementById("moment");
          slider.value = {at_s};
          slider.dispatchEvent(new Event("input"));
          return new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
        }})()"""
    )


@pytest.mark.skipif(not CHROMIUM, reason="there is no chromium: apt-get install chromium")
@pytest.mark.parametrize(
    "cases",
    [
        # Each network in one window: of two networks of a kind that follow, one in each.
        pytest.param([*zip(EVERY_SPEC, cycle(WINDOWS), strict=False)], id="each"),
        pytest.param([*product(EVERY_SPEC, WINDOWS)], id="all", marks=pytest.mark.long),
    ],
)
def test_nothing_covers_anything_else(
    cases: list[tuple[str, tuple[int, int]]], tmp_path: Path
) -> None:
    async def visit() -> None:
        async with browser(tmp_path / "chromium") as tab:
            for spec, window in cases:
                told = told_of(spec)
                await tab.look(*window)
                await draw(tab, told, tmp_path / "page.html", 1.0)
                found, seen = await tab.value(OVERLAPS)
                faults.extend((spec, window, fault) for fault in found)
                folded = await tab.value("document.querySelectorAll('.group').length")
                # A queue is left out where there is no room, which is the exception.
                few = not folded and seen["queues"] < 5 * len(told["picture"]["cables"])
                faults.extend([(spec, window, f"{seen} are too few queues")] if few else [])
                if folded:
                    await tab.value(OPEN)
                    await tab.until(f"document.querySelectorAll('.group').length === {folded - 1}")
                    found, _ = await tab.value(OVERLAPS)
                    # In a small window it is enlarged, so that others are outside.
                    inside = [fault for fault in found if not fault.endswith("is cut off")]
                    faults.extend((spec, window, "opened", fault) for fault in inside)
            assert tab.complaints == []

    faults: list[Any] = []
    run_client(visit(), BROWSER_S)
    assert not faults, "\n".join(map(str, faults))


@pytest.mark.skipif(not CHROMIUM, reason="there is no chromium: apt-get install chromium")
def test_cables_are_as_wide_as_their_rate_and_their_load_is_a_share_of_it(tmp_path: Path) -> None:
    async def visit() -> None:
        async with browser(tmp_path / "chromium") as tab:
            topology = topos.parse("bcube,4,1,rates=4:1")
            told = recording_of(topology)
            levels = [cable["level"] for cable in told["picture"]["cables"]]
            assert [cable["rate"] for cable in told["picture"]["cables"]] == [
                4 - 3 * level for level in levels
            ]
            for event in ("states", "events"):
                told[event] = []
            # Every direction sends 98 Mbit/s: half of level 0 at 200 Mbit/s, all of level 1 at 50.
            told["rate_mbit"] = 50.0
            await tab.look(1280, 800)
            await draw(tab, told, tmp_path / "page.html", 0.0)
            found = await tab.value(BASE_WIDTHS)
            widths = {number: width for number, width, _ in found}
            assert len(widths) == topology.cables
            narrow = min(widths.values())
            for number, level in enumerate(levels):
                assert widths[number] == pytest.approx(narrow * (2 if level == 0 else 1))
            await draw(tab, told, tmp_path / "page.html", 1.0)
            loads = {number: load for number, _, load in await tab.value(BASE_WIDTHS)}
            assert {loads[number] for number, level in enumerate(levels) if level == 0} == {"1"}
            assert {loads[number] for number, level in enumerate(levels) if level == 1} == {"4"}
            assert tab.complaints == []

    run_client(visit(), BROWSER_S)


@pytest.mark.skipif(not CHROMIUM, reason="there is no chromium: apt-get install chromium")
def test_legend_description_and_lanes(tmp_path: Path) -> None:
    async def visit() -> None:
        async with browser(tmp_path / "chromium") as tab:
            topology = topos.parse("bcube,4,1")
            told = recording_of(topology)
            await tab.look(1280, 800)
            await draw(tab, told, tmp_path / "page.html", 1.0)
            legend = await tab.value("document.getElementById('legend').textContent")
            for word in ("server", "switch", "load", "one lane per direction", "queue", "drops"):
                assert word in legend
            said = await tab.value("document.getElementById('description').textContent")
            assert said == topology.description()
            lanes = await tab.value(LANES)
            assert len(lanes) == topology.cables
            for apart, widths, turned in lanes:
                assert apart > sum(widths) / 2, "the two lanes of a cable touch"
                assert turned < -0.99, "the arrows of a cable point the same way"
            for field in ("description", "queue_bytes"):  # of recordings that are older
                del told[field]
            for frame in told["picture"]["frames"]:
                del frame["name"]
            for note in told["picture"]["notes"]:
                del note["size"]
            await draw(tab, told, tmp_path / "page.html", 1.0)
            assert await tab.value("document.querySelectorAll('.note').length") > 0
            assert tab.complaints == []

    run_client(visit(), BROWSER_S)


# Of each cable: pixels between its lanes, their widths, and the cosine between its arrows.
LANES = """
[...document.querySelectorAll(".cable")].map((cable) => {
  const lanes = [...cable.querySelectorAll(".lane")];
  const matrix = lanes[0].getScreenCTM();
  const [one, other] = lanes.map((lane, side) =>
    lane.getPointAtLength(lane.getTotalLength() / 2).matrixTransform(matrix));
  const [first, second] = [...cable.querySelectorAll(".arrow")].map((arrow) => {
    const numbers = arrow.getAttribute("d").match(/-?[0-9.]+(e-?[0-9]+)?/g);
    const [x, y, x1, y1, x2, y2] = numbers.map(Number);
    return [x - (x1 + x2) / 2, y - (y1 + y2) / 2];
  });
  const dot = first && second ? first[0] * second[0] + first[1] * second[1] : -1;
  const sizes = first && second ? Math.hypot(...first) * Math.hypot(...second) : 1;
  return [
    Math.hypot(one.x - other.x, one.y - other.y),
    lanes.map((lane) => parseFloat(lane.style.strokeWidth)),
    dot / sizes,
  ];
})
"""


def themes(css: str) -> list[dict[str, str]]:
    """Return the colours of each theme: light, dark by choice, dark by the machine's setting."""
    blocks = re.findall(r":root[^{]*\{([^}]*)\}", css)
    found = [dict(re.findall(r"(--[a-z0-9-]+): (#[0-9a-f]{6})", block)) for block in blocks]
    return [theme for theme in found if "--r0" in theme]


def rgb(colour: str) -> tuple[float, float, float]:
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return red, green, blue


def luminance(colour: str) -> float:
    """Return a colour's relative luminance, as WCAG 2 defines it."""
    parts = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in rgb(colour)]
    return sum(weight * x for weight, x in zip((0.2126, 0.7152, 0.0722), parts, strict=True))


def contrast(one: str, other: str) -> float:
    low, high = sorted(map(luminance, (one, other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize(
    "file", [WEB / "page.css", Path("experiments/runs/reporting/templates/style.css")]
)
def test_load_has_one_calm_hue_that_all_can_see(file: Path) -> None:
    found = themes(file.read_text())
    assert len(found) in (2, 3)
    for theme in found:
        ramp = [theme[f"--r{level}"] for level in range(5)]
        for colour in ramp:
            hue, _, _ = colorsys.rgb_to_hls(*rgb(colour))
            assert round(360 * hue) in BLUE, f"{colour} is no blue"
            for ground in ("--paper", "--frame"):
                assert contrast(colour, theme[ground]) >= LEAST_CONTRAST, (colour, ground)
        steps = [contrast(low, theme["--paper"]) / contrast(high, theme["--paper"])
                 for low, high in pairwise(ramp)]  # fmt: skip
        assert max(steps) < 0.9, "a higher load stands out more, without its hue too"
        for name in ("--queue", "--bad"):
            if name in theme:
                assert contrast(theme[name], theme["--paper"]) >= LEAST_CONTRAST
    dark = [one for one in found if luminance(one["--paper"]) < 0.1]
    assert all(theme == dark[0] for theme in dark)


def test_only_drops_and_faults_are_red() -> None:
    css = (WEB / "page.css").read_text()
    red = [line.partition("{")[0] for line in css.splitlines() if "(--bad)" in line]
    assert red
    for selector in red:
        assert not re.search(r"\.(lane|arrow|bars|base)(?![-\w])", selector) or "failed" in selector


@pytest.mark.parametrize(
    ("spec", "names"),
    [
        ("bcube,4,1", {"level 0", "level 1", "BCube₀[0]", "BCube₀[3]"}),
        ("bcube,4,2", {"level 2", "BCube₁[3]", "BCube₀[2,1]"}),
        ("dcell,4,1", {"DCell₀[0]", "DCell₀[4]"}),
        ("dcell,2,2", {"DCell₁[2]", "[2,1]"}),
        ("ficonn,4,2", {"FiConn₁[1]", "[1,2]"}),
        ("dpillar,4,2", {"column H₀", "column H₁", "switches S₀", "switches S₁"}),
        ("tree,4,4", {"servers", "leaves", "root"}),
        ("fattree,4", {"servers", "edge", "aggregation", "core", "pod 0", "pod 3"}),
        ("rail,4,2", {"domains", "rails", "domain 0", "domain 1"}),
        ("rail,3,2,2", {"domains", "rails", "level 2", "domain 0.1", "group 1"}),
    ],
)
def test_levels_cells_and_columns_are_named(spec: str, names: set[str]) -> None:
    assert names <= {note["text"] for note in picture_of(topos.parse(spec))["notes"]}


@pytest.mark.parametrize("spec", EVERY_SPEC)
def test_a_sentence_says_what_the_network_is(spec: str) -> None:
    topology = topos.parse(spec)
    said = topology.description()
    assert said.endswith(".") and said[:-1].count(".") == 0
    assert topology.title.split("-")[0] in said
    assert re.search(rf"\b{topology.servers}\b", said)
    assert re.search(rf"\b{topology.ports} ports?\b", said)
    assert topology.whole is topology or topology.servers == topology.whole.servers or (
        f"{topology.servers} of {topology.whole.servers} servers" in said
    )  # fmt: skip
