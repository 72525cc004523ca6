// Node groups of a large network, which are drawn as one box: servers with the same first part of
// the address (a DCell_1 of DCell_2s, a DPillar column, a pod), and switches that join the same groups.

import { centreOf, isWithin } from "./shapes.js";

const FEW_SERVERS = 150; // maximum size of a network that is not folded, in servers
const SMALLEST_PX = 7; // minimum diameter of a server in pixels; a smaller network is folded
const ROWS_PER_WIDTH = 22; // ratio of the picture's width to the minimum height of a group
const COLUMNS_PER_WIDTH = 12; // ratio of the picture's width to the minimum width of a group
const GROUP_COVER = 0.75; // share of the distance between two frameless groups that they may cover
const GROUP_MARGIN = 0.2; // minimum distance between a group and a node outside the group, in layout units

export class Folds {
  // `unit`: pixels per layout unit when the whole picture is shown.
  constructor(recording, unit = Infinity) {
    const { nodes, cables, servers, radius, frames = [], box = [0, 0, 0, 0] } = recording.picture;
    this.groups = []; // { name, about, nodes, x, y, left, top, width, height; radius of round groups }
    this.groupOf = nodes.map(() => -1);
    this.open = new Set();
    this.small = 2 * radius * unit < SMALLEST_PX; // an unfolded group is then zoomed in
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

  // Return the number of the folded group that contains a node, or -1.
  hiding(node) {
    return this.open.has(this.groupOf[node]) ? -1 : this.groupOf[node];
  }

  // Unfold the groups of these nodes; return true if a group was folded.
  reveal(nodes) {
    const folded = nodes.map((node) => this.hiding(node)).filter((group) => group >= 0);
    for (const group of folded) this.open.add(group);
    return folded.length > 0;
  }

  foldAll() {
    this.open.clear();
  }
}

// Return the first address parts of each node: of a server, or of the servers that a switch joins.
function keysOf(nodes, cables, servers) {
  const found = nodes.map(({ name }, number) => new Set(number < servers ? [name.split(".")[0]] : []));
  let missing = found.length - servers;
  for (let before = Infinity; missing && missing < before; ) {
    before = missing;
    const known = found.map((keys) => keys.size > 0); // of earlier rounds only: higher levels come later
    for (const { a, b } of cables) {
      for (const [one, other] of [[a, b], [b, a]]) {
        if (one >= servers && !known[one] && known[other]) for (const key of found[other]) found[one].add(key);
      }
    }
    missing = found.filter((keys) => !keys.size).length;
  }
  return found;
}

// Return the drawn frame that contains exactly these servers, or undefined.
function frameOf(members, nodes, servers, frames) {
  const memberSet = new Set(members);
  return frames.find((frame) => {
    let count = 0;
    for (let number = 0; number < servers; number += 1) {
      if (!isWithin(frame, nodes[number])) continue;
      if (!memberSet.has(number)) return false;
      count += 1;
    }
    return count > 0 && count === memberSet.size;
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
  const width = Math.max(narrow, broad / COLUMNS_PER_WIDTH); // leaves space for the group's name
  const height = Math.max(low, broad / ROWS_PER_WIDTH);
  return { left: left - (width - narrow) / 2, top: Math.max(top - (height - low) / 2, highest), width, height };
}

// Shrink a group's rectangle until it covers none of these nodes.
function shrink(group, nodes) {
  const { x, y } = group;
  for (const node of nodes) {
    const across = Math.abs(node.x - x) - ((node.width ?? 1) / 2 + GROUP_MARGIN);
    const up = Math.abs(node.y - y) - (0.42 + GROUP_MARGIN);
    const [outX, outY] = [across / (group.width / 2), up / (group.height / 2)];
    if (outX >= 1 || outY >= 1) continue;
    if (outX > outY) group.width *= Math.max(outX, 0.2);
    else group.height *= Math.max(outY, 0.2);
  }
  resize(group, 1, 1);
}

// Shrink two group rectangles, so that the cables between the groups stay visible.
function separate(group, other) {
  const across = Math.abs(group.x - other.x) / ((group.width + other.width) / 2);
  const up = Math.abs(group.y - other.y) / ((group.height + other.height) / 2);
  if (across >= 1 / GROUP_COVER || up >= 1 / GROUP_COVER) return;
  for (const one of [group, other]) resize(one, across > up ? GROUP_COVER * across : 1, across > up ? 1 : GROUP_COVER * up);
}

function resize(group, across, up) {
  group.width *= across;
  group.height *= up;
  group.left = group.x - group.width / 2;
  group.top = group.y - group.height / 2;
}
