"use strict";

// Replay of the recording: the tree at a moment, and its figures. No drawing.

const ROOT = 1;
const DETACHED = 2;
const SUBSCRIBED = 4;
const DOWN = 8;
const MAX_WORK = 4e7;  // Maximum visits of nodes for the figures over time; above it, moments are skipped.

// Kinds of changes: group (which can be hidden), sign, effect on the tree (-1 bad, 1 good), and text.
const KINDS = new Map([
  ["attached", {group: "tree", sign: "\u2191", effect: 1, text: (node, value) => `${node} has the parent ${value}`}],
  ["root", {group: "tree", sign: "\u25c6", effect: 1, text: (node) => `${node} is a root`}],
  ["detached", {group: "tree", sign: "\u21a5", effect: -1, text: (node) => `${node} lost its parent`}],
  ["dropped", {group: "tree", sign: "\u2212", effect: 0, text: (node) => `${node} left the tree`}],
  ["subscribed", {group: "subscriptions", sign: "+", effect: 0, text: (node) => `${node} subscribes`}],
  ["unsubscribed", {group: "subscriptions", sign: "\u2212", effect: 0, text: (node) => `${node} unsubscribes`}],
  ["down", {group: "nodes", sign: "\u2715", effect: -1, text: (node) => `${node} is down`}],
  ["up", {group: "nodes", sign: "\u2713", effect: 1, text: (node) => `${node} is up`}],
  ["published", {group: "packets", sign: "\u2709", effect: 0, text: (node, value) => `${node} publishes ${value}`}],
  ["moved", {group: "elsewhere", sign: "\u2194", effect: 0,
             text: (node, value) => `${node} moves to ${value.toFixed(4)}`}],
  ["linked", {group: "elsewhere", sign: "\u2014", effect: 0, text: (node, value) => `${node} and ${value} are linked`}],
  ["unlinked", {group: "elsewhere", sign: "\u2262", effect: 0, text: (node, value) => `${node} and ${value} are unlinked`}],
]);
const GROWTH = new Set(["attached", "root", "dropped", "subscribed", "linked"]);  // Changes of an undisturbed network.
const GROUPS = ["tree", "subscriptions", "nodes", "packets", "elsewhere"];

// Changes in order: {line, t, what, node, value, group, text, long}; long is the full text.
function changesOf(recording, stream) {
  const concerned = new Set(stream.changes.flatMap(([, , code, node, value]) => (
    recording.whats[code] === "attached" ? [node, value] : [node])));
  const read = ([line, t, code, node, value]) => {
    const what = recording.whats[code];
    const kind = KINDS.get(what);
    const group = kind.group === "nodes" && !concerned.has(node) ? "elsewhere" : kind.group;
    const text = kind.text(node, value);
    return {line, t, what, node, value, group, text, long: text};
  };
  const packets = stream.packets.map(([line, t, node, number, count, until]) => {
    const format = (name, receivers) =>
      node < 0 ? `${name}, published earlier: ${receivers}` : `${node} publishes ${name}: ${receivers}`;
    const receivers = `received by ${count.toLocaleString("en")}`;
    return {line, t, what: "published", node, value: number, group: "packets",
            text: format(number.length > 7 ? `\u2026${number.slice(-6)}` : number, receivers),
            long: format(number, receivers + (count && until > t ? ` in ${span(until - t)}` : ""))};
  });
  const changes = [...recording.network.map(read), ...stream.changes.map(read), ...packets];
  changes.sort((a, b) => a.line - b.line);
  const members = new Set();
  for (const change of changes) {
    const {what, node} = change;
    if (what === "dropped" && !members.delete(node)) {
      // The node searched for the stream for a peer, without success.
      change.group = "elsewhere";
      change.text = change.long = `${node} ends its search`;
    }
    if (what === "attached" || what === "root") members.add(node);
  }
  return changes;
}

class Replay {
  constructor(recording, stream) {
    this.recording = recording;
    this.stream = stream;
    this.n = recording.locations.length;
    this.changes = changesOf(recording, stream);
    this.moments = [...new Set([0, ...this.changes.map((change) => change.t), recording.finish])];
    this.parent = new Int32Array(this.n);
    this.flags = new Uint8Array(this.n);
    this.depth = new Int32Array(this.n);
    this.top = new Int32Array(this.n);
    this.children = new Int32Array(this.n);
    this.path = new Int32Array(this.n);
    this.reset();
  }

  reset() {
    this.parent.fill(-1);
    this.flags.fill(0);
    this.before = new Map();  // State of nodes that are down, for those that restart with it.
    this.locations = Float64Array.from(this.recording.locations);
    this.links = null;  // Computed on demand; rarely shown.
    this.index = 0;
    this.t = 0;
    this.laidOut = (this.laidOut ?? 0) + 1;  // Incremented when a location or a link changes.
  }

  // Go to the state at t; return the changed nodes, or null if t is in the past.
  seek(t) {
    const back = t < this.t;
    if (back) this.reset();
    this.t = t;
    const touched = [];
    while (this.index < this.changes.length && this.changes[this.index].t <= t) {
      const change = this.changes[this.index++];
      this.apply(change);
      touched.push(change.node);
    }
    return back ? null : touched;
  }

