// The network as SVG: made once, then only what has changed is touched.

import { queueText, rateText } from "./time.js";

const SVG = "http://www.w3.org/2000/svg";
const LANE = 0.085; // from a cable's middle to a direction's line, in units of the layout
const QUEUE_ASIDE = 0.19; // as far as that beside it is what waits at a cable's end
const QUEUE_LONG = 0.55; // a full queue
const QUEUE_THICK = 9;
const STEPS = [0.25, 0.5, 0.75, 0.95]; // shares of the rate at which the colour changes
const THIN = 1;
const THICK = 7;
const MANY = 60; // cables between groups, from which on they are thinner
const NEAR = 6; // how much farther something may be for each unit aside, by arrow keys

export const RAMP = ["up to 25 %", "50 %", "75 %", "95 %", "full"];

function made(tag, attributes, parent) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  parent?.append(node);
  return node;
}

function shifted(points, aside) {
  const [x1, y1] = points[0];
  const [x2, y2] = points.at(-1);
  const length = Math.hypot(x2 - x1, y2 - y1) || 1;
  return points.map(([x, y]) => [x - ((y2 - y1) / length) * aside, y + ((x2 - x1) / length) * aside]);
}

function way(points) {
  const [first, ...rest] = points.map((point) => point.join(" "));
  return `M${first}${rest.length === 3 ? "C" : "L"}${rest.join(" ")}`;
}

function middle(points) {
  if (points.length === 2) return [0, 1].map((i) => (points[0][i] + points[1][i]) / 2);
  return [0, 1].map((i) => (points[0][i] + 3 * points[1][i] + 3 * points[2][i] + points[3][i]) / 8);
}

function pointOf({ x, y }) {
  return [x, y];
}

function centreOf({ left, top, width, height }) {
  return [left + width / 2, top + height / 2];
}

export class Picture {
  constructor(svg, recording, select, folds) {
    this.svg = svg;
    this.recording = recording;
    this.select = select;
    this.folds = folds;
    this.home = recording.picture.box;
    this.show(this.home);
    this.build();
  }

  // Draw everything anew: at first, and when a group has been opened or folded.
  build() {
    const { svg, recording, folds } = this;
    this.items = []; // what can be selected: { kind, number, x, y, shape }
    this.at = null;
    svg.replaceChildren();
    const layers = ["frames", "cables", "paths", "queues", "nodes", "marks"];
    this.layers = Object.fromEntries(layers.map((name) => [name, made("g", { class: name }, svg)]));
    this.drawFrames();
    this.places = []; // of each cable: the points where it is drawn, if it is
    this.groups = folds.groups.map((group, number) => (folds.open.has(number) ? null : { ...group, cables: [] }));
    this.cables = this.bundles().map((bundle) => this.drawCable(bundle));
    this.nodes = recording.picture.nodes.map((node, number) =>
      folds.hiding(number) < 0 ? this.drawNode(node, number, false) : null,
    );
    for (const place of recording.picture.again) {
      if (folds.hiding(place.node) < 0) this.drawNode({ ...recording.picture.nodes[place.node], ...place }, place.node, true);
    }
    this.groups.forEach((group, number) => group && this.drawGroup(group, number));
  }

