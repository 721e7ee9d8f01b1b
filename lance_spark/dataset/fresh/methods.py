"""Methods of `Dataset` that read the rows of a MemWAL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lance_spark.dataset.history import HistoryMethods

if TYPE_CHECKING:
    from lance_spark.dataset.fresh.rows import FreshRows
    from lance_spark.dataset.fresh.scanners import LsmScanner


class FreshMethods(HistoryMethods):
    """Methods of `Dataset` that read the rows of a MemWAL."""

    def fresh(self) -> FreshRows:
        """Return the newest version of this branch together with the rows of its MemWAL.

        A read of a `Dataset` does not return rows that were written to a MemWAL (`mem_wal_writer`)
        and not compacted into the table yet. A fresh read does. Nothing is claimed: writers are not
        disturbed.

        Returns
        -------
        FreshRows
            With the methods of `Dataset` that read rows: `to_table`, `to_batches`, `count_rows` and
            `plan`. For a table without MemWAL, the rows of its newest version.

        Raises
        ------
        CorruptTableError, CorruptFileError, UnsupportedFeatureError, StorageError

        Examples
        --------
        >>> dataset.fresh().to_table(filter="id = 7")
        """
        from lance_spark.dataset.fresh.rows import FreshRows

        return FreshRows(self._table, self._storage_options)

    def lsm_scanner(self) -> LsmScanner:
        """Return a scanner of the rows of `fresh`, with pylance's methods.

        Raises
        ------
        CorruptTableError, CorruptFileError, UnsupportedFeatureError, StorageError
        """
        from lance_spark.dataset.fresh.scanners import LsmScanner

        return LsmScanner(self.fresh())
