// The plot of goodput, or of all received data, over time with faults; a click selects a time.

import { signOf } from "./events.js";
import { AFTERWARDS, FAULTS, rateText, REPAIRS } from "./time.js";

const WORKLOAD_GAP_S = 3; // minimum time between the samples of two workloads, in seconds
const SPAN_S = 60; // time range of a live plot, in seconds
const ROUND_NUMBERS = [1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10]; // axis limits within a power of ten
const FLOW_COLOURS = ["--c1", "--good", "--careful", "--ink"]; // colours of the selected flows
const [LEFT, RIGHT, TOP, BOTTOM] = [8, 8, 22, 18]; // margins of the plot in pixels

// Return a sample's goodput in kbit/s; without counted flows, the rate that programs received.
const valueOf = (sample) => sample.goodput ?? sample.received;

function rounded(most) {
  const unit = 10 ** Math.floor(Math.log10(most));
  return ROUND_NUMBERS.map((times) => times * unit).find((value) => value >= most * 0.999);
}

// Return the plot points of each flow by flow number; a sample without the flow counts as rate 0.
function flowsIn(samples) {
  const found = new Map();
  const counted = samples.filter((one) => one.flows);
  counted.forEach((one, i) => {
    for (let j = 0; j < one.flows.length; j += 2) {
      const points = found.get(one.flows[j]) ?? [];
      while (points.length < i) points.push([counted[points.length].at_s, 0]);
      points.push([one.at_s, one.flows[j + 1]]);
      found.set(one.flows[j], points);
    }
  });
  for (const points of found.values()) {
    while (points.length < counted.length) points.push([counted[points.length].at_s, 0]);
  }
  return found;
}

function titleOf(recording, at, curves) {
  const sample = recording.before(recording.samples, at);
  if (curves && sample?.flows) return `Goodput of each of ${curves.flows.length} flows`;
  const of = sample?.ideal ? ` of ${rateText(sample.ideal)} ideal` : "";
  const what = sample?.goodput === undefined ? "Received by programs" : "Goodput";
  return `${what}: ${rateText(sample ? valueOf(sample) : 0)}${of}`;
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

  // Return the time range of the plot: the whole of a finished recording, else one minute at the cursor.
  spanOf(recording, at, whole) {
    const { first, last } = recording;
    if (whole || last - first <= SPAN_S) return [first, Math.max(last, first + 1)];
    const end = Math.min(last, Math.max(at + SPAN_S / 4, first + SPAN_S));
    return [end - SPAN_S, end];
  }

  // `curves`, for one curve per flow: the ends of all flows, and the numbers of the selected flows.
  draw(recording, at, { live, whole, curves }) {
    const { canvas } = this;
    const ratio = window.devicePixelRatio || 1;
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    if (canvas.width !== width * ratio || canvas.height !== height * ratio) {
      canvas.width = width * ratio;
      canvas.height = height * ratio;
    }
    const style = getComputedStyle(document.body);
    const colour = (name) => style.getPropertyValue(name).trim();
    const pen = canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    pen.lineJoin = "round";
    this.span = this.spanOf(recording, at, whole);
    const [begin, end] = this.span;
    const shown = recording.samples.filter((one) => one.at_s >= begin - 1 && one.at_s <= end);
    const flows = curves && flowsIn(shown);
    const values = flows ? [...flows.values()].flat().map((point) => point[1]) : shown.map(valueOf);
    const ideals = flows ? [] : shown.map((one) => one.ideal ?? 0);
    const top = rounded([...values, ...ideals].reduce((most, one) => Math.max(most, one), 1));
    const x = (at_s) => LEFT + ((at_s - begin) / (end - begin)) * (width - LEFT - RIGHT);
    const y = (kbit) => height - BOTTOM - (kbit / top) * (height - TOP - BOTTOM);
    pen.font = `12px ${style.fontFamily || "sans-serif"}`;
    this.axes(pen, { begin, end, top, x, y, width, height, colour });
    this.events(pen, recording.events, { begin, end, x, height, colour });
    if (flows) this.flows(pen, flows, curves.chosen, { x, y, colour });
    else this.line(pen, shown, { x, y, colour });
    pen.fillStyle = colour("--ink");
    pen.textAlign = "left";
    const text = titleOf(recording, at, curves);
    pen.fillText(text, LEFT + 2, 14);
    pen.textAlign = "right";
    pen.fillStyle = colour("--soft");
    pen.fillText(rateText(top), width - RIGHT - 2, 14);
    if (!live || whole) {
      pen.fillStyle = colour("--ink");
      pen.fillRect(x(at) - 1, TOP - 4, 2, height - TOP - BOTTOM + 4);
    }
    canvas.setAttribute("aria-label", `${text} at ${at.toFixed(1)} s`);
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
      pen.fillStyle = pen.strokeStyle;
      pen.textAlign = "left";
      pen.fillText(signOf(event), x(event.at_s) + 3, TOP + 10);
    }
    pen.setLineDash([]);
  }

  flows(pen, flows, chosen, { x, y, colour }) {
    const draw = (points) => {
      pen.beginPath();
      points.forEach(([at_s, kbit], i) => (i ? pen.lineTo : pen.moveTo).call(pen, x(at_s), y(kbit)));
      pen.stroke();
    };
    pen.strokeStyle = colour("--c0");
    pen.lineWidth = 1;
    pen.globalAlpha = chosen.size ? 0.15 : Math.max(0.15, 1 / Math.sqrt(Math.max(1, flows.size)));
    for (const [number, points] of flows) if (!chosen.has(number)) draw(points);
    pen.globalAlpha = 1;
    pen.lineWidth = 2;
    for (const [number, points] of flows) {
      if (!chosen.has(number)) continue;
      pen.strokeStyle = colour(FLOW_COLOURS[number % FLOW_COLOURS.length]);
      draw(points);
    }
  }

  line(pen, samples, { x, y, colour }) {
    if (samples.length < 1) return;
    pen.beginPath();
    samples.forEach((one, i) => (i ? pen.lineTo : pen.moveTo).call(pen, x(one.at_s), y(valueOf(one))));
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
      const known = samples.filter((one) => one.ideal);
      pen.beginPath();
      known.forEach((one, i) => {
        const apart = !i || one.at_s - known[i - 1].at_s > WORKLOAD_GAP_S;
        (apart ? pen.moveTo : pen.lineTo).call(pen, x(one.at_s), y(one.ideal));
      });
      pen.strokeStyle = colour("--soft");
      pen.setLineDash([2, 3]);
      pen.stroke();
      pen.setLineDash([]);
    }
  }
}
