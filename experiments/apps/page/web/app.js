// The page: its recording, the time that is shown, and the selected items.

import { $, element, Recording } from "./time.js";
import { Wire } from "./wire.js";
import { Folds } from "./folds.js";
import { Picture, RAMP } from "./picture.js";
import { Plot } from "./plot.js";
import { EventList } from "./events.js";
import { Panel } from "./panel.js";
import { Sheet } from "./sheet.js";
import { Terminal } from "./terminal.js";
import { Traffic } from "./traffic.js";

const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
const DRAG = 4; // minimum pointer movement of a drag, in pixels; a shorter one is a click

class Page {
  constructor() {
    this.recording = null;
    this.picture = null;
    this.selected = [];
    this.role = "watch";
    this.wire = null;
    this.lost = false;
    this.at = null; // time that is shown, in seconds; null: the current state
    this.playing = false;
    this.ticked = 0;
    this.plot = new Plot($("plot"), (at) => this.seek(at));
    this.list = new EventList($("events"), (at) => this.seek(at));
    this.panel = new Panel($("panel"), this);
    this.traffic = new Traffic(this);
    this.terminal = new Terminal(this);
    this.sheet = new Sheet(this);
    this.listen();
    const saved = $("recording");
    if (saved) this.begin(JSON.parse(saved.textContent), "recorded");
    else this.connect();
  }

  connect() {
    history.replaceState(null, "", location.pathname); // removes the token, which is now in a cookie
    $("save").href = "save";
    $("save").hidden = false;
    this.wire = new Wire((message) => this.receive(message));
  }

  receive(message) {
    this.lost = message.is === "lost";
    if (message.is === "recording") this.begin(message.recording ?? message, message.role ?? this.role);
    else if (message.is === "shell") {
      this.terminal.receive(message);
      return;
    } else if (message.is === "sample") this.recording.add(message.sample);
    else if (message.is === "event") this.recording.note("events", message.event);
    else if (message.is === "traffic") this.recording.note("traffic", message.traffic);
    else if (message.is === "state") this.recording.note("states", message.state);
    this.draw();
  }

  begin(recordingData, role) {
    const earlierSelection = this.recording?.network === recordingData.network ? this.selected : [];
    this.recording = new Recording(recordingData);
    this.role = role;
    this.selected = [];
    if (!this.wire) this.at = this.recording.first;
    this.folds = new Folds(this.recording, $("picture").clientWidth / this.recording.picture.box[2]);
    $("fold").hidden = !this.folds.groups.length;
    const select = (item, withShift) => this.select(item, withShift);
    this.picture = new Picture($("picture"), this.recording, select, this.folds);
    $("title").textContent = recordingData.title;
    document.title = `${recordingData.network} – Pillarbox`;
    $("description").textContent = recordingData.description ?? "";
    $("about").textContent = recordingData.about.map(([name, value]) => `${name} ${value}`).join(" · ");
    this.drawLegend();
    this.choose(earlierSelection);
    this.draw();
    if (recordingData.autoplay) this.play();
  }

  // -- state at the time that is shown ---------------------------------------------------------------

  live() {
    return this.wire !== null && this.at === null && !this.lost;
  }

  moment() {
    return this.at ?? this.recording.last;
  }

  failed() {
    return this.recording.failedAt(this.moment());
  }

  loads() {
    return this.recording.loadsAt(this.moment());
  }

  queues() {
    return this.recording.queuesAt(this.moment());
  }

  draw() {
    if (!this.recording || this.drawing) return;
    this.drawing = true;
    requestAnimationFrame(() => {
      this.drawing = false;
      this.drawNow();
    });
  }

  drawNow() {
    const { recording } = this;
    const at = this.moment();
    this.picture.update(this.loads(), this.failed(), this.queues());
    this.picture.drawPaths(this.paths(at));
    this.traffic.draw(at);
    this.sheet.follow(at);
    const flows = recording.trafficAt(at)?.flows ?? [];
    const curves = $("curves").value === "flows" ? { flows, chosen: this.traffic.chosen(flows) } : null;
    this.plot.draw(recording, at, { live: this.live(), whole: !this.wire, curves });
    this.list.update(recording.events, at);
    this.panel.draw();
    const slider = $("moment");
    slider.min = recording.first;
    slider.max = recording.last;
    slider.value = at;
    slider.setAttribute("aria-valuetext", `${at.toFixed(1)} seconds`);
    $("clock").textContent = `${at.toFixed(1)} s`;
    $("play").textContent = this.playing || this.live() ? "Pause" : "Play";
    $("live").hidden = !this.wire || this.at === null;
    const [status, kind] = this.statusNow();
    if ($("status").textContent !== status) $("status").textContent = status;
    $("status").dataset.kind = kind;
  }

