// The network's SVG drawing: created once, then only changed elements are updated.

import { arrowHead, centreOf, directionOf, distanceTo, freePlaceNear, freeStretch, isWithin, lengthOf } from "./shapes.js";
import { outlineOf, pathData, pointAt, pointOf, poseAt, shifted, svgElement, visibleShares } from "./shapes.js";
import { queueText, rateText } from "./time.js";

// Lanes: each direction of a cable is drawn right of the cable's middle, as on a road.
const LANE = 0.085; // distance of a lane from the cable's middle, in layout units
const [NEAREST_PX, FARTHEST_PX] = [1.6, 4]; // bounds of a lane's distance from the middle, in pixels
const GAP = 0.5; // gap between a cable's two lanes, as a fraction of the lane's distance
const THIN_PX = 1; // minimum width of a lane, in pixels
const ARROW_PX = 9; // length of an arrow head, in pixels
const ARROW_UNIT_PX = 8; // minimum pixels per layout unit at which arrows are drawn
const ARROW_PLACE = 0.6; // position of the arrow, as a share of the visible cable

const QUEUE_LONG = 0.6; // length of a full queue's row of bars, in layout units
const QUEUE_PX = 8; // height of a queue's bars, in pixels
const DROP_PX = 9; // length of the triangle for queue drops, in pixels
const CLEARANCE = 0.03; // minimum distance between a queue's bars and a node, in layout units

const WIDEST = 4; // maximum ratio of the widths of cables of different rates
const STEPS = [0.25, 0.5, 0.75, 0.95]; // load levels: shares of the rate at which the colour changes
const MANY = 30; // number of drawn cables above which cables between groups are thinner
const FINE_PX = 2.4; // lane distance in pixels below which arrows have no outline
const NEAR = 6; // arrow-key navigation: cost per unit of distance from the key's direction
const NOTE_PX = 17; // maximum height of the names of levels, cells and columns, in pixels
const LEGIBLE_PX = 5.5; // minimum height of visible text, in pixels
const SHAPE_PX = [10, 8, 6]; // text heights for a cable's changed settings; the first that fits is used
const MARK_PX = 7; // minimum radius of a fault mark, in pixels

export const RAMP = ["25", "50", "75", "95", "100 %"];

export class Picture {
  constructor(svg, recording, select, folds) {
    this.svg = svg;
    this.recording = recording;
    this.select = select;
    this.folds = folds;
    const rates = recording.picture.cables.map((cable) => cable.rate ?? 1);
    [this.slowest, this.fastest] = [Math.min(...rates), Math.max(...rates)]; // relative rates of cables
    this.home = recording.picture.box;
    this.show(this.home);
    this.build();
  }

  // Draw the whole network: at the start, and after a group was unfolded or folded.
  build() {
    const { svg, recording, folds } = this;
    this.items = []; // selectable items: { kind, number, x, y, shape }
    this.at = null;
    this.unit = 0; // pixels per layout unit; 0 before the first layout
    this.texts = []; // texts with their heights in layout units
    svg.replaceChildren();
    const layers = ["frames", "cables", "paths", "queues", "nodes", "marks"];
    this.layers = Object.fromEntries(layers.map((name) => [name, svgElement("g", { class: name }, svg)]));
    this.groups = folds.groups.map((group, number) => (folds.open.has(number) ? null : { ...group, cables: [] }));
    this.obstacles = this.nodeShapes();
    this.drawFrames();
    this.places = []; // points of each drawn cable, by cable number
    this.directions = recording.picture.nodes.map(() => []); // directions of each node's cables, in radians
    this.cables = this.bundles().map((bundle) => this.drawCable(bundle));
    this.nodes = recording.picture.nodes.map((node, number) =>
      folds.hiding(number) < 0 ? this.drawNode(node, number, false) : null,
    );
    for (const place of recording.picture.again) {
      if (folds.hiding(place.node) < 0) this.drawNode({ ...recording.picture.nodes[place.node], ...place }, place.node, true);
    }
    this.groups.forEach((group, number) => group && this.drawGroup(group, number));
  }

