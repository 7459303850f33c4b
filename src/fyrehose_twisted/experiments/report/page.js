// The page: selections and their effects.

const recording = JSON.parse(byId("recording").textContent);
const reduced = matchMedia("(prefers-reduced-motion: reduce)");
const night = matchMedia("(prefers-color-scheme: dark)");
const STEPS_REDUCED = 400;  // Milliseconds between two frames with reduced motion.
const FRESH_AT_ONCE = 60;  // With more simultaneous changes, none is highlighted.

const ring = new Ring();
const timeline = new Timeline();
const listing = new Listing(({t, node}) => {
  pause();
  if (node >= 0) look(node);
  seek(t);
});
let replay = null;
let playing = false;
let lastFrame = 0;
let share = 0;
let wanted = false;
let deepest = 0;
let remembering = 0;

const count = (number) => number.toLocaleString("en");
const percent = (part) => Number.isNaN(part) ? "\u2013" : `${(100 * part).toFixed(part === 1 || part === 0 ? 0 : 1)} %`;

// Show a stream at a moment; without one, when its tree had grown.
function choose(stream, t = NaN) {
  replay = new Replay(recording, stream);
  const history = replay.history();
  // Brief unusual depths do not stretch the scale of colours.
  const depths = history.map(({deepest}) => deepest).filter((depth) => depth >= 0).sort((a, b) => a - b);
  ring.show(replay, depths[Math.floor(0.8 * depths.length)] ?? 0);
  deepest = depths.at(-1) ?? 0;
  timeline.firstRoot = undefined;
  timeline.show(replay, history);
  listing.show(replay);
  byId("scale").value = timeline.scale;
  byId("key-name").replaceChildren(stream.key.slice(0, 12), element("span", {}, stream.key.slice(12)));
  byId("key").value = stream.key;
  document.title = `Tree of key ${stream.key.slice(0, 12)}`;
  const {policy, seed, finish, links} = recording;
  const facts = [`${count(replay.n)} nodes`, `${count(links.length / 2)} links`,
                 `location ${stream.location.toFixed(4)}`, `${+finish.toFixed(3)} s long`, ...(seed === null ? [] : [`seed ${seed}`])];
  byId("facts").textContent = facts.join(" \u00b7 ");
  byId("policy").hidden = !policy.length;
  drawLegend();
  seek(Number.isNaN(t) ? replay.grownAt() : t, {fresh: false});
}

// Go to a moment, and highlight the changes since the last one, unless motion is reduced.
function seek(t, {fresh = true, at = null} = {}) {
  const moment = Math.min(Math.max(0, t), recording.finish);
  const touched = replay.seek(moment);
  replay.figures = replay.measure();
  share = at ?? timeline.shareOf(moment);
  if (fresh && touched && touched.length <= FRESH_AT_ONCE && !reduced.matches) {
    const now = performance.now();
    for (const node of touched) if (node >= 0) ring.fresh.set(node, now);
  } else if (!touched || touched.length) {
    ring.fresh.clear();
  }
  byId("slider").value = share;
  byId("slider").setAttribute("aria-valuetext", `${moment.toFixed(3)} s`);
  tellFigures();
  tellLegend();
  listing.follow(moment);
  byId("back").disabled = listing.next(moment, -1) === null;
  byId("forth").disabled = listing.next(moment, 1) === null;
  showFocus();
  draw();
}

function tellFigures() {
  const {figures, t} = replay;
  const put = (name, text, small = "", level = "") => {
    const place = byId(`figure-${name}`);
    place.replaceChildren(text, ...(small ? [" ", element("small", {}, small)] : []));
    place.parentElement.className = level;
  };
  put("time", `${t.toFixed(3)} s`);
  put("reach", percent(figures.reach), "", figures.reach < 1 ? "unrooted" : "");
  put("roots", count(figures.roots), "",
      figures.roots > 1 ? "several" : figures.members && !figures.roots ? "unrooted" : "");
  put("unrooted", count(figures.unrooted), "", figures.unrooted ? "unrooted" : "");
  put("members", count(figures.members));
  put("subscribers", count(figures.alive),
      figures.alive < figures.subscribers ? `of ${count(figures.subscribers)}` : "");
  put("deepest", figures.deepest < 0 ? "\u2013" : count(figures.deepest));
  // Text and data of the drawing, for screen readers and tests.
  const {dataset} = byId("diagram");
  for (const [name, value] of Object.entries(figures)) dataset[name] = value;
  dataset.t = t;
  byId("tree").setAttribute("aria-label", `After ${t.toFixed(3)} seconds: ${count(figures.members)} members, `
    + `${count(figures.roots)} roots, ${count(figures.unrooted)} unrooted, reach ${percent(figures.reach)}.`);
}

