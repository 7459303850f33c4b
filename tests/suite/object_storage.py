"""Object storage for tests: a server of the S3 protocol with faults before it, and objects in memory."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from fyrehose_twisted.journal.errors import TierError

BUCKET = "bucket"
_RUNNING = re.compile(r"Running on http://127\.0\.0\.1:(\d+)")
CREDENTIALS = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "not-a-secret",
    "AWS_EC2_METADATA_DISABLED": "true",
}


@dataclass
class S3Server:
    """A server of the S3 protocol with an empty bucket.

    :ivar process: the server.
    :ivar port: TCP port on loopback.
    """

    process: subprocess.Popen[str]
    port: int

    @property
    def url(self) -> str:
        """URL of a prefix in the bucket."""
        return tier_url(self.port)

    def request(self, method: str, path: str, body: bytes = b"") -> bytes:
        """Send a plain request."""
        connection = HTTPConnection("127.0.0.1", self.port)
        connection.request(method, path, body, {"Authorization": "AWS4-HMAC-SHA256 Credential=test/1/us-east-1/s3/x"})
        answer = connection.getresponse()
        content = answer.read()
        assert answer.status < 300, (answer.status, content)
        connection.close()
        return content

    def list_objects(self) -> list[str]:
        """Return the keys of all objects, without the empty ones that stand for directories."""
        found = re.findall(r"<Key>([^<]*)</Key>", self.request("GET", f"/{BUCKET}?list-type=2").decode())
        return [key for key in found if not key.endswith("/")]


def tier_url(port: int) -> str:
    """Return the URL of a prefix in the bucket of the server at a port."""
    return f"s3://{BUCKET}/journals?endpoint_override=127.0.0.1:{port}&scheme=http&region=us-east-1"


@contextmanager
def s3_server() -> Iterator[S3Server]:
    """Run a server of the S3 protocol in a process of its own."""
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        port = next(int(found[1]) for line in process.stderr if (found := _RUNNING.search(line)))
        drain = Thread(target=process.stderr.read, daemon=True)
        drain.start()
        server = S3Server(process, port)
        server.request("PUT", f"/{BUCKET}")
        yield server
    finally:
        process.kill()
        process.wait()
        drain.join()
        process.stderr.close()


@dataclass
class Faults:
    """Faults of an :func:`s3_proxy`.

    :ivar before: called with method and path of each request; what it returns is the status sent in place of an answer.
    :ivar truncate: bytes after which the connection of a GET is closed.
    :ivar requests: the requests so far.
    """

    before: Callable[[str, str], int | None] = lambda method, path: None
    truncate: int | None = None
    requests: list[tuple[str, str]] = field(default_factory=list)


@contextmanager
def s3_proxy(server: S3Server, faults: Faults) -> Iterator[int]:
    """Run a proxy of a server with faults; yield its port."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do(self) -> None:
            faults.requests.append((self.command, self.path))
            body = self.body()
            status = faults.before(self.command, self.path)
            if status is not None:
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            connection = HTTPConnection("127.0.0.1", server.port)
            try:
                connection.request(self.command, self.path, body, self.forwarded())
                answer = connection.getresponse()
                content = answer.read()
            except (OSError, HTTPException):
                self.close_connection = True
                return
            finally:
                connection.close()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("transfer-encoding", "connection", "date", "server"):
                    self.send_header(name, value)
            self.end_headers()
            cut = faults.truncate if self.command == "GET" else None
            with suppress(OSError):
                self.wfile.write(content if self.command != "HEAD" else b"") if cut is None else self.wfile.write(
                    content[:cut]
                )
            self.close_connection = cut is not None

        def body(self) -> bytes:
            if self.headers.get("Transfer-Encoding") != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            pieces = []
            while size := int(self.rfile.readline(), 16):
                pieces.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(pieces)

        def forwarded(self) -> dict[str, str]:
            hop_by_hop = ("transfer-encoding", "expect", "connection", "content-length")
            return {name: value for name, value in self.headers.items() if name.lower() not in hop_by_hop}

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do  # noqa: N815

        def log_message(self, format: str, *args: object) -> None:
            pass

    proxy = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    proxy.daemon_threads = True
    thread = Thread(target=proxy.serve_forever)
    thread.start()
    try:
        yield proxy.server_address[1]
    finally:
        proxy.shutdown()
        proxy.server_close()
        thread.join()


def storage_environment() -> dict[str, str]:
    """Return the environment of a process with credentials for the server."""
    return {**os.environ, **CREDENTIALS}


class MemoryObjects:
    """Objects in memory, for simulations of crashes.

    :ivar content: objects by URL.
    :ivar fail: called before each operation with its name and the URL; may raise.
    """

    def __init__(self) -> None:
        self.content: dict[str, bytes] = {}
        self.fail: Callable[[str, str], object] = lambda operation, url: None

    def open(self, url: str) -> MemoryReader:
        """See :class:`~fyrehose_twisted.journal.tier.objects.Objects`."""
        self.fail("open", url)
        if url not in self.content:
            raise TierError(f"object {url} is missing")
        return MemoryReader(self, url)

    def write(self, url: str, pieces: Iterable[bytes]) -> None:
        """See :class:`~fyrehose_twisted.journal.tier.objects.Objects`. What is written before a failure stays."""
        self.content[url] = b""
        for piece in pieces:
            self.fail("write", url)
            self.content[url] += piece
        self.fail("written", url)

    def replace(self, url: str, pieces: Iterable[bytes]) -> None:
        """See :class:`~fyrehose_twisted.journal.tier.objects.Objects`."""
        content = b"".join(pieces)
        self.fail("replace", url)
        self.content[url] = content
        self.fail("replaced", url)

    def sizes(self, url: str) -> dict[str, int]:
        """See :class:`~fyrehose_twisted.journal.tier.objects.Objects`."""
        self.fail("sizes", url)
        split = [(name.rpartition("/"), content) for name, content in self.content.items()]
        return {name: len(content) for (place, _, name), content in split if place == url}

    def remove(self, url: str) -> None:
        """See :class:`~fyrehose_twisted.journal.tier.objects.Objects`."""
        self.fail("remove", url)
        self.content.pop(url, None)
        self.fail("removed", url)


class MemoryReader:
    """Reader of an object in memory."""

    def __init__(self, objects: MemoryObjects, url: str) -> None:
        self._objects = objects
        self._url = url

    def size(self) -> int:
        """See :class:`~fyrehose_twisted.journal.tier.objects.ObjectReader`."""
        return len(self._objects.content[self._url])

    def read(self, offset: int, length: int) -> bytes:
        """See :class:`~fyrehose_twisted.journal.tier.objects.ObjectReader`."""
        self._objects.fail("read", self._url)
        return self._objects.content[self._url][offset : offset + length]
