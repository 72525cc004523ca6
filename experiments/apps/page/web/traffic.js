// The traffic section: starts and stops workloads, and lists their flows.

import { $, element, rateText, workload } from "./time.js";

const MOST_ROWS = 40; // maximum number of listed flows
// Traffic patterns, and the settings that the selected servers fill, in the order of selection.
const PATTERNS = {
  "all-to-all": [],
  permutation: [],
  "one-to-one": ["source", "destination"],
  "one-to-all": ["source"],
  "one-to-several": ["source", "receivers"],
  "several-to-one": ["senders", "destination"],
  burst: [],
};

// Return the words of a `run` request for a pattern between these servers.
export function wordsOf(pattern, seconds, servers) {
  const takes = PATTERNS[pattern];
  const ends = servers.length === 1 && takes[0] === "senders" ? [undefined, servers[0]] : servers;
  const values = takes.map((name, i) => (ends[i] ? `${name}=${ends[i]}` : "")).filter(Boolean);
  return [pattern, ...values, `duration_s=${seconds}`, "tool=generator"];
}

export class Traffic {
  constructor(page) {
    this.page = page;
    this.pinging = null; // pair of servers with periodic pings, and the timer
    $("pattern").append(...Object.keys(PATTERNS).map((name) => element("option", { textContent: name })));
    $("send").addEventListener("submit", (event) => {
      event.preventDefault();
      page.panel.act("run", wordsOf($("pattern").value, $("seconds").value, this.servers()));
    });
    $("finish").addEventListener("click", () => page.panel.act("finish", []));
  }

  servers() {
    const { selected, recording } = this.page;
    return selected.filter((item) => item.kind === "server").map((item) => recording.picture.nodes[item.number].name);
  }

  // Return the numbers of the flows that begin or end at the selected servers.
  chosen(flows) {
    const [first, second] = this.servers();
    if (!first) return new Set();
    const wanted = flows.map((ends, number) => [ends, number]).filter(([ends]) =>
      second ? ends.includes(first) && ends.includes(second) : ends.includes(first),
    );
    return new Set(wanted.map(([, number]) => number));
  }

  // -- pings -----------------------------------------------------------------------------------------

  ping(ends) {
    const isRunning = this.pings(ends);
    if (this.pinging) clearInterval(this.pinging.timer);
    this.pinging = null;
    if (!isRunning) {
      const once = () => this.page.panel.act("ping", ends);
      this.pinging = { ends, timer: setInterval(once, 1000) };
      once();
    }
  }

  pings(ends) {
    return this.pinging?.ends.join() === ends.join();
  }

  // -- drawing ---------------------------------------------------------------------------------------

  draw(at) {
    const { recording, role } = this.page;
    const now = recording.trafficAt(at);
    const isSending = Boolean(now && !now.result);
    const canAct = role === "operate" && this.page.live();
    if (this.pinging && !canAct) this.ping(this.pinging.ends);
    $("send").hidden = !canAct;
    $("start").hidden = isSending;
    $("finish").hidden = !isSending;
    $("traffic").hidden = !canAct && !now;
    const sample = recording.before(recording.samples, at) ?? {};
    const of = sample.ideal ? ` of ${rateText(sample.ideal)} ideal` : "";
    let text = "";
    if (now) text = `${workload(now.what)}: `;
    if (now?.result) text += now.result;
    else if (now) text += `${now.count} flows, ${rateText(sample.goodput ?? 0)}${of}`;
    this.say($("sent"), text);
    const { verdict } = now ?? {};
    const [first, ...others] = verdict?.reasons ?? [];
    const more = others.length ? ` (and ${others.length} more: see Events)` : "";
    const verdictText = verdict?.valid ? "valid" : `not valid: ${first}${more}`;
    this.say($("verdict"), verdict && isSending ? `Verdict so far: ${verdictText}` : "");
    $("verdict").classList.toggle("bad", verdict?.valid === false);
    $("flows").hidden = !isSending || !now.flows.length; // visible even if a sample has counted no flow
    if (!$("flows").hidden && $("flows").open) this.drawFlows(now, recording.flowsAt(at));
  }

  say(place, text) {
    if (place.textContent !== text) place.textContent = text;
  }

  drawFlows({ flows, ideals }, rates) {
    const chosen = this.chosen(flows);
    const share = (number) => (rates.get(number) ?? 0) / (ideals[number] || 1);
    const numbers = flows.map((_, number) => number).filter((number) => !chosen.size || chosen.has(number));
    numbers.sort((a, b) => share(a) - share(b) || a - b);
    const cell = (textContent) => element("td", { textContent });
    const row = (number) =>
      element(
        "tr",
        {},
        cell(flows[number].join(" → ")),
        cell(rateText(rates.get(number) ?? 0)),
        cell(ideals[number] ? `of ${rateText(ideals[number])}` : ""),
      );
    const more = numbers.length - MOST_ROWS;
    const rest = more > 0 ? [element("tr", {}, cell(`and ${more} more`))] : [];
    $("flows").querySelector("table").replaceChildren(...numbers.slice(0, MOST_ROWS).map(row), ...rest);
  }
}