function describe(node) {
  const {flags, parent, depth, top, children, locations} = replay;
  const flag = flags[node];
  const parts = [`location ${locations[node].toFixed(4)}`];
  if (flag & DOWN) parts.push("down");
  if (flag & SUBSCRIBED) parts.push("subscriber");
  if (flag & ROOT) parts.push("root");
  else if (flag & DETACHED) parts.push("detached");
  else if (parent[node] >= 0) parts.push(`${flag & SUBSCRIBED ? "" : "relay, "}parent ${parent[node]}`);
  else if (!(flag & DOWN)) parts.push(flag & SUBSCRIBED ? "waiting" : "not a member");
  if (depth[node] > 0) parts.push(`depth ${depth[node]}`, `root ${top[node]}`);
  else if (replay.isMember(node) && depth[node] < 0) parts.push("unrooted");
  if (children[node]) parts.push(`children ${count(children[node])}`);
  return parts.join(", ");
}

function showFocus() {
  const node = ring.focus;
  byId("focus-text").textContent = node >= 0 ? `Node ${node}: ${describe(node)}` : "";
}

function look(node) {
  ring.focus = node >= 0 && node < replay.n ? node : -1;
  byId("node").value = ring.focus < 0 ? "" : ring.focus;
  showFocus();
  draw();
}

function draw() {
  if (wanted) return;
  wanted = true;
  requestAnimationFrame(drawNow);
}

function drawNow() {
  wanted = false;
  if (!ring.size) {
    ring.resize();
    listing.fill();
  }
  timeline.draw(replay.t, ring.colours);
  // Not the time passed to the frame, which may precede the last change.
  if (ring.draw(performance.now())) draw();
}

function play() {
  if (playing) return;
  if (replay.t >= recording.finish) seek(0, {fresh: false});
  playing = true;
  tellPlaying();
  lastFrame = performance.now();
  requestAnimationFrame(goOn);
}

function pause() {
  if (!playing) return;
  playing = false;
  tellPlaying();
  remember();
}

function tellPlaying() {
  byId("play-sign").textContent = playing ? "\u275a\u275a" : "\u25b6";
  byId("play-name").textContent = playing ? "Pause" : "Play";
  byId("play").setAttribute("aria-label", playing ? "Pause" : "Play");
}

function goOn() {
  if (!playing) return;
  const now = performance.now();
  if (!reduced.matches || now - lastFrame >= STEPS_REDUCED) {
    const next = share + (now - lastFrame) / 1000 / Number(byId("speed").value);
    lastFrame = now;
    seek(timeline.momentOf(next), {at: Math.min(1, next)});
    if (next >= 1) pause();
  }
  if (playing) requestAnimationFrame(goOn);
}

function step(direction) {
  pause();
  const t = listing.next(replay.t, direction);
  if (t !== null) seek(t);
  remember();
}

// The address identifies the view, for links. Browsers limit how often it may change.
function remember() {
  clearTimeout(remembering);
  remembering = setTimeout(tellAddress, 300);
}

function tellAddress() {
  const parts = [`t=${+replay.t.toFixed(6)}`, `key=${replay.stream.key.slice(0, 12)}`];
  if (ring.focus >= 0) parts.push(`node=${ring.focus}`);
  history.replaceState(null, "", `#${parts.join("&")}`);
}

