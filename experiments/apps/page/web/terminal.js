// The terminal of a server's shell: its screen and its keyboard input.

import { Screen } from "./screen.js";
import { $, element } from "./time.js";

const MOST_LETTERS = 300; // maximum number of characters per message with terminal input
const KEYS = {
  Enter: "\r", Backspace: "\x7f", Tab: "\t", Escape: "\x1b",
  ArrowUp: "\x1b[A", ArrowDown: "\x1b[B", ArrowRight: "\x1b[C", ArrowLeft: "\x1b[D",
  Home: "\x1b[1~", Insert: "\x1b[2~", Delete: "\x1b[3~", End: "\x1b[4~", PageUp: "\x1b[5~", PageDown: "\x1b[6~",
};

// Return the terminal input of a key press; an empty text if the browser handles the key.
export function keyInput({ key, ctrlKey, altKey, metaKey }) {
  if (metaKey) return "";
  if (ctrlKey && key.length === 1) {
    const code = key.toUpperCase().charCodeAt(0);
    return code >= 64 && code < 96 ? String.fromCharCode(code & 31) : key === " " ? "\0" : "";
  }
  const text = KEYS[key] ?? (key.length === 1 ? key : "");
  return text && altKey ? `\x1b${text}` : text;
}

export class Terminal {
  constructor(page) {
    this.page = page;
    this.number = null; // number of the open shell
    this.server = "";
    this.pad = $("screen");
    $("hang-up").addEventListener("click", () => this.close());
    this.pad.addEventListener("keydown", (event) => this.key(event));
    this.pad.addEventListener("paste", (event) => {
      event.preventDefault();
      this.type(event.clipboardData.getData("text/plain").replaceAll("\n", "\r"));
    });
    new ResizeObserver(() => this.fit()).observe(this.pad);
  }

  async open(server) {
    this.close();
    $("terminal").hidden = false;
    $("at").textContent = server;
    this.server = server;
    const [rows, columns] = this.size();
    this.screen = new Screen(rows, columns, (text) => this.type(text));
    this.pad.focus();
    try {
      const { shell } = await this.page.wire.ask("shell", [server, String(rows), String(columns)]);
      this.number = shell;
      this.fit();
    } catch (error) {
      this.show(`${error.message}\r\n`);
    }
  }

  close() {
    if (this.number !== null) this.sendRequest("hang up");
    this.number = null;
    $("terminal").hidden = true;
    this.pad.replaceChildren();
  }

  receive({ shell, text, ended }) {
    // Output may arrive before the answer to the "shell" request.
    if (this.number === null && !$("terminal").hidden) this.number = shell;
    if (shell !== this.number) return;
    if (ended) {
      this.number = null;
      this.show("\r\n(the shell has ended)\r\n");
      return;
    }
    this.show(text);
    this.sendRequest("taken");
  }

  sendRequest(verb, ...words) {
    if (this.number === null) return;
    this.page.wire.ask(verb, [String(this.number), ...words]).catch((error) => this.page.panel.say(error.message, true));
  }

  type(text) {
    for (let i = 0; i < text.length; i += MOST_LETTERS) this.sendRequest("type", text.slice(i, i + MOST_LETTERS));
  }

  key(event) {
    if (event.key === "Escape" && event.shiftKey) {
      this.close();
      $("picture").focus();
    } else {
      const copies = event.ctrlKey && event.key.toLowerCase() === "c" && !getSelection().isCollapsed;
      const pastes = event.ctrlKey && event.key.toLowerCase() === "v";
      const text = copies || pastes ? "" : keyInput(event);
      if (!text) return;
      this.type(text);
    }
    event.preventDefault();
    event.stopPropagation();
  }

  // -- size and drawing ------------------------------------------------------------------------------

  size() {
    const rule = element("span", { textContent: "0".repeat(100) });
    const line = element("div", {}, rule);
    this.pad.append(line);
    const [{ width }, { height }] = [rule, line].map((one) => one.getBoundingClientRect());
    line.remove();
    const rows = Math.floor((this.pad.clientHeight - 8) / height);
    return [Math.max(2, rows), Math.max(10, Math.floor((this.pad.clientWidth - 12) / (width / 100)))];
  }

  fit() {
    if (this.number === null) return;
    const [rows, columns] = this.size();
    if (rows === this.screen.rows && columns === this.screen.columns) return;
    this.screen.resize(rows, columns);
    this.sendRequest("resize", String(rows), String(columns));
    this.draw();
  }

  show(text) {
    this.screen.feed(text);
    if (this.isDrawScheduled) return;
    this.isDrawScheduled = true;
    requestAnimationFrame(() => {
      this.isDrawScheduled = false;
      this.draw();
    });
  }

  draw() {
    const { above, lines, row, column, shown } = this.screen;
    const drawn = [...above, ...lines].map((line, i) => this.line(line, shown && i === above.length + row ? column : -1));
    this.pad.replaceChildren(...drawn);
    this.pad.scrollTop = this.pad.scrollHeight;
  }

  line(cells, cursor) {
    const line = element("div");
    const all = cursor < 0 ? cells : [...cells];
    while (all.length <= cursor) all.push([" ", null]);
    let run = null;
    all.forEach(([letter, style], i) => {
      const look = `${this.look(style)}${i === cursor ? " cursor" : ""}`;
      if (!run || run.className !== look) line.append((run = element("span", { className: look })));
      run.append(letter);
    });
    if (!all.length) line.append(" ");
    return line;
  }

  look(style) {
    if (!style) return "";
    const { ink, paper, bold, under, inverse } = style;
    const names = [ink >= 0 && `ink-${ink}`, paper >= 0 && `paper-${paper}`, bold && "bold", under && "under", inverse && "inverse"];
    return names.filter(Boolean).join(" ");
  }
}
