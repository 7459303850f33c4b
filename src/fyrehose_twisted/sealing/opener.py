"""Opening of sealed payloads."""

from __future__ import annotations

import struct
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterable
from typing import Any

from zope.interface import implementer

from fyrehose_twisted.errors import ConfigurationError
from fyrehose_twisted.interfaces import IPayloadOpener
from fyrehose_twisted.lru_set import LruSet
from fyrehose_twisted.sealing.key_ring import KeyRing
from fyrehose_twisted.sealing.keys import check_available
from fyrehose_twisted.sealing.outcome import OpenedPayload, Refusal
from fyrehose_twisted.sealing.payload import (
    HEADER_SIZE,
    NONCE_PREFIX,
    SEAL_OVERHEAD,
    SEALED,
    SIGNED,
    decode_header,
    is_sealed,
)
from fyrehose_twisted.sealing.replay import ReplayTable, TableState
from fyrehose_twisted.sealing.signing import decode_block, leaf_hash, root_hash, verify_root

CACHED_CIPHERS = 1_024
"""Ciphers of publisher ids that are kept, because deriving one costs more than opening a small message."""

CACHED_ROOTS = 1_024
"""Verified roots of signed batches that are remembered."""


PREFIX_SIZE, NONCE_END = 24, 32
"""Ends of the publisher id and of the counter in a header."""
_NUMBERS = struct.Struct(">QQ")

TRACKED_ADMISSIONS = 65_536
"""Messages that may be admitted and not be processed yet when the state is stored."""


@implementer(IPayloadOpener)
class PayloadOpener:
    """Opener of the payloads of one stream.

    :param allow_plain: deliver payloads that are not sealed. Anybody can make those.
    :raises ConfigurationError: if the package for ciphers is not installed.
    """

    def __init__(self, ring: KeyRing, *, allow_plain: bool = False) -> None:
        check_available()
        self.allow_plain = allow_plain
        self._ring = ring
        self._ciphers: OrderedDict[tuple[bytes, bytes], Any] = OrderedDict()
        self._verified = LruSet(CACHED_ROOTS)
        self._prefix = self._publisher = b""
        self._cipher: Any = None
        self._is_signed = False
        self._tables: dict[str, ReplayTable] = {}
        self._admitted: deque[tuple[int, str, bytes, int]] | None = None
        self._invalid_tag = _invalid_tag()

    def __repr__(self) -> str:
        return f"<PayloadOpener of {self._ring.stream}>"

    @property
    def ring(self) -> KeyRing:
        """Keys. May be replaced at any time."""
        return self._ring

    @ring.setter
    def ring(self, ring: KeyRing) -> None:
        self._ring = ring
        self._ciphers.clear()
        self._prefix = b""
        self._verified = LruSet(CACHED_ROOTS)

    def open(self, payload: bytes, envelope_size: int) -> OpenedPayload | Refusal:
        """See :meth:`~fyrehose_twisted.interfaces.IPayloadOpener.open`."""
        start = envelope_size + HEADER_SIZE
        head = payload[envelope_size:start]
        prefix = head[:PREFIX_SIZE]
        if prefix != self._prefix or len(payload) - envelope_size < SEAL_OVERHEAD:
            refusal = self._begin(payload, envelope_size)
            if refusal is Refusal.PLAIN and self.allow_plain:
                return OpenedPayload(payload[envelope_size:])
            if refusal is not None:
                return refusal
            self._prefix = prefix
        bound = head + self._ring.context + payload[:envelope_size]
        try:
            text: bytes = self._cipher.decrypt(NONCE_PREFIX + head[PREFIX_SIZE:NONCE_END], payload[start:], bound)
        except self._invalid_tag:
            return Refusal.FORGED
        counter, sealed_at = _NUMBERS.unpack_from(head, PREFIX_SIZE)
        opened = OpenedPayload(text, self._publisher, counter, sealed_at)
        return self._verify(opened, bound) if self._is_signed or self._ring.publishers else opened

    def admit(self, opened: OpenedPayload, sequence: int) -> bool:
        """See :meth:`~fyrehose_twisted.interfaces.IPayloadOpener.admit`."""
        if not opened.publisher:
            return True
        # Publishers have windows of their own, so that one cannot use up the counters of another.
        signer = opened.signer
        if signer and "" in self._tables and opened.publisher in self._tables[""]:
            signer = ""  # Received before signatures were required.
        table = self._tables.get(signer)
        if table is None:
            table = self._tables[signer] = ReplayTable()
        is_new = table.admit(opened.publisher, opened.counter, opened.sealed_at)
        if is_new and self._admitted is not None:
            self._admitted.append((sequence, signer, opened.publisher, opened.counter))
        return is_new

    def track_admissions(self) -> None:
        """Remember which messages were admitted lately, for :meth:`replay_state`."""
        self._admitted = deque(maxlen=TRACKED_ADMISSIONS)

    def replay_state(self, end: int) -> tuple[TableState, ...]:
        """Return the state of the replay tables, to be stored. It needs :meth:`track_admissions`.

        :param end: number of the first message that was not processed. It, and those after it, will be admitted again.
        """
        later = defaultdict(list)
        for sequence, signer, publisher, counter in self._admitted or ():
            if sequence >= end:
                later[signer, publisher].append(counter)
        return tuple(
            TableState(
                signer,
                table.floor,
                tuple(window.without(later.get((signer, window.publisher), ())) for window in table.state()),
            )
            for signer, table in self._tables.items()
        )

    def restore(self, tables: Iterable[TableState]) -> None:
        """Restore what :meth:`replay_state` returned."""
        for signer, floor, windows in tables:
            table = self._tables[signer] = ReplayTable()
            table.floor = floor
            for window in windows:
                table.restore(window)

    def _begin(self, payload: bytes, offset: int) -> Refusal | None:
        """Prepare for payloads of one key, publisher id and kind, which usually follow one another."""
        if not is_sealed(payload, offset):
            return Refusal.PLAIN
        header = decode_header(payload, offset)
        if header is None or header.kind not in (SEALED, SIGNED):
            return Refusal.MALFORMED
        key_id = header.key_id, header.publisher
        cipher = self._ciphers.get(key_id)
        if cipher is None:
            key = self._ring.find(header.key_id)
            if key is None:
                return Refusal.UNKNOWN_KEY
            cipher = self._ciphers[key_id] = key.cipher(header.publisher)
            if len(self._ciphers) > CACHED_CIPHERS:
                self._ciphers.popitem(last=False)
        self._cipher, self._publisher, self._is_signed = cipher, header.publisher, header.kind == SIGNED
        return None

    def _verify(self, opened: OpenedPayload, bound: bytes) -> OpenedPayload | Refusal:
        if not self._is_signed:
            return Refusal.UNSIGNED
        block = decode_block(opened.data)
        if block is None:
            return Refusal.MALFORMED
        data, name = opened.data[block.size :], ""
        if self._ring.publishers:
            known = self._ring.find_signer(block.signer)
            if known is None:
                return Refusal.UNKNOWN_SIGNER
            name, public = known
            root = root_hash(leaf_hash(bound, data), block)
            if (public, root) not in self._verified:
                if not verify_root(public, root, block.signature):
                    return Refusal.BAD_SIGNATURE
                self._verified.add((public, root))
        return opened._replace(data=data, signer=name)


def _invalid_tag() -> type[Exception]:
    try:
        from cryptography.exceptions import InvalidTag
    except ImportError:
        raise ConfigurationError("sealed payloads require a package: pip install 'fyrehose_twisted[keys]'") from None
    return InvalidTag
