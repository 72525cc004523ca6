// The recording of the page, and the state of the network at a time.

// Kinds of events: faults, repairs, and detection or recovery after a fault.
export const FAULTS = new Map([["forwarder ended", null]]); // the kind of fault, by event; kinds are in the recording
export const REPAIRS = new Set(["healed", "revive"]);
export const AFTERWARDS = new Set(["noticed", "rerouted", "recovered"]);

const MOST_NUMBERS = 8e6; // maximum count of numbers in all samples; the oldest tenth is then removed
const MOST_EVENTS = 20000; // maximum number of entries in each list of events, states and workloads

export class Recording {
  constructor(recordingData) {
    Object.assign(this, recordingData);
    for (const kind of Object.values(this.fault_kinds)) FAULTS.set(kind.event, kind);
    this.numbers = recordingData.samples.reduce((sum, sample) => sum + numbersIn(sample), 0);
    this.byName = new Map(recordingData.picture.nodes.map((node, number) => [node.name, number]));
    this.byEnds = new Map();
    recordingData.picture.cables.forEach((cable, number) => {
      const ends = `${Math.min(cable.a, cable.b)} ${Math.max(cable.a, cable.b)}`;
      this.byEnds.set(ends, [...(this.byEnds.get(ends) ?? []), number]);
    });
  }

  // Return a cable's rate in Mbit/s, which its level may multiply; undefined or null without a limit.
  rateOf(cable) {
    return this.rate_mbit && this.rate_mbit * (this.picture.cables[cable].rate ?? 1);
  }

  get last() {
    return Math.max(this.samples.at(-1)?.at_s ?? 0, this.events.at(-1)?.at_s ?? 0, this.length_s ?? 0);
  }

  get first() {
    return this.samples[0]?.at_s ?? 0;
  }

  add(sample) {
    this.samples.push(sample);
    this.numbers += numbersIn(sample);
    while (this.numbers > MOST_NUMBERS && this.samples.length > 1) {
      const gone = this.samples.splice(0, Math.ceil(this.samples.length / 10));
      this.numbers -= gone.reduce((sum, one) => sum + numbersIn(one), 0);
    }
  }

  // Append an event, a state or a workload to its list.
  note(kind, what) {
    const list = this[kind];
    list.push(what);
    if (list.length > MOST_EVENTS) list.splice(0, MOST_EVENTS / 10);
  }

