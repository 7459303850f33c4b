from __future__ import annotations

from typing import Any

import pytest
from treq.client import HTTPClient
from twisted.internet.defer import Deferred

from fyrehose_twisted.parcels.client.http import treq_url


class RecordingAgent:
    """An agent that records the URIs of requests, and answers none."""

    def __init__(self) -> None:
        self.uris: list[bytes] = []

    def request(self, method: bytes, uri: bytes, headers: Any = None, bodyProducer: Any = None) -> Deferred[Any]:
        self.uris.append(uri)
        return Deferred()


@pytest.mark.parametrize(
    "url",
    [
        "http://[::1]:8878/events?encoding=base64",
        "https://[2001:db8::7]/",
        "http://[2001:db8::7]:80/cluster",
        "http://127.0.0.1:8878/events?from=1&to=2",
    ],
)
def test_treq_requests_the_url_of_a_node_unchanged(url: str) -> None:
    agent: Any = RecordingAgent()
    HTTPClient(agent).request("GET", treq_url(url))
    [uri] = agent.uris
    assert uri.decode() == url.replace(":80/", "/")
