// The screen of a terminal: an emulation of the Linux console, for bash, less, vi and top.
//
// It supports 16 colours, but neither a mouse nor double-width characters.

const SCROLLBACK_LINES = 300; // maximum number of scrollback lines
const PLAIN = { ink: -1, paper: -1, bold: false, under: false, inverse: false };

export class Screen {
  // `answer` is a callback for the terminal's replies to the program, such as the cursor position.
  constructor(rows, columns, answer) {
    this.answer = answer;
    this.above = [];
    this.reset();
    this.resize(rows, columns);
  }

  reset() {
    this.lines = [];
    this.rows = this.columns = 0;
    this.row = this.column = 0;
    this.style = PLAIN;
    this.saved = [0, 0, PLAIN];
    this.shown = true; // true if the cursor is visible
    this.pending = "";
  }

  resize(rows, columns) {
    if (rows === this.rows && columns === this.columns) return;
    while (this.lines.length > rows) {
      const first = this.lines.shift();
      if (this.row > 0) {
        this.above.push(first);
        this.row -= 1;
      }
    }
    while (this.lines.length < rows) this.lines.push([]);
    [this.rows, this.columns] = [rows, columns];
    [this.top, this.bottom] = [0, rows - 1];
    this.column = Math.min(this.column, columns - 1);
    this.row = Math.min(this.row, rows - 1);
  }

