"""A journal as a table, for programs that read Arrow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from fyrehose_twisted.journal.arrow.schema import RECORD
from fyrehose_twisted.journal.catalog import StoredBlock
from fyrehose_twisted.journal.errors import Damage
from fyrehose_twisted.journal.format.segment import Projection


class Tabular:
    """What all journals can do that can be read. Tables of one journal may be read in several threads."""

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
        """Return what stands in segments: see :meth:`~fyrehose_twisted.journal.reader.JournalReader.stored`.

        Here that is what :meth:`read` gives: the segment is ``""``, and nothing is there twice.
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
        """Return what is below the watermarks as a :class:`pyarrow.RecordBatchReader`, which reads as it is asked.

        Rows are in order of epochs and numbers, one for each number; those that are not there have ``status`` ``lost``.
        Of a long gap, only the first and the last are given.

        :param columns: names of :data:`~fyrehose_twisted.journal.arrow.schema.COLUMNS`. Without ``payload``, payloads
            are not read, and so not checked.
        :param epoch: only this one; ``None`` for all.
        :param first: the position to begin with, inclusive; ``None`` for the beginning.
        :param last: the one to end with, inclusive; ``None`` for the watermark.
        :param fail_on_data_loss: whether damage is raised, also that which makes the watermark stand still. Otherwise
            what is gone is given as lost.
        :raises ConfigurationError: if there is no such column, numbers are given for several epochs, or pyarrow is not
            installed.
        :raises JournalDamaged: here or while reading, if something is damaged or gone.
        :raises NotInJournal: while reading, if something is not kept any more.
        """
        from fyrehose_twisted.journal.arrow.parquet import load_pyarrow

        load_pyarrow()
        from fyrehose_twisted.journal.arrow.batches import to_arrow

        reader: Any = self
        return to_arrow(reader, columns, epoch, (first, last), fail_on_data_loss=fail_on_data_loss)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return all of it to whoever speaks the PyCapsule interface of Arrow, such as Polars and DuckDB."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)
