// The lab sheet next to the picture: its current part, a student's values, and marks.
//
// An operator selects a part. The selection is an event of the recording, and all pages follow it.

import { $, element } from "./time.js";

// Return a line of a sheet's Markdown as page elements; HTML in the line stays text.
export function inline(text) {
  return text.split(/(`[^`]+`|\*\*[^*]+\*\*|\[[^\]]+\]\([^)]*\))/).map((part) => {
    if (/^`.+`$/.test(part)) return element("code", { textContent: part.slice(1, -1) });
    if (part.startsWith("**")) return element("b", { textContent: part.slice(2, -2) });
    return part.replace(/^\[([^\]]+)\]\([^)]*\)$/, "$1");
  });
}

export function blocks(text) {
  const found = [];
  for (const [, fence, plain] of text.matchAll(/^```[^\n]*\n([^]*?)^```$|((?:(?!^```)[^])+)/gm)) {
    if (fence !== undefined) found.push(element("pre", { textContent: fence }));
    else for (const block of plain.split(/\n\s*\n/)) if (block.trim()) found.push(blockOf(block.trim()));
  }
  return found;
}

function blockOf(block) {
  const [, marks] = /^(#+) /.exec(block) ?? [];
  if (marks) return element("h2", {}, ...inline(block.slice(marks.length + 1)));
  if (block.startsWith("|")) {
    const rows = block.split("\n").filter((line) => !/^[|\s:-]+$/.test(line));
    const cells = (line) => line.split("|").slice(1, -1).map((cell) => element("td", {}, ...inline(cell.trim())));
    return element("table", {}, ...rows.map((line) => element("tr", {}, ...cells(line))));
  }
  if (!/^([-*]|\d+\.) /.test(block)) return element("p", {}, ...inline(block));
  const items = block.split(/^(?:[-*]|\d+\.) /m).filter((item) => item.trim());
  const tag = /^\d/.test(block) ? "ol" : "ul";
  return element(tag, {}, ...items.map((item) => element("li", {}, ...inline(item))));
}

export class Sheet {
  constructor(page) {
    this.page = page;
    this.number = ""; // number of the open sheet
    this.part = 0; // number of the open part
    this.requested = new Map(); // cache of requests to the server: sheet number to promise
    this.followedTime = null; // time of the last followed sheet event, in seconds
    $("sheets").addEventListener("click", () => this.show($("sheet").hidden));
    $("sheet-number").addEventListener("change", () => this.turn($("sheet-number").value, 0));
    $("part").addEventListener("change", () => this.turn(this.number, Number($("part").value)));
    $("values").addEventListener("click", () => this.values());
    $("grade").addEventListener("submit", (event) => {
      event.preventDefault();
      this.grade();
    });
  }

  show(shown) {
    $("sheet").hidden = !shown;
    $("sheet").parentElement.classList.toggle("with-sheet", shown);
    $("sheets").setAttribute("aria-expanded", String(shown));
    if (shown && !this.number) this.open("1", 0);
  }

  // Open a part of a sheet; an operator's page also opens it on all other pages.
  async turn(number, part) {
    await this.open(number, part);
    if (this.operates()) await this.page.wire.ask("sheet", [number, String(part)]);
  }

  operates() {
    return this.page.role === "operate" && this.page.live();
  }

  async open(number, part) {
    [this.number, this.part] = [number, part];
    try {
      const [{ sheets }, { text }] = await Promise.all([this.ask(), this.ask(number)]);
      if (this.number === number && this.part === part) this.draw(sheets, text);
    } catch (error) {
      this.requested.clear();
      this.say([error.message], true);
    }
  }

  // Request the list of sheets, or one sheet, once.
  ask(...words) {
    if (!this.requested.has(words[0])) this.requested.set(words[0], this.page.wire.ask("sheet", words));
    return this.requested.get(words[0]);
  }

  draw(sheets, text) {
    const parts = text.split(/^(?=## )/m);
    const titles = parts.map((one, i) => (i ? one.slice(3, one.indexOf("\n")) : "Introduction"));
    const option = ([value, textContent]) => element("option", { value, textContent });
    $("sheet-number").replaceChildren(...Object.entries(sheets).map(option));
    $("sheet-number").value = this.number;
    $("part").replaceChildren(...Object.entries(titles).map(option));
    $("part").value = this.part;
    $("part-text").replaceChildren(...blocks(parts[this.part] ?? ""));
    $("part-text").scrollTop = 0;
  }

  // Open the part that was current at a time, if it differs from the part that was opened last.
  follow(at) {
    $("sheets").hidden = !this.page.wire;
    $("grade").hidden = !this.operates();
    const asked = this.page.recording.events.findLast((one) => one.kind === "sheet" && one.at_s <= at);
    if (!asked || !this.page.wire || asked.at_s === this.followedTime) return;
    this.followedTime = asked.at_s;
    const [number, part] = [asked.what[0], Number(asked.what[1])];
    if (number !== this.number || part !== this.part) this.open(number, part);
    this.show(true);
  }

  // -- values and marks of a student -----------------------------------------------------------------

  say(parts, bad = false) {
    $("marks").replaceChildren(...parts);
    $("marks").classList.toggle("bad", bad);
  }

  async values() {
    this.say(["…"]);
    try {
      const { values } = await this.page.wire.ask("values", [this.number, $("student").value.trim()]);
      const network = /^ +network +(\S+)/m.exec(values)?.[1] ?? "";
      const isThisNetwork = network === this.page.recording.network;
      const hint = isThisNetwork || !network ? "" : `\nsudo ./pillarbox up ${network} --page shows this network`;
      this.say([...(isThisNetwork ? this.linked(values) : [values]), hint]);
    } catch (error) {
      this.say([error.message], true);
    }
  }

  // Return a text whose names of servers, switches and cables are buttons that select the item.
  linked(text) {
    const { byName } = this.page.recording;
    return text.split(/([\w.]+(?:-[\w.]+)?)/).map((part) => {
      if (!part || !part.split("-").every((name) => byName.has(name))) return part;
      const button = element("button", { type: "button", textContent: part });
      button.addEventListener("click", () => this.page.find(part));
      return button;
    });
  }

  async grade() {
    const [file] = $("work").files;
    if (!file) {
      this.say(["no file selected: choose the student's file first"], true);
      return;
    }
    this.say([`grading ${file.name} …`]);
    const asked = new URLSearchParams({ sheet: this.number, student: $("student").value.trim() });
    try {
      const answer = await fetch(`grade?${asked}`, { method: "POST", body: await file.text() });
      this.say([await answer.text()], !answer.ok);
    } catch {
      this.say(["the page has no connection: wait or reload it"], true);
    }
  }
}