  // Return the drawn lines: single cables, and bundles of all cables between the same two groups.
  // Bundle members that run from the bundle's second end to its first have `back`.
  bundles() {
    const { cables, nodes } = this.recording.picture;
    const found = new Map();
    cables.forEach((cable, number) => {
      const [a, b] = [cable.a, cable.b].map((node) => this.folds.hiding(node));
      if (a >= 0 && a === b) this.groups[a].cables.push(number);
      else if (a < 0 && b < 0) found.set(number, { cable, members: [{ number, back: false }], points: cable.points, wide: false });
      else {
        const ends = [a < 0 ? `n${cable.a}` : `g${a}`, b < 0 ? `n${cable.b}` : `g${b}`];
        const [key, turned] = [ends.join(" "), [...ends].reverse().join(" ")];
        const back = found.has(turned);
        const points = [
          pointOf(a < 0 ? nodes[cable.a] : this.groups[a]),
          pointOf(b < 0 ? nodes[cable.b] : this.groups[b]),
        ];
        if (!back && !found.has(key)) found.set(key, { cable, members: [], points, wide: true });
        found.get(back ? turned : key).members.push({ number, back });
      }
    });
    for (const { members, points } of found.values()) for (const { number } of members) this.places[number] = points;
    return [...found.values()];
  }

  show(box) {
    this.box = box;
    this.svg.setAttribute("viewBox", box.join(" "));
  }

  drawFrames() {
    const { frames, notes } = this.recording.picture;
    const folded = this.groups.filter(Boolean);
    this.names = []; // outlines of the names of levels, cells and columns
    for (const frame of frames) {
      if (folded.some((group) => isWithin(group, centreOf(frame)))) continue;
      if (frame.radius) svgElement("circle", { cx: frame.x, cy: frame.y, r: frame.radius }, this.layers.frames);
      else {
        const sides = { x: frame.left, y: frame.top, width: frame.width, height: frame.height, rx: 0.3 };
        svgElement("rect", sides, this.layers.frames);
      }
    }
    for (const { x, y, text, size = 0.45 } of notes) {
      if (folded.some((group) => group.name === text || isWithin(group, { x, y }))) continue;
      this.write(this.layers.frames, text, { x, y, dy: "0.36em", "font-size": size, class: "note" });
      this.names.push({ x, y, halfWidth: 0.3 * size * text.length, halfHeight: size / 2 });
    }
  }

  // Add a text that is hidden while its height is below LEGIBLE_PX.
  write(parent, text, attributes) {
    const drawn = svgElement("text", attributes, parent);
    drawn.textContent = text;
    this.texts.push({ drawn, size: attributes["font-size"] });
    return drawn;
  }

  // Return the outlines of all drawn nodes, indexed by node number, then of repeated nodes and groups.
  nodeShapes() {
    const { nodes, again, servers, radius, height } = this.recording.picture;
    const outline = (place, server) => outlineOf({ ...place, height, radius: server && radius });
    return [
      ...nodes.map((node, number) => (this.folds.hiding(number) < 0 ? outline(node, number < servers) : null)),
      ...again.filter(({ node }) => this.folds.hiding(node) < 0).map((place) => outline(place, true)),
      ...this.groups.filter(Boolean).map(outlineOf),
    ];
  }

  drawCable({ cable, members, points, wide }) {
    const single = members.length === 1;
    const [{ number }] = members;
    const group = svgElement("g", { class: `cable${single ? "" : " bundle"}`, role: "img" }, this.layers.cables);
    group.id = `cable-${number}`;
    svgElement("path", { class: "grip", d: pathData(points) }, group);
    svgElement("path", { class: "base", d: pathData(points) }, group);
    const [lanes, arrows] = ["lane", "arrow"].map((kind) => [0, 1].map(() => svgElement("path", { class: kind }, group)));
    const title = svgElement("title", {}, group);
    const [x, y] = pointAt(points, 0.5);
    const item = { kind: "cable", number, x, y, shape: group };
    this.items.push(item);
    group.addEventListener("click", (event) => this.select(item, event.shiftKey));
    const shapes = [cable.a, cable.b].map((node, side) => this.shapeAt(node, points[side && points.length - 1]));
    const ways = [points, [...points].reverse()].map((way_, side) => ({
      points: way_,
      length: lengthOf(points),
      shares: visibleShares(way_, side ? [...shapes].reverse() : shapes),
    }));
    if (!wide) {
      [cable.a, cable.b].forEach((node, side) => this.directions[node].push(directionOf(ways[side].points)));
    }
    const looks = ["", ""];
    const weight = this.weightOf(cable.rate ?? 1);
    group.style.setProperty("--weight", weight.toFixed(2));
    const drawn = {
      ...{ number, members, weight, wide, single, group, lanes, arrows, looks, shapes, ways, x, y, kind: "", mark: null },
      queues: [null, null],
    };
    group.addEventListener("pointerenter", () => {
      title.textContent = this.titleOf(drawn);
    });
    return drawn;
  }

