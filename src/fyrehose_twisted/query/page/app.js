"use strict";

// Everything that comes from the network becomes text nodes; nothing of it is ever markup.

const KEPT = 300; // seconds of which the small plots tell
const SHOWN = 200; // records in a list
const RETRY = [1, 2, 4, 8, 15]; // seconds before it is tried again

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
function visible(text) {
  return text.replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2066-\u2069]/g,
    (sign) => "\\u" + sign.charCodeAt(0).toString(16).padStart(4, "0"));
}

// Numbers and times

const whole = new Intl.NumberFormat("en");
const rough = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });

function number(value) {
  return value === undefined || value === null ? "–" : Number.isInteger(value) ? whole.format(value) : rough.format(value);
}

function rate(value) {
  return value === undefined ? "–" : value === 0 ? "0" : value < 100 ? rough.format(value) : whole.format(Math.round(value));
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
    this.samples = [];
    this.rates = [];
  }

  add(at, value) {
    const before = this.samples[this.samples.length - 1];
    if (before && at <= before.at) return;
    if (before && value < before.value) this.samples = []; // It began anew.
    this.samples.push({ at, value });
    while (this.samples.length > 2 && at - this.samples[1].at >= 5) this.samples.shift();
    this.rates.push(this.now() ?? 0);
    if (this.rates.length > KEPT) this.rates.shift();
  }

  now() {
    const first = this.samples[0], last = this.samples[this.samples.length - 1];
    return this.samples.length < 2 ? undefined : (last.value - first.value) / (last.at - first.at);
  }

  path() {
    const most = Math.max(...this.rates, 1e-9);
    const step = 100 / (KEPT - 1), start = KEPT - this.rates.length;
    return this.rates
      .map((value, index) => `${index ? "L" : "M"}${((start + index) * step).toFixed(2)} ${(19 - 18 * value / most).toFixed(2)}`)
      .join("");
  }
}

const growths = new Map();

function growth(key, at, value) {
  if (!growths.has(key)) growths.set(key, new Growth());
  const found = growths.get(key);
  if (value !== undefined) found.add(at, value);
  return found;
}

// Tables, of which only the cells that have changed are touched

