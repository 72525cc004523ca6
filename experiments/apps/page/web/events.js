// The event list: faults, repairs, detection delays, traced paths, pings and verdicts.

import { AFTERWARDS, element, FAULTS, REPAIRS, workload } from "./time.js";

const MOST_LINES = 200;
export const SIGNS = { sheet: "¶", verdict: "⚖", result: "■", ping: "↔", noticed: "◉", rerouted: "↷", recovered: "✓", "slow flow": "◷", path: "→", paths: "⇉", healed: "✓", revive: "✓" };

// Return the text of an event for the list.
export function eventText(event) {
  const ends = event.what.join(" – ");
  const fault = FAULTS.get(event.kind);
  if (fault) return faultText(fault, event);
  switch (event.kind) {
    case "revive":
      return `server ${ends} is revived`;
    case "cable":
      return `cable ${ends} has ${event.usual ? "its default" : "changed"} settings: ${event.shape}`;
    case "healed":
      return `${ends} is repaired`;
    case "noticed":
      return `${event.what[0]} detects: link to ${event.what[1]} is ${event.up ? "up" : "down"}`;
    case "path":
      return `${event.path.join(" → ")} (${event.delivered ? "arrived" : event.dropped || "lost"})`;
    case "paths":
      return `${ends}: ${event.said}`;
    case "ping":
      return `${event.what[1]} ${event.ms ? `answers ${event.what[0]} in ${event.ms.toFixed(2)} ms` : `does not answer ${event.what[0]}`}`;
    case "rerouted":
      return `${ends}: stopped flows are rerouted${event.flows ? ` (${event.flows} flows)` : ""}`;
    case "recovered":
      return `${ends}: rates of the flows have recovered`;
    case "verdict":
      return event.valid ? "verdict so far: valid" : `verdict so far: not valid; ${event.reasons.join("; ")}`;
    case "result":
      return `${workload(ends)}: ${event.said}`;
    case "slow flow":
      return `flow ${event.flow}, ${event.what.join(" → ")}: ${event.said}`;
    case "sheet":
      return `sheet ${event.what[0]}: ${event.title || "Introduction"}`;
    case "up":
      return "the lab is up";
    default:
      return `${event.kind} ${ends}`.trim();
  }
}

// Return the sentence of the event at which a fault begins.
function faultText({ target, predicate, amounts: named }, { what, amounts = [] }) {
  const words = { first: what[0], rest: what.slice(1).join(" ") };
  const subject = target === "cable" ? `cable ${what.join(" – ")}` : `${target === "rack" ? "switch" : target} ${what[0]}`;
  const numbers = named.map(({ word, unit }, i) => `${word} ${amounts[i]} ${unit}`.trim()).join(", ");
  return `${subject} ${predicate.replace(/\{(\w+)\}/g, (_, name) => words[name])}${numbers ? ` (${numbers})` : ""}`;
}

// Return the symbol of an event's kind.
export function signOf(event) {
  return SIGNS[event.kind] ?? (FAULTS.has(event.kind) ? "✕" : "·");
}

// Return the delay from the last fault or repair to its detection or recovery, in ms.
export function delayOf(events, number) {
  if (!AFTERWARDS.has(events[number].kind)) return null;
  for (let i = events.length - 1; i >= 0; i -= 1) {
    const { kind, at_s: at } = events[i];
    const cause = FAULTS.has(kind) || REPAIRS.has(kind);
    if (cause && at <= events[number].at_s) return (events[number].at_s - at) * 1e3;
  }
  return null;
}

export class EventList {
  constructor(list, seek) {
    this.list = list;
    this.seek = seek;
    this.shown = "";
  }

  update(events, at) {
    const latestPings = new Map(); // index of the latest ping of each pair of servers
    const before = events.map((_, i) => i).filter((i) => events[i].at_s <= at);
    for (const i of before) if (events[i].kind === "ping") latestPings.set(events[i].what.join(), i);
    const listState = `${before.length} ${events.length} ${events.at(-1)?.at_s}`;
    if (listState === this.shown) return;
    this.shown = listState;
    before.sort((i, j) => events[j].at_s - events[i].at_s || j - i);
    const lines = before.filter((i) => events[i].kind !== "ping" || latestPings.get(events[i].what.join()) === i);
    this.list.replaceChildren(...lines.slice(0, MOST_LINES).map((i) => this.line(events, i)));
  }

  line(events, number) {
    const event = events[number];
    const delay = delayOf(events, number);
    const sign = signOf(event);
    const sort = FAULTS.has(event.kind) ? "fault" : REPAIRS.has(event.kind) ? "repair" : "";
    const moment = element("button", { type: "button", textContent: `${event.at_s.toFixed(2)} s` });
    moment.title = "Go to this time";
    moment.addEventListener("click", () => this.seek(event.at_s));
    const text = element("span", { textContent: eventText(event) });
    if (delay !== null) text.append(element("b", { textContent: ` after ${delay.toFixed(delay < 10 ? 1 : 0)} ms` }));
    return element("li", { className: sort }, moment, element("i", { textContent: sign, ariaHidden: "true" }), text);
  }
}
