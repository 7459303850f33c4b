"""Spark task that publishes a partition."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from time import time
from typing import Any, NamedTuple

from fyrehose_twisted.fyrehose.wire.envelope import ENVELOPE_SIZE
from fyrehose_twisted.fyrehose.wire.message_key import escape_payloads
from fyrehose_twisted.sealing.sealer import PayloadSealer
from fyrehose_twisted.spark.sink.identity import CHUNK_ROWS, encode_scope, wrap_by_id, wrap_by_position
from fyrehose_twisted.spark.sink.options import SinkOptions
from fyrehose_twisted.spark.sink.rows import RowExtractor, SinkRow, chunks

ENVELOPE_LABEL = b"envelopes of the spark sink"
"""Takes the place of a publisher id to derive the key of envelopes. It has another length than any of those."""


class Receipt(NamedTuple):
    """Result of publishing a partition.

    :ivar messages: number of acknowledged messages.
    :ivar first: lowest number of the messages; 0 if there are none.
    :ivar last: highest number of the messages; 0 if there are none.
    """

    partition: int
    messages: int = 0
    first: int = 0
    last: int = 0


@dataclass(frozen=True, slots=True)
class PublishTask:
    """Task that publishes partitions. Spark pickles it to workers.

    Envelopes depend only on scope, partition and rows, so a retried task repeats them.
    """

    options: SinkOptions
    extractor: RowExtractor

    def publish(self, batches: Iterable[Any], partition: int, scope: str, *scope_parts: object) -> Receipt:
        """Publish Arrow record batches and wait until all messages are acknowledged.

        :param scope: id of the query, or an id generated for this write.
        :param scope_parts: part of the scope, such as the number of a micro-batch.
        :raises FyrehoseError: if publishing fails, or a row cannot be published.
        """
        parts = chunks(self.extractor.extract(batches, partition), CHUNK_ROWS)
        part = next(parts, None)
        if part is None:
            return Receipt(partition)
        place = encode_scope(scope, *scope_parts, partition)
        unique = encode_scope(scope if self.options.id_scope is None else self.options.id_scope)
        number = 0
        sealer = self.options.sealer()
        with self.options.publisher() as publisher:
            while part is not None:
                publisher.publish(self._messages(part, number, place, unique, sealer))
                part, number = next(parts, None), number + 1
            publisher.flush()
            return Receipt(partition, publisher.published, *publisher.sequence_range)

    def _messages(
        self, part: list[SinkRow], number: int, place: bytes, unique: bytes, sealer: PayloadSealer | None
    ) -> Sequence[bytes]:
        payloads: Sequence[bytes] = [row.payload for row in part]
        if not self.options.raw:
            payloads = escape_payloads(payloads)
        keys = self.options.keys
        # Unkeyed hashes of payloads would let their readers confirm guesses.
        key = b"" if keys is None else keys.sealing_key.publisher_key(ENVELOPE_LABEL)
        if self.options.raw:
            messages = payloads
        elif self.options.id_column is None:
            messages = wrap_by_position(place, number, payloads, key)
        else:
            messages = wrap_by_id(unique, [row.row_id for row in part], payloads, key)
        if sealer is None:
            return messages
        envelopes = [b"" if self.options.raw else message[:ENVELOPE_SIZE] for message in messages]
        sealed = sealer.seal(payloads, envelopes, time())
        return [envelope + payload for envelope, payload in zip(envelopes, sealed, strict=True)]
