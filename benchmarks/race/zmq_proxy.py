"""ZeroMQ's forwarder in a process of its own: messages are handled in libzmq, without Python."""

from __future__ import annotations

import sys

import zmq


def main() -> None:
    """Bind XSUB to the first port and XPUB to the second, and forward without a limit that would drop messages."""
    context = zmq.Context()
    publishers, subscribers = context.socket(zmq.XSUB), context.socket(zmq.XPUB)
    for each, port in ((publishers, sys.argv[1]), (subscribers, sys.argv[2])):
        each.setsockopt(zmq.SNDHWM, 0)
        each.setsockopt(zmq.RCVHWM, 0)
        each.bind(f"tcp://127.0.0.1:{port}")
    zmq.proxy(publishers, subscribers)


if __name__ == "__main__":
    main()
