"use strict";

// Everything that comes from the network becomes text nodes; nothing of it is ever markup.

const KEPT = 300; // seconds of which the small plots tell
const STEP = 5; // seconds that one step of them stands for
const SHOWN = 200; // records in a list
const OLDER = 50; // records that are put below it at once
const LONGEST = 4096; // characters of one that are shown
const RETRY = [1, 2, 4, 8, 15]; // seconds before it is tried again
const SILENCE = { overview: 10, records: 60 }; // seconds after which a stream that says nothing is dead

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

// Control characters are shown, so that none of them can hide what stands beside it.
const UNSEEN =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;

function visible(text) {
  return text.replace(UNSEEN, (sign) => "\\u" + sign.charCodeAt(0).toString(16).padStart(4, "0"));
}

// Numbers and times

// Numbers of some streams begin anywhere below 2**62; as a double they would lose digits.
function exact(key, value, context) {
  const inexact = Number.isInteger(value) && !Number.isSafeInteger(value);
  return inexact && /^-?[0-9]+$/.test(context?.source ?? "") ? BigInt(context.source) : value;
}

const parse = (text) => JSON.parse(text, exact);
const before = (value) => (typeof value === "bigint" ? value - 1n : value - 1);

const whole = new Intl.NumberFormat("en");
const rough = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const compact = new Intl.NumberFormat("en", { maximumSignificantDigits: 3, notation: "compact" });

function number(value) {
  if (value === undefined || value === null) return "–";
  return (Number.isSafeInteger(value) || typeof value === "bigint" ? whole : rough).format(value);
}

function rate(value) {
  if (value === undefined) return "–";
  return value < 100 ? rough.format(value) : whole.format(Math.round(value));
}

function size(value) {
  let unit = 0;
  while (value >= 1024 && unit < 4) {
    value /= 1024;
    unit += 1;
  }
  return rough.format(value) + " " + ["B", "KiB", "MiB", "GiB", "TiB"][unit];
}

function age(seconds) {
  if (!(seconds >= 1)) return "now";
  for (const [unit, length] of [["d", 86400], ["h", 3600], ["min", 60]]) {
    if (seconds >= length) return Math.floor(seconds / length) + " " + unit;
  }
  return Math.floor(seconds) + " s";
}

// How fast something grows, from what it was a while ago

class Growth {
  constructor() {
    this.samples = []; // of the last seconds
    this.marks = []; // the last sample of each step
    this.drawn = "";
    this.peak = 0;
  }

  add(at, value) {
    const last = this.samples[this.samples.length - 1];
    if (last && at <= last.at) return;
    const anew = last !== undefined && value < last.value;
    if (anew) this.samples = [];
    this.samples.push({ at, value });
    while (this.samples.length > 2 && at - this.samples[1].at >= STEP) this.samples.shift();
    const step = Math.floor(at / STEP), mark = this.marks[this.marks.length - 1];
    // The first sample stays where it is, so that there is something to grow from.
    const same = !anew && mark?.step === step && this.marks.length > 1;
    if (same) Object.assign(mark, { at, value });
    else this.marks.push({ step, at, value, anew });
    while (this.marks[0].at < at - KEPT) this.marks.shift();
    if (!same || this.marks.length < 4) this.draw(at); // Later, once a step is enough.
  }

  now() {
    const first = this.samples[0], last = this.samples[this.samples.length - 1];
    return this.samples.length < 2 ? undefined : (last.value - first.value) / (last.at - first.at);
  }

  draw(at) {
    const steps = this.marks.slice(1).map((mark, index) => {
      const from = this.marks[index];
      return { from: from.at, to: mark.at, rate: mark.anew ? null : (mark.value - from.value) / (mark.at - from.at) };
    });
    this.peak = Math.max(0, ...steps.map(({ rate }) => rate ?? 0));
    const x = (time) => (100 * (1 - (at - time) / KEPT)).toFixed(1);
    let open = false;
    this.drawn = steps.map(({ from, to, rate }) => {
      if (rate === null) {
        open = false;
        return "";
      }
      const y = (19 - 18 * (this.peak ? rate / this.peak : 0)).toFixed(1);
      const drawn = (open ? `V${y}` : `M${x(from)} ${y}`) + `H${x(to)}`;
      open = true;
      return drawn;
    }).join("");
  }
}

