// The ring: nodes at their locations, and the tree between them.

const RING_MARGIN = 38;
const FRESH = 700;  // Milliseconds for which changes are highlighted.
const RAMP = 5;  // Number of depth colours in the style sheet.
const NAMES = ["card", "ink", "soft", "line", "lane", "accent", "unrooted", "several", "dead", "link", "dot", "text"];

const byId = (id) => document.getElementById(id);

function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key in made) made[key] = value;
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

function readColours() {
  const style = getComputedStyle(document.documentElement);
  const value = (name) => style.getPropertyValue(`--${name}`).trim();
  const colours = Object.fromEntries(NAMES.map((name) => [name, value(name)]));
  colours.ramp = Array.from({length: RAMP}, (_, i) => {
    const number = parseInt(value(`depth-${i}`).slice(1), 16);
    return [number >> 16, number >> 8 & 255, number & 255];
  });
  return colours;
}

// Match a canvas to the screen's resolution; return its context, cleared, in CSS pixels.
function cleared(canvas, width, height) {
  const scale = devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(height * scale);
  }
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

class Ring {
  constructor() {
    this.place = byId("ring");
    this.colours = readColours();
    this.size = 0;
    this.showLinks = false;
    this.focus = -1;
    this.hover = -1;
    this.fresh = new Map();  // Time of the last change by node, on the animation clock.
    this.groundOf = "";
  }

  show(replay, deepest) {
    this.replay = replay;
    this.deepest = Math.max(deepest, 1);  // Greater depths have the last colour.
    this.fresh.clear();
    this.groundOf = "";
  }

  resize() {
    const width = byId("seat").clientWidth;
    this.size = Math.max(240, Math.min(width, 860, Math.max(innerHeight - 400, 400)));
    this.place.style.width = this.place.style.height = `${this.size}px`;
    this.centre = this.size / 2;
    this.radius = this.centre - RING_MARGIN;
    this.groundOf = "";
  }

  // 0 is at the top, and locations grow clockwise.
  at(location, radius = this.radius) {
    const angle = 2 * Math.PI * location;
    return [this.centre + radius * Math.sin(angle), this.centre - radius * Math.cos(angle)];
  }

  position(node) {
    return this.at(this.replay.locations[node]);
  }

  // Control point of the edge between two nodes: the farther apart they are, the closer to the centre.
  bend(a, b) {
    const one = this.replay.locations[a];
    let apart = this.replay.locations[b] - one;
    if (apart > 0.5) apart -= 1;
    else if (apart < -0.5) apart += 1;
    return this.at(one + apart / 2, this.radius * (0.92 - 0.92 * (2 * Math.abs(apart)) ** 0.6));
  }

  colourOf(depth) {
    if (depth < 0) return this.colours.unrooted;
    const place = Math.min(depth / this.deepest, 1) * (RAMP - 1);
    const low = Math.min(Math.floor(place), RAMP - 2);
    const mixed = this.colours.ramp[low].map((value, i) => (
      Math.round(value + (place - low) * (this.colours.ramp[low + 1][i] - value))));
    return `rgb(${mixed.join(" ")})`;
  }

  curve(context, node, parent) {
    const [x1, y1] = this.position(node);
    const [x2, y2] = this.position(parent);
    const [cx, cy] = this.bend(node, parent);
    context.moveTo(x1, y1);
    context.quadraticCurveTo(cx, cy, x2, y2);
  }

