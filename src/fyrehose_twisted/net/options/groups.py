"""Options that several services have, as mixins and as rows of ``optParameters``."""

from __future__ import annotations

from collections.abc import Sequence

from fyrehose_twisted.net.options.base import Parameter, ServiceOptions
from fyrehose_twisted.net.options.endpoints import (
    ServerEndpoint,
    parse_server_endpoint,
    require_loopback,
    require_protection,
)
from fyrehose_twisted.net.options.values import integer_option
from fyrehose_twisted.process.secret import read_secret

SYNC_FLAG: Parameter = ["sync", None, "make the state survive power failures; each change costs an fsync"]


def protocol_option(base: str) -> Parameter:
    """Return ``--protocol`` for subclasses of ``base``; see :meth:`ServiceOptions.load_protocol`."""
    return ["protocol", None, None, f"dotted name of your subclass of {base}"]


def state_option(default: str, letter: str | None = None) -> Parameter:
    """Return ``--state``. ``default`` says what applies without it."""
    return ["state", letter, None, f"file for the state of this service, used by no other [default: {default}]"]


def max_links_option(default: int) -> Parameter:
    """Return ``--max-links``."""
    return ["max-links", None, default, "maximum number of inbound links", integer_option("max-links", 1, 100_000)]


class SecretOption(ServiceOptions):
    """``--secret-file``."""

    optParameters = [["secret-file", None, None, "file with the shared secret"]]

    def read_secret(self) -> bytes | None:
        """Return the shared secret, and store it as ``secret``. :raises ConfigurationError: if it cannot be read."""
        secret = self["secret"] = read_secret(self["secret-file"]) if self["secret-file"] else None
        return secret


class OpenFlag(ServiceOptions):
    """``--open``, which lifts the protection of ports on interfaces other than loopback."""

    optFlags = [["open", None, "require no credentials, even on interfaces other than loopback"]]

    def parse_protected(
        self, option: str, text: str, example: str, credential: str, *, protected: bool, datagrams: bool = False
    ) -> ServerEndpoint:
        """Parse the endpoint of ``option``, which is on loopback, protected by a credential, or has ``--open``.

        :param credential: option with the credential.
        :param protected: whether it is given.
        :raises ConfigurationError: if the endpoint is invalid or exposed.
        """
        listening = parse_server_endpoint(option, text, example, datagrams=datagrams)
        require_protection(option, listening, bool(self["open"]) or protected, credential)
        return listening


class NodeOptions(SecretOption, OpenFlag):
    """Options of the nodes of a network: its secret, and where a node listens."""

    def parse_listens(self, texts: Sequence[str], default: str, *, datagrams: bool = False) -> None:
        """Parse the endpoints for other nodes, and store them as ``listening``; after :meth:`read_secret`.

        :raises ConfigurationError: if one is invalid or exposed.
        """
        protected = self["secret"] is not None
        self["listening"] = [
            self.parse_protected("listen", text, default, "--secret-file", protected=protected, datagrams=datagrams)
            for text in texts or [default]
        ]


class MetricsOption(ServiceOptions):
    """``--metrics``."""

    optParameters = [["metrics", None, None, "endpoint to serve Prometheus metrics on, such as tcp:9100 (on loopback)"]]


class ControlOptions(MetricsOption):
    """``--control`` and ``--metrics`` of a node."""

    optParameters = [
        ["control", "c", None, "endpoint for the `fyrehose` command, such as unix:/run/node.sock (on loopback)"]
    ]

    def parse_control(self, example: str, consequence: str) -> None:
        """Parse both endpoints, and store them as ``control-listening`` and ``metrics-listening``.

        :param example: example of a control port.
        :param consequence: what a client of the control port could do, for the error message.
        :raises ConfigurationError: if one is invalid, or the control port is exposed.
        """
        for option, suggestion in (("control", example), ("metrics", "tcp:9100")):
            text = self[option]
            self[f"{option}-listening"] = parse_server_endpoint(option, text, suggestion) if text else None
        if self["control-listening"] is not None:
            require_loopback("control", self["control-listening"], consequence)

    def named_endpoints(self) -> list[tuple[str, ServerEndpoint | None]]:
        """Return the endpoints of the node with the names of their options."""
        named: list[tuple[str, ServerEndpoint | None]] = [("listen", listening) for listening in self["listening"]]
        return named + [(option, self[f"{option}-listening"]) for option in ("control", "metrics")]