class Table {
  constructor(place, caption, columns) {
    this.columns = columns;
    this.rows = new Map();
    this.body = element("tbody");
    const head = element("tr");
    for (const column of columns) head.append(element("th", { scope: "col", className: column.number ? "number" : "" }, column.title));
    this.table = element("table", {}, element("caption", {}, caption), element("thead", {}, head), this.body);
    this.box = element("div", { className: "scroll" }, this.table);
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
      const cell = element(index ? "td" : "th", { className: column.number ? "number" : index ? "" : "name" });
      if (index) cell.dataset.label = column.title;
      else cell.scope = "row";
      let inner = cell;
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
        cell.append(drawn);
      }
      line.append(cell);
      return { inner, cell, shown: null, kind: null };
    });
    return { line, cells };
  }

  fill(place, column, item) {
    const value = column.value(item);
    if (column.plot) {
      if (value !== place.shown) place.inner.setAttribute("d", value);
      place.shown = value;
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
const place = (epoch, value) => (epoch.epoch ? `${whole.format(epoch.epoch)}:` : "") + whole.format(value);
const some = (count, kind) => [number(count), count ? kind : ""];

const STREAMS = [
  { title: "Stream", value: (item) => visible(item.stream), open: (key, button) => records.open(key, button) },
  { title: "State", value: (item) => (item.problem ? ["✗ " + visible(item.problem), "bad"] : ["✓ readable", "good"]) },
  { title: "Whole up to", number: true, value: (item) => (newestEpoch(item) ? place(newestEpoch(item), newestEpoch(item).next - 1) : "–") },
  { title: "Newest", number: true, value: (item) => (newestEpoch(item) ? place(newestEpoch(item), newestEpoch(item).last) : "–") },
  { title: "Missing", number: true, value: (item) => some(counted(item, "missing"), "warn") },
  { title: "Lost", number: true, value: (item) => some(counted(item, "lost"), "warn") },
  { title: "Records", number: true, value: (item) => number(item.records) },
  { title: "Records/s", number: true, value: (item) => rate(item.growth.now()) },
  { title: "Last 5 min", plot: true, value: (item) => item.growth.path() },
  { title: "Last one", number: true, value: (item) => (item.last_received_at ? age(item.at - item.last_received_at / 1e6) : "–") },
  { title: "Size", number: true, value: (item) => size(item.bytes) },
  { title: "Followers", number: true, value: (item) => number(item.followers) },
];

// Services, known by their metrics

const values = (service, name) => service.metrics["fyrehose_" + name] ?? [];
const sum = (service, name) => {
  const found = values(service, name);
  return found.length ? found.reduce((total, [, value]) => total + value, 0) : undefined;
};
const speed = (service, name) => rate(growth(`${service.name} ${name}`, service.at, service.up ? sum(service, name) : undefined).now());
const chosen = (service, name, label) => values(service, name).filter(([, value]) => value === 1).map(([labels]) => labels[label]).join(", ");
const listed = (service, name, label) =>
  values(service, name).filter(([, value]) => value).map(([labels, value]) => `${visible(labels[label] ?? "?")} ${number(value)}`).join(", ");
const labelled = (service, label) => visible(values(service, "info").map(([labels]) => labels[label] ?? "").join(" ")) || "–";

const counter = (title, name) => ({ title, number: true, value: (item) => number(sum(item, name)) });
const perSecond = (title, name) => ({ title, number: true, value: (item) => speed(item, name) });
const trouble = (title, name) => ({ title, number: true, value: (item) => some(sum(item, name), "warn") });
const dropped = (name) => ({ title: "Dropped", value: (item) => [listed(item, name, "reason") || "0", sum(item, name) ? "warn" : ""] });

const SERVICE = [
  { title: "Service", value: (item) => visible(item.name) },
  { title: "State", value: (item) => (item.up ? ["✓ up", "good"] : ["✗ " + (visible(item.why) || "down"), "bad"]) },
];

const KINDS = [
  { id: "backbone", title: "Backbones", mark: "backbone_sequence", caption: "Messages that are numbered, and who gets them",
    columns: [
      { title: "Stream", value: (item) => labelled(item, "stream") }, counter("Last number", "backbone_sequence"),
      perSecond("Published/s", "backbone_published_total"), perSecond("Delivered/s", "backbone_delivered_total"),
      counter("Subscribers", "backbone_subscribers"), counter("Journals", "backbone_journals"),
      perSecond("Repairs asked/s", "backbone_requests_total"), dropped("backbone_dropped_total"),
    ] },
  { id: "journal", title: "Journal services", mark: "journal_next", caption: "How far each has got, and what it lacks",
    columns: [
      { title: "Stream", value: (item) => labelled(item, "stream") },
      { title: "Whole up to", number: true, value: (item) => number((sum(item, "journal_next") ?? 0) - 1) },
      perSecond("Records/s", "journal_taken_total"), trouble("Gaps now", "client_missing"),
      counter("Repaired", "client_repaired_total"), trouble("Lost", "journal_lost"),
      perSecond("Answers to others/s", "client_answered_total"),
    ] },
  { id: "client", title: "Clients", mark: "client_sequence", caption: "Subscribers and publishers that serve metrics",
    columns: [
      { title: "Backbone", value: (item) => (sum(item, "client_connected") ? ["✓ answers", "good"] : ["✗ silent", "bad"]) },
      counter("Handed over up to", "client_sequence"), perSecond("Messages/s", "client_delivered_total"),
      trouble("Gaps now", "client_missing"), counter("Repaired", "client_repaired_total"), trouble("Lost", "client_lost_total"),
    ] },
  { id: "parcels", title: "Parcels clusters", mark: "parcels_sequence", caption: "Who orders, and how far each node has got",
    columns: [
      { title: "Cluster", value: (item) => labelled(item, "cluster") },
      { title: "Mode", value: (item) => [chosen(item, "parcels_mode", "mode") || "–", chosen(item, "parcels_mode", "mode") === "Wrk" ? "good" : "warn"] },
      { title: "Leader", value: (item) => visible(chosen(item, "parcels_leader", "leader")) || "–" },
      counter("Term", "parcels_term"), counter("Last event", "parcels_sequence"),
      { title: "Behind", number: true, value: (item) => some(item.most - (sum(item, "parcels_sequence") ?? 0), "warn") },
      { title: "Members alive", number: true, value: (item) => {
        const all = values(item, "parcels_members");
        const alive = all.filter(([labels]) => labels.alive === "true").reduce((total, [, value]) => total + value, 0);
        return `${alive} of ${sum(item, "parcels_members") ?? 0}`;
      } },
      perSecond("Events/s", "parcels_delivered_total"),
    ] },
  { id: "hydra", title: "Hydra networks", mark: "hydra_term", caption: "Who leads, and who is on IRC",
    columns: [
      { title: "Network", value: (item) => labelled(item, "network") },
      { title: "Role", value: (item) => chosen(item, "hydra_role", "role") || "–" },
      { title: "Leader", value: (item) => {
        const leader = visible(chosen(item, "hydra_leader", "leader"));
        return leader ? leader : ["nobody", "warn"];
      } },
      counter("Term", "hydra_term"),
      { title: "IRC", value: (item) => (sum(item, "hydra_irc_open") ? "✓ on IRC" : "–") },
      counter("Nodes", "hydra_nodes"), counter("Links", "hydra_links"), counter("Lines waiting", "hydra_waiting"),
      counter("Next line", "hydra_expected"),
    ] },
  { id: "freenet", title: "Freenet trees", mark: "freenet_location", caption: "Nodes on the ring, and the streams that they are in",
    columns: [
      { title: "Location", number: true, value: (item) => (sum(item, "freenet_location") ?? 0).toFixed(4) },
      counter("Neighbours", "freenet_neighbours"),
      { title: "Streams", value: (item) => listed(item, "freenet_streams", "phase") || "0" },
      counter("Root of", "freenet_roots"), counter("Its own", "freenet_local"), counter("Below it", "freenet_subscribers"),
      counter("Requests", "freenet_requests"),
    ] },
  { id: "frontend", title: "Frontends", mark: "frontend_published_total", caption: "Where applications publish over HTTP and lines",
    columns: [
      { title: "Backbone", value: (item) => (sum(item, "frontend_backbone") ? ["✓ answers", "good"] : ["✗ silent", "bad"]) },
      perSecond("Published/s", "frontend_published_total"), counter("Waiting bytes", "frontend_waiting_bytes"),
      counter("Line connections", "frontend_line_connections"),
      { title: "Failed", value: (item) => [listed(item, "frontend_failed_total", "reason") || "0", sum(item, "frontend_failed_total") ? "warn" : ""] },
    ] },
  { id: "query", title: "Query services", mark: "query_sources", caption: "Services like this one",
    columns: [
      counter("Journals", "query_sources"), trouble("Unreadable", "query_problems"), counter("Streams", "query_streams"),
      counter("Searches", "query_searches"), perSecond("Requests/s", "query_requests_total"),
    ] },
  { id: "other", title: "Other services", mark: null, caption: "Nothing is known of these yet", columns: [] },
];

const known = new Map(); // the kind of each service, also while it is down
const tables = new Map();

function kindOf(service) {
  for (const kind of KINDS) {
    if (kind.mark && service.metrics["fyrehose_" + kind.mark] !== undefined) {
      known.set(service.name, kind);
      return kind;
    }
  }
  return known.get(service.name) ?? KINDS[KINDS.length - 1];
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
      const section = element("section", { id: kind.id, className: "card", "aria-labelledby": title }, element("h2", { id: title }, kind.title));
      const after = KINDS.slice(KINDS.indexOf(kind) + 1).map((one) => tables.get(one.id)).find(Boolean);
      byId("services").insertBefore(section, after?.section ?? null);
      shown = { section, table: new Table(section, kind.caption, [...SERVICE, ...kind.columns]) };
      tables.set(kind.id, shown);
    }
    if (kind.id === "parcels") {
      const most = new Map();
      const cluster = (item) => labelled(item, "cluster");
      for (const item of items) most.set(cluster(item), Math.max(most.get(cluster(item)) ?? 0, sum(item, "parcels_sequence") ?? 0));
      for (const item of items) item.most = most.get(cluster(item));
    }
    shown.section.hidden = !items.length;
    shown.table.show(items);
  }
}

