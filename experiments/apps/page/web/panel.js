// The panel of the selected item: its state and its actions.

import { element, queueText, rateText } from "./time.js";

const ASK_MS = 1000; // polling interval of the selected server's state, in ms

export class Panel {
  // `page` provides recording, failed(), loads(), queues(), role, wire, choose(items) and selected.
  constructor(box, page) {
    this.box = box;
    this.page = page;
    this.said = element("p", { className: "said" });
    this.said.setAttribute("role", "status");
    this.facts = element("dl");
    this.details = element("div");
    this.state = null;
    setInterval(() => this.askState(), ASK_MS);
  }

  node(number) {
    return this.page.recording.picture.nodes[number];
  }

  names() {
    const [item] = this.page.selected;
    if (item.kind !== "cable") return [this.node(item.number).name];
    const { a, b } = this.page.recording.picture.cables[item.number];
    return [this.node(a).name, this.node(b).name];
  }

  // -- actions ---------------------------------------------------------------------------------------

  async act(verb, words) {
    if (verb === "pings") {
      this.page.traffic.ping(words);
      this.draw();
      return;
    }
    if (verb === "terminal") {
      this.page.terminal.open(words[0]);
      return;
    }
    this.say(`${verb} ${words.join(" ")} …`);
    try {
      const answer = await this.page.wire.ask(verb, words);
      this.say(answer.said || `${verb} ${words.join(" ")}: done`);
    } catch (error) {
      this.say(error.message, true);
    }
  }

  say(text, bad = false) {
    this.said.textContent = text;
    this.said.classList.toggle("bad", bad);
  }

  // Return the actions for the selected items: label, verb, words and key of each.
  actions() {
    const { selected } = this.page;
    if (selected.length === 2) {
      const ends = selected.map((item) => this.node(item.number).name);
      const iperf3 = ["one-to-one", `source=${ends[0]}`, `destination=${ends[1]}`];
      return [
        ["Path", "path", ends, "p"],
        ["Disjoint paths", "path", [...ends, "all"], "d"],
        ["Why", "why", ends, "w"],
        [this.page.traffic.pings(ends) ? "Stop pings" : "Ping", "pings", ends, "g"],
        ["iperf3", "run", [...iperf3, "flows=1", "duration_s=10", "tool=iperf3"], "i"],
      ];
    }
    const [item] = selected;
    const names = this.names();
    const { cables, nodes } = this.page.failed();
    const broken = item.kind === "cable" ? cables.has(item.number) : nodes.has(item.number);
    if (item.kind === "cable") {
      return broken
        ? [["Heal", "heal", [names.join("-")], "h"]]
        : this.cableFaults(names.join("-"));
    }
    if (item.kind === "server") {
      return broken
        ? [["Revive", "revive", names, "r"]]
        : [
            ["Kill", "kill", names, "k"],
            ["Terminal", "terminal", names, "t"],
          ];
    }
    return broken
      ? [["Heal", "heal", names, "h"]]
      : [
          ["Stop", "stop", names, "x"],
          ["Stop rack", "rack", names, ""],
        ];
  }

  // Return the buttons of the faults of a cable, from the recording's table of kinds.
  cableFaults(cable) {
    const kinds = Object.entries(this.page.recording.fault_kinds).filter(([, kind]) => kind.target === "cable");
    return kinds.map(([name, kind]) => {
      const amounts = kind.amounts.flatMap(({ word, usual }) => (word ? [word, String(usual)] : [String(usual)]));
      const text = `${name[0].toUpperCase()}${name.slice(1)}${amounts.length ? ` (${amounts.join(" ")})` : ""}`;
      const words = [cable, ...(kind.option ? [kind.option] : []), ...amounts];
      return [text, kind.verb, words, { cut: "c", "silent cut": "s" }[name] ?? ""];
    });
  }

  press(key) {
    if (!this.page.selected.length || this.page.role !== "operate" || !this.page.live()) return false;
    const action = this.actions().find((one) => one[3] === key);
    if (action) this.act(action[1], action[2]);
    return Boolean(action);
  }