  // The static background: the ring, all nodes as dots, the key, and optionally the links.
  drawGround() {
    const {replay, colours, size, radius} = this;
    const state = `${replay.laidOut} ${size} ${devicePixelRatio} ${this.showLinks} ${colours.card}`;
    if (state === this.groundOf) return;
    this.groundOf = state;
    const context = cleared(byId("ground"), size, size);
    context.lineWidth = 1;
    context.strokeStyle = colours.line;
    context.beginPath();
    context.arc(this.centre, this.centre, radius, 0, 2 * Math.PI);
    context.stroke();
    context.fillStyle = colours.soft;
    context.font = `11px ${colours.text}`;
    context.textBaseline = "middle";
    context.textAlign = "center";
    const key = replay.stream.location;
    for (const tick of [0, 0.25, 0.5, 0.75]) {
      context.beginPath();
      context.moveTo(...this.at(tick, radius + 5));
      context.lineTo(...this.at(tick, radius + 10));
      context.stroke();
      const apart = Math.abs(tick - key);
      if (Math.min(apart, 1 - apart) > 0.035) context.fillText(tick || "0", ...this.at(tick, radius + 21));
    }
    if (this.showLinks) {
      context.strokeStyle = colours.link;
      const links = replay.linksNow();
      context.globalAlpha = Math.max(0.07, Math.min(0.5, 120 / links.size));
      context.beginPath();
      for (const link of links) this.curve(context, Math.floor(link / replay.n), link % replay.n);
      context.stroke();
      context.globalAlpha = 1;
    }
    const dot = Math.max(0.9, Math.min(2.5, radius / replay.n * 2.5));
    context.fillStyle = colours.dot;
    context.beginPath();
    for (let node = 0; node < replay.n; node++) {
      const [x, y] = this.position(node);
      context.moveTo(x, y);
      context.arc(x, y, dot, 0, 2 * Math.PI);
    }
    context.fill();
    // The key: a wedge that points to its location.
    const [x, y] = this.at(key, radius + 6);
    context.save();
    context.translate(x, y);
    context.rotate(2 * Math.PI * key);
    context.fillStyle = colours.accent;
    context.beginPath();
    context.moveTo(0, 0);
    context.lineTo(-5, -10);
    context.lineTo(5, -10);
    context.fill();
    context.restore();
    context.fillStyle = colours.accent;
    context.font = `600 12px ${colours.text}`;
    context.fillText("key", ...this.at(key, radius + 24 + 6 * Math.abs(Math.sin(2 * Math.PI * key))));
  }

  // Nodes on the path from the focused one to its root, and its children.
  lookedAt() {
    const {replay} = this;
    const node = this.hover >= 0 ? this.hover : this.focus;
    if (node < 0) return null;
    const way = new Set();
    for (let at = node; at >= 0 && !way.has(at); at = replay.parent[at]) way.add(at);
    return {node, way};
  }

  // Draw the tree; return whether a highlight is fading, so that another frame is needed.
  draw(now) {
    this.drawGround();
    const {replay, colours, size} = this;
    const context = cleared(byId("tree"), size, size);
    const {n, parent, depth, flags} = replay;
    const looked = this.lookedAt();
    const faint = looked ? 0.16 : 1;
    const batches = new Map();
    for (let node = 0; node < n; node++) {
      if (parent[node] < 0) continue;
      const near = looked && (looked.way.has(node) || parent[node] === looked.node);
      const batch = `${depth[node]} ${near ? 1 : 0}`;
      if (!batches.has(batch)) batches.set(batch, []);
      batches.get(batch).push(node);
    }
    const width = Math.max(0.9, Math.min(1.8, 260 / Math.max(1, replay.figures.edges)));
    // Deepest nodes first, so that those near the root are drawn above them; unrooted ones last.
    const order = [...batches].map(([batch, nodes]) => [...batch.split(" ").map(Number), nodes]);
    order.sort((a, b) => a[1] - b[1] || (a[0] < 0) - (b[0] < 0) || b[0] - a[0]);
    for (const [at, near, nodes] of order) {
      context.strokeStyle = this.colourOf(at);
      context.globalAlpha = near ? 1 : faint * (at < 0 ? 0.9 : 0.85);
      context.lineWidth = near ? 2.6 : width;
      context.setLineDash(at < 0 ? [5, 3] : []);
      context.beginPath();
      for (const node of nodes) this.curve(context, node, parent[node]);
      context.stroke();
    }
    context.setLineDash([]);
    const fading = this.drawFresh(context, now);
    const crowd = 0.33 * this.radius * 2 * Math.PI / Math.max(1, replay.figures.members);
    this.dotSize = Math.max(2.3, Math.min(5, crowd * 1.4));
    for (const pass of [0, 1, 2]) {
      for (let node = 0; node < n; node++) {
        const rank = flags[node] & ROOT ? 2 : replay.isMember(node) ? 1 : flags[node] ? 0 : -1;
        if (rank !== pass) continue;
        context.globalAlpha = !looked || looked.way.has(node) || parent[node] === looked.node ? 1 : 0.3;
        this.drawNode(context, node);
      }
    }
    context.globalAlpha = 1;
    if (looked) {
      const [x, y] = this.position(looked.node);
      context.strokeStyle = colours.ink;
      context.lineWidth = 2;
      context.beginPath();
      context.arc(x, y, this.dotSize + 5, 0, 2 * Math.PI);
      context.stroke();
    }
    return fading;
  }

