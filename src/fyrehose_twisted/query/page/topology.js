"use strict";

// Drawing of the topology: a tree below each backbone or group, with a table of the same nodes

const BOX = { width: 142, height: 58, gap: 10 };
const ABOVE = 40; // between a node and the clients below it
const GUTTER = 14; // for the line to further rows of clients
const FRAME = { side: 8, top: 20 }; // around a group

const STATES = { ...MARKS, unknown: ["?", "quiet"] };
const NODE_KINDS = {
  backbone: "backbone", relay: "relay", journal: "journal", client: "client", frontend: "frontend", server: "server",
  subscriber: "subscriber", publisher: "publisher", other: "memory journal",
};

const SENDERS = new Set(["publisher", "frontend"]); // They receive no stream.

// Figures in boxes are short, as boxes do not grow.
const short = new Intl.NumberFormat("en", { maximumSignificantDigits: 2, notation: "compact" });
const known = (value) => (value === null ? "?" : value < 1_000 ? whole.format(value) : short.format(value));
const position = (value) => (value === null || value >= 1e6 ? known(value) : whole.format(value));
const kindOf = ({ kind, role }) => (NODE_KINDS[kind] ?? visible(kind)) + (role ? `, ${role}` : "");
const stateOf = ({ state, reasons }) => (state === "ok" ? "OK" : reasons.map(visible).join("; ") || state);

// Long names keep both ends: addresses differ at the end.
function shorten(text, length) {
  const letters = [...text];
  if (letters.length <= length) return text;
  const head = Math.ceil(length / 2) - 1;
  return letters.slice(0, head).join("") + "…" + letters.slice(head + 1 - length).join("");
}

const NODES = [
  { title: "Node", weight: "address", value: (node) => visible(node.name) },
  { title: "State", weight: "name", value: (node) => [`${STATES[node.state][0]} ${stateOf(node)}`, STATES[node.state][1]] },
  { title: "Kind", weight: "name", value: kindOf },
  { title: "Served by", weight: "name", value: (node) => node.server },
  { title: "Level", number: true, value: (node) => number(node.level) },
  { title: "Number", number: true, wide: true, value: (node) => number(node.number) },
  { title: "Lag", number: true, value: (node) => (node.lag === null ? lagless(node) : number(node.lag)) },
  { title: "Missing now", number: true, value: (node) => some(node.missing, "warn") },
  { title: "Lost", number: true, value: (node) => some(node.lost, "warn") },
  { title: "Repaired", number: true, value: (node) => number(node.repaired) },
  { title: "Resent by it", number: true, value: (node) => number(node.resent) },
  { title: "Received/s", number: true, value: ({ link }) => rate(link?.rate ?? undefined) },
  { title: "Resent to it", number: true, value: ({ link }) => number(link?.resent) },
  { title: "Queued for it", number: true, value: ({ link }) => some(link?.queued, "warn") },
  { title: "Further clients", number: true, value: (node) => number(node.more) },
];

const lagless = ({ kind }) => (["backbone", "server", ...SENDERS].includes(kind) ? "–" : "unknown");

// Lines of text in the box of a node. All figures of it are in the table.
function nodeLines(node) {
  if (node.kind === "backbone") {
    return [kindOf(node), `at ${position(node.number)}, ${known(node.resent)} resent`];
  }
  if (node.kind === "server") return ["server", "not watched"];
  const lagging = SENDERS.has(node.kind) ? "" : node.lag === null ? ", lag unknown" : `, lag ${position(node.lag)}`;
  const health = node.watched && node.lost !== null
    ? `lost ${known(node.lost)}, repaired ${known(node.repaired)}` : node.watched ? "" : "not watched";
  return [kindOf(node) + lagging, health];
}

function linkText({ link }) {
  if (!link) return "";
  if (!link.serves) return "standby or outdated";
  const parts = [link.rate === null ? "" : `${rate(link.rate)}/s`, link.resent === null ? "" : `${known(link.resent)} resent`];
  return parts.filter(Boolean).join(", ");
}

// Outlines differ by kind, so that no colour is needed to tell them apart.
function outline(kind, width, height) {
  const w = width - 0.75, h = height - 0.75, o = 0.75;
  switch (kind) {
    case "backbone": case "server":
      return `M${o} ${o}H${w}V${h}H${o}Z`;
    case "relay":
      return `M10 ${o}H${w - 9}L${w} ${h / 2}L${w - 9} ${h}H10L${o} ${h / 2}Z`;
    case "journal":
      return `M${o} 4Q${o} ${o} ${w / 2} ${o}T${w} 4V${h - 3}Q${w} ${h} ${w / 2} ${h}T${o} ${h - 3}ZM${o} 4Q${o} 8 ${w / 2} 8T${w} 4`;
    case "publisher": case "frontend":
      return `M6 ${o}H${w}L${w - 5} ${h}H${o}Z`;
    default:
      return `M14 ${o}H${w - 14}Q${w} ${o} ${w} 14V${h - 14}Q${w} ${h} ${w - 14} ${h}H14Q${o} ${h} ${o} ${h - 14}V14Q${o} ${o} 14 ${o}Z`;
  }
}