  statusNow() {
    if (!this.wire) return ["recorded", "past"];
    if (this.lost) return ["the lab has ended, or the connection is lost", "lost"];
    const watching = this.role === "watch" ? ", watching" : "";
    return this.at === null ? [`live${watching}`, "live"] : ["replay; the lab is running", "past"];
  }

  // Return the path of the last packet traced between the two selected nodes, or all disjoint paths.
  paths(at) {
    if (this.selected.length !== 2) return [];
    const names = this.selected.map((item) => this.recording.picture.nodes[item.number].name);
    const traced = this.recording.events.findLast(
      (one) => (one.kind === "path" || one.kind === "paths") && one.at_s <= at && one.what.join() === names.join(),
    );
    if (!traced) return [];
    if (traced.kind === "paths") {
      return traced.paths.map((path, i) => ({ kind: `disjoint disjoint-${i % 4}`, cables: this.recording.cablesAlong(path), name: `${i + 1}` }));
    }
    const taken = { kind: traced.delivered ? "taken" : "taken lost", cables: this.recording.cablesAlong(traced.path) };
    return [{ kind: "computed", cables: this.recording.cablesAlong(traced.computed) }, taken];
  }

  drawLegend() {
    const sample = (look) => element("span", { className: `sample ${look}`, ariaHidden: "true" });
    const entry = (look, text) => element("li", {}, sample(look), text);
    const steps = RAMP.map((text, level) => element("span", { className: "step" }, sample(`lane-${level}`), text));
    $("legend").replaceChildren(
      entry("server", "server"),
      entry("switch", "switch"),
      element("li", {}, "load ", ...steps),
      entry("lanes", "one lane per direction"),
      entry("waiting", "queue"),
      entry("dropping", "drops packets"),
      entry("cut", "cut"),
      entry("silent", "silently cut"),
      entry("impaired", "other fault"),
      entry("dead", "dead or stopped"),
      entry("changed", "changed rate, delay or loss"),
      entry("computed", "computed path"),
      entry("taken", "traced path"),
    );
  }

  // -- selection -------------------------------------------------------------------------------------

  select(item, withShift) {
    if (this.dragged) return;
    if (item.kind === "group") {
      this.unfold([this.folds.groups[item.number].nodes[0]]);
      return;
    }
    if (item.kind === "cable" && item.shape.classList.contains("bundle")) {
      const { a, b } = this.recording.picture.cables[item.number];
      this.unfold([a, b]);
      return;
    }
    const [first] = this.selected;
    const pair = withShift && this.selected.length && first.kind === "server" && item.kind === "server";
    this.choose(pair && first.number !== item.number ? [first, item] : [item]);
  }

  choose(items) {
    const { cables } = this.recording.picture;
    const nodes = items.flatMap(({ kind, number }) => (kind === "cable" ? [cables[number].a, cables[number].b] : [number]));
    this.reveal(nodes);
    this.selected = items.map(({ kind, number }) => this.picture.item(kind, number)).filter(Boolean);
    this.picture.highlight(this.selected);
    this.panel.say("");
    this.draw();
  }

  // Unfold the groups that contain these nodes, and keep the selection.
  unfold(nodes) {
    this.reveal(nodes);
    this.choose(this.selected);
  }

  reveal(nodes) {
    const [group] = nodes.map((node) => this.folds.hiding(node)).filter((number) => number >= 0);
    if (!this.folds.reveal(nodes)) return;
    this.picture.build();
    if (this.folds.small) this.picture.enlarge(this.folds.groups[group]);
  }

  fold() {
    this.folds.foldAll();
    this.picture.build();
    this.picture.zoom(0);
    this.choose([]);
  }

  find(text) {
    const names = text.trim().split(/[-–\s]+/).filter(Boolean);
    const nodes = names.map((name) => this.recording.byName.get(name));
    if (!nodes.length || nodes.includes(undefined)) {
      this.panel.say(`${text.trim()} is not in this network: enter a name such as 0.3, s1 or 0.3-4.0`, true);
      return false;
    }
    const { servers } = this.recording.picture;
    const items = nodes.slice(0, 2).map((number) => ({ kind: number < servers ? "server" : "switch", number }));
    const [cable] = nodes.length === 2 ? this.recording.cablesBetween(...nodes) : [];
    if (cable !== undefined) this.choose([{ kind: "cable", number: cable }]);
    else this.choose(items.every((item) => item.kind === "server") ? items : items.slice(0, 1));
    return true;
  }