  // -- drawing ---------------------------------------------------------------------------------------

  draw() {
    const { selected, role } = this.page;
    if (!selected.length) {
      this.box.replaceChildren(...this.hints(), this.said);
      this.shown = "";
      return;
    }
    const names = selected.length === 2 ? selected.map((item) => this.node(item.number).name) : this.names();
    const actions = this.actions();
    const canAct = role === "operate" && this.page.live();
    const shown = JSON.stringify([names, actions, canAct]);
    if (shown !== this.shown) {
      const focusedPlace = this.box.contains(document.activeElement) ? document.activeElement.dataset.place : null;
      this.shown = shown;
      const kind = selected.length === 2 ? "two servers" : selected[0].kind;
      const title = element("h2", {}, element("small", { textContent: kind }), ` ${names.join(" – ")}`);
      const parts = [title];
      if (canAct) parts.push(element("p", { className: "deeds" }, ...actions.map((action, i) => this.button(action, i))));
      parts.push(this.said, this.facts, this.details);
      this.box.replaceChildren(...parts);
      if (focusedPlace) this.box.querySelector(`[data-place="${focusedPlace}"]`)?.focus();
      this.details.replaceChildren(...this.around());
      this.askState();
    }
    this.drawFacts();
  }

  hints() {
    const hints = ["Click a cable, a server or a switch. Shift-click a second server for the path between both."];
    hints.push("Keyboard: arrow keys move in the picture, Enter selects, Shift+Enter adds a second server, Escape clears the selection.");
    if (this.page.role === "watch") hints.push("This page is to watch only.");
    return hints.map((text) => element("p", { className: "hint", textContent: text }));
  }

  button([label, verb, words, key], place) {
    const button = element("button", { type: "button", className: verb }, label);
    button.dataset.place = place;
    if (key) {
      button.append(" ", element("kbd", { textContent: key }));
      button.setAttribute("aria-keyshortcuts", key);
    }
    button.addEventListener("click", () => this.act(verb, words));
    return button;
  }

  around() {
    const { selected, recording } = this.page;
    if (selected.length !== 1) return [];
    if (selected[0].kind === "cable") return this.page.role === "operate" && this.page.live() ? [this.shaping()] : [];
    const list = element("ul", { className: "neighbours" });
    for (const { cable, node } of recording.neighbours(selected[0].number)) {
      const name = this.node(node).name;
      const cableButton = element("button", { type: "button", textContent: "cable" });
      cableButton.addEventListener("click", () => this.page.choose([{ kind: "cable", number: cable }]));
      const peerButton = element("button", { type: "button", textContent: name });
      const kind = node < recording.picture.servers ? "server" : "switch";
      peerButton.addEventListener("click", () => this.page.choose([{ kind, number: node }]));
      list.append(element("li", {}, cableButton, " to ", peerButton));
    }
    const number = selected[0].number;
    const before = this.shownNode === number ? [this.all.open, this.log.open] : []; // open sections stay open
    this.shownNode = number;
    this.serverFacts = element("dl");
    this.all = folded("All counters and flows", before[0]);
    this.log = folded("Forwarder log", before[1]);
    this.log.hidden = this.page.role !== "operate";
    this.log.addEventListener("toggle", () => this.askState());
    const own = selected[0].kind === "server" && this.page.live() ? [this.serverFacts, this.all, this.log] : [];
    return [element("h3", { textContent: "Neighbours" }), list, ...own];
  }