// One of each kind for each key; those that nobody asks for any more are forgotten.
class Growths {
  constructor() {
    this.kept = new Map();
    this.asked = new Set();
  }

  of(key, at, value) {
    if (!this.kept.has(key)) this.kept.set(key, new Growth());
    this.asked.add(key);
    const found = this.kept.get(key);
    if (value !== undefined) found.add(at, value);
    return found;
  }

  forget() {
    for (const key of this.kept.keys()) if (!this.asked.has(key)) this.kept.delete(key);
    this.asked.clear();
  }
}

const growths = new Growths();

// Tables, of which only the cells that have changed are touched

class Table {
  constructor(place, caption, columns) {
    this.columns = columns;
    this.rows = new Map();
    this.body = element("tbody");
    const head = element("tr");
    for (const column of columns) {
      head.append(element("th", { scope: "col", className: column.number ? "number" : "" }, column.title));
    }
    this.table = element("table", {}, element("caption", {}, caption), element("thead", {}, head), this.body);
    this.box = element("div", { className: "scroll" }, this.table);
    // What scrolls has to do so by keyboard, too.
    const scrolling = Object.entries({ tabindex: "0", role: "group", "aria-label": caption });
    new ResizeObserver(() => {
      const scrolls = this.box.scrollWidth > this.box.clientWidth;
      for (const [name, value] of scrolling) {
        if (scrolls) this.box.setAttribute(name, value);
        else this.box.removeAttribute(name);
      }
    }).observe(this.box);
    place.append(this.box);
  }

  show(items) {
    const seen = new Set();
    items.forEach((item, index) => {
      seen.add(item.key);
      let row = this.rows.get(item.key);
      if (!row) {
        row = this.make(item);
        this.rows.set(item.key, row);
      }
      this.columns.forEach((column, at) => this.fill(row.cells[at], column, item));
      const stale = item.up === false;
      if (stale !== row.stale) row.line.classList.toggle("stale", (row.stale = stale));
      if (this.body.children[index] !== row.line) this.body.insertBefore(row.line, this.body.children[index] ?? null);
    });
    for (const [key, row] of this.rows) {
      if (!seen.has(key)) {
        row.line.remove();
        this.rows.delete(key);
      }
    }
  }

  make(item) {
    const line = element("tr");
    const cells = this.columns.map((column, index) => {
      const kind = column.wide ? "number wide" : column.number ? "number" : index ? "" : "name";
      const cell = element(index ? "td" : "th", { className: kind });
      if (index) cell.dataset.label = column.title;
      else cell.scope = "row";
      let inner = cell, peak = null;
      if (column.open) {
        inner = element("button", { type: "button", className: "link" });
        inner.addEventListener("click", () => column.open(item.key, inner));
        cell.append(inner);
      } else if (column.plot) {
        const drawn = document.createElementNS("http://www.w3.org/2000/svg", "svg");
        inner = document.createElementNS("http://www.w3.org/2000/svg", "path");
        drawn.setAttribute("class", "spark");
        drawn.setAttribute("viewBox", "0 0 100 20");
        drawn.setAttribute("preserveAspectRatio", "none");
        drawn.setAttribute("aria-hidden", "true");
        inner.setAttribute("vector-effect", "non-scaling-stroke");
        drawn.append(inner);
        peak = element("span", { className: "peak" });
        cell.append(element("span", { className: "plot" }, drawn, peak));
      }
      line.append(cell);
      return { inner, cell, peak, shown: null, kind: null };
    });
    return { line, cells, stale: false };
  }

  fill(place, column, item) {
    const value = column.value(item);
    if (column.plot) {
      if (value.drawn !== place.shown) place.inner.setAttribute("d", value.drawn);
      place.shown = value.drawn;
      const peak = compact.format(value.peak);
      if (peak !== place.kind) place.peak.textContent = place.kind = peak;
      return;
    }
    const [text, kind] = Array.isArray(value) ? value : [value, ""];
    if (text !== place.shown) place.inner.textContent = place.shown = text;
    if (kind !== place.kind) {
      if (place.kind) place.cell.classList.remove(place.kind);
      if (kind) place.cell.classList.add(kind);
      place.kind = kind;
    }
  }
}

