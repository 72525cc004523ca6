// A lab sheet beside the picture: the part that is asked, a student's own values, and marks.
//
// Who operates turns to a part, which is an event as others are, and all pages follow it.

import { $, element } from "./time.js";

// What a sheet's Markdown has, as elements: whatever is written in it stays text.
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
    this.number = ""; // of the sheet that is open, and its part
    this.part = 0;
    this.known = new Map(); // what the server was asked for, and promises
    this.followed = null; // the event
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

  // What is asked from now on; on a page that only watches, what is looked at.
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
      this.known.clear();
      this.say([error.message], true);
    }
  }

  // Ask once for the sheets there are, or for one of them.
  ask(...words) {
    if (!this.known.has(words[0])) this.known.set(words[0], this.page.wire.ask("sheet", words));
    return this.known.get(words[0]);
  }

  draw(sheets, text) {
    const parts = text.split(/^(?=## )/m);
    const titles = parts.map((one, i) => (i ? one.slice(3, one.indexOf("\n")) : "To begin with"));
    const option = ([value, textContent]) => element("option", { value, textContent });
    $("sheet-number").replaceChildren(...Object.entries(sheets).map(option));
    $("sheet-number").value = this.number;
    $("part").replaceChildren(...Object.entries(titles).map(option));
    $("part").value = this.part;
    $("part-text").replaceChildren(...blocks(parts[this.part] ?? ""));
    $("part-text").scrollTop = 0;
  }

  // Show what was asked at that moment, where it is something else than before.
  follow(at) {
    $("sheets").hidden = !this.page.wire;
    $("grade").hidden = !this.operates();
    const asked = this.page.recording.events.findLast((one) => one.kind === "sheet" && one.at_s <= at);
    if (!asked || !this.page.wire || asked.at_s === this.followed) return;
    this.followed = asked.at_s;
    const [number, part] = [asked.what[0], Number(asked.what[1])];
    if (number !== this.number || part !== this.part) this.open(number, part);
    this.show(true);
  }

  // -- a student's own -------------------------------------------------------------------------------

  say(parts, bad = false) {
    $("marks").replaceChildren(...parts);
    $("marks").classList.toggle("bad", bad);
  }

  async values() {
    this.say(["…"]);
    try {
      const { values } = await this.page.wire.ask("values", [this.number, $("student").value.trim()]);
      const network = /^ +network +(\S+)/m.exec(values)?.[1] ?? "";
      const own = network === this.page.recording.network;
      const hint = own || !network ? "" : `\nsudo ./pillarbox up ${network} --page shows this network`;
      this.say([...(own ? this.linked(values) : [values]), hint]);
    } catch (error) {
      this.say([error.message], true);
    }
  }

  // A text in which the names of servers, switches and cables select them in the picture.
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
      this.say(["choose the student's file first"], true);
      return;
    }
    this.say([`grading ${file.name} …`]);
    const asked = new URLSearchParams({ sheet: this.number, student: $("student").value.trim() });
    try {
      const answer = await fetch(`grade?${asked}`, { method: "POST", body: await file.text() });
      this.say([await answer.text()], !answer.ok);
    } catch {
      this.say(["there is no connection"], true);
    }
  }
}