// Layout. Clients of a node are in rows below it, relays with their own clients first.

function layoutTree(nodes, width) {
  const children = new Map(), byKey = new Map(nodes.map((node) => [node.id, node])), groups = new Map(), roots = [];
  for (const node of nodes) {
    if (node.parent !== null && byKey.has(node.parent)) {
      if (!children.has(node.parent)) children.set(node.parent, []);
      children.get(node.parent).push(node);
    } else if (node.group) {
      if (!groups.has(node.group)) roots.push({ group: node.group, members: [] });
      groups.set(node.group, groups.get(node.group) ?? roots[roots.length - 1]);
      groups.get(node.group).members.push(node);
    } else {
      roots.push({ group: "", members: [node] });
    }
  }
  const places = new Map(), lines = [], frames = [], order = [];

  const row = (blocks, available) => {
    const rows = [];
    let used = Infinity;
    for (const block of blocks) {
      if (used + block.width > available) {
        rows.push({ blocks: [], height: 0 });
        used = 0;
      }
      const last = rows[rows.length - 1];
      block.x = used;
      used += block.width + BOX.gap;
      last.blocks.push(block);
      last.height = Math.max(last.height, block.height);
      last.width = used - BOX.gap;
    }
    return rows;
  };

  // Return the block of a node: its size, and a function that places it.
  function block(node, available) {
    const below = beneath(children.get(node.id) ?? [], available);
    return {
      width: Math.max(BOX.width, below.width),
      height: BOX.height + below.height,
      place(x, y) {
        // The node is above the middle of its first row.
        const at = x + Math.max(0, Math.min(below.first, below.width) / 2 - BOX.width / 2);
        order.push(node);
        places.set(node.id, { x: at, y });
        below.place(x, y + BOX.height, at + BOX.width / 2);
      },
    };
  }

  function beneath(nodesBelow, available) {
    const servers = nodesBelow.filter(({ id }) => children.has(id));
    const leaves = nodesBelow.filter(({ id }) => !children.has(id));
    const inner = Math.max(BOX.width, available - GUTTER);
    const share = Math.max(BOX.width, Math.floor((inner + BOX.gap) / Math.max(1, servers.length)) - BOX.gap);
    const blocks = [...servers.map((node) => ({ node, ...block(node, share) })),
      ...leaves.map((node) => ({ node, ...block(node, BOX.width) }))];
    const rows = row(blocks, inner);
    const gutter = rows.length > 1 ? GUTTER : 0;
    return {
      width: gutter + Math.max(0, ...rows.map((one) => one.width)),
      first: rows.length ? 2 * gutter + rows[0].width : 0,
      height: rows.reduce((sum, one) => sum + ABOVE + one.height, 0),
      place(x, y, middle, start = y) {
        let top = y;
        const bus = y + 12;
        for (const { blocks: placed, height } of rows) {
          for (const one of placed) one.place(x + gutter + one.x, top + ABOVE);
          for (const one of placed) {
            const { x: at, y: to } = places.get(one.node.id);
            lines.push({ node: one.node, drop: [at + 12, top + 12, to], from: [middle, start, bus], x });
          }
          top += ABOVE + height;
        }
      },
    };
  }

  let y = 0, across = 0;
  const tops = roots.map(({ group, members }) => {
    if (!group) return { ...block(members[0], width), key: members[0].id };
    // Members of a group are side by side, and their clients below all of them.
    const inner = width - 2 * FRAME.side;
    const rows = row(members.map((node) => ({ node, width: BOX.width, height: BOX.height })), inner);
    const ofAll = members.map((node) => ({ node, ...beneath(children.get(node.id) ?? [], width) }));
    const head = FRAME.top + rows.length * (BOX.height + BOX.gap);
    const wide = Math.max(...rows.map((one) => one.width)) + 2 * FRAME.side;
    return {
      width: Math.max(wide, ...ofAll.map((one) => one.width)),
      height: head + ofAll.reduce((sum, one) => sum + one.height, 0),
      place(x, top) {
        frames.push({ text: group, x, y: top, width: wide, height: head });
        rows.forEach(({ blocks }, index) => {
          for (const { node, x: at } of blocks) {
            places.set(node.id, { x: x + FRAME.side + at, y: top + FRAME.top + index * (BOX.height + BOX.gap) });
          }
        });
        let under = top + head;
        for (const { node, place, height } of ofAll) {
          order.push(node);
          const { x: at, y: from } = places.get(node.id);
          place(x, under, at + BOX.width / 2, from + BOX.height);
          under += height;
        }
      },
    };
  });
  for (const { blocks, height, width: used } of row(tops, width)) {
    const left = Math.max(0, Math.floor((width - used) / 2));
    for (const one of blocks) one.place(left + one.x, y);
    across = Math.max(across, used);
    y += height + BOX.gap;
  }
  return { places, lines, frames, order, byKey, width: Math.max(width, across), height: Math.max(0, y - BOX.gap) };
}