// Journals

const counted = (item, name) => item.epochs.reduce((sum, epoch) => sum + epoch[name], 0);
const newestEpoch = (item) => item.epochs[item.epochs.length - 1];
const placed = (item, value) => {
  const epoch = newestEpoch(item);
  return epoch ? (epoch.epoch ? `${whole.format(epoch.epoch)}:` : "") + whole.format(value(epoch)) : "–";
};
const some = (count, kind) => [number(count), count ? kind : ""];

const STREAMS = [
  { title: "Stream", value: (item) => visible(item.stream), open: (key, button) => records.open(key, button) },
  { title: "State", value: (item) => (item.problem ? ["✗ " + visible(item.problem), "bad"]
    : item.damaged ? [`! ${number(item.damaged)} damaged places`, "warn"] : ["✓ readable", "good"]) },
  { title: "Whole up to", number: true, wide: true, value: (item) => placed(item, ({ next }) => before(next)) },
  { title: "Newest", number: true, wide: true, value: (item) => placed(item, ({ last }) => last) },
  { title: "Missing", number: true, value: (item) => some(counted(item, "missing"), "warn") },
  { title: "Lost", number: true, value: (item) => some(counted(item, "lost"), "warn") },
  { title: "Records/s", number: true, value: (item) => rate(item.growth.now()) },
  { title: "Last one", number: true,
    value: (item) => (item.last_received_at ? age(item.at - item.last_received_at / 1e6) : "–") },
  { title: "5 min, peak", plot: true, value: (item) => item.growth },
  { title: "Size", number: true, value: (item) => size(item.bytes) },
  { title: "Followers", number: true, value: (item) => number(item.followers) },
];

// Services, known by their metrics

const values = (service, name) => service.metrics["fyrehose_" + name] ?? [];
const sum = (service, name) => {
  const found = values(service, name);
  return found.length ? found.reduce((total, [, value]) => total + value, 0) : undefined;
};
const speed = (service, name) => {
  const found = growths.of(`${name} of ${service.name}`, service.at, service.up ? sum(service, name) : undefined);
  return rate(service.up ? found.now() : undefined); // What is down grows no more, whatever it did before.
};
const chosen = (service, name, label) => 
  values(service, name).filter(([, value]) => value === 1).map(([labels]) => visible(labels[label] ?? "?")).join(", ");
const listed = (service, name, label) =>
  values(service, name).filter(([, value]) => value)
    .map(([labels, value]) => `${visible(labels[label] ?? "?")} ${number(value)}`).join(", ");
const labelled = (service, label) =>
  visible(values(service, "info").map(([labels]) => labels[label] ?? "").join(" ")) || "–";

const counter = (title, name) => ({ title, number: true, value: (item) => number(sum(item, name)) });
const perSecond = (title, name) => ({ title, number: true, value: (item) => speed(item, name) });
const trouble = (title, name) => ({ title, number: true, value: (item) => some(sum(item, name), "warn") });
const reasons = (title, name) =>
  ({ title, value: (item) => [listed(item, name, "reason") || "0", sum(item, name) ? "warn" : ""] });
const answers = (name) =>
  ({ title: "Backbone", value: (item) => (sum(item, name) ? ["✓ answers", "good"] : ["✗ silent", "bad"]) });

const SERVICE = [
  { title: "Service", value: (item) => visible(item.name) },
  { title: "State", value: (item) => (item.up ? ["✓ up", "good"] : ["✗ " + (visible(item.why) || "down"), "bad"]) },
];

