"use strict";

const tables = new Map();

// Show a table in its own section, created when there are rows. Sections keep their order.
function showTable(id, title, caption, columns, items, order) {
  let shown = tables.get(id);
  if (!shown && !items.length) return;
  if (!shown) {
    const heading = `${id}-title`;
    const properties = { id, className: "card", "aria-labelledby": heading };
    const section = element("section", properties, element("h2", { id: heading }, title));
    const after = order.slice(order.indexOf(id) + 1).map((next) => tables.get(next)).find(Boolean);
    byId("services").insertBefore(section, after?.section ?? null);
    shown = { section, table: new Table(section, caption, columns) };
    tables.set(id, shown);
  }
  shown.section.hidden = !items.length;
  shown.table.show(items);
  if (shown.table.caption.textContent !== caption) shown.table.caption.textContent = caption;
}

const ORDER = ["clusters", ...KINDS.map(({ id }) => id)];
ORDER.splice(ORDER.indexOf("backbone") + 1, 0, "connected", "watched");

function showServices({ services, clusters }) {
  byId("watch").hidden = services.length > 0;
  const found = new Map(KINDS.map((kind) => [kind, []]));
  for (const service of services) {
    const kind = KINDS.find(({ id }) => id === service.kind) ?? KINDS[KINDS.length - 1];
    found.get(kind).push({ ...service, key: service.name, plot: plots.get("service " + service.name) ?? NOTHING });
  }
  const of = (id) => found.get(KINDS.find((kind) => kind.id === id));
  const newest = new Map();
  const cluster = (item) => infoLabel(item, "cluster");
  for (const item of of("parcels")) {
    newest.set(cluster(item), Math.max(newest.get(cluster(item)) ?? 0, sum(item, "parcels_sequence") ?? 0));
  }
  for (const item of of("parcels")) item.newest = newest.get(cluster(item));
  showTable("clusters", "Clusters", "Number of further nodes that may fail before a cluster loses its quorum", CLUSTERS,
    clusters.map((item) => ({ ...item, key: item.title })), ORDER);
  showConnected([...of("backbone"), ...of("relay")]);
  showTable("watched", "Watched clients", "Clients with scraped metrics, and their lag behind the newest number",
    WATCHED, of("backbone").length ? [...of("journal"), ...of("client"), ...of("frontend")] : [], ORDER);
  for (const [kind, items] of found) {
    showTable(kind.id, kind.title, kind.caption, [...SERVICE, ...kind.columns], items, ORDER);
  }
  return found;
}

// Clients as listed by backbones and relays. A list may be incomplete if there are many.
function showConnected(backbones) {
  const rows = [], captions = [];
  for (const { name, clients, state } of backbones) {
    if (!clients) continue;
    const stale = !clients.up || state === "down";
    for (const client of clients.list) {
      rows.push({ ...client, backbone: name, key: `${name} ${client.address}`, state: stale ? "down" : "ok" });
    }
    const count = pluralize(clients.total, "client", "clients");
    const left = clients.total > clients.list.length ? `, ${number(clients.list.length)} of them listed` : "";
    const old = stale ? `; the list is outdated: ${visible(clients.why) || "the backbone is down"}` : "";
    captions.push(`${visible(name)} has ${count}${left}${old}`);
  }
  showTable("connected", "Connected clients", captions.join(". "), CLIENTS, rows, ORDER);
}

// Overall state. Its text changes only with the state, so that screen readers announce only changes.

const TITLES = { ok: "", attention: "! ", down: "✗ " };
const FINDINGS = 12; // maximum number of listed findings

function showTrouble({ state, findings }) {
  const of = (level) => [...new Set(findings.filter((finding) => finding.level === level).map(({ subject }) => subject))];
  const down = of("down"), attention = of("attention"), parts = [];
  if (down.length) parts.push(`down: ${named(down)}`);
  if (attention.length) parts.push(`attention: ${named(attention)}`);
  const [mark, kind] = MARKS[state];
  const summary = parts.join("; ") || "OK";
  const trouble = `${mark} ${summary[0].toUpperCase()}${summary.slice(1)}`;
  if (byId("trouble").textContent !== trouble) {
    byId("trouble").textContent = trouble;
    byId("trouble").className = kind;
  }
  document.title = `${TITLES[state]}fyrehose`;
  const lines = findings.slice(0, FINDINGS).map(({ level, subject, text }) =>
    [MARKS[level][1], `${visible(subject)} ${MARKS[level][0] === "✗" ? "" : "– "}${visible(text)}`]);
  if (findings.length > FINDINGS) lines.push(["", `and ${findings.length - FINDINGS} more`]);
  list("findings", lines.map(([kind, text]) => ({ key: text, made: () => element("li", { className: kind }, text) })));
}