  // Return the last entry of a list at or before a time.
  before(list, at) {
    let low = 0;
    let high = list.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (list[middle].at_s <= at) low = middle + 1;
      else high = middle;
    }
    return list[low - 1];
  }

  cablesBetween(a, b) {
    return this.byEnds.get(`${Math.min(a, b)} ${Math.max(a, b)}`) ?? [];
  }

  neighbours(node) {
    return this.picture.cables.flatMap((cable, number) => {
      if (cable.a === node) return [{ cable: number, node: cable.b }];
      return cable.b === node ? [{ cable: number, node: cable.a }] : [];
    });
  }

  // Return the cables of a path through these nodes; a hop may cross a switch that is not listed.
  cablesAlong(names) {
    const nodes = names.map((name) => this.byName.get(name));
    const found = [];
    for (let i = 1; i < nodes.length; i += 1) {
      const direct = this.cablesBetween(nodes[i - 1], nodes[i]);
      if (direct.length) {
        found.push(direct[0]);
        continue;
      }
      const around = new Map(this.neighbours(nodes[i]).map((one) => [one.node, one.cable]));
      const over = this.neighbours(nodes[i - 1]).find((one) => around.has(one.node));
      if (over) found.push(over.cable, around.get(over.node));
    }
    return found;
  }

  // Return the faults at a time: kinds of faults by cable, dead or stopped nodes, and cables with
  // changed rate, delay or loss.
  failedAt(at) {
    const state = this.before(this.states, at) ?? { faults: [], dead: [] };
    const cables = new Map();
    const nodes = new Map();
    for (const [kind, ...names] of state.faults) {
      const what = names.map((name) => this.byName.get(name));
      if (this.fault_kinds[kind].target === "cable") {
        for (const cable of this.cablesBetween(what[0], what[1])) cables.set(cable, kind);
      } else {
        for (const node of what) {
          nodes.set(node, "stopped");
          for (const near of this.neighbours(node)) if (!cables.has(near.cable)) cables.set(near.cable, "cut");
        }
      }
    }
    for (const name of state.dead) nodes.set(this.byName.get(name), "dead");
    const shapes = new Map();
    for (const [a, b, text, rate] of state.shapes ?? []) {
      for (const cable of this.cablesBetween(this.byName.get(a), this.byName.get(b))) shapes.set(cable, { text, rate });
    }
    return { cables, nodes, shapes };
  }

  // Return the workload at a time: its words, flows and their ideal rates, verdict and result.
  trafficAt(at) {
    const found = { what: "", count: 0, flows: [], ideals: [], verdict: null, result: "" };
    for (const one of this.traffic ?? []) {
      if (one.at_s > at) break;
      Object.assign(found, one.what ? { ...found, ...one, ideals: [], begun_s: one.at_s } : { ideals: one.ideals });
    }
    if (!found.what) return null;
    for (const one of this.events) {
      if (one.at_s > at || one.at_s < found.begun_s) continue;
      if (one.kind === "verdict") found.verdict = one;
      else if (one.kind === "result") found.result = one.said;
    }
    return found;
  }

  // Return the goodput of each flow at a time, in kbit/s, by flow number.
  flowsAt(at) {
    return pairsOf(this.before(this.samples, at)?.flows);
  }

  // Return queue depths in bytes and queue drops in packets/s at a time, by direction of cables.
  queuesAt(at) {
    const sample = this.before(this.samples, at);
    return { waiting: pairsOf(sample?.waiting), dropped: pairsOf(sample?.dropped) };
  }

  // Return the rates of all directions of cables at a time, in kbit/s: 2 i is cable i from its end a.
  loadsAt(at) {
    return pairsOf(this.before(this.samples, at)?.sent);
  }
}

function numbersIn({ sent, waiting, dropped, flows }) {
  return [sent, waiting, dropped, flows].reduce((sum, one) => sum + (one?.length ?? 0), 10);
}

// Return a map from a flat list of numbers and values.
function pairsOf(flatList) {
  const found = new Map();
  for (let i = 0; i < (flatList?.length ?? 0); i += 2) found.set(flatList[i], flatList[i + 1]);
  return found;
}

export function rateText(kbit) {
  if (kbit >= 1e6) return `${(kbit / 1e6).toFixed(2)} Gbit/s`;
  if (kbit >= 1e3) return `${(kbit / 1e3).toFixed(1)} Mbit/s`;
  return `${Math.round(kbit)} kbit/s`;
}

// Return the text of a queue's depth, its delay at the given rate, and its drops.
export function queueText(bytes, dropped, rateMbit) {
  const size = bytes >= 1e6 ? `${(bytes / 1e6).toFixed(1)} MB` : `${(bytes / 1e3).toFixed(1)} kB`;
  const ms = (bytes * 8e-3) / (rateMbit ?? Infinity);
  const delayText = ms ? `, ${ms.toFixed(ms < 10 ? 1 : 0)} ms` : "";
  return `${bytes ? `${size}${delayText}` : "empty"}${dropped ? `; drops ${dropped} packets/s` : ""}`;
}

// Return a short form of a workload's words.
export function workload(words) {
  return words.replace(/ tool=\w+/, "").replace(/ duration_s=(\S+)/, ", $1 s");
}

export function $(id) {
  return document.getElementById(id);
}

export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  Object.assign(made, properties);
  made.append(...children);
  return made;
}