const KINDS = [
  { id: "backbone", title: "Backbones", caption: "Messages that are numbered, and who gets them",
    columns: [
      { title: "Stream", value: (item) => labelled(item, "stream") }, counter("Last number", "backbone_sequence"),
      perSecond("Published/s", "backbone_published_total"), perSecond("Delivered/s", "backbone_delivered_total"),
      counter("Subscribers", "backbone_subscribers"), counter("Journals", "backbone_journals"),
      perSecond("Repairs asked/s", "backbone_requests_total"), reasons("Dropped", "backbone_dropped_total"),
    ] },
  { id: "journal", title: "Journal services", caption: "How far each has got, and what it lacks",
    columns: [
      { title: "Stream", value: (item) => labelled(item, "stream") },
      { title: "Whole up to", number: true, value: (item) => {
        const next = sum(item, "journal_next");
        return number(next === undefined ? next : next - 1);
      } },
      perSecond("Records/s", "journal_taken_total"), trouble("Gaps now", "client_missing"),
      counter("Repaired", "client_repaired_total"), trouble("Lost", "journal_lost"),
      perSecond("Answers to others/s", "client_answered_total"),
    ] },
  { id: "client", title: "Clients", caption: "Subscribers and publishers that serve metrics",
    columns: [
      answers("client_connected"),
      counter("Handed over up to", "client_sequence"), perSecond("Messages/s", "client_delivered_total"),
      trouble("Gaps now", "client_missing"), counter("Repaired", "client_repaired_total"),
      trouble("Lost", "client_lost_total"),
    ] },
  { id: "parcels", title: "Parcels clusters", caption: "Who orders, and how far each node has got",
    columns: [
      { title: "Cluster", value: (item) => labelled(item, "cluster") },
      { title: "Mode", value: (item) => {
        const mode = chosen(item, "parcels_mode", "mode");
        return [mode || "–", mode === "Wrk" ? "good" : "warn"];
      } },
      { title: "Leader", value: (item) => chosen(item, "parcels_leader", "leader") || "–" },
      counter("Term", "parcels_term"), counter("Last event", "parcels_sequence"),
      { title: "Behind", number: true,
        value: (item) => some(item.most - (sum(item, "parcels_sequence") ?? 0), "warn") },
      { title: "Members alive", number: true, value: (item) => {
        const all = values(item, "parcels_members");
        const alive = all.filter(([labels]) => labels.alive === "true").reduce((total, [, value]) => total + value, 0);
        return `${alive} of ${sum(item, "parcels_members") ?? 0}`;
      } },
      perSecond("Events/s", "parcels_delivered_total"),
    ] },
  { id: "hydra", title: "Hydra networks", caption: "Who leads, and who is on IRC",
    columns: [
      { title: "Network", value: (item) => labelled(item, "network") },
      { title: "Role", value: (item) => chosen(item, "hydra_role", "role") || "–" },
      { title: "Leader", value: (item) => {
        const leader = chosen(item, "hydra_leader", "leader");
        return leader ? leader : ["nobody", "warn"];
      } },
      counter("Term", "hydra_term"),
      { title: "IRC", value: (item) => (sum(item, "hydra_irc_open") ? ["✓ on IRC", "good"] : "–") },
      counter("Nodes", "hydra_nodes"), counter("Links", "hydra_links"), counter("Lines waiting", "hydra_waiting"),
      counter("Next line", "hydra_expected"),
    ] },
  { id: "freenet", title: "Freenet trees", caption: "Nodes on the ring, and the streams that they are in",
    columns: [
      { title: "Location", number: true, value: (item) => (sum(item, "freenet_location") ?? 0).toFixed(4) },
      counter("Neighbours", "freenet_neighbours"),
      { title: "Streams", value: (item) => listed(item, "freenet_streams", "phase") || "0" },
      counter("Root of", "freenet_roots"), counter("Its own", "freenet_local"),
      counter("Below it", "freenet_subscribers"), counter("Requests", "freenet_requests"),
    ] },
  { id: "frontend", title: "Frontends", caption: "Where applications publish over HTTP and lines",
    columns: [
      answers("frontend_backbone"),
      perSecond("Published/s", "frontend_published_total"), counter("Waiting bytes", "frontend_waiting_bytes"),
      counter("Line connections", "frontend_line_connections"),
      reasons("Failed", "frontend_failed_total"),
    ] },
  { id: "query", title: "Query services", caption: "Services like this one",
    columns: [
      counter("Journals", "query_sources"), trouble("Unreadable", "query_problems"),
      counter("Streams", "query_streams"), counter("Searches", "query_searches"), perSecond("Requests/s", "query_requests_total"),
    ] },
  { id: "other", title: "Other services", caption: "No metrics of a known kind have come from these yet", columns: [] },
];

