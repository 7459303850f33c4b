from __future__ import annotations

from typing import get_args

import pytest
from suite.freenet_bench import Bench

from fyrehose_twisted.freenet.wire import messages
from fyrehose_twisted.freenet.wire.messages import Accepted, Hello, Message, Prove, RejectedLoop

KINDS = [kind for kind in vars(messages).values() if isinstance(kind, type) and hasattr(kind, "_fields")]


def test_the_message_union_has_every_type() -> None:
    assert set(get_args(Message)) == set(KINDS)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in (Hello, Prove)], ids=lambda kind: kind.__name__)
def test_a_node_handles_every_message_type(bench: Bench, kind: type) -> None:
    assert kind in bench.node._handlers


def test_lists_of_the_bench_distinguish_messages_of_different_types(bench: Bench) -> None:
    uid = bench.request(3)
    bench.request(3, uid=uid)
    said = bench.take(3)[-1:]
    assert said == [RejectedLoop(uid)]
    assert said != [Accepted(uid)]