// Update a list in place; existing lines are reused.
function list(id, wanted) {
  const place = byId(id), existing = new Map([...place.children].map((line) => [line.dataset.key, line]));
  const lines = wanted.map(({ key, made }) => {
    const line = existing.get(key) ?? made();
    line.dataset.key = key;
    return line;
  });
  if (lines.length !== place.children.length || lines.some((line, index) => place.children[index] !== line)) {
    place.replaceChildren(...lines);
  }
  place.hidden = !lines.length;
}

function showEvents(events) {
  list("events", events.slice(0, 50).map(({ at, level, subject, text }) => ({
    key: `${at} ${subject} ${text}`,
    made: () => element("li", {}, element("span", { className: "quiet number" }, utc(at)), " ",
      element("span", { className: MARKS[level][1] }, MARKS[level][0]), ` ${visible(subject)} ${visible(text)}`),
  })));
  byId("no-events").hidden = events.length > 0;
}

// Links to the tables, with their numbers of rows

const tableLinks = new Map();

function showTableLinks(overview, found) {
  const label = (title, items) => {
    const down = items.filter((item) => item.state === "down").length;
    const attention = items.filter((item) => item.state === "attention").length;
    return `${title} ${number(items.length)}` + (down ? `, ${number(down)} down` : "")
      + (attention ? `, ${number(attention)} attention` : "");
  };
  const wanted = overview.topology.nodes.length ? [{ id: "topology", text: "Topology" }] : [];
  wanted.push({ id: "streams", text: label("Journals", overview.streams) });
  if (overview.clusters.length) wanted.push({ id: "clusters", text: label("Clusters", overview.clusters) });
  for (const [kind, items] of found) {
    if (items.length) wanted.push({ id: kind.id, text: label(kind.title, items) });
  }
  wanted.push({ id: "recent", text: "Events" });
  const place = byId("table-links");
  wanted.forEach(({ id, text }, index) => {
    if (!tableLinks.has(id)) {
      const link = element("a", { href: "#" + id });
      tableLinks.set(id, { line: element("li", {}, link), link });
    }
    const { line, link } = tableLinks.get(id);
    if (link.textContent !== text) link.textContent = text;
    if (place.children[index] !== line) place.insertBefore(line, place.children[index] ?? null);
  });
  while (place.children.length > wanted.length) place.lastChild.remove();
}

let streams = null;
const code = (text) => element("code", {}, text);
const empty = element("p", {}, "The directory has no journal yet. Run ", code("twistd fyrehose-journal"),
  " with the same ", code("--directory"), ".");

function show(overview) {
  const place = byId("streams");
  if (!streams) {
    streams = new Table(place, "Select a stream to see its records", STREAMS);
    place.append(empty);
  }
  titles.clear();
  for (const { name, stream } of overview.streams) titles.set(name, stream);
  if (records.dialog.open) records.showTitle();
  streams.show(overview.streams.map((item) => ({
    ...item, key: item.name, at: overview.at, plot: plots.get("stream " + item.name) ?? NOTHING,
  })));
  streams.box.hidden = !overview.streams.length;
  empty.hidden = overview.streams.length > 0;
  topology.show(overview.topology);
  const found = showServices(overview);
  showTrouble(overview);
  showEvents(overview.events);
  showTableLinks(overview, found);
  byId("version").textContent = overview.version;
  const { requests, streams: open, connections, refused } = overview.query;
  byId("usage").textContent = `Up for ${age(overview.at - overview.started_at)}; ` + [
    pluralize(requests ?? 0, "request", "requests"), pluralize(open ?? 0, "follower", "followers"),
    pluralize(connections ?? 0, "connection", "connections"), `${number(refused ?? 0)} refused`,
  ].join(", ");
  byId("updated").textContent = utc(overview.at) + " UTC";
  const { free: left, total } = overview.disk;
  byId("disk").textContent = left === undefined ? "" : `Disk: ${size(left)} of ${size(total)} free`;
}

async function watch() {
  for (let failures = 0; ; failures += 1) {
    try {
      for await (const { data } of events("overview", "/overview", {})) {
        if (data === null) continue;
        const began = performance.now();
        show(parse(data));
        document.documentElement.dataset.took = (performance.now() - began).toFixed(2);
        showConnection("good", "●", "Live");
        failures = 0;
        refreshHistory();
      }
      showConnection("wait", "○", "The service closed the connection; reconnecting");
    } catch (error) {
      if (error.status === 401) {
        showConnection("wait", "○", "Token required");
        // The operator may already have entered a token while the refusal was being read.
        if (token === null) await new Promise((done) => { onToken = done; });
        failures = -1;
        continue;
      }
      showConnection("bad", "✗", "No reply from the service; retrying");
    }
    // The figures on the page are outdated.
    byId("trouble").textContent = "✗ Unknown: no reply from the query service";
    byId("trouble").className = "bad";
    document.title = "✗ fyrehose";
    await pause(RETRY[Math.min(failures, RETRY.length - 1)]);
  }
}

const topology = new TopologyView();
const records = new Records();
watch();
records.follow();
