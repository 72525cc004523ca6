// Groups of a large network that are drawn as one: those whose addresses begin alike (a DCell_1 of
// DCell_2s, a DPillar column, a pod), and switches that join the same groups.

import { centreOf, isWithin } from "./shapes.js";

const FEW_SERVERS = 150;
const SMALLEST_PX = 7; // diameter of a server, below which a network is folded
const ROW = 22; // heights of a row of switches in the width of the picture
const COLUMN = 12; // widths of a column of nodes in the width of the picture
const APART = 0.75; // share of the distance between two groups without frames that they cover
const ROOM = 0.2; // between a group and what is not in it

export class Folds {
  // `unit`: pixels of a unit of the layout when the whole picture is shown.
  constructor(recording, unit = Infinity) {
    const { nodes, cables, servers, radius, frames = [], box = [0, 0, 0, 0] } = recording.picture;
    this.groups = []; // { name, about, nodes, x, y, left, top, width, height, and radius where it is round }
    this.groupOf = nodes.map(() => -1);
    this.open = new Set();
    this.small = 2 * radius * unit < SMALLEST_PX; // so that a group that is opened has to be enlarged
    if (servers <= FEW_SERVERS && !this.small) return;
    const byKey = new Map();
    keysOf(nodes, cables, servers).forEach((keys, number) => {
      const key = [...keys].sort().join(" ");
      if (!byKey.has(key)) byKey.set(key, []);
      byKey.get(key).push(number);
    });
    for (const [key, members] of byKey) {
      if (members.length < 2) continue;
      for (const number of members) this.groupOf[number] = this.groups.length;
      const count = members.filter((number) => number < servers).length;
      const [name, about] = count ? [`${key}.*`, `${count} servers`] : [`${members.length} switches`, ""];
      const frame = frameOf(members.filter((number) => number < servers), nodes, servers, frames);
      const sides = frame ? sidesOf(frame) : boxAround(members.map((number) => nodes[number]), box);
      this.groups.push({ name: frame?.name || name, about, nodes: members, framed: Boolean(frame), radius: frame?.radius, ...sides, ...centreOf(sides) });
    }
    this.groups.forEach((group, number) => {
      if (!group.radius) shrink(group, nodes.filter((_, node) => this.groupOf[node] !== number));
    });
    const boxes = this.groups.filter((group) => !group.framed);
    boxes.forEach((group, i) => boxes.slice(i + 1).forEach((other) => separate(group, other)));
  }

  // The group in which a node is hidden now, or -1.
  hiding(node) {
    return this.open.has(this.groupOf[node]) ? -1 : this.groupOf[node];
  }

  // Open the groups of these nodes; tell whether any was folded.
  reveal(nodes) {
    const folded = nodes.map((node) => this.hiding(node)).filter((group) => group >= 0);
    for (const group of folded) this.open.add(group);
    return folded.length > 0;
  }

  foldAll() {
    this.open.clear();
  }
}

// The first parts of the addresses of each server, or of those that a switch joins.
function keysOf(nodes, cables, servers) {
  const found = nodes.map(({ name }, number) => new Set(number < servers ? [name.split(".")[0]] : []));
  let missing = found.length - servers;
  for (let before = Infinity; missing && missing < before; ) {
    before = missing;
    const known = found.map((keys) => keys.size > 0); // as of this round: upper switches come later
    for (const { a, b } of cables) {
      for (const [one, other] of [[a, b], [b, a]]) {
        if (one >= servers && !known[one] && known[other]) for (const key of found[other]) found[one].add(key);
      }
    }
    missing = found.filter((keys) => !keys.size).length;
  }
  return found;
}

// The frame around these servers and no others, if one is drawn.
function frameOf(members, nodes, servers, frames) {
  const own = new Set(members);
  return frames.find((frame) => {
    let count = 0;
    for (let number = 0; number < servers; number += 1) {
      if (!isWithin(frame, nodes[number])) continue;
      if (!own.has(number)) return false;
      count += 1;
    }
    return count > 0 && count === own.size;
  });
}

function sidesOf({ x, y, radius, left, top, width, height }) {
  if (!radius) return { left, top, width, height };
  return { left: x - radius, top: y - radius, width: 2 * radius, height: 2 * radius };
}

function boxAround(places, [, highest, broad]) {
  const [xs, ys] = [places.map(({ x }) => x), places.map(({ y }) => y)];
  const [left, top] = [Math.min(...xs) - 0.5, Math.min(...ys) - 0.5];
  const [narrow, low] = [Math.max(...xs) + 0.5 - left, Math.max(...ys) + 0.5 - top];
  const [width, height] = [Math.max(narrow, broad / COLUMN), Math.max(low, broad / ROW)]; // for its text
  return { left: left - (width - narrow) / 2, top: Math.max(top - (height - low) / 2, highest), width, height };
}

// Make a rectangle smaller until it covers none of these nodes.
function shrink(group, nodes) {
  const { x, y } = group;
  for (const node of nodes) {
    const across = Math.abs(node.x - x) - ((node.width ?? 1) / 2 + ROOM);
    const up = Math.abs(node.y - y) - (0.42 + ROOM);
    const [outX, outY] = [across / (group.width / 2), up / (group.height / 2)];
    if (outX >= 1 || outY >= 1) continue;
    if (outX > outY) group.width *= Math.max(outX, 0.2);
    else group.height *= Math.max(outY, 0.2);
  }
  resize(group, 1, 1);
}

// Make two rectangles smaller, so that there is room for the cables between them.
function separate(group, other) {
  const across = Math.abs(group.x - other.x) / ((group.width + other.width) / 2);
  const up = Math.abs(group.y - other.y) / ((group.height + other.height) / 2);
  if (across >= 1 / APART || up >= 1 / APART) return;
  for (const one of [group, other]) resize(one, across > up ? APART * across : 1, across > up ? 1 : APART * up);
}

function resize(group, across, up) {
  group.width *= across;
  group.height *= up;
  group.left = group.x - group.width / 2;
  group.top = group.y - group.height / 2;
}