  drawNode(node, number, again) {
    const { servers, radius, height } = this.recording.picture;
    const server = number < servers;
    const kind = server ? "server" : "switch";
    const group = svgElement(
      "g",
      { class: `node ${kind}${again ? " again" : ""}`, role: "img", transform: `translate(${node.x} ${node.y})` },
      this.layers.nodes,
    );
    if (!again) group.id = `node-${number}`;
    if (server) svgElement("circle", { class: "body", r: radius }, group);
    else svgElement("rect", { class: "body", x: -node.width / 2, y: -height / 2, width: node.width, height }, group);
    const half = server ? radius * 0.78 : height / 2;
    const wide = server ? half : node.width / 2;
    svgElement("path", { class: "cross", d: `M${-wide} ${-half}L${wide} ${half}M${-wide} ${half}L${wide} ${-half}` }, group);
    const room = node.width * 0.84;
    const size = Math.min(0.36, room / (0.62 * node.label.length));
    this.write(group, node.label, { "font-size": size, dy: "0.36em" });
    const title = svgElement("title", {}, group);
    const item = { kind, number, x: node.x, y: node.y, shape: group };
    if (!again) this.items.push(item);
    group.addEventListener("click", (event) => this.select(item, event.shiftKey));
    return { group, title };
  }

  // Draw a folded group: its name, its highest load and its number of faults.
  drawGroup(group, number) {
    const { left, top, width, height, radius, name, about } = group;
    const shape = svgElement("g", { class: "node group", role: "img", id: `group-${number}` }, this.layers.nodes);
    const { x, y } = group;
    if (radius) svgElement("circle", { class: "body", cx: x, cy: y, r: radius }, shape);
    else svgElement("rect", { class: "body", x: left, y: top, width, height, rx: Math.min(0.4, height / 4) }, shape);
    const lines = about ? [name, about, "", ""] : [name];
    const letters = Math.max(about ? 11 : 0, name.length);
    const room = radius ? 0.8 : 0.92; // usable share of the group's width at the first line
    const size = Math.min((height * 0.8) / (1.35 * lines.length), (width * room) / (0.62 * letters), this.home[2] / 32);
    const texts = lines.map((text, line) => {
      const place = { x, y: y + (line - (lines.length - 1) / 2) * 1.3 * size, dy: "0.36em" };
      return this.write(shape, text, { ...place, "font-size": size, class: line ? "news" : "" });
    });
    group.news = texts.slice(2);
    svgElement("title", {}, shape).textContent = `${name} ${about}: click to unfold`;
    const item = { kind: "group", number, x, y, shape };
    this.items.push(item);
    shape.addEventListener("click", () => this.select(item, false));
  }

  // Return the outline at a cable's end: a node, a repeated node, or a group.
  shapeAt(node, [x, y]) {
    const group = this.groups[this.folds.hiding(node)];
    if (group) return outlineOf(group);
    const [endShape] = [this.obstacles[node], ...this.obstacles].filter((one) => one && distanceTo(one, [x, y]) < 0);
    return endShape ?? { x, y, radius: 0.01 };
  }

  // -- sizes in pixels -------------------------------------------------------------------------------

  // Update all lanes, texts and marks with a size in pixels; `unit` is pixels per layout unit.
  fit(unit) {
    if (Math.abs(unit - this.unit) < 0.02 * unit) return;
    this.unit = unit;
    for (const { drawn, size } of this.texts) {
      drawn.classList.toggle("small", size * unit < LEGIBLE_PX);
      if (drawn.classList.contains("note")) drawn.setAttribute("font-size", Math.min(size, NOTE_PX / unit));
    }
    for (const cable of this.cables) this.layLanes(cable);
  }