  apply({what, node, value}) {
    const {flags, parent} = this;
    switch (what) {
      case "attached": parent[node] = value; flags[node] &= ~(ROOT | DETACHED); break;
      case "root": parent[node] = -1; flags[node] = flags[node] & ~DETACHED | ROOT; break;
      case "detached": parent[node] = -1; flags[node] = flags[node] & ~ROOT | DETACHED; break;
      case "dropped": parent[node] = -1; flags[node] &= ~(ROOT | DETACHED); break;
      case "down":
        if (!(flags[node] & DOWN)) this.before.set(node, [parent[node], flags[node] & (ROOT | DETACHED)]);
        parent[node] = -1;
        flags[node] = flags[node] & ~(ROOT | DETACHED) | DOWN;
        break;
      case "up":
        flags[node] &= ~DOWN;
        if (value === 1 && this.before.has(node)) {
          const [above, flag] = this.before.get(node);
          parent[node] = above;
          flags[node] |= flag;
        }
        this.before.delete(node);
        break;
      case "subscribed": flags[node] |= SUBSCRIBED; break;
      case "unsubscribed": flags[node] &= ~SUBSCRIBED; break;
      case "moved": this.locations[node] = value; this.laidOut++; break;
      case "linked": this.links?.add(node * this.n + value); this.laidOut++; break;
      case "unlinked": this.links?.delete(node * this.n + value); this.laidOut++; break;
    }
  }

  // Current links, each as lower * n + higher.
  linksNow() {
    if (this.links) return this.links;
    const {n, recording: {links}} = this;
    this.links = new Set();
    for (let i = 0; i < links.length; i += 2) this.links.add(links[i] * n + links[i + 1]);
    for (const {what, node, value} of this.changes.slice(0, this.index)) {
      if (what === "linked") this.links.add(node * n + value);
      else if (what === "unlinked") this.links.delete(node * n + value);
    }
    return this.links;
  }

  isMember(node) {
    return this.parent[node] >= 0 || (this.flags[node] & (ROOT | DETACHED)) !== 0;
  }

  // Compute depth (-1: no root), top (the root) and children of each node, and the figures.
  measure() {
    const {n, parent, flags, depth, top, children, path} = this;
    const found = {edges: 0, members: 0, roots: 0, unrooted: 0, detached: 0, deepest: -1, subscribers: 0, alive: 0,
                   reached: 0, down: 0};
    depth.fill(-2);
    top.fill(-1);
    children.fill(0);
    for (let node = 0; node < n; node++) {
      if (flags[node] & ROOT) {
        depth[node] = 0;
        top[node] = node;
      }
    }
    const inTree = new Map();
    for (let node = 0; node < n; node++) {
      const flag = flags[node];
      if (parent[node] >= 0) {
        found.edges++;
        children[parent[node]]++;
        let steps = 0;
        let at = node;
        // A path that returns to itself is a cycle; its nodes keep the -1.
        while (at >= 0 && depth[at] === -2) {
          depth[at] = -1;
          path[steps++] = at;
          at = parent[at];
        }
        let above = at < 0 ? -1 : depth[at];
        const root = at < 0 ? -1 : top[at];
        while (steps--) {
          if (above >= 0) above++;
          depth[path[steps]] = above;
          top[path[steps]] = above < 0 ? -1 : root;
        }
      } else if (depth[node] === -2) {
        depth[node] = -1;
      }
      if (flag & DOWN) found.down++;
      if (flag & SUBSCRIBED) found.subscribers++;
      if (flag & ROOT) found.roots++;
      if (flag & DETACHED) found.detached++;
    }
    for (let node = 0; node < n; node++) {
      const member = this.isMember(node);
      if (member) found.members++;
      if (member && depth[node] < 0) found.unrooted++;
      if (depth[node] > found.deepest) found.deepest = depth[node];
      if ((flags[node] & (SUBSCRIBED | DOWN)) === SUBSCRIBED) {
        found.alive++;
        if (top[node] >= 0) inTree.set(top[node], (inTree.get(top[node]) ?? 0) + 1);
      }
    }
    for (const count of inTree.values()) if (count > found.reached) found.reached = count;
    found.reach = found.alive ? found.reached / found.alive : NaN;
    return found;
  }

  // The moment at which the tree had grown: its last change before the first fault, departure or packet.
  grownAt() {
    let grown = 0;
    for (const {t, what} of this.changes) {
      if (!GROWTH.has(what)) break;
      if (what === "attached" || what === "root") grown = t;
    }
    return grown;
  }

  // Figures over time. Leaves the replay at the start.
  history() {
    const every = Math.ceil(this.moments.length * 2 * this.n / MAX_WORK);
    const points = [];
    this.reset();
    this.moments.forEach((t, i) => {
      if (i % every && i !== this.moments.length - 1) return;
      this.seek(t);
      const {reach, roots, deepest, members} = this.measure();
      points.push({t, reach, roots, deepest, members});
    });
    this.reset();
    return points;
  }
}

// Index of the first value above the limit in an ascending array.
function firstAbove(length, valueAt, limit) {
  let low = 0;
  let high = length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (valueAt(middle) <= limit) low = middle + 1;
    else high = middle;
  }
  return low;
}

function span(s) {
  if (s === 0) return "0 s";
  if (s < 1e-3) return `${+(s * 1e6).toPrecision(3)} \u00b5s`;
  if (s < 1) return `${+(s * 1e3).toPrecision(3)} ms`;
  return `${+s.toPrecision(4)} s`;
}
