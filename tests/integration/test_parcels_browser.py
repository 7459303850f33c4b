"""Browser that follows events, resumes after a disconnect, and starts over with a new cluster."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from integration.running.cluster import RunningNode, StartCluster
from integration.running.programs import Start

pytestmark = pytest.mark.extended

DEADLINE = 120.0
"""Seconds after which an awaited event fails a test; reached only on failure."""
PAGE = """<!doctype html><title>events</title><script>
const seen = [];
const tell = (what) => navigator.sendBeacon("/seen", what);
function follow() {
  const source = new EventSource("/events?from=1");
  source.onmessage = (event) => {
    const {sequence, json} = JSON.parse(event.data);
    seen.push([sequence, event.lastEventId, json]);
    tell(JSON.stringify(seen));
  };
  source.onerror = () => {
    // After an answer other than 200 it does not come back by itself.
    tell(source.readyState === EventSource.CLOSED ? "closed" : "cut");
    if (source.readyState === EventSource.CLOSED) setTimeout(follow, 100);
  };
}
follow();
</script>"""


class Front:
    """Web server with a page, and a proxy for its requests to a node.

    A browser lets only pages of a node's own origin read its events, so an application needs such a proxy.

    :ivar resumed: ``Last-Event-ID`` of each requested stream.
    """

    def __init__(self, node: RunningNode) -> None:
        self.resumed: list[str | None] = []
        self.told = ["[]"]
        self.changed = threading.Condition()
        front = self

        class Answering(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                front.get(self, node)

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                with front.changed:
                    front.told.append(body)
                    front.changed.notify_all()
                self.send_response(204)
                self.end_headers()

            def log_message(self, *arguments: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}/"
        self._thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def get(self, request: BaseHTTPRequestHandler, node: RunningNode) -> None:
        if request.path == "/":
            request.send_response(200)
            request.send_header("Content-Type", "text/html")
            request.end_headers()
            request.wfile.write(PAGE.encode())
        elif request.path.startswith("/events"):
            self.resumed.append(request.headers["Last-Event-ID"])
            self._pass_on(request, node)
        else:
            request.send_error(404)

    def _pass_on(self, request: BaseHTTPRequestHandler, node: RunningNode) -> None:
        import http.client

        upstream = http.client.HTTPConnection("127.0.0.1", node.http_port, timeout=DEADLINE)
        headers = {"Accept": request.headers["Accept"]}
        if request.headers["Last-Event-ID"]:
            headers["Last-Event-ID"] = request.headers["Last-Event-ID"]
        try:
            upstream.request("GET", request.path, headers=headers)
            answer = upstream.getresponse()
            request.send_response(answer.status)
            request.send_header("Content-Type", answer.headers["Content-Type"])
            request.end_headers()
            while data := answer.read1(65_536):
                request.wfile.write(data)
                request.wfile.flush()
        except (OSError, http.client.HTTPException):
            pass  # The node or the browser has disconnected.
        finally:
            upstream.close()
            request.close_connection = True

    def wait_until(self, condition: Any) -> None:
        with self.changed:
            assert self.changed.wait_for(condition, DEADLINE), self.told[-3:]

    @property
    def seen(self) -> Any:
        """Return ids, numbers and data received by the page, whose cumulative reports may arrive out of order."""
        return max((json.loads(one) for one in self.told if one not in ("cut", "closed")), key=len)

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self._thread.join()


@pytest.fixture
def front() -> Iterator[Callable[[RunningNode], Front]]:
    fronts: list[Front] = []

    def made(node: RunningNode) -> Front:
        fronts.append(Front(node))
        return fronts[-1]

    yield made
    for one in fronts:
        one.close()


# Without a browser, `browser` skips the test before anything else is made.
def test_browser_resumes_its_event_stream_after_a_restart_of_the_node(
    browser: Callable[..., list[str]],
    tmp_path: Path,
    start: Start,
    start_cluster: StartCluster,
    front: Callable[[RunningNode], Front],
) -> None:
    (node,) = start_cluster("east", options=lambda node: ["--journal", "kept"]).values()
    page = front(node)
    for number in (1, 2, 3):
        assert node.publish(b"%d" % (10 * number)) == number
    command = [option for option in browser("--enable-logging=stderr", page.url) if "virtual-time" not in option]
    # Without debugging, a headless browser exits once the page has loaded.
    command.insert(-1, "--remote-debugging-port=0")
    chromium = start(*command, of_ours=False, stdin=subprocess.DEVNULL)
    page.wait_until(lambda: len(page.seen) == 3)
    node.kill()
    page.wait_until(lambda: "cut" in page.told)
    node.start()
    node.wait_to_work("east")
    for number in (4, 5):
        assert node.publish(b"%d" % (10 * number)) == number
    page.wait_until(lambda: len(page.seen) >= 5)
    cluster_id = node.state()["cluster_id"]
    seen = [[number, f"{cluster_id}-{number}", 10 * number] for number in range(1, 6)]
    assert page.seen == seen
    assert page.resumed[0] is None
    assert page.resumed[-1] == f"{cluster_id}-3"

    node.kill()
    shutil.rmtree(tmp_path / "kept")
    node.start()
    anew = node.wait_to_work("east")["cluster_id"]
    assert [node.publish(b"%d" % number) for number in range(1, 8)] == list(range(1, 8))
    page.wait_until(lambda: len(page.seen) >= 12)
    assert page.seen == seen + [[number, f"{anew}-{number}", number] for number in range(1, 8)]
    assert f"{cluster_id}-5" in page.resumed
    assert page.resumed[-1] is None
    assert not re.search(r"CONSOLE.*(Uncaught|Error:)", chromium.err)
