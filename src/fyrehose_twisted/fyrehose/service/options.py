"""Option checks shared by the services."""

from __future__ import annotations

from ipaddress import ip_address
from pathlib import Path
from typing import Any, ClassVar

from twisted.python.usage import UsageError

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.fyrehose.config import MAX_KEEPALIVE_INTERVAL, MacPolicy, Start
from fyrehose_twisted.fyrehose.node.client.takeover.backbone_group import BackboneGroup
from fyrehose_twisted.fyrehose.service.connect import DEFAULT_BACKBONE
from fyrehose_twisted.net.addresses import parse_host_ports
from fyrehose_twisted.net.options import MetricsOption, SecretOption, ServiceOptions, integer_option
from fyrehose_twisted.sealing.key_source import KeySource

_NAME_CHARACTERS = set("abcdefghijklmnopqrstuvwxyz0123456789-_.")


MULTICAST_FLAG = ["multicast", None, "listen to the multicast group of the backbone, if it has one"]
"""Row of ``optFlags``."""


def float_option(option: str) -> Any:
    """Return a function that converts the value of ``option`` to a float."""

    def coerce(text: str) -> float:
        try:
            return float(text)
        except ValueError:
            raise ValueError(f"--{option} {text!r} is not a number") from None

    return coerce


def start_option(default: str) -> list[Any]:
    """Return ``--from`` as a row of ``optParameters``."""
    return ["from", None, default, "start position: live, oldest or a number"]


def parse_start(text: str) -> Start | int:
    """Parse a start position: ``live``, ``oldest`` or a number. :raises ValueError: if it is none of these."""
    if text in ("live", "oldest"):
        return Start(text)
    if text.isdecimal():
        return int(text)
    raise ValueError(f"start position {text!r} is not live, oldest or a number")


class StreamNameOption(ServiceOptions):
    """``--name`` of a stream."""

    optParameters = [["name", "n", "default", "name of the stream, fyrehose://NAME"]]

    @property
    def stream(self) -> str:
        """URI of the stream."""
        return f"fyrehose://{self['name']}"

    def check_name(self) -> None:
        """Check the name. :raises UsageError: if it is invalid."""
        check_stream_name(self["name"])


class SealOptions(ServiceOptions):
    """Keys of sealed payloads."""

    optParameters = [
        ["seal-key-file", None, None, "file with the keys of the sealed stream (see fyrehose key); reloaded on SIGHUP"],
        ["sign-key-file", None, None, "file with the private key that signs what is published sealed"],
    ]

    def read_keys(self, *, allow_plain: bool = False) -> KeySource | None:
        """Return the keys, if any. :raises ConfigurationError: if a file is invalid, or an option needs another."""
        path, signing = self.absolute_path("seal-key-file"), self.absolute_path("sign-key-file")
        if path is not None:
            return KeySource(path, signing_key_path=signing, allow_plain=allow_plain)
        for option, is_given in (("sign-key-file", signing is not None), ("allow-plain", allow_plain)):
            if is_given:
                raise ConfigurationError(f"--{option} requires --seal-key-file FILE")
        return None


class BackboneOptions(SecretOption):
    """``--backbone``, and the secret that it requires.

    :cvar default_backbone: value without the option.
    """

    optFlags = [["require-mac", None, "with --secret-file, accept no message without a MAC of the backbone"]]

    default_backbone: ClassVar[str | None] = DEFAULT_BACKBONE

    def __init__(self) -> None:
        super().__init__()
        self["backbone"] = self.defaults["backbone"] = self.default_backbone
        self._backbones: list[str] = []

    def opt_backbone(self, text: str) -> None:
        """HOST:PORT or [IPV6]:PORT of the backbone; several that take over from one another with commas (repeatable)"""
        self._backbones.append(text)
        self["backbone"] = ",".join(self._backbones)

    opt_b = opt_backbone

    @property
    def mac_policy(self) -> MacPolicy:
        """Use of MACs."""
        return MacPolicy.REQUIRE if self["require-mac"] else MacPolicy.OFFER

    def check_backbone(self) -> None:
        """Check the addresses. :raises ConfigurationError: if one is not ``HOST:PORT``, or there are too many."""
        BackboneGroup(parse_host_ports(self["backbone"]))


class SubscriberOptions(BackboneOptions, StreamNameOption, MetricsOption):
    """Options of the services that subscribe to a backbone."""

    optParameters = [
        ["port", "p", 0, "local UDP port; 0 for any free port", integer_option("port", 0, 65_535)],
        [
            "keepalive",
            None,
            MAX_KEEPALIVE_INTERVAL,
            "seconds between KEEPALIVEs, 0.1 to 0.9",
            float_option("keepalive"),
        ],
    ]

    optFlags = [MULTICAST_FLAG]


def check_stream_name(name: str, option: str = "name") -> None:
    """Check the value of ``option``. :raises UsageError: if it is not a valid stream name."""
    if not name or len(name) > 128 or not set(name) <= _NAME_CHARACTERS or name.startswith("."):
        raise UsageError(f"--{option} {name!r}: use lower-case letters, digits, '-', '_' and '.', at most 128")


def check_interface(text: str, option: str = "interface") -> str:
    """Return the value of ``option`` in its shortest form. :raises UsageError: if it is not an IP address."""
    try:
        return str(ip_address(text))
    except ValueError:
        raise UsageError(f"--{option} {text!r} is not an IP address, such as 127.0.0.1, ::1 or ::") from None


def require_parent_directory(path: Path) -> None:
    """Check that the parent directory of ``path`` exists. :raises UsageError: if not."""
    if not path.parent.is_dir():
        raise UsageError(f"{path.parent} is not a directory; create it, or choose another path for {path.name}")