function recall() {
  const asked = new URLSearchParams(location.hash.slice(1));
  const prefix = asked.get("key")?.toLowerCase();
  const stream = (prefix && recording.streams.find(({key}) => key.startsWith(prefix))) || replay?.stream
    || recording.streams[0];
  const t = Number.parseFloat(asked.get("t"));
  if (stream !== replay?.stream) choose(stream, t);
  else seek(Number.isNaN(t) ? replay.grownAt() : t, {fresh: false});
  if (asked.has("node")) look(Number.parseInt(asked.get("node"), 10));
}

// Marks on the ring: shape, text, colour if not that of a member, and whether a node has it, as in Ring.drawNode.
function marks() {
  const {colours} = ring;
  const {flags, parent, depth, children} = replay;
  const kept = (node, flag, wanted) =>
    replay.isMember(node) && !(flags[node] & DOWN) && (flags[node] & flag) === wanted;
  const both = ROOT | SUBSCRIBED;
  return [
    ["root", "root, subscribed", colours.ink, (node) => kept(node, both, both)],
    ["root-relay", "root, not subscribed", colours.ink, (node) => kept(node, both, ROOT)],
    ["member", "subscriber", undefined, (node) => kept(node, both, SUBSCRIBED)],
    ["member-relay", "relay", undefined, (node) => kept(node, both, 0)],
    ["waiting", "subscriber without a parent", colours.several,
     (node) => (flags[node] & (SUBSCRIBED | DOWN)) === SUBSCRIBED && !replay.isMember(node)],
    ["detached", "searches for a parent", colours.unrooted, (node) => kept(node, DETACHED, DETACHED)],
    ["dot", "not in the tree", colours.dot, (node) => !replay.isMember(node) && !(flags[node] & (SUBSCRIBED | DOWN))],
    ["edge", "cut off from the root", colours.unrooted, (node) => parent[node] >= 0 && depth[node] < 0],
    ["dead", "down", colours.dead, (node) => flags[node] & DOWN && !children[node]],
    ["dead", "down, not yet detected by its children", colours.unrooted,
     (node) => flags[node] & DOWN && children[node]],
  ];
}

// Count the nodes with each mark, and dim the marks without any.
function tellLegend() {
  const counts = marks().map(([, , , has]) => {
    let found = 0;
    for (let node = 0; node < replay.n; node++) if (has(node)) found++;
    return found;
  });
  [...byId("legend").children].slice(0, counts.length).forEach((item, i) => {
    item.className = counts[i] ? "" : "unused";
    item.querySelector("b").textContent = counts[i] ? count(counts[i]) : "";
  });
}

function drawLegend() {
  const entries = marks();
  const items = entries.map(([shape, text, colour = ring.colourOf(1)]) => {
    const canvas = element("canvas");
    canvas.setAttribute("aria-hidden", "true");
    canvas.style.width = canvas.style.height = "18px";
    const context = cleared(canvas, 18, 18);
    if (shape === "edge") {
      context.strokeStyle = colour;
      context.lineWidth = 1.8;
      context.setLineDash([5, 3]);
      context.beginPath();
      context.moveTo(0, 13);
      context.quadraticCurveTo(9, 0, 18, 13);
      context.stroke();
    } else {
      const {card} = ring.colours;
      if (shape === "detached") drawShape(context, "member", 9, 9, 4, colour, card);
      const size = {root: 7, "root-relay": 7, detached: 7.5, dot: 2.5}[shape] ?? 4.5;
      drawShape(context, shape, 9, 9, size, colour, card);
    }
    return element("li", {}, canvas, text, " ", element("b", {}));
  });
  const last = `${ring.deepest}${deepest > ring.deepest ? "+" : ""}`;
  items.push(element("li", {}, "depth 0", element("span", {className: "ramp"}), last));
  byId("legend").replaceChildren(...items);
  tellLegend();
}

function showTip(event) {
  const box = byId("ring").getBoundingClientRect();
  const x = event.clientX - box.left;
  const y = event.clientY - box.top;
  const node = ring.nodeAt(x, y);
  const tip = byId("tip");
  tip.hidden = node < 0;
  if (node >= 0) {
    tip.replaceChildren(element("b", {}, `Node ${node}`), describe(node));
    const left = Math.min(Math.max(0, x + 14), ring.size - tip.offsetWidth);
    tip.style.left = `${x + 14 + tip.offsetWidth > ring.size ? Math.max(0, x - 14 - tip.offsetWidth) : left}px`;
    tip.style.top = `${Math.min(y + 12, ring.size - tip.offsetHeight)}px`;
  }
  if (node !== ring.hover) {
    ring.hover = node;
    draw();
  }
}