const known = new Map(); // the kind of each service, also while it is down
const tables = new Map();

// A service says what it is; one that does not is known by what its metrics are called.
function kindOf(service) {
  const [labels] = values(service, "info")[0] ?? [{}];
  const kind = KINDS.find(({ id }) => id === labels.service)
    ?? KINDS.find(({ id }) => Object.keys(service.metrics).some((name) => name.startsWith(`fyrehose_${id}_`)));
  if (kind) known.set(service.name, kind);
  return kind ?? known.get(service.name) ?? KINDS[KINDS.length - 1];
}

function showServices(services) {
  byId("watch").hidden = services.length > 0;
  const found = new Map(KINDS.map((kind) => [kind, []]));
  for (const service of services) found.get(kindOf(service)).push({ ...service, key: service.name });
  for (const [kind, items] of found) {
    let shown = tables.get(kind.id);
    if (!shown && !items.length) continue;
    if (!shown) {
      const title = `${kind.id}-title`;
      const properties = { id: kind.id, className: "card", "aria-labelledby": title };
      const section = element("section", properties, element("h2", { id: title }, kind.title));
      const after = KINDS.slice(KINDS.indexOf(kind) + 1).map((one) => tables.get(one.id)).find(Boolean);
      byId("services").insertBefore(section, after?.section ?? null);
      shown = { section, table: new Table(section, kind.caption, [...SERVICE, ...kind.columns]) };
      tables.set(kind.id, shown);
    }
    if (kind.id === "parcels") {
      const most = new Map();
      const cluster = (item) => labelled(item, "cluster");
      for (const item of items) {
        most.set(cluster(item), Math.max(most.get(cluster(item)) ?? 0, sum(item, "parcels_sequence") ?? 0));
      }
      for (const item of items) item.most = most.get(cluster(item));
    }
    shown.section.hidden = !items.length;
    shown.table.show(items);
  }
  return found;
}

// What is wrong, in words that change only when something goes wrong or is well again

const named = (names) =>
  names.slice(0, 3).map(visible).join(", ") + (names.length > 3 ? ` and ${names.length - 3} more` : "");
const many = (count, one, more) => `${number(count)} ${count === 1 ? one : more}`;

function showTrouble(overview) {
  const unreadable = overview.streams.filter((item) => item.problem).map((item) => item.stream);
  const down = overview.services.filter((item) => !item.up).map((item) => item.name);
  const said = [];
  if (unreadable.length) {
    said.push(`${many(unreadable.length, "journal", "journals")} cannot be read: ${named(unreadable)}`);
  }
  if (down.length) {
    const all = many(overview.services.length, "service", "services");
    said.push(`${number(down.length)} of ${all} down: ${named(down)}`);
  }
  const trouble = said.length ? `✗ ${said.join("; ")}` : "✓ Nothing is down";
  if (byId("trouble").textContent !== trouble) {
    byId("trouble").textContent = trouble;
    byId("trouble").className = said.length ? "bad" : "good";
    document.title = `${said.length ? "✗ " : ""}fyrehose`;
  }
}

// The way to each table, with how many rows it has

const ways = new Map();

function showWays(overview, found) {
  const gaps = overview.streams.filter((item) => counted(item, "missing")).length;
  const told = (title, count, some, what) => `${title} ${number(count)}` + (some ? `, ${number(some)} ${what}` : "");
  const wanted = [{ id: "streams", text: told("Journals", overview.streams.length, gaps, "with gaps") }];
  for (const [kind, items] of found) {
    const down = items.filter((item) => !item.up).length;
    if (items.length) wanted.push({ id: kind.id, text: told(kind.title, items.length, down, "down") });
  }
  const place = byId("ways");
  wanted.forEach(({ id, text }, index) => {
    if (!ways.has(id)) {
      const link = element("a", { href: "#" + id });
      ways.set(id, { line: element("li", {}, link), link });
    }
    const { line, link } = ways.get(id);
    if (link.textContent !== text) link.textContent = text;
    if (place.children[index] !== line) place.insertBefore(line, place.children[index] ?? null);
  });
  while (place.children.length > wanted.length) place.lastChild.remove();
}