  feed(text) {
    const all = this.pending + text;
    this.pending = "";
    let i = 0;
    while (i < all.length) {
      if (all[i] !== "\x1b") {
        const letter = String.fromCodePoint(all.codePointAt(i));
        this.letter(letter);
        i += letter.length;
        continue;
      }
      const rest = all.slice(i, i + 256);
      const found =
        /^\x1b\[([?>=!]?)([\d;:]*)[ "'$]?([@-~])/.exec(rest) ??
        /^\x1b[\]P^_]([^\x07\x1b]*)(?:\x07|\x1b\\)/.exec(rest) ??
        /^\x1b[()*+#%].?/s.exec(rest.length > 2 ? rest : "") ??
        /^\x1b([^[\]P^_()*+#%])/s.exec(rest);
      if (!found) {
        if (rest.length < 256) {
          this.pending = rest; // an incomplete escape sequence waits for more text
          return;
        }
        i += 1;
        continue;
      }
      i += found[0].length;
      if (found[0][1] === "[") this.control(found[3], found[2].split(/[;:]/).map(Number), found[1]);
      else if (found[0].length === 2) this.escape(found[1]);
    }
  }

  letter(letter) {
    switch (letter) {
      case "\r":
        this.column = 0;
        return;
      case "\n":
      case "\v":
      case "\f":
        this.down();
        return;
      case "\b":
        this.column = Math.max(0, Math.min(this.column, this.columns - 1) - 1);
        return;
      case "\t":
        this.column = Math.min(this.columns - 1, (Math.floor(this.column / 8) + 1) * 8);
        return;
      default:
        if (letter < " " || letter === "\x7f") return;
    }
    if (this.column >= this.columns) {
      this.column = 0;
      this.down();
    }
    this.put(this.column, letter);
    this.column += 1;
  }

  put(column, letter) {
    const line = this.lines[this.row];
    while (line.length < column) line.push([" ", PLAIN]);
    line[column] = [letter, this.style];
  }

  down() {
    if (this.row === this.bottom) this.scroll(1);
    else this.row = Math.min(this.rows - 1, this.row + 1);
  }

  // Scroll the lines of the scroll region up by `by` lines; a negative `by` scrolls down.
  scroll(by, from = this.top) {
    for (let i = 0; i < Math.min(Math.abs(by), this.rows); i += 1) {
      if (by > 0) {
        const [gone] = this.lines.splice(from, 1);
        this.lines.splice(this.bottom, 0, []);
        if (from === 0) this.above.push(gone);
      } else {
        this.lines.splice(this.bottom, 1);
        this.lines.splice(from, 0, []);
      }
    }
    if (this.above.length > SCROLLBACK_LINES) this.above.splice(0, this.above.length - SCROLLBACK_LINES);
  }

  escape(what) {
    if (what === "7") this.saved = [this.row, this.column, this.style];
    else if (what === "8") [this.row, this.column, this.style] = this.saved;
    else if (what === "D") this.down();
    else if (what === "E") [this.column] = [0, this.down()];
    else if (what === "M") {
      if (this.row === this.top) this.scroll(-1);
      else this.row = Math.max(0, this.row - 1);
    } else if (what === "c") {
      const [rows, columns] = [this.rows, this.columns];
      this.reset();
      this.resize(rows, columns);
    }
  }

  control(what, numbers, mark) {
    const [first, second] = numbers;
    const count = first || 1;
    const line = this.lines[this.row];
    this.column = Math.min(this.column, this.columns - 1);
    const moves = { A: [-count, 0], B: [count, 0], C: [0, count], D: [0, -count], e: [count, 0], a: [0, count] };
    if (mark) {
      if (mark === "?" && (what === "h" || what === "l")) this.mode(numbers, what === "h");
    } else if (what in moves) this.moveTo(this.row + moves[what][0], this.column + moves[what][1]);
    else if (what === "E" || what === "F") this.moveTo(this.row + (what === "E" ? count : -count), 0);
    else if (what === "G" || what === "`") this.moveTo(this.row, count - 1);
    else if (what === "d") this.moveTo(count - 1, this.column);
    else if (what === "H" || what === "f") this.moveTo(count - 1, (second || 1) - 1);
    else if (what === "J") this.eraseScreen(first);
    else if (what === "K") this.eraseLine(first);
    else if (what === "L") this.scroll(-count, this.row);
    else if (what === "M") this.scroll(count, this.row);
    else if (what === "S" || what === "T") this.scroll(what === "S" ? count : -count);
    else if (what === "P") line.splice(this.column, count);
    else if (what === "X") this.blank(this.column, this.column + count);
    else if (what === "@") {
      while (line.length < this.column) line.push([" ", PLAIN]);
      line.splice(this.column, 0, ...Array.from({ length: Math.min(count, this.columns) }, () => [" ", this.style]));
      line.length = Math.min(line.length, this.columns);
    } else if (what === "m") this.setStyle(numbers);
    else if (what === "r") {
      [this.top, this.bottom] = [count - 1, Math.min(second || this.rows, this.rows) - 1];
      if (this.top >= this.bottom) [this.top, this.bottom] = [0, this.rows - 1];
      this.moveTo(0, 0);
    } else if (what === "s") this.escape("7");
    else if (what === "u") this.escape("8");
    else if (what === "n" && first === 6) this.answer(`\x1b[${this.row + 1};${this.column + 1}R`);
    else if (what === "c") this.answer("\x1b[?6c");
  }

  moveTo(row, column) {
    this.row = Math.max(0, Math.min(this.rows - 1, row));
    this.column = Math.max(0, Math.min(this.columns - 1, column));
  }

  mode(numbers, on) {
    for (const number of numbers) {
      if (number === 25) this.shown = on;
      if (number === 1049 || number === 47) {
        if (on) [this.below, this.lines] = [this.lines, Array.from({ length: this.rows }, () => [])];
        else if (this.below) {
          [this.lines, this.below] = [this.below, null];
          while (this.lines.length < this.rows) this.lines.push([]);
          this.lines.length = this.rows;
        }
      }
    }
  }

  blank(from, to) {
    for (let i = from; i < Math.min(to, this.columns); i += 1) this.put(i, " ");
  }

  eraseLine(which = 0) {
    if (which === 0) this.lines[this.row].length = Math.min(this.lines[this.row].length, this.column);
    else if (which === 1) this.blank(0, this.column + 1);
    else this.lines[this.row] = [];
  }

  eraseScreen(which = 0) {
    if (which === 3) this.above = [];
    if (which !== 1) for (let i = which ? 0 : this.row + 1; i < this.rows; i += 1) this.lines[i] = [];
    else for (let i = 0; i < this.row; i += 1) this.lines[i] = [];
    if (which < 2) this.eraseLine(which);
  }

  setStyle(numbers) {
    for (let i = 0; i < numbers.length; i += 1) {
      const one = numbers[i];
      if (one === 0) this.style = PLAIN;
      else if (one === 1) this.style = { ...this.style, bold: true };
      else if (one === 4) this.style = { ...this.style, under: true };
      else if (one === 7) this.style = { ...this.style, inverse: true };
      else if (one === 22) this.style = { ...this.style, bold: false };
      else if (one === 24) this.style = { ...this.style, under: false };
      else if (one === 27) this.style = { ...this.style, inverse: false };
      else if ((one >= 30 && one < 38) || (one >= 90 && one < 98)) this.style = { ...this.style, ink: one % 10 };
      else if (one === 39) this.style = { ...this.style, ink: -1 };
      else if ((one >= 40 && one < 48) || (one >= 100 && one < 108)) this.style = { ...this.style, paper: one % 10 };
      else if (one === 49) this.style = { ...this.style, paper: -1 };
      else if (one === 38 || one === 48) i += numbers[i + 1] === 5 ? 2 : 4; // 256 and true colours are ignored
    }
  }
}