  layLanes(cable) {
    const crowded = cable.wide && this.cables.length > MANY;
    const wish = cable.wide ? (crowded ? 2 : FARTHEST_PX) : LANE * this.unit;
    const asidePx = Math.min(FARTHEST_PX, Math.max(NEAREST_PX, wish));
    cable.thickPx = ((2 - GAP) * asidePx * cable.weight) / this.weightOf(this.fastest);
    cable.aside = asidePx / this.unit;
    cable.group.style.setProperty("--casing", `${2 * (asidePx + cable.thickPx / 2) + 2}px`);
    cable.group.classList.toggle("fine", asidePx < FINE_PX);
    const scale = Math.min(1, asidePx / 3) / this.unit;
    cable.ways.forEach(({ points, length, shares: [from, to] }, side) => {
      cable.lanes[side].setAttribute("d", pathData(shifted(points, cable.aside)));
      const place = from + (to - from) * ARROW_PLACE;
      const large = cable.wide || this.unit >= ARROW_UNIT_PX;
      const fits = large && (to - from) * length > 2.5 * ARROW_PX * scale;
      const [right, left] = [(cable.thickPx / 2 + 2.6) * scale, (cable.thickPx / 2) * scale];
      const head = arrowHead(poseAt(points, place, cable.aside), ARROW_PX * scale, right, left);
      cable.arrows[side].setAttribute("d", fits ? head : "");
    });
    cable.looks.fill("");
    cable.queues.forEach((queue, side) => {
      queue?.remove();
      cable.queues[side] = null;
    });
    this.mark(cable, cable.kind);
    this.label(cable, cable.shape);
  }

  // -- current state -------------------------------------------------------------------------------

  update(loads, failed, queues) {
    const { nodes } = this.recording.picture;
    this.now = { loads, failed, queues };
    const full = this.full(loads);
    this.fit(Math.min(this.svg.clientWidth / this.box[2], this.svg.clientHeight / this.box[3]) || 1);
    const shareOf = (direction) => {
      const rate = failed.shapes.get(direction >> 1)?.rate ?? this.recording.rateOf(direction >> 1);
      return Math.min(1, (loads.get(direction) ?? 0) / (rate ? rate * 1e3 : full));
    };
    for (const cable of this.cables) {
      const { number, members, single } = cable;
      const shape = single ? failed.shapes.get(number) : undefined;
      cable.lanes.forEach((lane, side) => {
        let share = 0; // highest load of the bundle's cables
        for (const one of members) share = Math.max(share, shareOf(2 * one.number + (one.back ? 1 - side : side)));
        const level = share < 0.005 ? "none" : STEPS.filter((step) => share >= step).length;
        const width = (THIN_PX + (cable.thickPx - THIN_PX) * share).toFixed(1);
        const looks = `${level} ${width}`;
        if (cable.looks[side] === looks) return; // unchanged: avoids slow access to the DOM
        cable.looks[side] = looks;
        lane.dataset.level = cable.arrows[side].dataset.level = level;
        lane.style.strokeWidth = `${width}px`;
      });
      cable.group.classList.toggle("loaded", cable.looks.some((looks) => !looks.startsWith("none")));
      if (single) cable.ways.forEach((_, side) => this.drawQueue(cable, side, 2 * number + side, queues));
      const broken = members.filter((one) => failed.cables.has(one.number)).length;
      const kind = single ? (failed.cables.get(number) ?? "") : broken ? `${broken}` : "";
      if (cable.kind !== kind) this.mark(cable, kind);
      if (cable.shape !== shape?.text) this.label(cable, shape?.text);
    }
    this.nodes.forEach((node, number) => {
      const kind = failed.nodes.get(number) ?? "";
      if (node && node.group.dataset.failed !== kind) {
        node.group.dataset.failed = kind;
        node.title.textContent = `${nodes[number].name}${kind ? `: ${kind}` : ""}\n${nodes[number].ip}`;
      }
    });
    for (const group of this.groups) if (group) this.updateGroup(group, failed, shareOf);
  }

  // Return the tooltip of a cable; it is created on demand, as updates of all tooltips are slow.
  titleOf({ number, members }) {
    const { loads, failed, queues } = this.now;
    const { nodes, cables } = this.recording.picture;
    if (members.length > 1) return `${members.length} cables`;
    const [from, to] = [nodes[cables[number].a].name, nodes[cables[number].b].name];
    const lines = [`${from} → ${to}`, `${to} → ${from}`].map((which, side) => {
      const direction = 2 * number + side;
      const [waiting, dropped] = [queues.waiting, queues.dropped].map((of) => of.get(direction) ?? 0);
      const queue = waiting || dropped ? `, queue ${queueText(waiting, dropped, this.recording.rateOf(number))}` : "";
      return `${which}  ${rateText(loads.get(direction) ?? 0)}${queue}`;
    });
    const news = [failed.cables.get(number), failed.shapes.get(number)?.text].filter(Boolean);
    return [[`${from} – ${to}`, ...news].join(": "), ...lines].join("\n");
  }

