"use strict";

const tables = new Map();

// A table in a section of its own, made when there is something to show; sections keep their order.
function showTable(id, title, caption, columns, items, order) {
  let shown = tables.get(id);
  if (!shown && !items.length) return;
  if (!shown) {
    const heading = `${id}-title`;
    const properties = { id, className: "card", "aria-labelledby": heading };
    const section = element("section", properties, element("h2", { id: heading }, title));
    const after = order.slice(order.indexOf(id) + 1).map((one) => tables.get(one)).find(Boolean);
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
  const most = new Map();
  const cluster = (item) => labelled(item, "cluster");
  for (const item of of("parcels")) {
    most.set(cluster(item), Math.max(most.get(cluster(item)) ?? 0, sum(item, "parcels_sequence") ?? 0));
  }
  for (const item of of("parcels")) item.most = most.get(cluster(item));
  showTable("clusters", "Clusters", "How many more nodes may fail before a cluster has no quorum", CLUSTERS,
    clusters.map((item) => ({ ...item, key: item.title })), ORDER);
  showConnected(of("backbone"));
  showTable("watched", "Watched clients", "Clients whose metrics are read, with their lag behind the newest number",
    WATCHED, of("backbone").length ? [...of("journal"), ...of("client"), ...of("frontend")] : [], ORDER);
  for (const [kind, items] of found) {
    showTable(kind.id, kind.title, kind.caption, [...SERVICE, ...kind.columns], items, ORDER);
  }
  return found;
}

// A backbone lists its clients, not all of them if there are many.
function showConnected(backbones) {
  const rows = [], told = [];
  for (const { name, clients, state } of backbones) {
    if (!clients) continue;
    const stale = !clients.up || state === "down";
    for (const one of clients.list) {
      rows.push({ ...one, backbone: name, key: `${name} ${one.address}`, state: stale ? "down" : "ok" });
    }
    const count = many(clients.total, "client", "clients");
    const left = clients.total > clients.list.length ? `, of which ${number(clients.list.length)} are listed` : "";
    const old = stale ? `; the list is not up to date: ${visible(clients.why) || "the backbone is down"}` : "";
    told.push(`${visible(name)} has ${count}${left}${old}`);
  }
  showTable("connected", "Connected clients", told.join(". "), CLIENTS, rows, ORDER);
}

// What is wrong, in words that change only when something goes wrong or is well again

const TITLES = { ok: "", attention: "! ", down: "✗ " };
const FINDINGS = 12; // findings that are listed

function showTrouble({ state, findings }) {
  const of = (level) => [...new Set(findings.filter((one) => one.level === level).map(({ subject }) => subject))];
  const down = of("down"), attention = of("attention"), said = [];
  if (down.length) said.push(`down: ${named(down)}`);
  if (attention.length) said.push(`attention: ${named(attention)}`);
  const [mark, kind] = MARKS[state];
  const words = said.join("; ") || "OK";
  const trouble = `${mark} ${words[0].toUpperCase()}${words.slice(1)}`;
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

// Put lines into a list; those that are there already stay.
function list(id, wanted) {
  const place = byId(id), there = new Map([...place.children].map((line) => [line.dataset.key, line]));
  const lines = wanted.map(({ key, made }) => {
    const line = there.get(key) ?? made();
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

// The way to each table, with how many rows it has

const ways = new Map();

function showWays(overview, found) {
  const told = (title, items) => {
    const down = items.filter((item) => item.state === "down").length;
    const attention = items.filter((item) => item.state === "attention").length;
    return `${title} ${number(items.length)}` + (down ? `, ${number(down)} down` : "")
      + (attention ? `, ${number(attention)} attention` : "");
  };
  const wanted = [{ id: "streams", text: told("Journals", overview.streams) }];
  if (overview.clusters.length) wanted.push({ id: "clusters", text: told("Clusters", overview.clusters) });
  for (const [kind, items] of found) {
    if (items.length) wanted.push({ id: kind.id, text: told(kind.title, items) });
  }
  wanted.push({ id: "recent", text: "Events" });
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
  titles.clear();
  for (const { name, stream } of overview.streams) titles.set(name, stream);
  if (records.dialog.open) records.entitle();
  streams.show(overview.streams.map((item) => ({
    ...item, key: item.name, at: overview.at, plot: plots.get("stream " + item.name) ?? NOTHING,
  })));
  streams.box.hidden = !overview.streams.length;
  empty.hidden = overview.streams.length > 0;
  const found = showServices(overview);
  showTrouble(overview);
  showEvents(overview.events);
  showWays(overview, found);
  byId("version").textContent = overview.version;
  const { requests, streams: open, connections, refused } = overview.query;
  byId("usage").textContent = `Up for ${age(overview.at - overview.started_at)}; ` + [
    many(requests ?? 0, "request", "requests"), many(open ?? 0, "follower", "followers"),
    many(connections ?? 0, "connection", "connections"), `${number(refused ?? 0)} refused`,
  ].join(", ");
  byId("updated").textContent = utc(overview.at) + " UTC";
  const { free: left, total } = overview.disk;
  byId("disk").textContent = left === undefined ? "" : `Disk: ${size(left)} of ${size(total)} left`;
}

async function watch() {
  for (let failures = 0; ; failures += 1) {
    try {
      for await (const { data } of events("overview", "/overview", {})) {
        if (data === null) continue;
        const began = performance.now();
        show(parse(data));
        document.documentElement.dataset.took = (performance.now() - began).toFixed(2);
        tell("good", "●", "Live");
        failures = 0;
        remember();
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
    // What is on the page is old by now.
    byId("trouble").textContent = "✗ Unknown: the query service does not answer";
    byId("trouble").className = "bad";
    document.title = "✗ fyrehose";
    await pause(RETRY[Math.min(failures, RETRY.length - 1)]);
  }
}

const records = new Records();
watch();
records.follow();