  // What is drawn as one line: a cable, or all between the same two groups. Members that run from
  // its second end to its first have `back`.
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
          a < 0 ? pointOf(nodes[cable.a]) : centreOf(this.groups[a]),
          b < 0 ? pointOf(nodes[cable.b]) : centreOf(this.groups[b]),
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
    for (const frame of frames) {
      if (frame.radius) made("circle", { cx: frame.x, cy: frame.y, r: frame.radius }, this.layers.frames);
      else {
        const sides = { x: frame.left, y: frame.top, width: frame.width, height: frame.height, rx: 0.3 };
        made("rect", sides, this.layers.frames);
      }
    }
    for (const note of notes) {
      made("text", { x: note.x, y: note.y, class: "note" }, this.layers.frames).textContent = note.text;
    }
  }

  drawCable({ cable, members, points, wide }) {
    const single = members.length === 1;
    const [{ number }] = members;
    const group = made("g", { class: `cable${single ? "" : " bundle"}`, role: "img" }, this.layers.cables);
    group.id = `cable-${number}`;
    made("path", { class: "grip", d: way(points) }, group);
    made("path", { class: "base", d: way(points) }, group);
    const aside = wide ? this.home[2] / 400 : LANE;
    const lanes = [aside, -aside].map((far) => made("path", { class: "lane", d: way(shifted(points, far)) }, group));
    const title = made("title", {}, group);
    const [x, y] = middle(points);
    const item = { kind: "cable", number, x, y, shape: group };
    this.items.push(item);
    group.addEventListener("click", (event) => this.select(item, event.shiftKey));
    const ends = [points, [...points].reverse()];
    const starts = single ? [cable.a, cable.b].map((node, side) => this.port(node, ends[side])) : [];
    const looks = ["", ""];
    const drawn = { number, members, wide, group, lanes, looks, mark: null, x, y, kind: "", starts, queues: [null, null] };
    group.addEventListener("pointerenter", () => {
      title.textContent = this.titleOf(drawn);
    });
    return drawn;
  }

  drawNode(node, number, again) {
    const { servers, radius, height } = this.recording.picture;
    const server = number < servers;
    const kind = server ? "server" : "switch";
    const group = made(
      "g",
      { class: `node ${kind}${again ? " again" : ""}`, role: "img", transform: `translate(${node.x} ${node.y})` },
      this.layers.nodes,
    );
    if (!again) group.id = `node-${number}`;
    if (server) made("circle", { class: "body", r: radius }, group);
    else made("rect", { class: "body", x: -node.width / 2, y: -height / 2, width: node.width, height }, group);
    const half = server ? radius * 0.78 : height / 2;
    const wide = server ? half : node.width / 2;
    made("path", { class: "cross", d: `M${-wide} ${-half}L${wide} ${half}M${-wide} ${half}L${wide} ${-half}` }, group);
    const room = node.width * 0.84;
    const size = Math.min(0.36, room / (0.62 * node.label.length));
    made("text", { "font-size": size, dy: "0.35em" }, group).textContent = node.label;
    const title = made("title", {}, group);
    const item = { kind, number, x: node.x, y: node.y, shape: group };
    if (!again) this.items.push(item);
    group.addEventListener("click", (event) => this.select(item, event.shiftKey));
    return { group, title };
  }

  // A folded group: its name, and what is the matter inside.
  drawGroup(group, number) {
    const { left, width, name, about } = group;
    const height = Math.max(group.height, this.home[2] / 22); // of switches in a row
    const top = group.top - (height - group.height) / 2;
    const shape = made("g", { class: "node group", role: "img", id: `group-${number}` }, this.layers.nodes);
    made("rect", { class: "body", x: left, y: top, width, height, rx: 0.4 }, shape);
    const x = left + width / 2;
    const texts = [name, about, "", ""].map((text, line) => {
      const size = Math.min(height * (about ? 0.2 : 0.42), this.home[2] / 45);
      const wide = line ? 11 : name.length; // letters
      const fits = Math.min(size, (width * 0.92) / (0.62 * wide));
      const y = about ? top + height * (0.27 + 0.2 * line) : top + height * (0.6 + 0.3 * line);
      const drawn = made("text", { x, y, "font-size": fits, class: line ? "news" : "" }, shape);
      drawn.textContent = text;
      return drawn;
    });
    group.news = about ? texts.slice(2) : [];
    made("title", {}, shape).textContent = `${name} ${about}: open`;
    const item = { kind: "group", number, x, y: top + height / 2, shape };
    this.items.push(item);
    shape.addEventListener("click", () => this.select(item, false));
  }

  // Where a cable leaves a node, and the direction it takes.
  port(node, [from, to]) {
    const { servers, radius, height } = this.recording.picture;
    const length = Math.hypot(to[0] - from[0], to[1] - from[1]) || 1;
    const along = [(to[0] - from[0]) / length, (to[1] - from[1]) / length];
    const away = (node < servers ? radius : height / 2) + 0.06;
    return {
      at: [0, 1].map((i) => from[i] + along[i] * away + (i ? along[0] : -along[1]) * QUEUE_ASIDE),
      along,
    };
  }

  // -- how it is now -------------------------------------------------------------------------------

  update(loads, failed, queues) {
    const { nodes } = this.recording.picture;
    this.now = { loads, failed, queues };
    const full = this.full(loads);
    const unit = this.svg.clientWidth / this.box[2]; // in a large network cables stand closer
    const thick = Math.min(THICK, Math.max(THIN + 0.5, 2 * LANE * unit));
    const broad = this.cables.length > MANY ? THICK / 2 : THICK; // between groups
    const shareOf = (direction) => {
      const rate = failed.shapes.get(direction >> 1)?.rate;
      return Math.min(1, (loads.get(direction) ?? 0) / (rate ? rate * 1e3 : full));
    };
    for (const cable of this.cables) {
      const { number, members } = cable;
      const single = members.length === 1;
      const shape = single ? failed.shapes.get(number) : undefined;
      cable.lanes.forEach((lane, side) => {
        let share = 0; // of a bundle's cables the busiest
        for (const one of members) share = Math.max(share, shareOf(2 * one.number + (one.back ? 1 - side : side)));
        const level = share < 0.005 ? "none" : STEPS.filter((step) => share >= step).length;
        const width = (THIN + ((cable.wide ? broad : thick) - THIN) * share).toFixed(1);
        const looks = `${level} ${width}`;
        if (cable.looks[side] === looks) return; // what is read from the page is slow
        cable.looks[side] = looks;
        lane.dataset.level = level;
        lane.style.strokeWidth = `${width}px`;
      });
      cable.starts.forEach((_, side) => this.drawQueue(cable, side, 2 * number + side, queues, unit));
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
    for (const group of this.groups) if (group) this.tellGroup(group, failed, shareOf);
  }

  // What is said of a cable under the mouse; of all of them at all times it would take long.
  titleOf({ number, members }) {
    const { loads, failed, queues } = this.now;
    const { nodes, cables } = this.recording.picture;
    if (members.length > 1) return `${members.length} cables`;
    const [from, to] = [nodes[cables[number].a].name, nodes[cables[number].b].name];
    const lines = [`${from} → ${to}`, `${to} → ${from}`].map((which, side) => {
      const direction = 2 * number + side;
      const [waiting, dropped] = [queues.waiting, queues.dropped].map((of) => of.get(direction) ?? 0);
      const queue = waiting || dropped ? `, queue ${queueText(waiting, dropped, this.recording.rate_mbit)}` : "";
      return `${which}  ${rateText(loads.get(direction) ?? 0)}${queue}`;
    });
    const news = [failed.cables.get(number), failed.shapes.get(number)?.text].filter(Boolean);
    return [[`${from} – ${to}`, ...news].join(": "), ...lines].join("\n");
  }

  tellGroup(group, failed, shareOf) {
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

  // What a full cable carries: its rate, or the most that any carries where there is no limit.
  full(loads) {
    const rate = this.recording.rate_mbit;
    return rate ? rate * 1e3 : Math.max(1e3, ...loads.values());
  }

  // What waits to be sent at a cable's end: a row of bars that grows from the port; a triangle drops.
  drawQueue(cable, side, direction, { waiting, dropped }, unit) {
    const full = this.recording.queue_bytes || Math.max(1, ...waiting.values());
    const share = Math.min(1, (waiting.get(direction) ?? 0) / full);
    const drops = dropped.has(direction);
    const shown = share < 0.02 && !drops ? "" : `${share.toFixed(2)} ${drops} ${Math.round(unit)}`;
    const old = cable.queues[side];
    if ((old?.dataset.shown ?? "") === shown) return;
    old?.remove();
    cable.queues[side] = null;
    if (!shown) return;
    const { at, along } = cable.starts[side];
    const [end, tip] = [QUEUE_LONG * share, 0.2].map((far) => along.map((one) => one * far));
    const group = made("g", { class: "queue", transform: `translate(${at})` }, this.layers.queues);
    group.dataset.shown = shown;
    const bars = made("path", { class: "bars", d: `M0 0L${end}` }, group);
    bars.style.strokeWidth = `${Math.min(QUEUE_THICK, 0.24 * unit).toFixed(1)}px`;
    const top = [end[0] + tip[0], end[1] + tip[1]];
    const base = [1, -1].map((way) => [end[0] - tip[1] * 0.6 * way, end[1] + tip[0] * 0.6 * way]);
    if (drops) made("path", { class: "drops", d: `M${base[0]}L${base[1]}L${top}Z` }, group);
    cable.queues[side] = group;
  }

  mark(cable, kind) {
    cable.kind = kind;
    cable.group.dataset.failed = /^\d/.test(kind) ? "some" : kind;
    cable.mark?.remove();
    cable.mark = null;
    if (!kind) return;
    const mark = made("g", { class: "mark", transform: `translate(${cable.x} ${cable.y})` }, this.layers.marks);
    const size = cable.wide ? this.home[2] / 22 : 1;
    if (size !== 1) mark.setAttribute("transform", `translate(${cable.x} ${cable.y}) scale(${size})`);
    made("circle", { r: 0.24 }, mark);
    if (kind === "cut") made("path", { d: "M-.11 -.11L.11 .11M-.11 .11L.11 -.11" }, mark);
    else made("text", { dy: "0.36em", "font-size": kind === "silent cut" ? 0.36 : 0.2 }, mark).textContent = kind === "silent cut" ? "?" : `✕${kind}`;
    cable.mark = mark;
  }

  // What a cable is like that is not as usual: a double line, and words beside it.
  label(cable, text) {
    cable.shape = text;
    cable.group.classList.toggle("changed", Boolean(text));
    cable.label?.remove();
    cable.label = null;
    if (!text) return;
    cable.label = made("text", { x: cable.x, y: cable.y, dy: "-0.45em", class: "shape" }, this.layers.marks);
    cable.label.textContent = text;
  }

  drawPaths(paths) {
    this.layers.paths.replaceChildren();
    for (const { kind, cables, name } of paths) {
      const drawn = cables.map((number) => this.places[number]).filter(Boolean); // none inside a folded group
      for (const points of drawn) made("path", { class: kind, d: way(points) }, this.layers.paths);
      if (!name || !drawn.length) continue;
      const mark = made("g", { class: "mark", transform: `translate(${middle(drawn[drawn.length >> 1])})` }, this.layers.paths);
      made("circle", { r: 0.22 }, mark);
      made("text", { dy: "0.36em", "font-size": 0.3 }, mark).textContent = name;
    }
  }

  // -- what is selected ------------------------------------------------------------------------------

  mind(items) {
    for (const shape of this.svg.querySelectorAll(".selected")) shape.classList.remove("selected");
    for (const item of items) item.shape.classList.add("selected");
    this.at = items.at(-1) ?? this.at;
  }

  item(kind, number) {
    return this.items.find((item) => item.kind === kind && item.number === number);
  }

  // The nearest item in a direction, by what an arrow key says.
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

  // -- size ------------------------------------------------------------------------------------------

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