function listen() {
  const on = (id, what, call) => byId(id).addEventListener(what, call);
  on("play", "click", () => playing ? pause() : play());
  on("back", "click", () => step(-1));
  on("forth", "click", () => step(1));
  on("slider", "input", () => {
    pause();
    const at = Number(byId("slider").value);
    seek(timeline.momentOf(at), {at, fresh: false});
  });
  on("slider", "change", remember);
  on("scale", "change", () => {
    timeline.scale = byId("scale").value;
    seek(replay.t, {fresh: false});
  });
  on("links", "change", () => {
    ring.showLinks = byId("links").checked;
    draw();
  });
  on("node", "input", () => look(byId("node").value === "" ? -1 : Number(byId("node").value)));
  on("key", "change", () => {
    pause();
    look(-1);
    choose(recording.streams.find(({key}) => key === byId("key").value), replay.t);
    remember();
  });
  const drag = (event) => {
    const box = byId("timeline").getBoundingClientRect();
    const at = (event.clientX - box.left - INSET) / (box.width - 2 * INSET);
    pause();
    seek(timeline.momentOf(at), {fresh: false});
  };
  on("timeline", "pointerdown", (event) => {
    byId("timeline").setPointerCapture(event.pointerId);
    drag(event);
  });
  on("timeline", "pointermove", (event) => { if (event.buttons) drag(event); });
  on("timeline", "pointerup", remember);
  on("tree", "pointermove", (event) => { if (event.pointerType !== "touch") showTip(event); });
  on("tree", "pointerleave", () => {
    byId("tip").hidden = true;
    ring.hover = -1;
    draw();
  });
  on("tree", "click", (event) => {
    const box = byId("ring").getBoundingClientRect();
    const node = ring.nodeAt(event.clientX - box.left, event.clientY - box.top);
    look(node === ring.focus ? -1 : node);
    remember();
  });
  addEventListener("keydown", keyPressed);
  addEventListener("hashchange", recall);
  night.addEventListener("change", () => {
    ring.colours = readColours();
    drawLegend();
    draw();
  });
  // Resize in the next frame: resizing inside the observer reports a loop.
  const measure = () => {
    ring.size = 0;
    draw();
  };
  new ResizeObserver(measure).observe(byId("diagram"));
  addEventListener("resize", measure);
}

function keyPressed(event) {
  if (event.altKey || event.ctrlKey || event.metaKey) return;
  const {target, key} = event;
  if (target.matches?.("select, input[type=number]")) return;
  if (key === " " && target.matches?.("button, input[type=checkbox], summary")) return;
  const deeds = {
    ArrowLeft: () => step(-1),
    ArrowRight: () => step(1),
    " ": () => playing ? pause() : play(),
    Home: () => { pause(); seek(0, {fresh: false}); remember(); },
    End: () => { pause(); seek(recording.finish, {fresh: false}); remember(); },
    Escape: () => { look(-1); remember(); },
  };
  if (!deeds[key]) return;
  event.preventDefault();
  deeds[key]();
}

byId("key").replaceChildren(...recording.streams.map(({key}) => element("option", {value: key}, key.slice(0, 12))));
byId("key-label").hidden = recording.streams.length < 2;
byId("node").max = recording.locations.length - 1;
byId("left-out").hidden = !recording.left_out.length;
byId("left-out").textContent = `${count(recording.left_out.length)} more streams are left out: `
  + `${recording.left_out.slice(0, 8).map((key) => key.slice(0, 12)).join(", ")}`
  + `${recording.left_out.length > 8 ? ", \u2026" : ""}.`;
byId("policy-list").replaceChildren(...recording.policy.map(([name, value]) => (
  element("div", {}, element("dt", {}, name), element("dd", {}, value)))));
tellPlaying();
listen();
recall();