let streams = null;
const code = (text) => element("code", {}, text);
const empty = element("p", {}, "There is no journal in the directory yet. Run ", code("twistd fyrehose-journal"),
  " with the same ", code("--directory"), ".");

function show(overview) {
  const place = byId("streams");
  if (!streams) {
    streams = new Table(place, "Choose a stream to see its records", STREAMS);
    place.append(empty);
  }
  const items = overview.streams.map((item) => ({
    ...item, key: item.name, at: overview.at, growth: growths.of("stream " + item.name, overview.at, item.records),
  }));
  streams.show(items);
  streams.box.hidden = !items.length;
  empty.hidden = items.length > 0;
  const found = showServices(overview.services);
  growths.forget();
  showTrouble(overview);
  showWays(overview, found);
  byId("version").textContent = overview.version;
  const { requests, streams: open, connections, refused } = overview.query;
  byId("usage").textContent = `Up for ${age(overview.at - overview.started_at)}; ` + [
    many(requests ?? 0, "request", "requests"), many(open ?? 0, "follower", "followers"),
    many(connections ?? 0, "connection", "connections"), `${number(refused ?? 0)} refused`,
  ].join(", ");
  byId("updated").textContent = new Date(overview.at * 1000).toISOString().slice(0, 19).replace("T", " ") + " UTC";
}

// Asking, with a token if one is needed

let token = sessionStorage.getItem("token");

async function ask(path, headers, signal) {
  const sent = { ...headers }, used = token;
  if (used) sent.Authorization = "Bearer " + used;
  const answer = await fetch(path, { headers: sent, signal, cache: "no-store" });
  // A refusal that comes late says nothing of a token that the operator has entered meanwhile.
  if (answer.status === 401 && used === token) logIn(used ? "The service does not know this token." : "");
  if (!answer.ok) {
    const said = await answer.json().catch(() => ({}));
    throw Object.assign(new Error(said.message ?? `status ${answer.status}`), { status: answer.status });
  }
  return answer;
}

// A stream of events, read by hand: EventSource can send neither a token nor say why it was refused.
async function* events(kind, path, headers, signal) {
  const dead = new AbortController();
  const stop = () => dead.abort();
  signal?.addEventListener("abort", stop, { signal: dead.signal });
  let watchdog = setTimeout(stop, SILENCE[kind] * 1000);
  try {
    const answer = await ask(path, { Accept: "text/event-stream", ...headers }, dead.signal);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      clearTimeout(watchdog);
      watchdog = setTimeout(stop, SILENCE[kind] * 1000);
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop();
      for (const block of blocks) {
        const found = { event: "message", data: [], id: undefined };
        for (const line of block.split("\n")) {
          const [, name, content] = /^([^:]*):? ?(.*)$/.exec(line);
          if (name === "data") found.data.push(content);
          else if (name === "event" || name === "id") found[name] = content;
        }
        yield { ...found, data: found.data.length ? found.data.join("\n") : null };
      }
    }
  } finally {
    clearTimeout(watchdog);
    stop();
  }
}

const pause = (seconds) => new Promise((done) => setTimeout(done, seconds * 1000));

function tell(kind, mark, text) {
  const state = byId("state");
  if (byId("state-text").textContent === text) return;
  state.className = "state " + kind;
  state.querySelector(".mark").textContent = mark;
  byId("state-text").textContent = text;
}

let entered = null;

function logIn(problem) {
  byId("login").hidden = false;
  byId("login-error").textContent = problem;
  token = null;
  sessionStorage.removeItem("token");
  byId("records").close(); // The form is behind it.
  byId("token").focus();
}

