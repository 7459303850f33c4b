"""Arrow interface of journals."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from fyrehose_twisted.journal.arrow.schema import RECORD
from fyrehose_twisted.journal.catalog import StoredBlock
from fyrehose_twisted.journal.errors import Damage
from fyrehose_twisted.journal.format.segment import Projection


class Tabular:
    """Mixin that gives a readable journal its Arrow methods. Tables of one journal may be read in several threads."""

    __slots__ = ()

    def stored(
        self,
        epoch: int,
        first: int,
        last: int,
        on_damage: Callable[[Damage], object] | None = None,
        *,
        projection: Projection = Projection.ALL,
    ) -> Iterator[list[StoredBlock]]:
        """Return the stored records; see :meth:`~fyrehose_twisted.journal.reader.JournalReader.stored`.

        This default returns the records of :meth:`read`, with ``""`` as the segment.
        """
        reader: Any = self
        return ([StoredBlock("", block)] for block in reader.read(epoch, first, last, on_damage))

    def to_arrow(
        self,
        columns: Sequence[str] = RECORD,
        *,
        epoch: int | None = None,
        first: int | None = None,
        last: int | None = None,
        fail_on_data_loss: bool = True,
    ) -> Any:
        """Return the records below the watermarks as a :class:`pyarrow.RecordBatchReader`, which reads on demand.

        There is one row for each number, ordered by epoch and number. Numbers without a record have ``status``
        ``lost``. A long gap has rows only for its first and last number.

        :param columns: names of :data:`~fyrehose_twisted.journal.arrow.schema.COLUMNS`. Without ``payload``, payloads
            are neither read nor verified.
        :param epoch: the only epoch to read; ``None`` for all.
        :param first: first position, inclusive; ``None`` for the start of the epoch.
        :param last: last position, inclusive; ``None`` for the watermark.
        :param fail_on_data_loss: whether to raise errors for damage, including damage that stops the watermark.
            Otherwise damaged records are returned as lost.
        :raises ConfigurationError: if a column is unknown, positions are given for several epochs, or pyarrow is not
            installed.
        :raises JournalDamaged: here or while reading, if a part is damaged or missing.
        :raises NotInJournal: while reading, if retention has removed part of the range.
        """
        from fyrehose_twisted.journal.arrow.parquet import load_pyarrow

        load_pyarrow()
        from fyrehose_twisted.journal.arrow.batches import to_arrow

        reader: Any = self
        return to_arrow(reader, columns, epoch, (first, last), fail_on_data_loss=fail_on_data_loss)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Export all records through the Arrow PyCapsule interface, as used by Polars and DuckDB."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)