function svg(name, properties = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(properties)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

const setText = (place, text) => {
  if (place.textContent !== text) place.textContent = text;
};
const setAttribute = (place, name, value) => {
  if (place.getAttribute(name) !== String(value)) place.setAttribute(name, value);
};

class TopologyView {
  constructor() {
    this.section = byId("topology");
    this.map = byId("map");
    this.detail = byId("node");
    this.table = new Table(byId("nodes"), "Nodes of the drawing, servers first", NODES);
    this.drawn = new Map(); // elements by node
    this.shape = "";
    this.selected = null; // id of the node with the focus, or the last one that had it
    this.nodes = [];
    this.lines = svg("g", { "aria-hidden": "true" });
    this.boxes = svg("g");
    this.frames = svg("g", { "aria-hidden": "true" });
    this.picture = svg("svg", { role: "tree", "aria-labelledby": "topology-title", "aria-describedby": "map-keys" },
      this.frames, this.lines, this.boxes);
    this.map.append(this.picture);
    this.picture.addEventListener("keydown", (event) => this.move(event));
    this.picture.addEventListener("focusin", ({ target }) => this.select(target.closest("g.node")?.dataset.id));
    this.picture.addEventListener("click", ({ target }) => {
      const id = target.closest("g.node")?.dataset.id;
      if (id !== undefined) this.focus(id);
    });
    new ResizeObserver(() => this.draw()).observe(this.map);
  }

  show({ nodes, more }) {
    this.nodes = nodes;
    this.section.hidden = !nodes.length;
    if (!nodes.length) return;
    const names = new Map(nodes.map(({ id, name }) => [id, visible(name)]));
    this.table.show(nodes.map((node) => ({
      ...node, key: node.id, server: node.parent === null ? "–" : names.get(node.parent) ?? visible(node.parent),
    })));
    const count = (state) => nodes.filter((node) => node.state === state).length;
    const states = [["down", "down"], ["attention", "attention"], ["unknown", "unknown"]]
      .filter(([state]) => count(state)).map(([state, text]) => `${number(count(state))} ${text}`);
    setText(byId("topology-count"), [pluralize(nodes.length, "node", "nodes"), ...states].join(", ")
      + (more ? `; ${number(more)} more are not drawn` : ""));
    this.draw();
  }

  draw() {
    const width = Math.floor(this.map.clientWidth);
    if (!this.nodes.length || !width) return;
    const shape = JSON.stringify([width, this.nodes.map(({ id, parent, group, kind }) => [id, parent, group, kind])]);
    if (shape !== this.shape) {
      this.shape = shape;
      this.layout = layoutTree(this.nodes, width - 2);
      this.arrange(this.layout);
    }
    for (const node of this.nodes) this.fill(node);
    this.showDetail();
  }

  // Place all elements. The order of the elements is that of the keys.
  arrange({ places, lines, frames, order, byKey, width, height }) {
    const { picture } = this;
    for (const [name, value] of [["width", width + 2], ["height", height + 2], ["viewBox", `-1 -1 ${width + 2} ${height + 2}`]]) {
      setAttribute(picture, name, value);
    }
    const focused = document.activeElement?.closest?.("g.node")?.dataset.id;
    for (const [id, { box }] of this.drawn) {
      if (byKey.has(id)) continue;
      box.remove();
      this.drawn.delete(id);
    }
    this.order = order;
    if (!byKey.has(this.selected)) this.selected = null;
    for (const node of order) {
      const known = this.drawn.get(node.id);
      if (known?.kind !== node.kind) {
        known?.box.remove();
        this.drawn.set(node.id, this.make(node));
      }
      const { box } = this.drawn.get(node.id), { x, y } = places.get(node.id);
      setAttribute(box, "transform", `translate(${x} ${y})`);
      setAttribute(box, "aria-level", node.level + 1);
      this.boxes.append(box);
    }
    this.frames.replaceChildren(...frames.map(({ text, x, y, width, height }) => svg("g", { class: "frame" },
      svg("rect", { x, y, width, height, rx: 6 }), svg("text", { x: x + 8, y: y + 14 }, shorten(`group ${visible(text)}`, 40)))));
    this.lines.replaceChildren(...lines.map(({ node, drop: [x, bus, to], from: [middle, top, first], x: left }) => {
      const to_bus = bus === first ? `M${middle} ${top}V${bus}H${x}` : `M${middle} ${top}V${first}H${left + 2}V${bus}H${x}`;
      const drawn = this.drawn.get(node.id);
      drawn.line = svg("path", { d: `${to_bus}V${to}` });
      drawn.label = svg("text", { x: x + 5, y: to - 8 });
      return svg("g", { class: "link" }, drawn.line, drawn.label);
    }));
    this.setTabStop();
    if (focused !== undefined && this.drawn.has(focused)) this.drawn.get(focused).box.focus({ preventScroll: true });
  }

  make(node) {
    const texts = ["name", "first", "second"].map((name, index) =>
      svg("text", { class: name, x: BOX.width / 2, y: [22, 37, 51][index] }));
    const mark = svg("tspan", { class: "mark" }), name = svg("tspan");
    texts[0].append(mark, name);
    const shape = svg("path", { class: "outline", d: outline(node.kind, BOX.width, BOX.height) });
    const more = svg("text", { class: "more", x: BOX.width / 2 + 6, y: BOX.height + 9 });
    const box = svg("g", { role: "treeitem", tabindex: "-1", class: "node" }, shape, ...texts, more);
    box.dataset.id = node.id;
    return { box, mark, name, texts, more, kind: node.kind, line: null, label: null };
  }

  fill(node) {
    const { box, mark, name, texts, more, line, label } = this.drawn.get(node.id);
    const [sign, kind] = STATES[node.state];
    setAttribute(box, "class", `node ${node.kind} ${node.state}`);
    setText(mark, `${sign} `);
    setAttribute(mark, "class", `mark ${kind}`);
    setText(name, shorten(visible(node.name), 15));
    nodeLines(node).forEach((text, index) => setText(texts[index + 1], shorten(text, 23)));
    setText(more, node.more ? `and ${number(node.more)} more` : "");
    setAttribute(box, "aria-label", this.describe(node));
    if (label) {
      setText(label, linkText(node));
      setAttribute(line, "class", node.link?.serves ? "" : "idle");
    }
  }

  describe(node) {
    const server = this.nodes.find(({ id }) => id === node.parent);
    const parts = [`${visible(node.name)}: ${kindOf(node)}`, `state ${stateOf(node)}`];
    if (server) parts.push(`served by ${visible(server.name)}`);
    if (node.number !== null) parts.push(`number ${number(node.number)}`);
    if (!["backbone", "server", ...SENDERS].includes(node.kind)) {
      parts.push(`lag ${node.lag === null ? "unknown" : number(node.lag)}`);
    }
    for (const [title, value] of [["missing", node.missing], ["lost", node.lost], ["repaired", node.repaired],
      ["resent to others", node.resent], ["resent to it", node.link?.resent ?? null], ["REQUESTs from it", node.link?.requests ?? null],
      ["queued for it", node.link?.queued ?? null], ["clients not drawn", node.more || null]]) {
      if (value !== null) parts.push(`${title} ${number(value)}`);
    }
    return parts.join(", ");
  }

  // Keys, as in a tree: arrows move between nodes, Home and End to the first and last.

  move(event) {
    const at = this.order.findIndex(({ id }) => id === this.selected), node = this.order[at];
    if (!node || event.ctrlKey || event.altKey || event.metaKey) return;
    const child = this.order.find(({ parent }) => parent === node.id);
    const next = {
      ArrowDown: this.order[at + 1], ArrowUp: this.order[at - 1], ArrowRight: child,
      ArrowLeft: this.order.find(({ id }) => id === node.parent), Home: this.order[0], End: this.order[this.order.length - 1],
    };
    if (!(event.key in next)) return;
    event.preventDefault();
    if (next[event.key]) this.focus(next[event.key].id);
  }

  focus(id) {
    this.drawn.get(id)?.box.focus();
  }

  select(id) {
    if (id === undefined || id === this.selected) return;
    this.selected = id;
    this.setTabStop();
    this.showDetail();
  }

  setTabStop() {
    const stop = this.selected ?? this.order[0]?.id;
    for (const [id, { box }] of this.drawn) {
      setAttribute(box, "tabindex", id === stop ? 0 : -1);
      setAttribute(box, "aria-selected", id === this.selected);
    }
  }

  showDetail() {
    const node = this.nodes.find(({ id }) => id === this.selected);
    setText(this.detail, node ? this.describe(node) : "");
  }
}
