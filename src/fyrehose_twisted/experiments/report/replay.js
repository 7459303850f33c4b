"use strict";

// The recording, replayed: which tree there is at a moment, and what can be said of it. Nothing here draws.

const ROOT = 1;
const DETACHED = 2;
const SUBSCRIBED = 4;
const DOWN = 8;
const MOST_WORK = 4e7;  // Visits of nodes for the figures over time; with more, some moments are left out.

// What happens, in groups that are shown or not: sign, words, and whether it is bad (-1) or good (1) for the tree.
const KINDS = new Map([
  ["attached", {group: "tree", sign: "\u2191", mood: 1, say: (node, value) => `${node} is now below ${value}`}],
  ["root", {group: "tree", sign: "\u25c6", mood: 1, say: (node) => `${node} is a root`}],
  ["detached", {group: "tree", sign: "\u21a5", mood: -1, say: (node) => `${node} has lost its parent`}],
  ["dropped", {group: "tree", sign: "\u2212", mood: 0, say: (node) => `${node} has left`}],
  ["subscribed", {group: "subscriptions", sign: "+", mood: 0, say: (node) => `${node} subscribes`}],
  ["unsubscribed", {group: "subscriptions", sign: "\u2212", mood: 0, say: (node) => `${node} unsubscribes`}],
  ["down", {group: "nodes", sign: "\u2715", mood: -1, say: (node) => `${node} is down`}],
  ["up", {group: "nodes", sign: "\u2713", mood: 1, say: (node) => `${node} is up`}],
  ["published", {group: "packets", sign: "\u2709", mood: 0, say: (node, value) => `${node} publishes ${value}`}],
  ["moved", {group: "elsewhere", sign: "\u2194", mood: 0,
             say: (node, value) => `${node} moves to ${value.toFixed(4)}`}],
  ["linked", {group: "elsewhere", sign: "\u2014", mood: 0, say: (node, value) => `${node} and ${value} are linked`}],
  ["unlinked", {group: "elsewhere", sign: "\u2262", mood: 0, say: (node, value) => `${node} and ${value} part`}],
]);
const GROUPS = ["tree", "subscriptions", "nodes", "packets", "elsewhere"];

// What happened, in order: {line, t, what, node, value, group, text, long}; long says more than there is room for.
function changesOf(recording, stream) {
  const concerned = new Set(stream.changes.flatMap(([, , code, node, value]) => (
    recording.whats[code] === "attached" ? [node, value] : [node])));
  const read = ([line, t, code, node, value]) => {
    const what = recording.whats[code];
    const kind = KINDS.get(what);
    const group = kind.group === "nodes" && !concerned.has(node) ? "elsewhere" : kind.group;
    const text = kind.say(node, value);
    return {line, t, what, node, value, group, text, long: text};
  };
  const packets = stream.packets.map(([line, t, node, number, count, until]) => {
    const say = (name, got) => node < 0 ? `${name}, of before: ${got}` : `${node} publishes ${name}: ${got}`;
    const got = `${count.toLocaleString("en")} got it`;
    return {line, t, what: "published", node, value: number, group: "packets",
            text: say(number.length > 7 ? `\u2026${number.slice(-6)}` : number, got),
            long: say(number, got + (count && until > t ? ` in ${span(until - t)}` : ""))};
  });
  const changes = [...recording.network.map(read), ...stream.changes.map(read), ...packets];
  changes.sort((a, b) => a.line - b.line);
  const members = new Set();
  for (const change of changes) {
    const {what, node} = change;
    if (what === "dropped" && !members.delete(node)) {
      // It was asked to look for the stream, and did not find it.
      change.group = "elsewhere";
      change.text = change.long = `${node} stops looking`;
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
    this.before = new Map();  // What nodes that are down had, for those that come back with it.
    this.locations = Float64Array.from(this.recording.locations);
    this.links = null;  // Made when they are wanted: most never look.
    this.index = 0;
    this.t = 0;
    this.laidOut = (this.laidOut ?? 0) + 1;  // Another number whenever a location or a link has changed.
  }

  // Go to the state after all that happened until t; returns the nodes that changed, null if that went backwards.
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

  // The links at this moment, each as lower * n + higher.
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

  // Fill depth (-1: reaches no root), top (its root) and children, and count.
  measure() {
    const {n, parent, flags, depth, top, children, path} = this;
    const found = {edges: 0, members: 0, roots: 0, adrift: 0, detached: 0, deepest: -1, subscribers: 0, alive: 0,
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
        // Whoever comes back to a node of its own path is in a cycle, and finds the -1 here.
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
      if (member && depth[node] < 0) found.adrift++;
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

  // How the figures change over time; leaves the replay at the start.
  history() {
    const every = Math.ceil(this.moments.length * 2 * this.n / MOST_WORK);
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

// The first place in an ascending array whose value is above the limit.
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