  updateGroup(group, failed, shareOf) {
    const broken = group.nodes.filter((node) => failed.nodes.has(node)).length;
    const cut = group.cables.filter((cable) => failed.cables.has(cable)).length;
    let share = 0;
    for (const cable of group.cables) share = Math.max(share, shareOf(2 * cable), shareOf(2 * cable + 1));
    const news = [share >= 0.005 ? `up to ${Math.round(share * 100)} %` : "", broken + cut ? `✕ ${broken + cut} failed` : ""];
    group.news.forEach((line, i) => {
      if (line.textContent !== news[i]) line.textContent = news[i];
      line.classList.toggle("bad", i === 1);
    });
  }

  // Return the highest load of all cables in kbit/s, which counts as full without a rate limit.
  full(loads) {
    return this.recording.rate_mbit ? 0 : Math.max(1e3, ...loads.values());
  }

  // Return the width of a cable of this relative rate, as a multiple of the slowest cable's.
  weightOf(rate) {
    return Math.min(WIDEST, Math.sqrt(rate / this.slowest));
  }

  // Draw a queue: a row of bars on the lane, beginning at the port, and a triangle if it drops packets.
  // The bars cover no node: if space is short, they are shorter, farther from the port or left out.
  drawQueue(cable, side, direction, { waiting, dropped }) {
    const full = this.recording.queue_bytes || Math.max(1, ...waiting.values());
    const share = Math.min(1, (waiting.get(direction) ?? 0) / full);
    const drops = dropped.has(direction);
    const shown = share < 0.02 && !drops ? "" : `${share.toFixed(2)} ${drops}`;
    if ((cable.queues[side]?.dataset.shown ?? "") === shown) return;
    cable.queues[side]?.remove();
    cable.queues[side] = null;
    const stretch = shown && this.queueStretch(cable, side);
    if (!stretch) return;
    const { points, length } = cable.ways[side];
    const group = svgElement("g", { class: "queue" }, this.layers.queues);
    group.dataset.shown = shown;
    const tip = drops ? Math.min(DROP_PX / this.unit / length, stretch[1] - stretch[0]) : 0;
    const most = Math.min(stretch[1] - stretch[0] - tip, QUEUE_LONG / length);
    const end = stretch[0] + Math.max(0, most * share);
    const bars = Array.from({ length: 9 }, (_, i) => poseAt(points, stretch[0] + ((end - stretch[0]) * i) / 8, cable.aside).at);
    svgElement("path", { class: "bars", d: `M${bars.join("L")}` }, group).style.strokeWidth = `${this.queuePx()}px`;
    const half = (0.6 * this.queuePx()) / this.unit;
    const head = arrowHead(poseAt(points, end + tip / 2, cable.aside), tip * length, half, half);
    if (drops) svgElement("path", { class: "drops", d: head }, group);
    cable.queues[side] = group;
  }

  queuePx() {
    return Math.min(QUEUE_PX, 0.2 * this.unit);
  }

  // Return the section of a cable's direction where its queue may be drawn: in the first half, away
  // from nodes and from the node's other cables.
  queueStretch(cable, side) {
    const { points, length, shares: [from, to] } = cable.ways[side];
    const room = (0.6 * this.queuePx()) / this.unit + CLEARANCE;
    const { a, b } = this.recording.picture.cables[cable.number];
    const turns = this.directions[side ? b : a].map((turn) => Math.abs(Math.sin((turn - directionOf(points)) / 2)));
    const [nearest = 1] = turns.filter((sine) => sine > 1e-6).sort((one, other) => one - other);
    const apart = (2 * cable.aside + room) / (2 * nearest) / length;
    const begin = Math.min(Math.max(from, apart), from + (to - from) * 0.3);
    const shapes = this.obstacles.filter(Boolean);
    return freeStretch(points, [begin, from + (to - from) * 0.55], cable.aside, room, shapes);
  }

