"""Service of a member of a group of backbones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from prometheus_client.registry import Collector
from twisted.internet.defer import CancelledError, Deferred, succeed
from twisted.internet.task import deferLater
from twisted.python.failure import Failure

from fyrehose_twisted.errors import FyrehoseError
from fyrehose_twisted.fyrehose.node.member.config import MemberConfig
from fyrehose_twisted.fyrehose.protocol.member import MemberProtocol
from fyrehose_twisted.fyrehose.service.backbone import BackboneService
from fyrehose_twisted.fyrehose.service.member.config import PEER_EXAMPLE, MemberServiceConfig
from fyrehose_twisted.fyrehose.service.member.control import MemberControl
from fyrehose_twisted.fyrehose.service.member.dialer import MemberDialer
from fyrehose_twisted.fyrehose.service.member.metrics import MemberCollector
from fyrehose_twisted.fyrehose.service.member.status_text import StatusNotifier, format_status_text
from fyrehose_twisted.interfaces import IMemberStore, ISequenceStore
from fyrehose_twisted.net.addresses import endpoint_factory_from, format_address, tcp_endpoint
from fyrehose_twisted.net.auth import Authenticator, auth_server_factory
from fyrehose_twisted.net.control.server import ControlFactory
from fyrehose_twisted.net.listening import ListeningPorts

HAND_OVER_TIMEOUT = 1.0
"""Seconds for which the stop of a leader waits until another member leads and has repaired what was under way."""
POLL_INTERVAL = 0.02
"""Seconds between two checks whether that is the case."""
LABEL = b"fyrehose-backbone"
"""Label of the proofs between members, so that no node of another protocol with the same secret is a member."""
PROBLEMS = frozenset(("other_stream", "not_introduced", "silent", "unsendable"))
"""Counters of the node that tell of problems with other members."""


class MemberService(BackboneService):
    """Member under ``twistd``: a backbone with a port for other members, and a control port.

    :param protocol: protocol whose ``member`` this service sets, once its ports are bound.
    :param member: configuration of the member.
    :param open_member_state: called when the service starts; returns the store of the member's state.
    :param rest: see :class:`~fyrehose_twisted.fyrehose.service.backbone.BackboneService`.
    """

    protocol: MemberProtocol

    def __init__(
        self,
        protocol: MemberProtocol,
        member: MemberServiceConfig,
        open_state: Callable[[], ISequenceStore],
        open_member_state: Callable[[], IMemberStore],
        port: int,
        interface: str,
        *,
        stream: str,
        **rest: Any,
    ) -> None:
        super().__init__(protocol, open_state, port, interface, **rest)
        self.member = member
        self._stream = stream
        self._open_member_state = open_member_state
        self._member_state: IMemberStore | None = None
        self._auth_failures: Counter[str] = Counter()
        clock = protocol.reactor
        self._peer_ports = ListeningPorts(clock, PEER_EXAMPLE, "members")
        authenticator = None
        if member.secret is not None:
            authenticator = Authenticator(member.secret, clock, self._authentication_failed, label=LABEL)
        gate = self._peer_ports.gate
        factory = gate if authenticator is None else auth_server_factory(gate, authenticator, clock)
        self._peer_ports.add("peer-listen", member.endpoint.description, factory)
        self._control = ControlFactory(lambda gone: MemberControl(self, gone))
        control = member.control_endpoint
        if control is not None:
            self._peer_ports.add("control", control.description, self._control)
        endpoint_for = tcp_endpoint if member.dial is None else endpoint_factory_from(member.dial)
        self._dialer = MemberDialer(clock, endpoint_for, authenticator)
        self._notifier = StatusNotifier(self._status_text, clock)
        protocol.on_leadership = lambda event: self._notifier.update()
        self._starting: Deferred[None] = succeed(None)

    def status(self) -> dict[str, Any]:
        """Return the status of this member, for JSON.

        :raises NotConnected: if it does not run.
        """
        node, links = self.protocol.running
        status = asdict(node.status(links.now()))
        for one in status["members"]:
            for address in ("client_address", "peer_address"):
                one[address] = format_address(one[address])
        status["clients"] = len(node.backbone.clients)
        status["counters"] = dict(sorted({**status["counters"], **self.problems()}.items()))
        return status

    def problems(self) -> Mapping[str, int]:
        """Return how often problems with other members occurred, by reason."""
        found = Counter({f"auth_{reason}".replace("-", "_"): count for reason, count in self._auth_failures.items()})
        links, node = self.protocol.links, self.protocol.member_node
        if links is not None and node is not None:
            found.update({name: count for name, count in node.links.counters.items() if name in PROBLEMS})
            names = "malformed", "refused", "unread", "tls_failed", "dials_failed"
            found.update({name: links.counters[name] for name in names})
        return +found

    # Starting and stopping

    def privilegedStartService(self) -> None:
        """Twisted: bind the ports, which may need privileges."""
        super().privilegedStartService()
        self._peer_ports.bind()

    def _run(self) -> None:
        self._starting = Deferred.fromCoroutine(self._start())
        self._starting.addErrback(self._start_failed)

    async def _start(self) -> None:
        self._member_state = self.protocol.member_state = self._open_member_state()
        await self._peer_ports.wait_bound()
        (host,) = self._peer_ports.hosts_by_option["peer-listen"]
        bound = self._port.getHost()
        member = self.member
        client, peer = member.advertised((bound.host, bound.port), (host.host, host.port))
        self.protocol.endpoint_factory = self._dialer.endpoint_for
        self.protocol.member = MemberConfig(
            name=member.name,
            stream=self._stream,
            peers=tuple(one for one in await self._dialer.resolve(member.peers) if one != peer),
            client_address=client,
            peer_address=peer,
            bootstrap=member.bootstrap,
            witness=member.witness,
        )
        super()._run()
        assert self.protocol.links is not None, "the port was started"
        self._peer_ports.open(self.protocol.links.factory)
        self._notifier.start()

    def _report_start(self) -> None:
        self.log.info("{what}, and for members on {peers}", what=self._describe(), peers=self._peer_ports)

    def _collectors(self) -> tuple[Collector, ...]:
        return (*super()._collectors(), MemberCollector(self))

    def _describe(self) -> str:
        return f"{super()._describe()} as member {self.member.name}"

    def _start_failed(self, failure: Failure) -> None:
        if not failure.check(CancelledError):
            self.fail(failure)

    async def _stop(self) -> None:
        self._starting.cancel()  # Otherwise a pending name lookup would start the node afterwards.
        self._notifier.stop()
        self._control.close()
        await self._hand_over()
        await self._peer_ports.close()
        await super()._stop()
        if self.protocol.links is not None:
            await self.protocol.links.stop()
        if self._member_state is not None:
            self._member_state.close()

    async def _hand_over(self) -> None:
        """Let another member lead before this one stops."""
        with suppress(FyrehoseError):
            node, links = self.protocol.running
            deadline = links.now() + HAND_OVER_TIMEOUT
            node.prepare_to_stop(links.now())
            links.flush()
            while not node.may_stop and links.now() < deadline:
                await deferLater(self.protocol.reactor, POLL_INTERVAL)
                self.protocol.running  # It may have failed.  # noqa: B018
                node.tick(links.now())
                links.flush()

    def _authentication_failed(self, reason: str) -> None:
        self._auth_failures[reason] += 1

    def _status_text(self) -> str | None:
        node, links = self.protocol.member_node, self.protocol.links
        if node is None or links is None:
            return None
        return format_status_text(node.status(links.now()), len(node.backbone.clients))
