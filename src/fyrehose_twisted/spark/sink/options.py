"""Options of the ``fyrehose`` sink."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import SystemRandom

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.fyrehose.wire.envelope import MAX_ENVELOPED
from fyrehose_twisted.fyrehose.wire.packets import MAX_DELIVERABLE
from fyrehose_twisted.process.secret import read_secret
from fyrehose_twisted.sealing.key_file import read_key_ring, read_signing_key
from fyrehose_twisted.sealing.key_ring import KeyRing
from fyrehose_twisted.sealing.payload import SEAL_OVERHEAD
from fyrehose_twisted.sealing.sealer import PayloadSealer
from fyrehose_twisted.sealing.signing import MAX_SIGNATURE_OVERHEAD, SigningKey
from fyrehose_twisted.spark.sink.publisher import (
    ACK_TIMEOUT,
    MAX_IN_FLIGHT,
    PUBLISH_TIMEOUT,
    BlockingPublisher,
    parse_backbones,
)

MAX_TIMEOUT = 3_600.0
_FLAGS = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Validated options of a write. Spark pickles them to workers.

    :ivar backbone: ``HOST:PORT``.
    :ivar column: column to publish; ``None`` for ``payload``, or the row as JSON if there is no such column.
    :ivar id_column: column of message ids; ``None`` to identify messages by position.
    :ivar id_scope: scope within which ids are unique; ``None`` for the query or the single write.
    :ivar key_column: column of message keys; ``None`` for messages without keys.
    :ivar raw: publish payloads without an envelope.
    :ivar ack_timeout: seconds to wait for the backbone's first answer.
    :ivar publish_timeout: seconds to wait for the acknowledgement of a message.
    :ivar keys: keys with which payloads are sealed; ``None`` to publish them as they are.
    :ivar signing_key: key that signs sealed payloads.
    :ivar max_in_flight: limit of unacknowledged messages per task.
    """

    backbone: str
    column: str | None = None
    id_column: str | None = None
    id_scope: str | None = None
    key_column: str | None = None
    raw: bool = False
    ack_timeout: float = ACK_TIMEOUT
    publish_timeout: float = PUBLISH_TIMEOUT
    max_in_flight: int = MAX_IN_FLIGHT
    secret: bytes | None = field(default=None, repr=False)
    keys: KeyRing | None = None
    signing_key: SigningKey | None = None

    @property
    def max_payload(self) -> int:
        """Maximum size of a payload in bytes."""
        limit = MAX_DELIVERABLE if self.raw else MAX_ENVELOPED
        if self.keys is None:
            return limit
        return limit - SEAL_OVERHEAD - (0 if self.signing_key is None else MAX_SIGNATURE_OVERHEAD)

    def sealer(self) -> PayloadSealer | None:
        """Create a sealer for one task; ``None`` without keys."""
        return None if self.keys is None else PayloadSealer(self.keys, SystemRandom(), signing_key=self.signing_key)

    def publisher(self) -> BlockingPublisher:
        """Create an unconnected publisher."""
        return BlockingPublisher(
            self.backbone,
            secret=self.secret,
            ack_timeout=self.ack_timeout,
            publish_timeout=self.publish_timeout,
            max_in_flight=self.max_in_flight,
        )


def sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Parse and validate options; their names are case-insensitive. Unknown options pass, since Spark adds its own.

    :raises ConfigurationError: if an option is missing, out of range, or contradicts another.
    """
    options = {name.lower(): value for name, value in given.items()}
    backbone = options.get("backbone")
    if backbone is None:
        raise ConfigurationError('the sink requires a backbone: .option("backbone", "HOST:PORT")')
    parse_backbones(backbone)
    if "secret" in options:
        raise ConfigurationError("option secret would reveal the secret in Spark's query plans: use secretFile")
    raw, id_column, id_scope = _parse_flag(options, "raw"), options.get("idcolumn"), options.get("idscope")
    if raw and id_column is not None:
        raise ConfigurationError("raw and idColumn exclude each other: ids are sent in the envelope")
    if raw and "keycolumn" in options:
        raise ConfigurationError("raw and keyColumn exclude each other: a key requires an envelope")
    if id_scope is not None and id_column is None:
        raise ConfigurationError("idScope requires idColumn")
    if options.get("signkeyfile") and not options.get("sealkeyfile"):
        raise ConfigurationError("signKeyFile requires sealKeyFile")
    return SinkOptions(
        backbone=backbone,
        column=options.get("column"),
        id_column=id_column,
        id_scope=id_scope,
        key_column=options.get("keycolumn"),
        raw=raw,
        ack_timeout=_parse_seconds(options, "ackTimeout", ACK_TIMEOUT),
        publish_timeout=_parse_seconds(options, "publishTimeout", PUBLISH_TIMEOUT),
        max_in_flight=_parse_in_flight(options),
        secret=read_secret(options["secretfile"]) if options.get("secretfile") else None,
        keys=read_key_ring(options["sealkeyfile"]) if options.get("sealkeyfile") else None,
        signing_key=read_signing_key(options["signkeyfile"]) if options.get("signkeyfile") else None,
    )


def _parse_flag(options: Mapping[str, str], name: str) -> bool:
    text = options.get(name.lower(), "false")
    if text.lower() not in _FLAGS:
        raise ConfigurationError(f"{name} {text!r} is neither true nor false")
    return _FLAGS[text.lower()]


def _parse_seconds(options: Mapping[str, str], name: str, default: float) -> float:
    text = options.get(name.lower(), str(default))
    try:
        seconds = float(text.strip().removesuffix("s"))
    except ValueError:
        seconds = math.nan
    if not 0 < seconds <= MAX_TIMEOUT:
        raise ConfigurationError(f"{name} {text!r}: give seconds above 0 and up to {MAX_TIMEOUT:g}, such as 5s")
    return seconds


def _parse_in_flight(options: Mapping[str, str]) -> int:
    text = options.get("maxinflight", str(MAX_IN_FLIGHT))
    if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= 16_384):
        raise ConfigurationError(f"maxInFlight {text!r}: give a number of messages from 1 to 16384")
    return int(text)
