"use strict";

// Journals

const epochTotal = (item, name) => item.epochs.reduce((sum, epoch) => sum + epoch[name], 0);
const newestEpoch = (item) => item.epochs[item.epochs.length - 1];
const epochPosition = (item, value) => {
  const epoch = newestEpoch(item);
  return epoch ? (epoch.epoch ? `${whole.format(epoch.epoch)}:` : "") + whole.format(value(epoch)) : "–";
};

const MARKS = { ok: ["✓", "good"], attention: ["!", "warn"], down: ["✗", "bad"] };
const stateCell = ({ state, reasons }) => {
  const [mark, kind] = MARKS[state];
  return [`${mark} ${state === "ok" ? "OK" : reasons.map(visible).join("; ")}`, kind];
};
const lag = (item) => (item.behind === null ? "–" : number(Math.round(item.behind)));
const free = (bytes) => (bytes === undefined ? "–" : size(bytes));

const STATE = { title: "State", weight: "name", value: stateCell };
const HOUR = { title: "1 h, peak", plot: true, value: (item) => item.plot };

const STREAMS = [
  { title: "Stream", weight: "name", value: (item) => visible(item.stream), open: (key) => "#" + address(key, "") },
  STATE,
  { title: "Complete to", number: true, wide: true, value: (item) => epochPosition(item, ({ next }) => before(next)) },
  { title: "Newest", number: true, wide: true, value: (item) => epochPosition(item, ({ last }) => last) },
  { title: "Lag", number: true, value: lag },
  { title: "Missing", number: true, value: (item) => some(epochTotal(item, "missing"), "warn") },
  { title: "Lost", number: true, value: (item) => some(epochTotal(item, "lost"), "warn") },
  { title: "Records/s", number: true, value: (item) => rate(item.rate ?? undefined) },
  { title: "Last record", number: true,
    value: (item) => (item.last_received_at ? age(item.at - item.last_received_at / 1e6) : "–") },
  HOUR,
  { title: "Size", number: true, value: (item) => size(item.bytes) },
  { title: "Followers", number: true, value: (item) => number(item.followers) },
];

// Services, by their metrics

const values = (service, name) => service.metrics["fyrehose_" + name] ?? [];
const sum = (service, name) => {
  const found = values(service, name);
  return found.length ? found.reduce((total, [, value]) => total + value, 0) : undefined;
};
const speed = (service, name) => rate(service.rates[name] ?? undefined);
const activeLabels = (service, name, label) =>
  values(service, name).filter(([, value]) => value === 1).map(([labels]) => visible(labels[label] ?? "?")).join(", ");
const countsByLabel = (service, name, label) =>
  values(service, name).filter(([, value]) => value)
    .map(([labels, value]) => `${visible(labels[label] ?? "?")} ${number(value)}`).join(", ");
const infoLabel = (service, label) =>
  visible(values(service, "info").map(([labels]) => labels[label] ?? "").join(" ")) || "–";

const counter = (title, name) => ({ title, number: true, value: (item) => number(sum(item, name)) });
const perSecond = (title, name) => ({ title, number: true, value: (item) => speed(item, name) });
const warnCounter = (title, name) => ({ title, number: true, value: (item) => some(sum(item, name), "warn") });
// Growth of a counter in the last five minutes, by label.
const recentCounter = (title, name) => ({ title: `${title}, 5 min`, value: (item) => {
  const found = Object.entries(item.recent[name] ?? {});
  const text = found.map(([label, count]) => `${visible(label)} ${number(count)}`.trim()).join(", ");
  return [text || "0", found.length ? "warn" : ""];
} });
const backboneState = (name) => ({ title: "Backbone", value: (item) =>
  (sum(item, typeof name === "string" ? name : name(item)) ? ["✓ connected", "good"] : ["✗ no reply", "bad"]) });

// Counter of messages of each kind of service.
const MAIN = {
  backbone: "backbone_published_total", journal: "journal_taken_total", client: "client_delivered_total",
  frontend: "frontend_published_total", relay: "relay_published_total",
};

const SERVICE = [
  { title: "Service", weight: "name", value: (item) => visible(item.name) },
  STATE,
  { title: "Age", number: true, value: (item) => (item.age === null ? "–" : age(item.age)) },
];

