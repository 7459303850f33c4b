"""Client node on a plain UDP socket and a thread of its own, for Spark workers, which have no reactor."""

from __future__ import annotations

import errno
import os
import select
import selectors
import socket
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from threading import Condition, Thread
from time import time

from fyrehose_twisted.effects import Address, Send
from fyrehose_twisted.errors import NotConnected, PublishTimeout
from fyrehose_twisted.fyrehose.events import ClientFailed, Connected, KeepaliveAcked, MessagesExpired, MessagesPublished
from fyrehose_twisted.fyrehose.node.client.client import Client
from fyrehose_twisted.host_addresses import format_address, host_version
from fyrehose_twisted.net.gso import RECEIVE_BYTES, SegmentingSocket, coalesce
from fyrehose_twisted.wording import pluralize

RECEIVE_BUFFER_SIZE = 4 * RECEIVE_BYTES

MAX_QUEUED_BYTES = 4 * 2**20
"""Limit of DATA queued for the outbox, in bytes; :meth:`ThreadedClient.enqueue` blocks above it."""

SEND_TIMEOUT = 0.1
"""Seconds to wait for space in the kernel's send buffer; the outbox retransmits dropped datagrams."""


class ThreadedClient(Thread):
    """Thread that runs a client node until :meth:`close`. It keeps the client alive between calls: backbones expire
    silent clients after 5 s.

    Only the thread uses the node. A condition guards the state shared with other threads.

    :param sock: bound, non-blocking socket; closed by :meth:`close`.
    :ivar published: number of acknowledged messages.
    :ivar first: lowest number of the acknowledged messages; 0 if there are none.
    :ivar last: highest number of the acknowledged messages; 0 if there are none.
    """

    def __init__(self, node: Client, sock: socket.socket) -> None:
        super().__init__(name="fyrehose exchange", daemon=True)
        self.published = self.first = self.last = 0
        self._node = node
        self._socket = sock
        self._bursts = SegmentingSocket(sock)
        self._receive_buffer = bytearray(RECEIVE_BUFFER_SIZE)
        self._wake_reader, self._wake_writer = socket.socketpair()
        self._wake_reader.setblocking(False)
        self._wake_writer.setblocking(False)
        self._changed = Condition()
        self._connected = False
        self._last_ack_at = 0.0
        self._closing = False
        self._enqueued = 0
        self._error: Exception | None = None
        self._queued: deque[bytes] = deque()
        self._queued_bytes = 0

    # Called by other threads

    def wait_connected(self, timeout: float) -> bool:
        """Wait for the backbone's first answer and return whether it arrived.

        :param timeout: maximum wait in seconds.
        :raises FyrehoseError: if the node failed.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._connected or self._error is not None, timeout)
            self._check()
            return self._connected

    def enqueue(self, messages: Sequence[bytes]) -> None:
        """Queue DATA for publishing; block while the queue is full.

        :raises PublishTimeout: if an earlier message was not acknowledged in time.
        :raises FyrehoseError: if the node failed.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._queued_bytes < MAX_QUEUED_BYTES or self._error is not None)
            self._check()
            self._queued.extend(messages)
            self._queued_bytes += sum(map(len, messages))
            self._enqueued += len(messages)
        self._wake_thread()

    def flush(self) -> None:
        """Wait until all queued messages are acknowledged. Raises the errors of :meth:`enqueue`."""
        with self._changed:
            self._changed.wait_for(lambda: self.published == self._enqueued or self._error is not None)
            self._check()

    def close(self) -> None:
        """Leave the backbone, stop the thread and close the sockets."""
        self._closing = True
        self._wake_thread()
        self.join()
        for sock in (self._socket, self._wake_reader, self._wake_writer):
            sock.close()

    def _check(self) -> None:
        if self._error is not None:
            raise self._error

    def _wake_thread(self) -> None:
        with suppress(BlockingIOError):  # A full socket buffer wakes the thread as well.
            self._wake_writer.send(b"!")

    # Called by the thread itself

    def run(self) -> None:
        """Run the node; see :class:`threading.Thread`."""
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(self._socket, selectors.EVENT_READ)
                selector.register(self._wake_reader, selectors.EVENT_READ)
                while not (self._closing or self._failed()):
                    self._refill()
                    self._perform_effects()
                    self._wait(selector)
            self._node.drain()  # Discard pending effects.
            self._node.leave(time())
            for effect in self._node.drain().effects:
                self._send(effect)
        except Exception as error:  # Waiting threads must see every error.
            self._fail(error)

    def _wait(self, selector: selectors.BaseSelector) -> None:
        deadline = self._node.next_deadline()
        timeout = None if deadline is None else max(0.0, deadline - time())
        for key, _ in selector.select(timeout):
            if key.fileobj is self._wake_reader:
                self._wake_reader.recv(4_096)
            else:
                batch = self._bursts.receive_batch(self._receive_buffer)
                if batch.runs:
                    self._node.receive_batch(batch, time())
        now, deadline = time(), self._node.next_deadline()
        if deadline is not None and deadline <= now:
            self._node.tick(now)

    def _refill(self) -> None:
        node, now = self._node, time()
        if not self._queued:
            return
        with self._changed:
            while self._queued and node.send_queue.fill_ratio < 0.5:
                data = self._queued.popleft()
                self._queued_bytes -= len(data)
                node.publish(data, now)
            self._changed.notify_all()

    def _perform_effects(self) -> None:
        events: list[object] = [self]
        while events and not self._failed():
            _, effects, events = self._node.drain()
            for event in events:
                self._handle_event(event)
            for effect in () if self._failed() else effects:
                self._send(effect)

    def _handle_event(self, event: object) -> None:
        match event:
            case MessagesPublished(messages):
                numbers = [sequence for _, sequence in messages]
                with self._changed:
                    self.published += len(messages)
                    self.first = min(self.first or numbers[0], *numbers)
                    self.last = max(self.last, *numbers)
                    self._changed.notify_all()
            case MessagesExpired(tickets):
                self._fail(self._timeout_error(tickets))
            case ClientFailed(error):
                self._fail(error)
            case KeepaliveAcked():
                self._last_ack_at = time()
            case Connected():
                with self._changed:
                    self._connected = True
                    self._changed.notify_all()

    def _timeout_error(self, tickets: list[int]) -> Exception:
        text = (
            f"message {min(tickets):,}, counted from 0, did not come back from the backbone"
            f" {format_address(self._node.backbone)} within {self._node.config.outbox.timeout:g} s;"
            f" {self.published:,} did. The backbone last answered {max(0.0, time() - self._last_ack_at):.1f} s ago"
        )
        for name, count in self._bursts.errors.most_common(1):
            text += f"; not sent: {pluralize(count, 'datagram')} ({os.strerror(getattr(errno, name, 0))})"
        return PublishTimeout(text)

    def _failed(self) -> bool:
        return self._error is not None

    def _fail(self, error: Exception) -> None:
        with self._changed:
            self._error = self._error or error
            self._changed.notify_all()

    def _send(self, effect: Send) -> None:
        for burst in coalesce(effect.datagrams, self._bursts.segments):
            for peer in effect.peers:
                left = self._bursts.send(burst, peer)
                if left is not None:
                    select.select([], [self._socket], [], SEND_TIMEOUT)
                    self._bursts.send(left, peer)


def bind_towards(peer: Address, buffer: int) -> socket.socket:
    """Create a non-blocking UDP socket bound to the local address that routes to ``peer``.

    :param buffer: socket buffer size requested for each direction, in bytes.
    :raises NotConnected: if there is no route.
    """
    family = socket.AF_INET6 if host_version(peer[0]) == 6 else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect(peer)
            host = probe.getsockname()[0]
    except OSError as error:
        raise NotConnected(f"there is no route to the backbone {format_address(peer)}: {error.strerror}") from error
    sock = socket.socket(family, socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffer)
    sock.bind((host, 0))
    sock.setblocking(False)
    return sock