  drawFresh(context, now) {
    for (const [node, since] of this.fresh) {
      const left = 1 - (now - since) / FRESH;
      if (left <= 0) {
        this.fresh.delete(node);
        continue;
      }
      const {parent, depth} = this.replay;
      context.globalAlpha = Math.min(1, left);
      context.strokeStyle = context.fillStyle = this.replay.isMember(node) ? this.colourOf(depth[node])
        : this.colours.dead;
      context.lineWidth = 1.5 + 3.5 * left;
      context.beginPath();
      if (parent[node] >= 0) this.curve(context, node, parent[node]);
      context.stroke();
      const [x, y] = this.position(node);
      context.globalAlpha *= 0.3;
      context.beginPath();
      context.arc(x, y, this.dotSize + 3 + 9 * left, 0, 2 * Math.PI);
      context.fill();
    }
    context.globalAlpha = 1;
    return this.fresh.size > 0;
  }

  drawNode(context, node) {
    const {replay: {flags, depth, children}, colours} = this;
    const [x, y] = this.position(node);
    const flag = flags[node];
    const member = this.replay.isMember(node);
    if (flag & DOWN) {
      const matters = children[node] > 0;
      drawShape(context, "dead", x, y, matters ? this.dotSize + 1.5 : this.dotSize,
                matters ? colours.unrooted : colours.dead, colours.card);
    } else if (!member) {
      if (flag & SUBSCRIBED) drawShape(context, "waiting", x, y, this.dotSize, colours.several, colours.card);
    } else {
      const shape = (flag & ROOT ? "root" : "member") + (flag & SUBSCRIBED ? "" : "-relay");
      const colour = flag & ROOT ? colours.ink : this.colourOf(depth[node]);
      drawShape(context, shape, x, y, flag & ROOT ? this.dotSize + 3.5 : this.dotSize, colour, colours.card);
      if (flag & DETACHED) drawShape(context, "detached", x, y, this.dotSize + 3.5, colours.unrooted, colours.card);
    }
  }

  // Return the node nearest to a point, preferring members; -1 if none is near.
  nodeAt(x, y) {
    let found = -1;
    let least = 14;
    for (let node = 0; node < this.replay.n; node++) {
      const [nodeX, nodeY] = this.position(node);
      const apart = Math.hypot(nodeX - x, nodeY - y)
        + (this.replay.isMember(node) ? 0 : this.replay.flags[node] ? 2 : 6);
      if (apart < least) [found, least] = [node, apart];
    }
    return found;
  }
}

// Mark of a node. Kinds differ in shape, not only in colour.
function drawShape(context, shape, x, y, size, colour, card) {
  context.strokeStyle = colour;
  context.fillStyle = shape.endsWith("relay") ? card : colour;
  context.lineWidth = 1.6;
  context.beginPath();
  if (shape === "dead") {
    const arm = size * 0.9;
    context.moveTo(x - arm, y - arm);
    context.lineTo(x + arm, y + arm);
    context.moveTo(x + arm, y - arm);
    context.lineTo(x - arm, y + arm);
    context.stroke();
  } else if (shape === "detached") {
    context.arc(x, y, size, 0, 2 * Math.PI);
    context.stroke();
  } else if (shape === "waiting") {
    context.moveTo(x, y - size);
    context.lineTo(x + size, y + 0.8 * size);
    context.lineTo(x - size, y + 0.8 * size);
    context.fill();
  } else if (shape.startsWith("root")) {
    context.moveTo(x, y - size);
    context.lineTo(x + size, y);
    context.lineTo(x, y + size);
    context.lineTo(x - size, y);
    context.closePath();
    context.fill();
    context.stroke();
  } else {
    context.arc(x, y, size - 0.6, 0, 2 * Math.PI);
    context.fill();
    context.stroke();
  }
}
