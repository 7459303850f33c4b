"""Contents of ``benchmarks.md``: its tables by name, in the order of ``benchmarks.json``."""

from __future__ import annotations

from benchmark_tables import Ratio, Table

FYREHOSE = ("fyrehose", "fyrehose, asyncio", "fyrehose, uvloop")
BEST_PEER, PEERS = "of the best peer", ("NATS", "Redis", "ZeroMQ")


def of(ours: str, peer: str) -> Ratio:
    """Return the ratio to one peer."""
    return Ratio(f"of {peer}", ours, (peer,))


RACE = {
    "round-trips": Table(
        "One message from publish to callback, at 1,000 messages/s",
        ours=FYREHOSE,
        others=PEERS,
        ratios=(of("fyrehose", "NATS"),),
    ),
    "broker": Table(
        "Deliveries for each CPU-second of the broker",
        unit="fan-out x bytes, thousand deliveries",
        ours=("fyrehose",),
        others=(*PEERS, "C relay"),
        ratios=(
            Ratio(BEST_PEER, "fyrehose", PEERS),
            Ratio("of C", "fyrehose", ("C relay",)),
        ),
        rows=("1 x 128", "4 x 128", "16 x 128"),
    ),
    "broker-rates": Table(
        "Messages/s meanwhile, with all clients on one core",
        unit="thousand messages/s",
        ours=("fyrehose",),
        others=(*PEERS, "C relay"),
        ratios=(of("fyrehose", "NATS"),),
        plot="",
    ),
    "subscriber": Table(
        "Messages that one Python subscriber gets",
        unit="thousand messages",
        ours=FYREHOSE,
        others=("nats-py", "redis-py, hiredis", "pyzmq"),
        ratios=(of("fyrehose", "nats-py"),),
    ),
    "crowd": Table(
        "CPU time of the broker for a delivery, at 100 messages/s",
        unit="µs",
        ours=("fyrehose",),
        others=("NATS",),
        ratios=(of("fyrehose", "NATS"),),
    ),
    "crowd-load": Table(
        "Share of its core that the broker uses meanwhile",
        unit="share of a core",
        ours=("fyrehose",),
        others=("NATS",),
        ratios=(of("fyrehose", "NATS"),),
        plot="",
    ),
}
STAGES = {
    "stages": Table(
        "Stages of a message, one client",
        unit="µs",
        ours=("fyrehose",),
        others=("NATS",),
        ratios=(of("fyrehose", "NATS"),),
        plot="stages",
        rows=("publisher", "kernel", "server", "subscriber"),
    ),
    "stages-cpu": Table(
        "CPU time of a message",
        unit="µs",
        ours=("fyrehose",),
        others=("NATS",),
        ratios=(of("fyrehose", "NATS"),),
        plot="",
    ),
    "stages-parcels": Table(
        "Stages of an event of a cluster, one client",
        unit="µs",
        ours=("2 nodes", "3 nodes"),
        plot="stages",
        rows=("client", "leader", "follower", "kernel"),
    ),
    "nodes": Table(
        "One node alone, for each message or event",
        unit="µs",
        ours=("warm", "cold", "instructions", "cache misses"),
        unplotted=("instructions", "cache misses"),
    ),
}
FOOTPRINT = {
    "footprint": Table(
        "Start and memory of a client",
        ours=("fyrehose",),
        others=("nats-py", "Twisted alone"),
        ratios=(of("fyrehose", "nats-py"), of("fyrehose", "Twisted alone")),
        plot="",
    ),
}
SEAL = {
    "seal": Table(
        "A message of 128 bytes, sealed and plain",
        ours=("plain", "ChaCha20-Poly1305", "AES-256-GCM", "AES-256-GCM, signed"),
        ratios=(
            Ratio("AES-256-GCM of plain", "AES-256-GCM", ("plain",)),
            Ratio("signed of plain", "AES-256-GCM, signed", ("plain",)),
        ),
        rows=("publisher", "subscriber"),
    ),
}
KEYS = {
    "keys": Table(
        "A message of 128 bytes, with and without a key of 8 bytes",
        ours=("plain", "key of 8 bytes"),
        ratios=(Ratio("keys of plain", "key of 8 bytes", ("plain",)),),
        plot="",
    ),
}
MACS = {
    "mac": Table(
        "A message of 128 bytes, with and without a MAC",
        ours=("plain", "MACs"),
        ratios=(Ratio("MACs of plain", "MACs", ("plain",)),),
        rows=("backbone", "subscriber"),
    ),
}
LOSS = {
    "loss": Table(
        "Messages/s over a link that loses packets, 128 bytes, two subscribers",
        unit="lost; messages/s",
        ours=("fyrehose",),
        others=("NATS",),
        ratios=(of("fyrehose", "NATS"),),
    ),
    "loss-cpu": Table(
        "CPU time for each message over the link",
        unit="µs",
        ours=("fyrehose",),
        others=("NATS",),
        ratios=(of("fyrehose", "NATS"),),
        plot="",
    ),
    "loss-loopback": Table(
        "Four subscribers on loopback, each of which loses other messages",
        ours=("1 % lost", "without loss"),
        ratios=(Ratio("of the rate without loss", "1 % lost", ("without loss",)),),
        plot="",
    ),
}
LOADS = ("1 client", "64 clients, one connection", "64 clients, 64 connections", "256 in flight", "512 in flight")
PARCELS = {
    "parcels": Table(
        "Events/s of a cluster, 128 bytes",
        unit="events/s",
        ours=("parcels", "parcels --sync"),
        others=("etcd, no fsync", "etcd, fsync", "PySyncObj"),
        ratios=(
            Ratio("of etcd without fsync", "parcels", ("etcd, no fsync",)),
            Ratio("--sync, of etcd with fsync", "parcels --sync", ("etcd, fsync",)),
            of("parcels", "PySyncObj"),
        ),
        rows=("1 client", "64 clients"),
    ),
    "parcels-latency": Table(
        "Median latency of an event",
        unit="ms",
        ours=("parcels", "parcels --sync"),
        others=("etcd, no fsync", "etcd, fsync", "PySyncObj"),
        ratios=(
            Ratio("of etcd without fsync", "parcels", ("etcd, no fsync",)),
            Ratio("--sync, of etcd with fsync", "parcels --sync", ("etcd, fsync",)),
        ),
        plot="",
        hidden=tuple(f"{load}, {size} nodes" for load in LOADS for size in (2, 5)),
    ),
    "parcels-http": Table(
        "Events/s over HTTP",
        unit="events/s",
        ours=("parcels",),
        others=("bare twisted.web",),
        ratios=(of("parcels", "bare twisted.web"),),
    ),
    "parcels-cpu": Table(
        "CPU time of an event, with many in flight", unit="µs", ours=("all nodes", "each node"), plot=""
    ),
    "parcels-failover": Table(
        "Time from the failure of the leader until another node answers",
        unit="s",
        ours=("parcels",),
        others=("etcd", "PySyncObj"),
        ratios=(of("parcels", "etcd"),),
    ),
    "parcels-reference": Table(
        "Events/s of the reference implementation with two nodes, on another machine",
        unit="events/s",
        ours=("parcels",),
        others=("reference",),
        ratios=(of("parcels", "reference"),),
        plot="",
    ),
}
TAKEOVER = {
    "takeover": Table(
        "Longest pause of a subscriber when the leader fails",
        unit="s",
        ours=("fyrehose",),
        others=("JetStream", "etcd"),
        ratios=(
            of("fyrehose", "JetStream"),
            of("fyrehose", "etcd"),
        ),
        rows=("kill -9, median", "SIGSTOP, median", "SIGTERM, median", "transfer, median"),
    ),
    "group": Table(
        "Three members beside one backbone",
        ours=("three members", "one backbone"),
        ratios=(of("three members", "one backbone"),),
        plot="",
        hidden=("lost, %",),
    ),
}
RELAY = {
    "relay-cost": Table(
        "CPU time of a relay for a delivery",
        unit="µs",
        ours=("relay", "backbone"),
        ratios=(Ratio("of a backbone", "relay", ("backbone",)),),
        rows=tuple(f"{kind}, {count} " for kind in ("bursts", "single") for count in (16, 100)),
    ),
    "relay-levels": Table(
        "Latency of single messages through relays in a chain",
        unit="µs",
        ours=("median", "99 %", "added to the median"),
        plot="",
    ),
    "relay-tree": Table(
        "1,000 subscribers at ten relays, and at one backbone",
        ours=("tree", "one backbone"),
        ratios=(of("tree", "one backbone"),),
        plot="",
        hidden=("share of the subscribers in all CPU time",),
    ),
    "relay-simulated": Table("A simulated tree whose links lose 1 % of the packets", ours=("tree",), plot=""),
}
MULTICAST_OTHERS = ("OpenPGM", "NORM", "bare multicast", "bare unicast")
MULTICAST = {
    "multicast-cost": Table(
        "CPU time of the sender of a message, at 200 messages/s",
        unit="µs",
        ours=("multicast", "unicast"),
        others=(*MULTICAST_OTHERS, "bare multicast, one core"),
        ratios=(
            of("multicast", "unicast"),
            of("multicast", "OpenPGM"),
            of("multicast", "NORM"),
            Ratio("of bare", "multicast", ("bare multicast",)),
        ),
        unplotted=("bare multicast, one core",),
    ),
    "multicast-rest": Table(
        "CPU time of the sender in a second without messages",
        unit="ms",
        ours=("multicast", "unicast"),
        others=("OpenPGM", "NORM"),
        ratios=(of("multicast", "unicast"),),
        plot="",
    ),
    "multicast-rates": Table(
        "Highest rates at which everything arrives",
        unit="messages/s",
        ours=("multicast", "unicast"),
        others=MULTICAST_OTHERS,
        ratios=(of("multicast", "unicast"),),
        plot="",
    ),
    "multicast-repair": Table(
        "Repairs for 200 subscribers, with 1 % of the packets dropped",
        ours=("multicast, loss of all", "multicast, own losses", "unicast, own losses"),
        plot="",
    ),
    "multicast-bursts": Table(
        "Bursts of 64 messages to the group",
        unit="of a message",
        ours=("offload to the device", "offload to the kernel", "without"),
        ratios=(
            Ratio("kernel of without", "offload to the kernel", ("without",)),
            Ratio("device of without", "offload to the device", ("without",)),
        ),
        plot="",
    ),
}
WAYS_IN = {
    "alone": Table(
        "Publishers that send one datagram at a time",
        ours=("backbone",),
        others=("plain relay",),
        ratios=(of("backbone", "plain relay"),),
        hidden=("lost, %",),
    ),
    "pub": Table(
        "Ways to publish without the library",
        ours=("fyrehose pub", "lines", "NDJSON"),
        others=("PublisherProtocol", "Redis, XADD, pipelined"),
        ratios=(
            Ratio("`fyrehose pub` of the library", "fyrehose pub", ("PublisherProtocol",)),
            Ratio("lines of the library", "lines", ("PublisherProtocol",)),
            Ratio("NDJSON of the library", "NDJSON", ("PublisherProtocol",)),
        ),
        rows=("messages/s",),
    ),
    "posts": Table(
        "Single POSTs on 16 connections",
        ours=("frontend",),
        others=("bare twisted.web", "Redis, XADD"),
        ratios=(of("frontend", "bare twisted.web"),),
    ),
}
COMPILED = {
    "compiled": Table(
        "CPU time of compiled nodes beside interpreted ones",
        unit="µs a message, or CPU seconds an hour",
        ours=(),
        others=("compiled", "interpreted"),
        ratios=(of("compiled", "interpreted"),),
    ),
}
JOURNALS = {
    "journal-service": Table(
        "Messages that a journal keeps, 128 bytes",
        ours=("journal, by batch", "journal, each second", "subscriber without a disk"),
        others=("plain file",),
        ratios=(Ratio("by batch, of a plain file", "journal, by batch", ("plain file",)),),
        rows=("messages/s",),
    ),
    "catch-up": Table(
        "Catching up with one journal",
        unit="messages/s",
        ours=("another journal", "a subscriber", "`--serve`, as blocks", "`--serve`, as records"),
        plot="",
    ),
    "commit": Table(
        "Time from the DELIVER until a message is durable",
        unit="ms",
        ours=("by batch", "each 0.01 s", "each second"),
        plot="",
    ),
    "kept": Table(
        "Acknowledged messages",
        ours=("`kept=1`", "`kept=2`", "`kept=0`"),
        others=("JetStream", "append and `fdatasync`"),
        ratios=(Ratio("`kept=1` of JetStream", "`kept=1`", ("JetStream",)),),
    ),
    "bystanders": Table(
        "Catching up while other clients have nothing", unit="bystanders", ours=("messages/s", "of none"), plot=""
    ),
    "databases": Table(
        "A journal beside databases, records of 128 bytes",
        unit="records/s",
        ours=("journal", "journal, in order"),
        others=("SQLite", "LMDB", "RocksDB", "plain file"),
        ratios=(Ratio("of the best database", "journal", ("SQLite", "LMDB", "RocksDB")),),
        rows=("durable", "synced", "full scan"),
        hidden=("all bytes of a record",),
    ),
}
PLAIN_PARQUET = "Parquet, uncompressed"
SPARK = {
    "spark": Table(
        "10 million records of a journal in Spark",
        unit="s",
        ours=("`read_journal`, sealed", "`read_journal`", "one column", "`query_journal`", "tuples"),
        others=("ready batches", PLAIN_PARQUET, "Parquet, Snappy"),
        ratios=(
            Ratio("sealed of Parquet", "`read_journal`, sealed", (PLAIN_PARQUET,)),
            Ratio("of Parquet", "`read_journal`", (PLAIN_PARQUET,)),
            of("`read_journal`", "ready batches"),
        ),
    ),
    "spark-verify": Table(
        "Comparing two journals",
        unit="records each",
        ours=("s", "driver, MB", "largest worker, MB", "Java, MB"),
        plot="",
    ),
}
SIMULATOR = {
    "scheduler": Table(
        "50,000 pending calls, each once a second",
        unit="events in a CPU-second",
        ours=("scheduler", "hosts", "`HeapClock`"),
        others=("`task.Clock`", "`heapq`"),
        ratios=(Ratio("scheduler of `heapq`", "scheduler", ("`heapq`",)),),
        plot="",
    ),
    "simulator": Table(
        "A backbone and its clients in a CPU-second",
        ours=("simulated network", "driver on `HeapClock`", "driver on `task.Clock`"),
        ratios=(Ratio("of the driver on `HeapClock`", "simulated network", ("driver on `HeapClock`",)),),
        rows=("datagrams",),
    ),
    "simulator-memory": Table("Memory of a connected idle client", unit="bytes", ours=("bytes",), plot=""),
}
HYDRA = {
    "hydra": Table(
        "Time from the failure of the leader until IRC sees the next one",
        unit="s",
        ours=("median", "95 %", "longest"),
        others=("etcd", "PySyncObj"),
        ratios=(
            of("median", "etcd"),
            of("median", "PySyncObj"),
        ),
        unplotted=("95 %", "longest"),
    ),
    "hydra-lines": Table("Outcomes of lines during all failovers", ours=("lines",), plot=""),
    "hydra-relay": Table("Lines through three nodes", ours=("lines/s", "µs at *a*", "µs at *b*", "µs at *c*"), plot=""),
}
REFERENCE_COLUMNS = ("roots", "reach", "first", "later", "depth", "deepest", "stretch", "members")
FREENET = {
    "freenet-reference": Table("Trees beside published ones", unit="nodes", ours=REFERENCE_COLUMNS, plot=""),
    "freenet-repairs": Table(
        "Repairs of trees beside published ones",
        unit="failed, accepted by, procedure",
        ours=("messages per lost parent", "seconds", "roots", "reach"),
        plot="",
    ),
    "freenet-routing": Table(
        "Greedy routes beside published ones",
        unit="nodes",
        ours=("links", "hops", "within 10", "success without"),
        others=("hops without",),
        plot="",
    ),
    "freenet-fit": Table(
        "Lines a + b f(n) through the mean hops of routes", unit="f(n)", ours=("a", "b", "hops beside it"), plot=""
    ),
    "freenet-million": Table("A network of a million nodes", ours=("degree 10", "degree 20"), plot=""),
    "freenet-speed": Table(
        "Trees with 100 subscribers on each of 40 keys, seconds of CPU",
        unit="s",
        ours=("this library",),
        others=("networkx",),
        ratios=(Ratio("of networkx, which computes paths only", "this library", ("networkx",)),),
        plot="",
    ),
    "freenet-rates": Table("Messages in a CPU-second", unit="messages/s", ours=("subscribing", "publishing"), plot=""),
    "freenet-growth": Table(
        "Growth with the number of nodes", unit="nodes", ours=("requests", "requests / log₂² n", "CPU seconds"), plot=""
    ),
    "sweeps": Table(
        "Sweeps of 200 networks of 200 nodes, and of 40 networks of 1,000",
        unit="networks/s",
        ours=("multiprocessing", "Spark"),
        others=("plain loop",),
        ratios=(
            Ratio("multiprocessing of a plain loop", "multiprocessing", ("plain loop",)),
            Ratio("Spark of a plain loop", "Spark", ("plain loop",)),
        ),
        plot="",
    ),
}
GROUPS = (
    RACE,
    STAGES,
    SEAL,
    KEYS,
    MACS,
    FOOTPRINT,
    LOSS,
    COMPILED,
    WAYS_IN,
    RELAY,
    MULTICAST,
    TAKEOVER,
    JOURNALS,
    PARCELS,
    SPARK,
    SIMULATOR,
    HYDRA,
    FREENET,
)
TABLES = {name: table for group in GROUPS for name, table in group.items()}
