"""Spark task that publishes a partition."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from fyrehose_twisted.spark.sink.identity import CHUNK_ROWS, encode_scope, wrap_by_id, wrap_by_position
from fyrehose_twisted.spark.sink.options import SinkOptions
from fyrehose_twisted.spark.sink.rows import RowExtractor, SinkRow, chunks


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
        with self.options.publisher() as publisher:
            while part is not None:
                publisher.publish(self._messages(part, number, place, unique))
                part, number = next(parts, None), number + 1
            publisher.flush()
            return Receipt(partition, publisher.published, *publisher.sequence_range)

    def _messages(self, part: list[SinkRow], number: int, place: bytes, unique: bytes) -> Sequence[bytes]:
        payloads = [row.payload for row in part]
        if self.options.raw:
            return payloads
        if self.options.id_column is None:
            return wrap_by_position(place, number, payloads)
        return wrap_by_id(unique, [row.row_id for row in part], payloads)