byId("login").addEventListener("submit", (event) => {
  event.preventDefault();
  token = byId("token").value.trim();
  sessionStorage.setItem("token", token);
  byId("token").value = "";
  byId("login").hidden = true;
  entered?.();
});

async function watch() {
  for (let failures = 0; ; failures += 1) {
    try {
      for await (const { data } of events("overview", "/overview", {})) {
        if (data === null) continue;
        const began = performance.now();
        show(parse(data));
        document.documentElement.dataset.took = (performance.now() - began).toFixed(2);
        if (failures) byId("trouble").textContent = ""; // To be said anew, with the title.
        tell("good", "●", "Live");
        failures = 0;
      }
      tell("wait", "○", "The service ended the connection; trying again");
    } catch (error) {
      if (error.status === 401) {
        tell("wait", "○", "A token is needed");
        // The operator may have entered a token before the refusal was read to its end.
        if (token === null) await new Promise((done) => { entered = done; });
        failures = -1;
        continue;
      }
      tell("bad", "✗", "The service does not answer; trying again");
    }
    document.title = "✗ fyrehose";
    await pause(RETRY[Math.min(failures, RETRY.length - 1)]);
  }
}

// Records of one stream

// The id before another, null for the first there can be. Numbers may be larger than those of JavaScript.
function preceding(id) {
  const [, epoch = "0", position] = /^(?:(\d+):)?(\d+)$/.exec(id);
  if (position !== "0") return `${epoch}:${BigInt(position) - 1n}`;
  return epoch === "0" ? null : `${BigInt(epoch) - 1n}:18446744073709551614`;
}

class Records {
  constructor() {
    this.dialog = byId("records");
    this.stopped = null;
    this.paused = false;
    this.frame = 0;
    this.waiting = []; // events that are not in the list yet
    this.passed = 0;
    byId("close").addEventListener("click", () => this.dialog.close());
    this.dialog.addEventListener("close", () => this.end());
    byId("pause").addEventListener("click", () => this.pause(!this.paused));
    byId("older").addEventListener("click", () => this.older());
    byId("filter").addEventListener("submit", (event) => {
      event.preventDefault();
      this.begin();
    });
  }

  open(name, button) {
    this.name = name;
    this.button = button;
    byId("records-title").textContent = button.textContent;
    byId("where").value = "";
    this.dialog.showModal();
    this.begin();
  }

  end() {
    this.stopped?.abort();
    if (byId("login").hidden) this.button?.focus();
  }

  pause(yes) {
    this.paused = yes;
    byId("pause").textContent = yes ? "Go on" : "Pause";
    this.say(yes ? "Paused" : this.state);
    if (yes) return;
    this.turn = {}; // What was asked before is of no use any more.
    // Below what goes on there are no older ones, or there would be a hole between them one day.
    byId("list").querySelectorAll("[data-older]").forEach((line) => line.remove());
    this.back = undefined; // the path of what is before the list; null at the beginning
    byId("older").disabled = false;
    byId("older-state").textContent = "";
    this.soon();
  }

  say(text) {
    if (byId("follow-state").textContent !== text) byId("follow-state").textContent = text;
  }

  // How the connection is; while paused it is not said.
  tell(state) {
    this.state = state;
    if (!this.paused) this.say(state);
  }

  refuse(message) {
    byId("where-error").textContent = message;
    byId("where").setAttribute("aria-invalid", String(message !== ""));
  }