  // -- time ------------------------------------------------------------------------------------------

  seek(at) {
    this.at = Math.min(this.recording.last, Math.max(0, at)); // an event may be before the first sample
    this.playing = false;
    this.draw();
  }

  play() {
    if (this.live() || this.playing) {
      this.at = this.moment();
      this.playing = false;
    } else {
      if (this.at >= this.recording.last) this.at = this.recording.first;
      this.playing = true;
      this.ticked = performance.now();
      requestAnimationFrame((now) => this.tick(now));
    }
    this.draw();
  }

  tick(now) {
    if (!this.playing) return;
    this.at += ((now - this.ticked) / 1e3) * Number($("speed").value);
    this.ticked = now;
    if (this.at >= this.recording.last) {
      this.playing = false;
      this.at = this.wire ? null : this.recording.last;
    } else requestAnimationFrame((next) => this.tick(next));
    this.drawNow(); // an animation frame is in progress, and `draw` would wait for the next one
  }

  // -- mouse and keyboard ----------------------------------------------------------------------------

  listen() {
    $("play").addEventListener("click", () => this.play());
    $("live").addEventListener("click", () => {
      this.at = null;
      this.playing = false;
      this.draw();
    });
    $("moment").addEventListener("input", (event) => this.seek(Number(event.target.value)));
    $("find").addEventListener("submit", (event) => {
      event.preventDefault();
      if (this.find($("find-text").value)) $("picture").focus(); // item keys need the focus there
    });
    $("curves").addEventListener("change", () => this.draw());
    $("fold").addEventListener("click", () => this.fold());
    for (const button of document.querySelectorAll("#zoom [data-zoom]")) {
      button.addEventListener("click", () => this.picture.zoom(Number(button.dataset.zoom)));
    }
    $("theme").addEventListener("click", () => {
      const root = document.documentElement;
      const dark = matchMedia("(prefers-color-scheme: dark)").matches;
      root.dataset.theme = (root.dataset.theme ?? (dark ? "dark" : "light")) === "dark" ? "light" : "dark";
      this.draw();
    });
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
    for (const id of ["plot", "picture"]) new ResizeObserver(() => this.draw()).observe($(id));
    document.addEventListener("keydown", (event) => this.key(event));
    this.listenToPointer($("picture"));
  }

  key(event) {
    const field = event.target.closest("input, select, textarea, #screen");
    if (event.ctrlKey || event.metaKey || event.altKey || field || !this.recording) return;
    if (event.target === $("picture") && event.key in ARROWS) {
      this.picture.at = this.picture.towards(...ARROWS[event.key]);
      this.picture.highlight([...this.selected.slice(0, 1), this.picture.at]);
      const { kind, number } = this.picture.at;
      this.panel.say(`${kind} ${this.nameOf(kind, number)}`);
    } else if (event.target === $("picture") && event.key === "Enter" && this.picture.at) {
      this.select(this.picture.at, event.shiftKey);
    } else if (event.key === "Escape") this.choose([]);
    else if (event.key === "/") $("find-text").focus();
    else if (event.key === "f" && this.folds.groups.length) this.fold();
    else if (event.key === " " && !event.target.closest("button, a, summary")) this.play();
    else if (!this.panel.press(event.key)) return;
    event.preventDefault();
  }

  nameOf(kind, number) {
    const { nodes, cables } = this.recording.picture;
    if (kind === "group") return `${this.folds.groups[number].name}, Enter opens it`;
    return kind === "cable" ? `${nodes[cables[number].a].name} – ${nodes[cables[number].b].name}` : nodes[number].name;
  }

  listenToPointer(svg) {
    let from = null;
    svg.addEventListener("pointerdown", (event) => {
      from = [event.clientX, event.clientY];
      this.dragged = false;
    });
    svg.addEventListener("pointermove", (event) => {
      if (!from || !event.buttons) return;
      const [dx, dy] = [event.clientX - from[0], event.clientY - from[1]];
      if (!this.dragged && Math.hypot(dx, dy) < DRAG) return;
      this.dragged = true;
      from = [event.clientX, event.clientY];
      this.picture.move(dx, dy);
    });
    svg.addEventListener("pointerup", () => {
      from = null;
    });
    svg.addEventListener(
      "wheel",
      (event) => {
        if (!event.ctrlKey && !event.shiftKey) return; // a plain wheel scrolls the page
        event.preventDefault();
        this.picture.zoom(event.deltaY < 0 ? 1.15 : 1 / 1.15, this.picture.pointAt(event));
      },
      { passive: false },
    );
  }
}

new Page();
