"""etcd cluster, and its load of puts through gRPC."""

from __future__ import annotations

import resource
import struct
from pathlib import Path

from race.servers import program

from parcels import h2load
from parcels.figures import Figures
from parcels.nodes import Cluster, Node, Unfit, cpu_of, fetch, free_ports, wait_until

KEY, VALUE = b"k", b"x" * 128
WAYS = ((1, 64), (64, 1))
"""Connections and streams per connection of 64 clients; the better combination counts."""
GRPC = ("-H", "content-type: application/grpc", "-H", "te: trailers")


class EtcdCluster(Cluster):
    """A cluster of ``etcd`` processes.

    :ivar urls: client URLs.
    """

    def __init__(self, size: int, directory: Path, *, fsync: bool = False) -> None:
        super().__init__(size, directory)
        self._fsync = fsync

    def start(self) -> None:
        """Start all nodes and wait until they agree on a leader."""
        etcd = program("etcd", "etcd-server")
        ports = free_ports(2 * self.size)
        self.urls = [f"http://127.0.0.1:{port}" for port in ports[: self.size]]
        peers = [f"http://127.0.0.1:{port}" for port in ports[self.size :]]
        everybody = ",".join(f"e{index}={url}" for index, url in enumerate(peers))
        for index, (url, peer) in enumerate(zip(self.urls, peers, strict=True)):
            command = [etcd, "--name", f"e{index}", "--data-dir", str(self.directory / f"etcd.{ports[index]}")]
            command += ["--listen-client-urls", url, "--advertise-client-urls", url, "--log-level", "error"]
            command += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
            command += ["--initial-cluster", everybody, "--initial-cluster-state", "new"]
            # Version 3.4 supports it without documenting it.
            command += [] if self._fsync else ["--unsafe-no-fsync"]
            self.nodes.append(Node(f"etcd.{ports[index]}", command, self.directory))
        self.leader = wait_until(self._find_leader, "etcd has a leader", self.nodes) - 1

    def _find_leader(self) -> int:
        # The index plus one, and 0 if they do not agree.
        answers = [fetch(f"{url}/v3/maintenance/status", {}) for url in self.urls]
        leaders = {answer.get("leader", "0") for answer in answers}
        for index, answer in enumerate(answers, 1):
            if leaders == {answer["header"]["member_id"]}:
                return index
        return 0

    def revision(self) -> int:
        """Return the number of changes."""
        answer = fetch(f"{self.urls[self.leader]}/v3/kv/range", {"key": "aw=="})
        return int(answer["header"]["revision"])

    def put(self, seconds: float, clients: int, streams: int) -> Figures:
        """Put on the leader, one after another on every stream."""
        body = self.directory / "put.bin"
        request = b"\x0a" + bytes([len(KEY)]) + KEY + b"\x12\x80\x01" + VALUE
        body.write_bytes(b"\x00" + struct.pack(">I", len(request)) + request)
        before = self.revision()
        node_cpu, client_cpu = cpu_of(self.pids), _cpu_of_children()
        url = f"{self.urls[self.leader]}/etcdserverpb.KV/Put"
        figures, count = h2load.timed(url, body, seconds, clients, streams, *GRPC)
        if (done := self.revision() - before) != count:
            raise Unfit(f"etcd changed {done:,} times by {count:,} puts")
        figures["node_us_per_event"] = (cpu_of(self.pids) - node_cpu) / count * 1e6
        figures["client_us_per_event"] = (_cpu_of_children() - client_cpu) / count * 1e6
        return figures


def _cpu_of_children() -> float:
    """Return the CPU seconds of processes that have ended: of h2load, as the nodes have not."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
