"""`DatasetFragment`: one fragment of a version, as pylance's `LanceFragment`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
from pyroaring import BitMap

from lance_spark.dataset._decorators import prefixes_errors_by
from lance_spark.dataset.fragments.write import write_fragments
from lance_spark.errors import InvalidInputError
from lance_spark.file.schema.schema import Schema
from lance_spark.scan.fragment import row_meta
from lance_spark.scan.take import parse_positions
from lance_spark.table.fragments.files import DataFile
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.paths import deletion_path

if TYPE_CHECKING:
    import pandas as pd

    from lance_spark.dataset.dataset import Dataset
    from lance_spark.dataset.scanning.options import Columns, Filter
    from lance_spark.dataset.scanning.scanner import Scanner


@prefixes_errors_by(lambda fragment: fragment._dataset._table.store.display)
class DatasetFragment:
    """One fragment of a version. Made by `Dataset.get_fragments` and `Dataset.get_fragment`.

    The methods that change rows or columns write files, and return changed metadata for an
    operation (`LanceOperation`) that the caller commits. No version refers to the files before.

    Examples
    --------
    >>> changed = [fragment.delete("id > 5") for fragment in dataset.get_fragments()]
    >>> kept = [fragment for fragment in changed if fragment is not None]
    """

    def __init__(self, dataset: Dataset, fragment: Fragment | int) -> None:
        if isinstance(fragment, int):
            numbers = {member.id: member for member in dataset.fragments}
            if fragment not in numbers:
                raise InvalidInputError(f"fragment {fragment} not found in {dataset!r}")
            fragment = numbers[fragment]
        self._dataset = dataset
        self._fragment = fragment
        #: Columns of `take` by default.
        self._taken: Columns | None = None

    def __repr__(self) -> str:
        return f"DatasetFragment(id={self.fragment_id}, physical_rows={self.physical_rows})"

    def __reduce__(self) -> tuple[Any, ...]:
        return DatasetFragment, (self._dataset, self._fragment)

    @staticmethod
    def create(
        dataset_uri: str | os.PathLike[str],
        data: Any,
        fragment_id: int | None = None,
        schema: pa.Schema | None = None,
        *,
        mode: Literal["create", "append", "overwrite"] = "append",
        **options: Any,
    ) -> Fragment:
        """Write rows to the files of one new fragment, without a commit.

        Parameters
        ----------
        dataset_uri, data, schema, mode, options
            As in `write_fragments`.
        fragment_id : int, optional
            The id of the fragment; by default the commit gives it one.

        Raises
        ------
        InvalidInputError
            There are no rows.
        """
        fragments = write_fragments(
            data, dataset_uri, schema, mode=mode, max_rows_per_file=1 << 31, **options
        )
        if len(fragments) != 1:
            raise InvalidInputError(f"data makes {len(fragments)} fragments, not one; give rows")
        proto = fragments[0].to_proto()
        proto.id = fragment_id or 0
        return Fragment.from_proto(proto, fragments[0].source)

    @staticmethod
    def create_from_file(filename: str, dataset: Dataset, fragment_id: int) -> Fragment:
        """Return a fragment for a data file that exists, for an operation.

        Parameters
        ----------
        filename : str
            Path of the file below the folder ``data``, for example one of `LanceFileWriter`.
        dataset : Dataset
            The version whose columns the file has, by their names.
        fragment_id : int

        Raises
        ------
        InvalidInputError
            The file has a column that the version does not have, or has it in another type.
        CorruptFileError, MissingFileError, StorageError
        """
        from lance_spark.dataset.fragments.existing_file import fragment_of_file

        return fragment_of_file(dataset._table, filename, fragment_id)

    def open_session(
        self, columns: Columns | None = None, with_row_address: bool | None = None
    ) -> DatasetFragment:
        """Return the fragment, whose `take` keeps files open, as a session of pylance does.

        Parameters
        ----------
        columns : sequence of str or mapping, optional
            What `take` of the result reads by default; all columns by default.
        with_row_address : bool, optional
            Whether `take` of the result appends the column ``_rowaddr``.
        """
        if columns is None and not with_row_address:
            return self
        if columns is None:
            columns = self._dataset.schema.names
        if with_row_address:
            name = row_meta.ROW_ADDRESS.name
            columns = {**columns, name: name} if isinstance(columns, Mapping) else [*columns, name]
        session = DatasetFragment(self._dataset, self._fragment)
        session._taken = columns
        return session

    @property
    def fragment_id(self) -> int:
        """The id of the fragment."""
        return self._fragment.id

    @property
    def metadata(self) -> Fragment:
        """The fragment as the manifest has it."""
        return self._fragment

    @property
    def physical_rows(self) -> int:
        """The number of rows in the files, including deleted rows."""
        return self._fragment.physical_rows

    @property
    def num_deletions(self) -> int:
        """The number of deleted rows."""
        return self._fragment.num_deleted_rows

    @property
    def schema(self) -> pa.Schema:
        """Arrow schema of the table."""
        return self._dataset.schema

    def data_files(self) -> list[DataFile]:
        """Return the data files."""
        return list(self._fragment.files)

    def deletion_file(self) -> str | None:
        """Return the path of the deletion file below the table's root; None without one."""
        file = self._fragment.deletion_file
        return None if file is None else deletion_path(file, self.fragment_id)

    # Reads

    def scanner(self, columns: Columns | None = None, **arguments: Any) -> Scanner:
        """Return a scanner of the rows; the parameters are those of `Dataset.scanner`."""
        return self._dataset.scanner(columns, fragments=[self._fragment], **arguments)

    def to_table(
        self,
        columns: Columns | None = None,
        filter: Filter | None = None,
        limit: int | None = None,
        offset: int | None = None,
        with_row_id: bool = False,
        with_row_address: bool = False,
        **arguments: Any,
    ) -> pa.Table:
        """Return the rows as an Arrow table; the parameters are those of `Dataset.scanner`."""
        return self.scanner(
            columns,
            filter=filter,
            limit=limit,
            offset=offset,
            with_row_id=with_row_id,
            with_row_address=with_row_address,
            **arguments,
        ).to_table()

    def to_batches(self, **arguments: Any) -> Iterator[pa.RecordBatch]:
        """Yield the rows as record batches; the parameters are those of `Dataset.scanner`."""
        yield from self.scanner(**arguments).to_batches()

    def to_pandas(
        self,
        columns: Columns | None = None,
        filter: Filter | None = None,
        limit: int | None = None,
        offset: int | None = None,
        batch_size: int | None = None,
        with_row_id: bool = False,
        with_row_address: bool = False,
        blob_mode: str = "lazy",
        **options: Any,
    ) -> pd.DataFrame:
        """Return the rows as a DataFrame. `Dataset.to_pandas` documents the parameters."""
        from lance_spark.dataset.rows.frames import parted

        scan, others = parted(options, self._dataset.scanner)
        scanner = self.scanner(
            columns,
            filter=filter,
            limit=limit,
            offset=offset,
            batch_size=batch_size,
            with_row_id=with_row_id,
            with_row_address=with_row_address,
            **scan,
        )
        return scanner.to_pandas(blob_mode=blob_mode, **others)

    def head(self, num_rows: int) -> pa.Table:
        """Return the first rows as an Arrow table."""
        return self.scanner().head(num_rows)

    def count_rows(self, filter: Filter | None = None) -> int:
        """Return the number of live rows that meet a filter; of all live rows without one."""
        return self.scanner(filter=filter).count_rows()

    def take(self, indices: Sequence[int], columns: Columns | None = None) -> pa.Table:
        """Return rows by their positions in the fragment. Deleted rows are not counted.

        Parameters
        ----------
        indices : sequence of int, or integer array
            Positions from 0 on, in any order, possibly repeated.
        columns : sequence of str or mapping, optional
            As in `Dataset.take`.

        Raises
        ------
        InvalidInputError
            A position is out of range, or a column does not exist.
        """
        first = row_meta.first_positions(self._dataset.fragments)[self.fragment_id]
        positions = parse_positions(indices, self._fragment.num_rows)
        columns = self._taken if columns is None else columns
        return self._dataset.take(list(positions + first), columns)

    def validate(self) -> None:
        """Check the version that has the fragment; see `Dataset.validate`.

        Raises
        ------
        CorruptTableError
        """
        from lance_spark.scan.validate import validate

        validate(self._dataset._table)

    # Changes

    def delete(self, predicate: str) -> Fragment | None:
        """Delete rows by writing a deletion file.

        Parameters
        ----------
        predicate : str
            The text of a ``WHERE`` clause, as in `Dataset.delete`.

        Returns
        -------
        Fragment or None
            The fragment without the rows, for `LanceOperation.Delete`; None if no row is left.

        Raises
        ------
        InvalidInputError
            The predicate is not valid.
        """
        from lance_spark.mutations.rewrite.fragment_rows import matching_offsets
        from lance_spark.mutations.rows.conditions import conditions_of, parse_conditions

        table = self._dataset._table
        conditions = parse_conditions(table, conditions_of(predicate))
        rows = matching_offsets(table.paths, [self._fragment], conditions, None)
        return self._without(rows.get(self.fragment_id, BitMap()))

    def delete_rows(self, offsets: Iterable[int]) -> Fragment | None:
        """Delete rows by their offsets in the data files, which count deleted rows.

        Returns
        -------
        Fragment or None
            As in `delete`.

        Raises
        ------
        InvalidInputError
            An offset is out of range.
        """
        from lance_spark.table.rows.deletions import bitmap_of, read_deletions

        numbers = [int(offset) for offset in offsets]
        for offset in numbers:
            if not 0 <= offset < self.physical_rows:
                raise InvalidInputError(
                    f"offset {offset} is out of range for fragment {self.fragment_id} with "
                    f"{self.physical_rows} rows"
                )
        deleted = read_deletions(self._dataset._table.paths, self._fragment)
        return self._without(BitMap(numbers) - bitmap_of(deleted))

    def _without(self, rows: BitMap) -> Fragment | None:
        """Return the fragment without some live rows."""
        from lance_spark.mutations.mem_wal import check_rows_changeable
        from lance_spark.mutations.rows.delete import delete_offsets
        from lance_spark.table.operations.data.row_deletions import with_deletion_file

        table = self._dataset._table
        check_rows_changeable(table, data_files=False)
        if not rows:
            return self._fragment if self._fragment.num_rows else None
        parts = {self.fragment_id: rows}
        (deletion,) = delete_offsets(table.paths, [self._fragment], parts, table.version)
        if deletion.file is None:
            return None
        return with_deletion_file(self._fragment, deletion.file)

    def merge_columns(
        self,
        value_func: Any,
        columns: Sequence[str] | None = None,
        batch_size: int | None = None,
        reader_schema: pa.Schema | None = None,
    ) -> tuple[Fragment, Schema]:
        """Compute new columns of the fragment's rows, and write them to a data file.

        All fragments must get the same columns, of this version, in one `LanceOperation.Merge`.

        Parameters
        ----------
        value_func : mapping, callable, or rows
            One of: a mapping of names to expressions of SQL, as in `Dataset.scanner`; a function
            that receives a record batch and returns one with the new columns; a table, a reader or
            batches with the new columns of all live rows in order.
        columns : sequence of str, optional
            The columns that a function receives; all by default.
        batch_size : int, optional
            Maximum number of rows of a batch; 65,536 by default.
        reader_schema : pa.Schema, optional
            Schema of the new columns; by default that of the values.

        Returns
        -------
        Fragment
            The fragment with the new data file.
        Schema
            The table's columns with the new ones.

        Raises
        ------
        InvalidInputError
            A column exists already, or the values do not fit the rows or types.
        """
        from lance_spark.dataset.fragments.columns import with_columns

        return with_columns(
            self._dataset, self._fragment, value_func, columns, batch_size, reader_schema
        )

    def add_columns(
        self,
        value_func: Any,
        columns: Sequence[str] | None = None,
        batch_size: int | None = None,
        reader_schema: pa.Schema | None = None,
    ) -> tuple[Fragment, Schema]:
        """Compute new columns; another name of `merge_columns`."""
        return self.merge_columns(value_func, columns, batch_size, reader_schema)

    def merge(
        self,
        data_obj: Any,
        left_on: str,
        right_on: str | None = None,
        schema: pa.Schema | None = None,
    ) -> tuple[Fragment, Schema]:
        """Add the columns of other rows, which are found by a key: a left join.

        Rows without a match get null. If several rows of `data_obj` have a key, the last counts.

        Parameters
        ----------
        data_obj : Table, RecordBatch, RecordBatchReader or iterable of RecordBatch
            The key, and the new columns.
        left_on : str
            The key in the table: a column, ``_rowid`` or ``_rowaddr``.
        right_on : str, optional
            The key in `data_obj`; by default `left_on`.
        schema : pa.Schema, optional
            Schema of an iterable.

        Returns
        -------
        Fragment, Schema
            As in `merge_columns`.

        Raises
        ------
        InvalidInputError
            The keys have different types, or a column exists already.
        """
        from lance_spark.dataset.fragments.columns import joined

        return joined(self._dataset, self._fragment, data_obj, left_on, right_on, schema)

    def update_columns(
        self,
        data_obj: Any,
        left_on: str = "_rowid",
        right_on: str | None = None,
        schema: pa.Schema | None = None,
        *,
        with_offsets: bool = False,
    ) -> tuple[Fragment, list[int]] | tuple[Fragment, list[int], bytes]:
        """Write new values of columns for the rows whose key other rows have.

        Parameters
        ----------
        data_obj, left_on, right_on, schema
            As in `merge`; the table has the columns already.
        with_offsets : bool
            Whether to return the offsets of the changed rows as well.

        Returns
        -------
        Fragment
            The fragment with the new data file.
        list of int
            Ids of the changed fields, for `LanceOperation.Update`.
        bytes
            The offsets of the changed rows as a Roaring bitmap, for the argument
            `updated_fragment_offsets`.

        Raises
        ------
        InvalidInputError
            The keys have different types, or a column does not exist.
        """
        from lance_spark.dataset.fragments.columns import updated

        fragment, fields, rows = updated(
            self._dataset, self._fragment, data_obj, left_on, right_on, schema
        )
        return (fragment, fields, rows) if with_offsets else (fragment, fields)
