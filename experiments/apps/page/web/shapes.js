// Geometry of the picture: lines, Bézier curves, and their distances from nodes.

const SVG = "http://www.w3.org/2000/svg";
const CHECKS = 48; // number of points per cable at which the distance from nodes is checked

// Create an SVG element with attributes, and append it to a parent.
export function svgElement(tag, attributes, parent) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  parent?.append(node);
  return node;
}

// Return the direction in which a line or curve begins, in radians.
export function directionOf([[x1, y1], [x2, y2]]) {
  return Math.atan2(y2 - y1, x2 - x1);
}

export function pointOf({ x, y }) {
  return [x, y];
}

export function outlineOf({ x, y, radius, width, height }) {
  return radius ? { x, y, radius } : { x, y, halfWidth: width / 2, halfHeight: height / 2 };
}

export function centreOf({ x, y, radius, left, top, width, height }) {
  return radius ? { x, y } : { x: left + width / 2, y: top + height / 2 };
}

// Return true if a round or rectangular frame or group contains a point.
export function isWithin(frame, { x, y }) {
  if (frame.radius) return Math.hypot(x - frame.x, y - frame.y) < frame.radius;
  const { left, top, width, height } = frame;
  return x > left && x < left + width && y > top && y < top + height;
}

// Return the points of a line or curve, shifted to the right of its direction by `aside`.
export function shifted(points, aside) {
  const [x1, y1] = points[0];
  const [x2, y2] = points.at(-1);
  const length = Math.hypot(x2 - x1, y2 - y1) || 1;
  return points.map(([x, y]) => [x - ((y2 - y1) / length) * aside, y + ((x2 - x1) / length) * aside]);
}

// Return the SVG path data of a line (two points) or a Bézier curve (four points).
export function pathData(points) {
  const [first, ...rest] = points.map((point) => point.join(" "));
  return `M${first}${rest.length === 3 ? "C" : "L"}${rest.join(" ")}`;
}

// Return the point at a share (0 to 1) of a line or curve.
export function pointAt(points, share) {
  const rest = 1 - share;
  const weights =
    points.length === 2
      ? [rest, share]
      : [rest ** 3, 3 * rest ** 2 * share, 3 * rest * share ** 2, share ** 3];
  return [0, 1].map((i) => points.reduce((sum, point, j) => sum + point[i] * weights[j], 0));
}

// Return the point `aside` to the right of a line or curve at a share, and the direction there.
export function poseAt(points, share, aside) {
  const [before, after] = [pointAt(points, Math.max(0, share - 0.01)), pointAt(points, Math.min(1, share + 0.01))];
  const [dx, dy] = [after[0] - before[0], after[1] - before[1]];
  const length = Math.hypot(dx, dy) || 1;
  const along = [dx / length, dy / length];
  const [x, y] = pointAt(points, share);
  return { at: [x - along[1] * aside, y + along[0] * aside], along };
}

export function lengthOf(points) {
  let sum = 0;
  for (let i = 1; i <= 16; i += 1) {
    const [a, b] = [pointAt(points, (i - 1) / 16), pointAt(points, i / 16)];
    sum += Math.hypot(b[0] - a[0], b[1] - a[1]);
  }
  return sum;
}

// Return the distance of a point from a shape: a circle (radius), or a rectangle (half width, height).
export function distanceTo({ x, y, radius, halfWidth, halfHeight }, [px, py]) {
  if (radius) return Math.hypot(px - x, py - y) - radius;
  return Math.hypot(Math.max(0, Math.abs(px - x) - halfWidth), Math.max(0, Math.abs(py - y) - halfHeight));
}

// Return true if a rectangle, given by its centre and half its size, overlaps a shape.
function covers([x, y], [halfWidth, halfHeight], shape) {
  const { radius, halfWidth: wide = radius, halfHeight: high = radius } = shape;
  return Math.abs(x - shape.x) < halfWidth + wide && Math.abs(y - shape.y) < halfHeight + high;
}

// Return the centre of a rectangle near a point that overlaps no shape and is inside the box, or null.
export function freePlaceNear([x, y], [halfWidth, halfHeight], shapes, [left, top, width, height]) {
  const isInside = ([cx, cy]) =>
    cx - halfWidth > left && cx + halfWidth < left + width && cy - halfHeight > top && cy + halfHeight < top + height;
  const farthest = Math.max(2, halfWidth + halfHeight);
  for (let away = 1.4 * halfHeight; away < farthest; away += halfHeight / 2) {
    for (let turn = 0; turn < 2 * Math.PI; turn += Math.PI / 8) {
      const centre = [x + away * Math.sin(turn), y - away * Math.cos(turn)];
      if (isInside(centre) && shapes.every((shape) => !covers(centre, [halfWidth, halfHeight], shape))) return centre;
    }
  }
  return null;
}

// Return the first and last share of a line or curve outside the shapes at its two ends.
export function visibleShares(points, ends) {
  const outside = (share, shape) => distanceTo(shape, pointAt(points, share)) > 0;
  let [from, to] = [0, 1];
  while (from < 0.5 && !outside(from, ends[0])) from += 1 / CHECKS;
  while (to > 0.5 && !outside(to, ends[1])) to -= 1 / CHECKS;
  return [from, to];
}

// Return the first and last share of a line's or curve's longest section with a distance of more
// than `room` from all shapes, or null. The section lies within two shares, `aside` to the right.
export function freeStretch(points, [from, to], aside, room, shapes) {
  let best = null;
  let begin = null;
  for (let i = 0; i <= CHECKS; i += 1) {
    const share = from + ((to - from) * i) / CHECKS;
    const { at } = poseAt(points, share, aside);
    const free = shapes.every((shape) => distanceTo(shape, at) > room);
    if (free) begin ??= share;
    else begin = null;
    if (begin !== null && (!best || share - begin > best[1] - best[0])) best = [begin, share];
  }
  return best;
}

// Return the SVG path of an arrow head at a point; its right side is wider, away from the other lane.
export function arrowHead({ at, along }, length, right, left) {
  const place = (forward, aside) => [
    at[0] + along[0] * forward - along[1] * aside,
    at[1] + along[1] * forward + along[0] * aside,
  ];
  return `M${[place(length / 2, 0), place(-length / 2, right), place(-length / 2, -left)].join("L")}Z`;
}
