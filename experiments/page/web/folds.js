// Groups of a large network that are drawn as one: those whose addresses begin alike (a DCell_1 of
// DCell_2s, a DPillar column, a pod), and switches that join the same groups.

const FEW_SERVERS = 150;

export class Folds {
  constructor(recording) {
    const { nodes, cables, servers } = recording.picture;
    this.groups = []; // { name, about, nodes, left, top, width, height }
    this.groupOf = nodes.map(() => -1);
    this.open = new Set();
    if (servers <= FEW_SERVERS) return;
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
      this.groups.push({ name, about, nodes: members, ...boxAround(members.map((number) => nodes[number])) });
    }
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

function boxAround(places) {
  const [xs, ys] = [places.map(({ x }) => x), places.map(({ y }) => y)];
  const [left, top] = [Math.min(...xs) - 0.5, Math.min(...ys) - 0.5];
  return { left, top, width: Math.max(...xs) + 0.5 - left, height: Math.max(...ys) + 0.5 - top };
}