const CLUSTERS = [
  { title: "Cluster", weight: "name", value: (item) => visible(item.title) },
  STATE,
  { title: "Leader", value: (item) => item.leaders.map(visible).join(", ") || ["none", "warn"] },
  { title: "Members alive", number: true, value: (item) =>
    (item.members ? `${number(item.alive)} of ${number(item.members)}` : "–") },
  { title: "May still fail", number: true, value: (item) => {
    if (item.may_fail === null) return "–";
    return [number(item.may_fail), item.may_fail < 0 ? "bad" : item.may_fail ? "good" : "warn"];
  } },
  { title: "Watched nodes up", number: true, value: (item) => `${number(item.up)} of ${number(item.watched)}` },
];

// Clients as listed by backbones and relays

const CLIENT_KINDS = { journal: "durable journal" };
const seconds = (value) => (value === null ? "–" : age(value));
const clientRate = (title, name, shown) => ({ title, number: true,
  value: ({ rates }) => (rates[name] === null ? "–" : shown(rates[name])) });

const CLIENTS = [
  { title: "Client", weight: "address", value: (item) => visible(item.address) },
  { title: "Served by", value: (item) => visible(item.backbone) },
  { title: "Kind", weight: "wide", value: ({ kind }) => CLIENT_KINDS[kind] ?? visible(kind) },
  { title: "Joined", number: true, value: (item) => seconds(item.connected_seconds) },
  { title: "Last heard", number: true, value: (item) => seconds(item.silent_seconds) },
  clientRate("Published/s", "published", rate),
  clientRate("Published bytes/s", "published_bytes", size),
  clientRate("Sent/s", "delivered", rate),
  clientRate("Sent bytes/s", "delivered_bytes", size),
  { title: "Lag", number: true, value: ({ lag }) => (lag === null ? "unknown" : number(lag)) },
  { title: "Repairs queued", number: true, value: (item) =>
    (item.retransmitting === null ? "unknown" : some(item.retransmitting, "warn")) },
  { title: "Last request", number: true, value: (item) => seconds(item.requested_seconds) },
];

const WATCHED = [
  { title: "Client", weight: "name", value: (item) => visible(item.name) },
  STATE,
  { title: "Service", value: (item) => item.kind },
  backboneState((item) => item.kind === "frontend" ? "frontend_backbone" : "client_connected"),
  { title: "Messages/s", number: true, value: (item) => rate(item.rates[MAIN[item.kind]] ?? undefined) },
  { title: "Lag", number: true, value: lag },
  { title: "Round trip", number: true, value: (item) => {
    const seconds = sum(item, "client_round_trip_seconds");
    return seconds === undefined ? "–" : `${rough.format(1000 * seconds)} ms`;
  } },
  { title: "Age", number: true, value: (item) => (item.age === null ? "–" : age(item.age)) },
];

