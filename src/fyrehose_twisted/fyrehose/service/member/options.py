"""Options of ``twistd fyrehose-backbone`` for members of a group."""

from __future__ import annotations

from pathlib import Path

from twisted.python import usage

from fyrehose_twisted.effects import Address
from fyrehose_twisted.fyrehose.service.member.config import CONTROL_EXAMPLE, PEER_EXAMPLE, MemberServiceConfig
from fyrehose_twisted.net.addresses import parse_address
from fyrehose_twisted.net.options import ServerEndpoint, ServiceOptions, parse_server_endpoint
from fyrehose_twisted.net.options.endpoints import require_loopback
from fyrehose_twisted.process.secret import read_secret

_DEPENDENT = "peer-listen", "peer-secret-file", "dial", "advertise-host", "control", "bootstrap", "witness"
_NAME_CHARACTERS = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")


class MemberOptions(ServiceOptions):
    """``--member`` and the options that require it."""

    optParameters = [
        ["member", None, None, "name of this member of a group of backbones, of which one numbers messages at a time"],
        [
            "peer-listen",
            None,
            None,
            "endpoint for the other members, such as tcp:2324:interface=10.0.0.1 or ssl:... [default: --interface, the"
            " port after --port]",
        ],
        ["peer-secret-file", None, None, "file with the secret of the members [default: --secret-file]"],
        ["dial", None, None, "endpoint for connections to other nodes, such as tls:{host}:{port} [default: TCP]"],
        [
            "advertise-host",
            None,
            None,
            "IP address at which clients and members reach this member [default: where it listens]",
        ],
        ["control", "c", None, "endpoint for the `fyrehose` command, such as unix:/run/node.sock (on loopback)"],
    ]
    optFlags = [
        ["bootstrap", None, "bootstrap the group, once all peers are connected and if none has been in one"],
        ["witness", None, "only vote, and number no messages"],
    ]

    def __init__(self) -> None:
        super().__init__()
        self["peers"] = []

    def opt_peer(self, place: str) -> None:
        """HOST:PORT of another member's port for members (repeatable)"""
        self["peers"].append(place)

    def parse_member(self, bound: Address, secret: bytes | None) -> MemberServiceConfig | None:
        """Return the configuration of the member, ``None`` without ``--member``.

        :param bound: address of the port for clients.
        :param secret: secret of the clients.
        :raises UsageError: if an option is missing or invalid; also FyrehoseError.
        """
        name = self["member"]
        if name is None:
            for option, value in (("peer", self["peers"]), *((option, self[option]) for option in _DEPENDENT)):
                if value:
                    raise usage.UsageError(f"--{option} requires --member NAME")
            return None
        if not name or len(name) > 64 or not set(name) <= _NAME_CHARACTERS:
            raise usage.UsageError(f"--member {name!r}: use letters, digits, '-', '_' and '.', at most 64")
        if self["witness"] and self["bootstrap"]:
            raise usage.UsageError("--bootstrap does not apply to a witness; give it to a member that can lead")
        if self["peer-secret-file"]:
            secret = read_secret(self["peer-secret-file"])
        config = MemberServiceConfig(
            name=name,
            peers=tuple(dict.fromkeys(map(parse_address, self["peers"]))),
            listen=self["peer-listen"] or self._default_listen(bound),
            advertise=self["advertise-host"],
            secret=secret,
            dial=self["dial"],
            bootstrap=bool(self["bootstrap"]),
            witness=bool(self["witness"]),
            control=self._parse_control(),
        )
        config.advertised(bound, config.endpoint.address or bound)
        return config

    def _default_listen(self, bound: Address) -> str:
        host, port = bound
        if port == 65_535:
            raise usage.UsageError(f"--port {port} leaves no port after it: pass --peer-listen, such as {PEER_EXAMPLE}")
        kind, interface = ("tcp6", host.replace(":", "\\:")) if ":" in host else ("tcp", host)
        return f"{kind}:{port + 1 if port else 0}:interface={interface}"

    def _parse_control(self) -> str | None:
        if self["control"] is None:
            return None
        control: ServerEndpoint = parse_server_endpoint("control", self["control"], CONTROL_EXAMPLE)
        require_loopback("control", control, "can choose the leader")
        return control.description


def member_state_path(state: Path) -> Path:
    """Return the path of a member's state, beside the state file of its backbone."""
    return state.with_name(f"{state.name}.member")