  mark(cable, kind) {
    cable.kind = kind;
    cable.group.dataset.failed = /^\d/.test(kind) ? "some" : kind;
    cable.mark?.remove();
    cable.mark = null;
    if (!kind) return;
    const scale = Math.max(1, (cable.wide ? 1.6 * MARK_PX : MARK_PX) / (0.24 * this.unit));
    const mark = svgElement("g", { class: "mark", transform: `translate(${cable.x} ${cable.y}) scale(${scale})` }, this.layers.marks);
    svgElement("circle", { r: 0.24 }, mark);
    if (kind === "cut") svgElement("path", { d: "M-.11 -.11L.11 .11M-.11 .11L.11 -.11" }, mark);
    else {
      const count = /^\d/.test(kind);
      const sign = count ? `✕${kind}` : kind === "silent cut" ? "?" : "!";
      svgElement("text", { dy: "0.36em", "font-size": count ? 0.2 : 0.36 }, mark).textContent = sign;
    }
    cable.mark = mark;
  }

  // Draw a cable's changed settings: a double line, and the text next to it.
  label(cable, text) {
    cable.shape = text;
    cable.group.classList.toggle("changed", Boolean(text));
    cable.label?.remove();
    cable.label = null;
    if (!text) return;
    for (const px of SHAPE_PX) {
      const size = Math.max(0.3, px / this.unit);
      const half = [0.3 * size * text.length, 0.6 * size];
      const place = freePlaceNear([cable.x, cable.y], half, [...this.obstacles.filter(Boolean), ...this.names], this.home);
      if (!place) continue;
      const look = { x: place[0], y: place[1], dy: "0.36em", "font-size": size, class: "shape" };
      cable.label = svgElement("text", look, this.layers.marks);
      cable.label.textContent = text;
      return;
    }
  }

  drawPaths(paths) {
    this.layers.paths.replaceChildren();
    for (const { kind, cables, name } of paths) {
      const drawn = cables.map((number) => this.places[number]).filter(Boolean); // folded groups hide their cables
      for (const points of drawn) svgElement("path", { class: kind, d: pathData(points) }, this.layers.paths);
      if (!name || !drawn.length) continue;
      const mark = svgElement("g", { class: "mark", transform: `translate(${pointAt(drawn[drawn.length >> 1], 0.5)})` }, this.layers.paths);
      svgElement("circle", { r: 0.22 }, mark);
      svgElement("text", { dy: "0.36em", "font-size": 0.3 }, mark).textContent = name;
    }
  }

  // -- selection -------------------------------------------------------------------------------------

  highlight(items) {
    for (const shape of this.svg.querySelectorAll(".selected")) shape.classList.remove("selected");
    for (const item of items) item.shape.classList.add("selected");
    this.at = items.at(-1) ?? this.at;
  }

  item(kind, number) {
    return this.items.find((item) => item.kind === kind && item.number === number);
  }

  // Return the nearest item in the direction of an arrow key.
  towards(dx, dy) {
    if (!this.at) return this.items.find((item) => item.kind === "server") ?? this.items.find((item) => item.kind === "group");
    let best = null;
    let least = Infinity;
    for (const item of this.items) {
      const [x, y] = [item.x - this.at.x, item.y - this.at.y];
      const along = x * dx + y * dy;
      const aside = Math.abs(x * dy - y * dx);
      const cost = along + NEAR * Math.max(0, aside - 0.25 * along) + aside;
      if (along > 0.05 && cost < least) [best, least] = [item, cost];
    }
    return best ?? this.at;
  }

  // -- zoom ------------------------------------------------------------------------------------------

  // Zoom to a group's rectangle.
  enlarge({ left, top, width, height }) {
    const edge = 0.05 * Math.max(width, height);
    this.show([left - edge, top - edge, width + 2 * edge, height + 2 * edge]);
  }

  zoom(factor, at = null) {
    if (!factor) return this.show(this.home);
    const [left, top, width, height] = this.box;
    const [x, y] = at ?? [left + width / 2, top + height / 2];
    const scale = Math.min(1, Math.max(0.05, width / this.home[2] / factor)) * (this.home[2] / width);
    return this.show([x - (x - left) * scale, y - (y - top) * scale, width * scale, height * scale]);
  }

  move(dx, dy) {
    const [left, top, width, height] = this.box;
    const scale = Math.max(width / this.svg.clientWidth, height / this.svg.clientHeight);
    this.show([left - dx * scale, top - dy * scale, width, height]);
  }

  pointAt(event) {
    const point = new DOMPoint(event.clientX, event.clientY);
    const { x, y } = point.matrixTransform(this.svg.getScreenCTM().inverse());
    return [x, y];
  }
}