const KINDS = [
  { id: "backbone", title: "Backbones", caption: "Messages numbered, and their receivers",
    columns: [
      { title: "Stream", weight: "wide", value: (item) => infoLabel(item, "stream") }, counter("Last number", "backbone_sequence"),
      { title: "Leader", value: (item) => {
        if (infoLabel(item, "member") === "–") return "–";
        if (sum(item, "backbone_leading")) return ["✓ leads", "good"];
        return activeLabels(item, "backbone_leader", "leader") || ["none", "warn"];
      } },
      perSecond("Published/s", "backbone_published_total"), HOUR, perSecond("Delivered/s", "backbone_delivered_total"),
      counter("Clients", "backbone_clients"), counter("Subscribers", "backbone_subscribers"),
      counter("By multicast", "backbone_listeners"),
      { title: "Journals", number: true,
        value: (item) => number(sum(item, "backbone_durable_journals") ?? sum(item, "backbone_journals")) },
      perSecond("Repair requests/s", "backbone_requests_total"), recentCounter("Dropped", "backbone_dropped_total"),
    ] },
  { id: "relay", title: "Relays", caption: "Parent and clients of each relay",
    columns: [
      { title: "Stream", weight: "wide", value: (item) => infoLabel(item, "stream") },
      { ...backboneState("client_connected"), title: "Parent", weight: "wide" }, counter("Depth", "relay_depth"),
      { title: "Lag", number: true, value: lag },
      perSecond("Messages/s", "relay_published_total"), HOUR, perSecond("Delivered/s", "relay_delivered_total"),
      counter("Clients", "relay_clients"), counter("By multicast", "relay_listeners"), warnCounter("Missing now", "client_missing"),
      perSecond("Repair requests/s", "relay_requests_total"), recentCounter("Dropped", "relay_dropped_total"),
    ] },
  { id: "journal", title: "Journal services", caption: "Progress and missing messages of each journal",
    columns: [
      { title: "Stream", weight: "wide", value: (item) => infoLabel(item, "stream") },
      { title: "Complete to", number: true, value: (item) => {
        const next = sum(item, "journal_next");
        return number(next === undefined ? next : next - 1);
      } },
      { title: "Lag", number: true, value: lag },
      perSecond("Records/s", "journal_taken_total"), HOUR, warnCounter("Missing now", "client_missing"),
      counter("Repaired", "client_repaired_total"), warnCounter("Lost", "journal_lost"),
      perSecond("Repairs sent/s", "client_answered_total"),
      { title: "Disk free", number: true, value: (item) => free(values(item, "journal_free_bytes")[0]?.[1]) },
    ] },
  { id: "client", title: "Clients", caption: "Subscribers and publishers that export metrics",
    columns: [
      backboneState("client_connected"),
      counter("Delivered to", "client_sequence"), { title: "Lag", number: true, value: lag },
      perSecond("Messages/s", "client_delivered_total"), HOUR,
      warnCounter("Missing now", "client_missing"), counter("Repaired", "client_repaired_total"),
      warnCounter("Lost", "client_lost_total"), recentCounter("Dropped", "client_dropped_total"),
    ] },
  { id: "parcels", title: "Parcels clusters", caption: "Leader, and progress of each node",
    columns: [
      { title: "Cluster", value: (item) => infoLabel(item, "cluster") },
      { title: "Mode", value: (item) => {
        const mode = activeLabels(item, "parcels_mode", "mode");
        return [mode || "–", mode === "Wrk" ? "good" : "warn"];
      } },
      { title: "Leader", value: (item) => activeLabels(item, "parcels_leader", "leader") || "–" },
      counter("Term", "parcels_term"), counter("Last event", "parcels_sequence"),
      { title: "Lag", number: true,
        value: (item) => some(item.newest - (sum(item, "parcels_sequence") ?? 0), "warn") },
      { title: "Members alive", number: true, value: (item) => {
        const all = values(item, "parcels_members");
        const alive = all.filter(([labels]) => labels.alive === "true").reduce((total, [, value]) => total + value, 0);
        return `${alive} of ${sum(item, "parcels_members") ?? 0}`;
      } },
      perSecond("Events/s", "parcels_delivered_total"),
    ] },
  { id: "hydra", title: "Hydra networks", caption: "Leader, and the node on IRC",
    columns: [
      { title: "Network", value: (item) => infoLabel(item, "network") },
      { title: "Role", value: (item) => activeLabels(item, "hydra_role", "role") || "–" },
      { title: "Leader", value: (item) => {
        const leader = activeLabels(item, "hydra_leader", "leader");
        return leader ? leader : ["none", "warn"];
      } },
      counter("Term", "hydra_term"),
      { title: "IRC", value: (item) => (sum(item, "hydra_irc_open") ? ["✓ on IRC", "good"] : "–") },
      counter("Nodes", "hydra_nodes"), counter("Links", "hydra_links"), counter("Lines queued", "hydra_waiting"),
      counter("Next line", "hydra_expected"),
    ] },
  { id: "freenet", title: "Freenet trees", caption: "Nodes on the ring, and their streams",
    columns: [
      { title: "Location", number: true, value: (item) => (sum(item, "freenet_location") ?? 0).toFixed(4) },
      counter("Neighbours", "freenet_neighbours"),
      { title: "Streams", value: (item) => countsByLabel(item, "freenet_streams", "phase") || "0" },
      counter("Root of", "freenet_roots"), counter("Local", "freenet_local"),
      counter("Subscribers", "freenet_subscribers"), counter("Requests", "freenet_requests"),
    ] },
  { id: "frontend", title: "Frontends", caption: "Services that publish for applications, over HTTP and lines",
    columns: [
      backboneState("frontend_backbone"),
      perSecond("Published/s", "frontend_published_total"), counter("Queued bytes", "frontend_waiting_bytes"),
      counter("Line connections", "frontend_line_connections"),
      recentCounter("Failed", "frontend_failed_total"),
    ] },
  { id: "query", title: "Query services", caption: "Other query services",
    columns: [
      counter("Journals", "query_sources"), warnCounter("Unreadable", "query_problems"),
      counter("Streams", "query_streams"), counter("Searches", "query_searches"), perSecond("Requests/s", "query_requests_total"),
    ] },
  { id: "other", title: "Other services", caption: "Services without known metrics so far", columns: [] },
];