let streams = null;
const empty = element("p", {}, "There is no journal in the directory yet.");

function show(overview) {
  const place = byId("streams");
  if (!streams) {
    streams = new Table(place, "Choose a stream to see its records", STREAMS);
    place.append(empty);
  }
  const items = overview.streams.map((item) => ({
    ...item, key: item.name, at: overview.at, growth: growth("stream " + item.name, overview.at, counted(item, "last")),
  }));
  streams.show(items);
  streams.box.hidden = !items.length;
  empty.hidden = items.length > 0;
  showServices(overview.services);
  byId("version").textContent = overview.version;
  byId("updated").textContent = new Date(overview.at * 1000).toISOString().slice(0, 19).replace("T", " ") + " UTC";
}

// Asking, with a token if one is needed

let token = sessionStorage.getItem("token");

async function ask(path, headers, signal) {
  const sent = { ...headers };
  if (token) sent.Authorization = "Bearer " + token;
  const answer = await fetch(path, { headers: sent, signal, cache: "no-store" });
  if (answer.status === 401) logIn(token ? "The service does not know this token." : "");
  if (!answer.ok) {
    const said = await answer.json().catch(() => ({}));
    throw Object.assign(new Error(said.message ?? `status ${answer.status}`), { status: answer.status });
  }
  return answer;
}

