"""Metrics of a client of the demo, for its dashboard."""

from __future__ import annotations

from typing import Any

from demo_journals import STREAM

from fyrehose_twisted.fyrehose.protocol import ClientProtocol
from fyrehose_twisted.fyrehose.service.metrics import ClientCollector
from fyrehose_twisted.net.metrics import InfoCollector
from fyrehose_twisted.net.metrics_port import MetricsPort


def serve_metrics(reactor: Any, port: str, client: ClientProtocol, backbone: str) -> None:
    """Serve the metrics of a client on a port of loopback, as ``fyrehose-client`` does."""
    info = InfoCollector("client", stream=STREAM, backbone=backbone)
    MetricsPort(reactor, f"tcp:{port}").listen(info, ClientCollector(client), on_failure=_fail)


def _fail(failure: Any) -> None:
    raise SystemExit(failure.getErrorMessage())
