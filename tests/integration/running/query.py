"""Query services, and services with constant metrics for them to watch."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from integration.running.programs import Program

StartQuery = Callable[..., tuple[Program, str]]
Canned = Callable[..., str]


class CannedMetrics:
    """Web server with pages of constant metrics."""

    def __init__(self) -> None:
        pages = self._pages = dict[str, bytes]()

        class Answering(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                page = pages.get(self.path.partition("?")[0])
                self.send_response(404 if page is None else 200)
                self.send_header("Content-Length", str(len(page or b"")))
                self.end_headers()
                self.wfile.write(page or b"")

            def log_message(self, *arguments: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def add(self, *samples: str, clients: list[dict[str, Any]] | None = None, total: int = 1_000_000) -> str:
        """Add a page of samples, given without ``fyrehose_``; return its URL.

        :param clients: list of the clients of a backbone.
        :param total: number of its clients.
        """
        path = f"/{len(self._pages)}/metrics"
        self._pages[path] = "".join(f"fyrehose_{sample}\n" for sample in samples).encode()
        if clients is not None:
            listed = {"clients": total, "list": clients}
            self._pages[path.replace("metrics", "clients")] = json.dumps(listed).encode()
        return f"http://127.0.0.1:{self._server.server_port}{path}"

    def close(self) -> None:
        """Stop the server."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
