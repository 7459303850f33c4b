"""Key ring of a sealed stream: the keys that seal and open, and the publishers that are trusted.

A key file is text, one entry a line; ``#`` begins a comment::

    stream fyrehose://prices
    key chacha20-poly1305 HEX     # 64 hexadecimal digits; the first key seals, all of them open
    publisher NAME HEX            # public key; with one of these lines, only messages of these publishers are opened
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.sealing.keys import KEY_SIZE, SealKey
from fyrehose_twisted.sealing.payload import stream_context
from fyrehose_twisted.sealing.signing import PUBLIC_KEY_SIZE, signer_id

MAX_KEYS = 64
MAX_PUBLISHERS = 1_024

_NAME = re.compile(r"[A-Za-z0-9_.@-]{1,64}")
_STREAM = re.compile(r"[!-~]{1,255}")


class KeyRing:
    """Keys of one stream.

    :param stream: URI of the stream, such as ``fyrehose://prices``.
    :param keys: keys; the first one seals, all of them open.
    :param publishers: public keys of the trusted publishers, by name. Without any, every holder of a key is trusted.
    :ivar context: what binds a payload to the stream; see :func:`~fyrehose_twisted.sealing.payload.stream_context`.
    :raises ConfigurationError: if there is no key, or two have the same id.
    """

    def __init__(
        self, stream: str, keys: Iterable[SealKey], publishers: Mapping[str, bytes] = MappingProxyType({})
    ) -> None:
        self.stream = stream
        self.keys = tuple(keys)
        self.publishers = dict(publishers)
        self.context = stream_context(stream)
        if not self.keys:
            raise ConfigurationError("there is no key")
        if len(self.keys) > MAX_KEYS:
            raise ConfigurationError(f"{len(self.keys)} keys; at most {MAX_KEYS} are possible")
        if len(self.publishers) > MAX_PUBLISHERS:
            raise ConfigurationError(f"{len(self.publishers)} publishers; at most {MAX_PUBLISHERS} are possible")
        self._by_id = {key.id: key for key in self.keys}
        if len(self._by_id) < len(self.keys):
            raise ConfigurationError("two keys have the same id")
        self._signers = {signer_id(public): (name, public) for name, public in self.publishers.items()}
        if len(self._signers) < len(self.publishers):
            raise ConfigurationError("two publishers have the same public key")

    def __repr__(self) -> str:
        return f"<KeyRing of {self.stream}: {', '.join(key.id.hex() for key in self.keys)}>"

    @property
    def sealing_key(self) -> SealKey:
        """The key that seals."""
        return self.keys[0]

    def find(self, key_id: bytes) -> SealKey | None:
        """Return the key with an id, or ``None``."""
        return self._by_id.get(key_id)

    def find_signer(self, signer: bytes) -> tuple[str, bytes] | None:
        """Return name and public key of the trusted publisher with a signer id, or ``None``."""
        return self._signers.get(signer)

    def differences(self, other: KeyRing) -> list[str]:
        """Return what changes with ``other`` in place of this ring, without secrets."""
        changes = []
        if other.sealing_key != self.sealing_key:
            changes.append(f"sealing key {self.sealing_key.id.hex()} -> {other.sealing_key.id.hex()}")
        before, after = ({key.id.hex() for key in ring.keys} for ring in (self, other))
        changes += [f"key {added} added" for added in sorted(after - before)]
        changes += [f"key {gone} removed" for gone in sorted(before - after)]
        if self.publishers != other.publishers:
            changes.append(f"trusted publishers {len(self.publishers)} -> {len(other.publishers)}")
        return changes


def parse_key_ring(text: str, name: str) -> KeyRing:
    """Parse the content of a key file.

    :param name: what the file is, for errors. Errors do not quote lines, as they are secret.
    :raises ConfigurationError: with the line and what it should be.
    """
    stream: str | None = None
    keys: list[SealKey] = []
    publishers: dict[str, bytes] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].split()
        where = f"{name}, line {number}"
        match words:
            case []:
                continue
            case ["stream", uri] if _STREAM.fullmatch(uri):
                if stream is not None:
                    raise ConfigurationError(f"{where}: a key file is for one stream; give the other one its own file")
                stream = uri
            case ["key", algorithm, digits]:
                keys.append(_parse_key(algorithm, digits, where))
                if keys[-1] in keys[:-1]:
                    raise ConfigurationError(f"{where}: this key stands in the file already; remove one of the lines")
            case ["publisher", who, digits] if _NAME.fullmatch(who):
                if who in publishers:
                    raise ConfigurationError(f"{where}: publisher {who} has a public key already; remove one of them")
                publishers[who] = _parse_digits(digits, PUBLIC_KEY_SIZE, where, "fyrehose key trust adds one")
            case _:
                raise ConfigurationError(
                    f"{where}: expected 'stream URI', 'key ALGORITHM HEX' or 'publisher NAME HEX';"
                    " correct the line, or create a file with fyrehose key new"
                )
    if stream is None:
        raise ConfigurationError(f"{name} names no stream: add a line 'stream fyrehose://NAME'")
    if not keys:
        raise ConfigurationError(f"{name} has no key: add one with fyrehose key add")
    try:
        return KeyRing(stream, keys, publishers)
    except ConfigurationError as error:
        raise ConfigurationError(f"{name}: {error}") from None


def format_key_ring(ring: KeyRing) -> str:
    """Return the content of a key file."""
    lines = [
        "# Keys of a sealed stream. The first key seals, all of them open. Keep this file secret (mode 0600).",
        f"stream {ring.stream}",
        *(f"key {key.algorithm} {key.secret_hex()}  # {key.id.hex()}" for key in ring.keys),
        *(f"publisher {name} {public.hex()}" for name, public in ring.publishers.items()),
    ]
    return "\n".join(lines) + "\n"


def _parse_key(algorithm: str, digits: str, where: str) -> SealKey:
    secret = _parse_digits(digits, KEY_SIZE, where, "fyrehose key add makes one")
    try:
        return SealKey(algorithm, secret)
    except ConfigurationError as error:
        raise ConfigurationError(f"{where}: {error}") from None


def _parse_digits(digits: str, size: int, where: str, advice: str) -> bytes:
    try:
        value = bytes.fromhex(digits)
    except ValueError:
        value = b""
    if len(value) != size:
        raise ConfigurationError(f"{where}: a key has {2 * size} hexadecimal digits; {advice}")
    return value


def check_stream_uri(text: str) -> str:
    """Return the URI that a text stands for: a URI, or the name of a fyrehose stream.

    :raises ConfigurationError: if it is neither.
    """
    uri = text if "://" in text else f"fyrehose://{text}"
    if not _STREAM.fullmatch(uri) or uri.endswith("://") or "#" in uri:
        raise ConfigurationError(f"{text[:60]!r} is not the name of a stream, such as prices or fyrehose://prices")
    return uri


def check_publisher_name(name: str) -> str:
    """Return ``name``. :raises ConfigurationError: if it is not the name of a publisher."""
    if not _NAME.fullmatch(name):
        raise ConfigurationError(f"publisher {name[:64]!r}: use letters, digits, '_', '.', '@' and '-', at most 64")
    return name
