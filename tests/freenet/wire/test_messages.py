from __future__ import annotations

from typing import get_args

import pytest
from suite.freenet_bench import Bench

from fyrehose_twisted.freenet.wire import messages
from fyrehose_twisted.freenet.wire.messages import Accepted, Hello, Message, Prove, RejectedLoop

KINDS = [kind for kind in vars(messages).values() if isinstance(kind, type) and hasattr(kind, "_fields")]


def test_a_message_is_any_of_them() -> None:
    assert set(get_args(Message)) == set(KINDS)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in (Hello, Prove)], ids=lambda kind: kind.__name__)
def test_a_node_knows_what_to_do_with_each(bench: Bench, kind: type) -> None:
    assert kind in bench.node._handlers


def test_tests_tell_messages_of_two_kinds_apart(bench: Bench) -> None:
    uid = bench.request(3)
    bench.request(3, uid=uid)
    said = bench.take(3)[-1:]
    assert said == [RejectedLoop(uid)]
    assert said != [Accepted(uid)]
