"""Subscriber of a group of backbones that prints its events: ``takeover_reader.py HOST:PORT[,...]``."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from time import monotonic
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import react

from fyrehose_twisted.fyrehose import ClientConfig, Message, SubscriberProtocol, join


def tell(what: str, **more: Any) -> None:
    print(json.dumps({"time": monotonic(), "what": what, **more}), flush=True)


class Reader(SubscriberProtocol):
    def messages_received(self, messages: Sequence[Message]) -> None:
        tell("read", messages=[(message.sequence, bytes(message.data).decode()) for message in messages])

    def messages_lost(self, first: int, last: int) -> None:
        tell("lost", first=first, last=last)

    def term_started(self, term: int, held_up_to: int, first: int) -> None:
        tell("term", term=term, held_up_to=held_up_to, first=first)

    def leader_changed(self, backbone: tuple[str, int], term: int) -> None:
        tell("leader", address=backbone[0], term=term)

    def backbone_disconnected(self) -> None:
        tell("disconnected")


async def run(reactor: Any, backbones: str) -> None:
    await join(reactor, Reader(ClientConfig(start=1)), backbones, timeout=60)
    await Deferred()


if __name__ == "__main__":
    react(lambda reactor: Deferred.fromCoroutine(run(reactor, *sys.argv[1:])))