  // Return the form for a cable's rate, delay and loss.
  shaping() {
    const cable = this.names().join("-");
    const field = (name, label) => {
      const input = element("input", { type: "text", name, autocomplete: "off", size: 6 });
      return element("label", {}, `${label} `, input);
    };
    const fields = [field("rate_mbit", "Mbit/s"), field("delay", "delay"), field("loss", "loss %")];
    fields[1].firstElementChild.placeholder = "5ms";
    const resetButton = element("button", { type: "button", textContent: "Reset" });
    resetButton.addEventListener("click", () => this.act("cable", [cable]));
    const change = element("button", { type: "submit", textContent: "Change" });
    const form = element("form", { className: "shaping" }, ...fields, change, resetButton);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const given = [...new FormData(form)].filter(([, value]) => value.trim());
      if (given.length) this.act("cable", [cable, ...given.map(([name, value]) => `${name}=${value.trim()}`)]);
      else this.say("no value given: enter a rate, a delay or a loss first", true);
    });
    return form;
  }

  drawFacts() {
    const { selected, recording } = this.page;
    const loads = this.page.loads();
    const failed = this.page.failed();
    const [item] = selected;
    const facts = [];
    if (selected.length === 1 && item.kind === "cable") {
      const { a, b, level } = recording.picture.cables[item.number];
      const names = [this.node(a).name, this.node(b).name];
      facts.push(["state", failed.cables.get(item.number) ?? "works"], ["level", String(level)]);
      const shape = failed.shapes.get(item.number);
      if (shape) facts.push(["changed settings", shape.text]);
      const { waiting, dropped } = this.page.queues();
      for (const side of [0, 1]) {
        const way = 2 * item.number + side;
        facts.push([`${names[side]} → ${names[1 - side]}`, rateText(loads.get(way) ?? 0)]);
        const rate = shape ? shape.rate : recording.rateOf(item.number);
        const queue = queueText(waiting.get(way) ?? 0, dropped.get(way) ?? 0, rate);
        if (recording.queue_bytes) facts.push([`queue at ${names[side]}`, queue]);
      }
    } else if (selected.length === 1) {
      facts.push(["state", failed.nodes.get(item.number) ?? "works"]);
      if (this.node(item.number).ip) facts.push(["IPv4", this.node(item.number).ip]);
      let [sent, received] = [0, 0];
      for (const { cable } of recording.neighbours(item.number)) {
        const from = recording.picture.cables[cable].a === item.number ? 0 : 1;
        sent += loads.get(2 * cable + from) ?? 0;
        received += loads.get(2 * cable + 1 - from) ?? 0;
      }
      facts.push(["sends", rateText(sent)], ["receives", rateText(received)]);
    }
    const text = JSON.stringify(facts);
    if (this.facts.dataset.text === text && this.facts.childNodes.length) return;
    this.facts.dataset.text = text;
    this.facts.replaceChildren(...facts.map(fact));
  }

  // -- state reported by the selected server ---------------------------------------------------------

  async askState() {
    const { selected, wire } = this.page;
    if (!wire || !this.page.live() || selected.length !== 1 || selected[0].kind !== "server") return;
    const [name] = this.names();
    const requests = [wire.ask("state", [name])];
    if (this.log?.open) requests.push(wire.ask("log", [name]));
    const [state, log] = await Promise.allSettled(requests);
    if (this.page.selected.length !== 1 || this.names()[0] !== name) return;
    if (state.value) this.drawState(state.value);
    else this.serverFacts?.replaceChildren();
    if (log) this.log.lastChild.textContent = log.value ? log.value.log || "the log is empty" : log.reason.message;
  }

  drawState(state) {
    const parts = [];
    const down = (state.links ?? []).filter((link) => !link.up).map((link) => link.peer);
    if (state.links) parts.push(["links up", `${state.links.length - down.length} of ${state.links.length}`]);
    if (down.length) parts.push(["links down", down.join(" ")]);
    if (state.flows?.length !== undefined) parts.push(["flows", String(state.flows.length)]);
    const drops = { ...state.drops, ...state.plane_drops };
    for (const [why, count] of Object.entries(drops)) parts.push([`dropped: ${why}`, String(count)]);
    this.serverFacts.replaceChildren(...parts.map(fact));
    this.all.lastChild.textContent = JSON.stringify(state, null, 1);
  }
}

function fact([name, value]) {
  return element("div", {}, element("dt", { textContent: name }), element("dd", { textContent: value }));
}

function folded(title, open = false) {
  return element("details", { open }, element("summary", { textContent: title }), element("pre"));
}