  async begin() {
    this.stopped?.abort();
    const stopped = (this.stopped = new AbortController());
    byId("list").replaceChildren();
    byId("waiting").textContent = "";
    this.refuse("");
    this.waiting = [];
    this.passed = 0;
    this.state = "Connecting";
    this.pause(false);
    const path = `/streams/${encodeURIComponent(this.name)}/records`;
    const where = byId("where").value.trim();
    const filter = where ? `&where=${encodeURIComponent(where)}` : "";
    this.before = (id) => `${path}?last=${OLDER}${id === undefined ? "" : "&to=" + id}${filter}`;
    let id = null;
    for (let failures = 0; !stopped.signal.aborted; failures += 1) {
      try {
        const headers = id === null ? {} : { "Last-Event-ID": id };
        const query = id === null ? `?last=${where ? 1000 : 20}${filter}` : `?${filter.slice(1)}`;
        for await (const event of events("records", path + query, headers, stopped.signal)) {
          this.tell(where ? "Following what the filter takes of the last 1,000 records and of new ones" : "Following");
          failures = 0;
          if (event.id !== undefined) id = event.id;
          if (event.data !== null && event.event !== "position") this.take(event);
        }
      } catch (error) {
        if (stopped.signal.aborted) return;
        if (error.status === 409 && id !== null) {
          id = null; // The journal began anew, and does not know the id.
        } else if (error.status >= 400 && error.status < 500) {
          this.refuse(error.message);
          this.tell("");
          return;
        }
      }
      if (stopped.signal.aborted) return; // A later begin() tells of its own connection.
      this.tell("The service does not answer; trying again");
      await pause(RETRY[Math.min(failures, RETRY.length - 1)]);
    }
  }

  // What is before the list is put below it. Newer ones wait meanwhile, or they would push it out again.
  async older() {
    if (this.asking) return;
    this.pause(true);
    const list = byId("list"), stopped = this.stopped, turn = this.turn, oldest = list.lastChild?.dataset.id;
    this.asking = true;
    byId("older-state").textContent = "Asking";
    try {
      let lines = [], back = this.back;
      if (back === undefined && oldest !== undefined) back = preceding(oldest) && this.before(preceding(oldest));
      else back ??= this.before();
      if (back !== null) {
        const answer = await ask(back, { Accept: "application/x-ndjson" }, stopped.signal);
        lines = (await answer.text()).split("\n").slice(0, -1).reverse();
        if (turn !== this.turn) return;
        back = /<([^>]*)>; rel="prev"/.exec(answer.headers.get("Link"))?.[1] ?? null;
      }
      const made = lines.map((data) => this.line({ data, older: true }));
      list.append(...made);
      made[0]?.scrollIntoView({ block: "start" });
      this.back = back;
      byId("older").disabled = back === null;
      byId("older-state").textContent = many(lines.length, "older one", "older ones")
        + (back === null ? "; this is the beginning" : "");
    } catch (error) {
      if (!stopped.signal.aborted) byId("older-state").textContent = error.message;
    } finally {
      this.asking = false;
    }
  }

  // However fast they come, the list is changed once a frame, and only by those that stay in it.
  take(event) {
    this.waiting.push(event);
    this.passed += 1;
    if (this.waiting.length > SHOWN) this.waiting.shift();
    this.soon();
  }

  soon() {
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      this.show();
    });
  }

  show() {
    const text = this.paused && this.passed ? `(${many(this.passed, "newer one waits", "newer ones wait")})` : "";
    if (byId("waiting").textContent !== text) byId("waiting").textContent = text;
    if (this.paused) return;
    const list = byId("list");
    list.prepend(...this.waiting.splice(0).reverse().map((event) => this.line(event)));
    this.passed = 0;
    while (list.children.length > SHOWN) list.lastChild.remove();
  }

  line({ event, id, data, older }) {
    const content = parse(data);
    const made = element("li");
    if (id !== undefined) made.dataset.id = id;
    if (older) made.dataset.older = "";
    if (event === "skipped") {
      const said = `${whole.format(content.first)} to ${whole.format(content.last)} cannot be had`;
      made.append(element("span", { className: "said warn" }, said));
      return made;
    }
    const name = (content.epoch ? content.epoch + ":" : "") + content.sequence;
    const at = new Date(content.received_at / 1000).toISOString().slice(0, 23).replace("T", " ");
    // JSON as it was written, so that no digit of a number is lost.
    const payload = content.text ?? (content.data === undefined
      ? data.slice(data.indexOf('"json":') + 7, -1) : "base64 " + content.data);
    const more = payload.length - LONGEST;
    const cut = more > 0 ? `… and ${number(more)} more characters` : "";
    made.append(element("span", { className: "number" }, name),
      element("span", { className: "quiet number" }, at),
      element("span", { className: "payload" }, visible(payload.slice(0, LONGEST)) + cut));
    return made;
  }
}

const records = new Records();
watch();
