"""Path of lines through a node: from the application and other nodes to IRC, and from IRC to all nodes."""

from __future__ import annotations

from collections.abc import Sequence

from fyrehose_twisted.hydra.events import StateWanted, ToIrc
from fyrehose_twisted.hydra.node.context import NodeContext
from fyrehose_twisted.hydra.node.link_table import PeerLink
from fyrehose_twisted.hydra.node.relay.irc_writer import IrcWriter
from fyrehose_twisted.hydra.node.relay.pending_replies import SentLine
from fyrehose_twisted.hydra.node.relay.received_lines import RecvRelay
from fyrehose_twisted.hydra.node.relay.send_queue import LineSendQueue
from fyrehose_twisted.hydra.wire.lines import add_tag, command_of, fits_recv, is_error_numeric, untag
from fyrehose_twisted.hydra.wire.messages import RELAYED, Recv, Send
from fyrehose_twisted.hydra.wire.state_lines import WANT
from fyrehose_twisted.lru_set import LruSet


class LineRelay:
    """Relay of lines by one node.

    :param send_queue: lines of the application.
    :param irc_writer: writer to IRC, used while this node leads.
    :param recv_relay: relay of lines from IRC.
    """

    def __init__(
        self, context: NodeContext, send_queue: LineSendQueue, irc_writer: IrcWriter, recv_relay: RecvRelay
    ) -> None:
        self._context = context
        self._send_queue = send_queue
        self._irc_writer = irc_writer
        self._recv_relay = recv_relay
        self._seen_sends = LruSet(8_192)
        self._requests = 0

    # To IRC

    def submit_waiting(self, now: float) -> None:
        """Send the lines of the application that may be sent now."""
        context = self._context
        for name, send in self._send_queue.take_sendable(now):
            self._seen_sends.add(send)
            if context.leader == context.id:
                why = self._irc_writer.enqueue(send, now)
                if why is not None:
                    self._send_queue.line_refused(name, why)
            else:
                context.flood_line(send, now)

    def send_received(self, message: Send, link: PeerLink, now: float) -> bool:
        """Handle a SEND of a bound peer; return whether IRC may have a line to write."""
        if link.term != self._context.durable.term:
            # The earlier leader may have said the line; the submitting node decides about a resend.
            self._context.counters["send_of_another_term"] += 1
            return False
        return self.relay(message, link, now)

    def relay(self, message: Send, link: PeerLink, now: float) -> bool:
        """Relay a SEND, or queue it for IRC; return whether IRC may have a line to write."""
        context = self._context
        if not context.in_term:
            context.counters["send_without_leader"] += 1
            return False
        if not self._seen_sends.add(message):
            return False
        if context.leader == context.id:
            if untag(message.line)[1] == WANT:
                context.output.emit(StateWanted(message.id))
                return False
            self._irc_writer.enqueue(message, now)
            return True
        context.flood_line(message, now, link)
        return False

    def request_state(self, now: float) -> bool:
        """Ask the leader for a snapshot of the application's state; return whether there is one to ask."""
        context = self._context
        if context.id is None or not context.in_term or context.leader == context.id:
            return False
        self._requests += 1
        send = Send(context.id, add_tag(f"want.{context.id:x}.{self._requests & 0xFFFFFF:x}", WANT))
        self._seen_sends.add(send)
        context.flood_line(send, now)
        return True

    def refused_by_transport(self, event: ToIrc) -> None:
        """Handle a line that was not handed to IRC, because the lease had ended."""
        self._context.counters["too_late"] += 1
        self._irc_writer.pending_replies.remove(event.number)
        if event.line_id is not None:
            self._send_queue.line_refused(event.line_id, "too-late")

    # From IRC

    def irc_received(self, lines: Sequence[bytes], now: float) -> None:
        """Relay the lines of the server that all nodes are to receive."""
        counts = self._context.counters
        for line in lines:
            command = command_of(line)
            if command not in RELAYED:
                # An error is relayed once the server has acknowledged all lines before it.
                if not (is_error_numeric(command) and self._irc_writer.pending_replies.match_error(line)):
                    counts["irc_not_relayed"] += 1
            elif not fits_recv(line):
                counts["irc_too_long"] += 1
            else:
                self._recv_relay.originate(line, now)

    def relay_state(self, lines: Sequence[bytes], now: float) -> None:
        """Relay a snapshot as the next lines of the term."""
        self._context.counters["snapshots"] += 1
        for line in lines:
            self._recv_relay.originate(line, now)

    def relay_outcome(self, handed: SentLine, now: float) -> None:
        """Relay the outcome of a line: the line itself, or the errors of the server."""
        counts, name = self._context.counters, handed.line_id
        lines = handed.errors
        if lines:
            counts["irc_refused"] += 1
        else:
            counts["said"] += 1
            prefix = self._irc_writer.prefix
            lines = [b":%s %s" % (prefix, handed.line) if prefix else handed.line]
        first, *others = lines
        self._recv_relay.originate(first if name is None else add_tag(name, first), now)
        for line in others:
            self._recv_relay.originate(line, now)
        if name is not None:
            self._send_queue.line_relayed(name, first)

    def recv_received(self, message: Recv, link: PeerLink, now: float) -> bool:
        """Handle a RECV of a bound peer; return whether lines of the application may be sent now."""
        if not self._recv_relay.recv_received(message, link, now):
            return False
        name = self._irc_writer.line_relayed(message.line)
        if name is None:
            return False
        self._send_queue.line_relayed(name, untag(message.line)[1])
        return self._send_queue.has_waiting
