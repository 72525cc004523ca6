// What programs received, over time, with the faults marked; a click goes to a moment.

import { AFTERWARDS, FAULTS, rateText, REPAIRS } from "./time.js";

const SPAN_S = 60; // of what is shown while it goes on
const ROUND = [1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10];
const [LEFT, RIGHT, TOP, BOTTOM] = [8, 8, 22, 18];

function rounded(most) {
  const unit = 10 ** Math.floor(Math.log10(most));
  return ROUND.map((times) => times * unit).find((value) => value >= most * 0.999);
}

export class Plot {
  constructor(canvas, seek) {
    this.canvas = canvas;
    this.seek = seek;
    canvas.addEventListener("click", (event) => {
      const { left, width } = canvas.getBoundingClientRect();
      const share = (event.clientX - left - LEFT) / (width - LEFT - RIGHT);
      if (this.span) seek(this.span[0] + Math.min(1, Math.max(0, share)) * (this.span[1] - this.span[0]));
    });
  }

  // The stretch of time that is shown: all of it if it has ended, else the last minute before the cursor.
  spanOf(recording, at, whole) {
    const { first, last } = recording;
    if (whole || last - first <= SPAN_S) return [first, Math.max(last, first + 1)];
    const end = Math.min(last, Math.max(at + SPAN_S / 4, first + SPAN_S));
    return [end - SPAN_S, end];
  }

  draw(recording, at, live, whole) {
    const { canvas } = this;
    const ratio = window.devicePixelRatio || 1;
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    if (canvas.width !== width * ratio || canvas.height !== height * ratio) {
      canvas.width = width * ratio;
      canvas.height = height * ratio;
    }
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    const pen = canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    this.span = this.spanOf(recording, at, whole);
    const [begin, end] = this.span;
    const shown = recording.samples.filter((one) => one.at_s >= begin - 1 && one.at_s <= end);
    const top = rounded(Math.max(1, ...shown.map((one) => Math.max(one.received, one.ideal ?? 0))));
    const x = (at_s) => LEFT + ((at_s - begin) / (end - begin)) * (width - LEFT - RIGHT);
    const y = (kbit) => height - BOTTOM - (kbit / top) * (height - TOP - BOTTOM);
    pen.font = `12px ${style.fontFamily || "sans-serif"}`;
    this.axes(pen, { begin, end, top, x, y, width, height, colour });
    this.events(pen, recording.events, { begin, end, x, height, colour });
    this.line(pen, shown, { x, y, colour });
    pen.fillStyle = colour("--ink");
    pen.textAlign = "left";
    const now = recording.before(recording.samples, at)?.received ?? 0;
    pen.fillText(`Received by programs: ${rateText(now)}`, LEFT + 2, 14);
    pen.textAlign = "right";
    pen.fillStyle = colour("--soft");
    pen.fillText(rateText(top), width - RIGHT - 2, 14);
    if (!live || whole) {
      pen.fillStyle = colour("--ink");
      pen.fillRect(x(at) - 1, TOP - 4, 2, height - TOP - BOTTOM + 4);
    }
    canvas.setAttribute("aria-label", `Received by programs: ${rateText(now)} at ${at.toFixed(1)} s`);
  }

  axes(pen, { begin, end, top, x, y, width, height, colour }) {
    pen.strokeStyle = colour("--grid");
    pen.fillStyle = colour("--soft");
    pen.lineWidth = 1;
    pen.textAlign = "center";
    pen.beginPath();
    for (const share of [0, 0.5, 1]) {
      pen.moveTo(LEFT, Math.round(y(top * share)) + 0.5);
      pen.lineTo(width - RIGHT, Math.round(y(top * share)) + 0.5);
    }
    pen.stroke();
    const step = rounded((end - begin) / Math.max(2, width / 120));
    for (let tick = Math.ceil(begin / step) * step; tick <= end; tick += step) {
      if (x(tick) > 20 && x(tick) < width - 20) pen.fillText(`${+tick.toFixed(2)} s`, x(tick), height - 4);
    }
  }

  events(pen, events, { begin, end, x, height, colour }) {
    for (const event of events) {
      if (event.at_s < begin || event.at_s > end) continue;
      const fault = FAULTS.has(event.kind);
      if (!fault && !REPAIRS.has(event.kind) && !AFTERWARDS.has(event.kind)) continue;
      pen.strokeStyle = colour(fault ? "--bad" : AFTERWARDS.has(event.kind) ? "--careful" : "--good");
      pen.setLineDash(fault ? [] : AFTERWARDS.has(event.kind) ? [2, 3] : [6, 3]);
      pen.lineWidth = fault ? 2 : 1.5;
      pen.beginPath();
      pen.moveTo(x(event.at_s), TOP);
      pen.lineTo(x(event.at_s), height - BOTTOM);
      pen.stroke();
    }
    pen.setLineDash([]);
  }

  line(pen, samples, { x, y, colour }) {
    if (samples.length < 1) return;
    pen.beginPath();
    samples.forEach((one, i) => (i ? pen.lineTo : pen.moveTo).call(pen, x(one.at_s), y(one.received)));
    pen.strokeStyle = colour("--c0");
    pen.lineWidth = 2;
    pen.stroke();
    pen.lineTo(x(samples.at(-1).at_s), y(0));
    pen.lineTo(x(samples[0].at_s), y(0));
    pen.globalAlpha = 0.15;
    pen.fillStyle = colour("--c0");
    pen.fill();
    pen.globalAlpha = 1;
    if (samples.some((one) => one.ideal)) {
      pen.beginPath();
      samples.forEach((one, i) => (i ? pen.lineTo : pen.moveTo).call(pen, x(one.at_s), y(one.ideal ?? 0)));
      pen.strokeStyle = colour("--soft");
      pen.setLineDash([2, 3]);
      pen.stroke();
      pen.setLineDash([]);
    }
  }
}
