"""Runs the examples of the pages about errors: ``python error_examples.py PAGE...`` prints what each shows, as JSON.

All run in one process with one reactor, each in an empty working directory. An example may await, and use

- ``reactor``, ``Path``, ``Deferred``, and ``in_thread``, which runs a function beside the reactor
- ``backbone``, the address of a running backbone, and ``stop_backbone``
- ``node``, a running parcels node ``a``, a cluster of its own, and ``url``, the address of its HTTP API
- ``serve_journal(stream)``, which returns host and port of a server of a journal
- ``until(condition)``, which returns when a condition holds
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from twisted.internet import reactor
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.task import deferLater, react
from twisted.internet.threads import deferToThread
from twisted.logger import globalLogBeginner

sys.path.append(str(Path(__file__).resolve().parents[1]))

from documented.pages import Page

HANGS = 60.0
"""Seconds after which an example has failed."""


class Scope(dict[str, Any]):
    """Names of one example. Services start when their names are first used."""

    def __init__(self) -> None:
        super().__init__(
            reactor=reactor,
            Path=Path,
            Deferred=Deferred,
            in_thread=deferToThread,
            until=until,
            serve_journal=self.serve_journal,
        )
        self.cleanups: list[Callable[[], Any]] = []

    def __missing__(self, name: str) -> Any:
        if name in ("backbone", "stop_backbone"):
            self.start_backbone()
        elif name in ("node", "url"):
            self.start_node()
        else:
            raise KeyError(name)
        return self[name]

    def start_backbone(self) -> None:
        from fyrehose_twisted.fyrehose import BackboneProtocol

        port: Any = reactor.listenUDP(0, BackboneProtocol(settle_time=0.0), interface="127.0.0.1")
        self["backbone"] = f"127.0.0.1:{port.getHost().port}"
        self["stop_backbone"] = port.stopListening
        self.cleanups.append(port.stopListening)

    def start_node(self) -> None:
        from fyrehose_twisted.parcels import ParcelsConfig, ParcelsNode
        from fyrehose_twisted.parcels.web.site import site

        node = ParcelsNode(ParcelsConfig("a", bootstrap=True, listen="tcp:0:interface=127.0.0.1"))
        node.startService()
        served = site(node, reactor=reactor)
        port: Any = reactor.listenTCP(0, served, interface="127.0.0.1")
        self.update(node=node, url=f"http://127.0.0.1:{port.getHost().port}")
        self.cleanups += [node.stopService, port.stopListening]

    async def serve_journal(self, stream: str, secret: bytes | None = None) -> tuple[str, int]:
        from fyrehose_twisted.journal.remote.server import JournalServerFactory, journal_endpoint
        from fyrehose_twisted.journal.store import open_journal

        journal = open_journal(Path("served"), stream)
        factory = JournalServerFactory(lambda: {stream: journal}, secret)
        port: Any = await journal_endpoint(reactor, "tcp:0:interface=127.0.0.1", secret).listen(factory)
        self.cleanups += [port.stopListening, journal.close]
        return "127.0.0.1", port.getHost().port


async def until(condition: Callable[[], bool]) -> None:
    """Return when a condition holds."""
    while not condition():
        await deferLater(reactor, 0.02)


@contextlib.contextmanager
def directory() -> Iterator[None]:
    """Run in an empty working directory."""
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        try:
            yield
        finally:
            os.chdir("/")


async def shown_by(page: Page) -> str:
    """Run the example of a page; return its output, and the last line of its traceback."""
    [block] = [block for block in page.blocks if block.language == "python"]
    code = compile(block.text, page.name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    scope, output, end = Scope(), io.StringIO(), ""
    with directory(), contextlib.redirect_stdout(output):
        try:
            running = eval(code, scope)  # noqa: S307
            if running is not None:
                await Deferred.fromCoroutine(running).addTimeout(HANGS, reactor)
        except Exception as error:
            end = traceback.format_exception_only(error)[-1]
        for clean in reversed(scope.cleanups):
            with contextlib.suppress(Exception):
                await maybeDeferred(clean)
    return output.getvalue() + end


async def main(_: Any, *paths: str) -> None:
    """Run the examples of pages and print what they show by their paths."""
    globalLogBeginner.beginLoggingTo([], redirectStandardIO=False, discardBuffer=True)
    print(json.dumps({path: await shown_by(Page(Path(path))) for path in paths}))


if __name__ == "__main__":
    react(main, sys.argv[1:])