// A stream of events, read by hand: EventSource can send neither a token nor say why it was refused.
async function* events(path, headers, signal) {
  const answer = await ask(path, { Accept: "text/event-stream", ...headers }, signal);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
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
  if (!byId("records").open) byId("token").focus();
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
      for await (const { data } of events("/overview", {})) {
        if (data === null) continue;
        const began = performance.now();
        show(JSON.parse(data));
        document.documentElement.dataset.took = (performance.now() - began).toFixed(2);
        tell("good", "●", "Live");
        failures = 0;
      }
      tell("wait", "○", "The service ended the connection; trying again");
    } catch (error) {
      if (error.status === 401) {
        tell("wait", "○", "A token is needed");
        await new Promise((done) => { entered = done; });
        failures = -1;
        continue;
      }
      tell("bad", "✗", "The service does not answer; trying again");
    }
    await pause(RETRY[Math.min(failures, RETRY.length - 1)]);
  }
}

// Records of one stream

class Records {
  constructor() {
    this.dialog = byId("records");
    this.stopped = null;
    this.paused = false;
    this.waiting = [];
    byId("close").addEventListener("click", () => this.dialog.close());
    this.dialog.addEventListener("close", () => this.end());
    byId("pause").addEventListener("click", () => this.pause(!this.paused));
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
    this.button?.focus();
  }

  pause(yes) {
    this.paused = yes;
    byId("pause").setAttribute("aria-pressed", String(yes));
    byId("pause").textContent = yes ? "Go on" : "Pause";
    if (!yes) {
      for (const line of this.waiting.splice(0)) this.put(line);
    }
  }

  async begin() {
    this.stopped?.abort();
    const stopped = (this.stopped = new AbortController());
    byId("list").replaceChildren();
    byId("where-error").textContent = "";
    this.waiting = [];
    this.pause(false);
    const path = `/streams/${encodeURIComponent(this.name)}/records`;
    const where = byId("where").value.trim();
    const filter = where ? `&where=${encodeURIComponent(where)}` : "";
    let id = null;
    for (let failures = 0; !stopped.signal.aborted; failures += 1) {
      try {
        const headers = id === null ? {} : { "Last-Event-ID": id };
        const query = id === null ? `?last=${where ? 1000 : 20}${filter}` : `?${filter.slice(1)}`;
        for await (const event of events(path + query, headers, stopped.signal)) {
          byId("follow-state").textContent = "Following";
          failures = 0;
          if (event.id !== undefined) id = event.id;
          if (event.data !== null) this.take(event);
        }
      } catch (error) {
        if (stopped.signal.aborted) return;
        if (error.status >= 400 && error.status < 500) {
          byId("where-error").textContent = error.message;
          byId("follow-state").textContent = "";
          return;
        }
      }
      byId("follow-state").textContent = "The service does not answer; trying again";
      await pause(RETRY[Math.min(failures, RETRY.length - 1)]);
    }
  }

  take(event) {
    const content = JSON.parse(event.data);
    const line = element("li");
    if (event.event === "skipped") {
      line.append(element("span", { className: "said warn" }, `${whole.format(content.first)} to ${whole.format(content.last)} cannot be had`));
    } else {
      const name = (content.epoch ? content.epoch + ":" : "") + content.sequence;
      // JSON as it was written, so that no digit of a number is lost.
      const payload = content.text ?? (content.data === undefined
        ? event.data.slice(event.data.indexOf('"json":') + 7, -1) : "base64 " + content.data);
      line.append(element("span", { className: "number" }, name),
        element("span", { className: "quiet number" }, new Date(content.received_at / 1000).toISOString().slice(11, 23)),
        element("span", { className: "payload" }, visible(payload)));
    }
    if (this.paused) {
      this.waiting.push(line);
      if (this.waiting.length > SHOWN) this.waiting.shift();
    } else {
      this.put(line);
    }
  }

  put(line) {
    const list = byId("list");
    list.prepend(line);
    while (list.children.length > SHOWN) list.lastChild.remove();
  }
}

const records = new Records();
watch();
