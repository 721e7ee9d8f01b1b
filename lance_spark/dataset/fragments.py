"""`LanceFragment` and its methods, and writers of fragments that are not committed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Unpack, overload

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from lance_spark.arguments import check_least, checks_arguments, instances, pylance_keywords
from lance_spark.dataset.decorators import prefixes_errors_by
from lance_spark.dataset.scan_request import parse_computed, scan_request, with_others
from lance_spark.dataset.write_options import REFUSED, UNUSED, FileKeywords, FragmentKeywords
from lance_spark.dataset.writing import plan_write
from lance_spark.errors import InvalidInputError, UnsupportedFeatureError
from lance_spark.file.blobs.fields import Handling, handled
from lance_spark.file.open import open_file, version_in_manifests
from lance_spark.file.reader import FileReader
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.schema import Schema
from lance_spark.keywords import also_takes, checked, of_group, shows_keywords
from lance_spark.mutations.columns.add import ColumnLookup, FunctionColumns, with_new_ids
from lance_spark.mutations.columns.fill import DEFAULT_BATCH_SIZE, plan_columns
from lance_spark.mutations.rewrite.column_rewriter import ColumnRewriter
from lance_spark.mutations.rewrite.readers import replace_data_file
from lance_spark.scan.fragment import row_meta
from lance_spark.scan.take import parse_positions
from lance_spark.storage.options import with_base_params
from lance_spark.storage.uri import check_relative
from lance_spark.table.fragments.files import DataFile
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.fragments.writer import check_observer
from lance_spark.table.open import OpenTable
from lance_spark.table.paths import DATA, deletion_path
from lance_spark.table.rows.deletions import encode_bitmap
from lance_spark.table.sources import table_of

if TYPE_CHECKING:
    import pandas as pd

    from lance_spark.dataset.dataset import Dataset
    from lance_spark.dataset.scan_keywords import Columns, Filter
    from lance_spark.dataset.scanner import Scanner
    from lance_spark.table.commit.transaction import Transaction
    from lance_spark.table.commit.write import Mode


# --------------------------------------------------------------------------------------------------
# Columns of one fragment: new columns, and new values of columns, for an operation to commit.

Transform = Callable[[pa.RecordBatch], pa.RecordBatch]


class _NextRows:
    """Gives rows in their order, as many as are asked for."""

    def __init__(self, rows: pa.Table) -> None:
        self._rows = rows
        self._next = 0

    def __call__(self, batch: pa.RecordBatch) -> pa.Table:
        part = self._rows.slice(self._next, batch.num_rows)
        self._next += batch.num_rows
        return part


def _join(
    dataset: Dataset,
    data: Any,
    left_on: str,
    right_on: str | None,
    schema: pa.Schema | None,
) -> ColumnLookup:
    rows = table_of(data, schema)
    key = right_on or left_on
    if key not in rows.schema.names:
        raise InvalidInputError(f"the rows have no column {key!r}, the key")
    known = row_meta.with_all(dataset._table.schema)
    if left_on not in known.names:
        raise InvalidInputError(f"left_on: column {left_on!r} not found")
    return ColumnLookup.of(rows, key, known.field(left_on).to_arrow().type)


def with_columns(
    dataset: Dataset,
    fragment: Fragment,
    values: Any,
    columns: Sequence[str] | None,
    batch_size: int | None,
    schema: pa.Schema | None,
) -> tuple[Fragment, Schema]:
    """Return a fragment with new columns; see `DatasetFragment.merge_columns`."""
    table = dataset._table
    if batch_size is not None:
        check_least("batch_size", batch_size, 1)
    transform: Transform
    if isinstance(values, Mapping):
        computed = parse_computed(values, table.schema)
        columns = computed.read
        result = with_others(computed, ())
        return _filled(
            table,
            fragment,
            columns,
            schema or result,
            lambda batch: computed.of_batch(batch, result),
            batch_size,
        )
    if callable(values):
        transform = values
        if schema is None:
            sample = (
                dataset._reader.select(columns, blob_handling="all_binary").to_arrow().empty_table()
            )
            rows = next(
                iter(
                    dataset.scanner(
                        columns, fragments=[fragment], limit=1, blob_handling="all_binary"
                    ).to_batches()
                ),
                pa.RecordBatch.from_pylist([], sample.schema),
            )
            schema = values(rows).schema
    else:
        table_values = table_of(values, schema)
        if table_values.num_rows != fragment.num_rows:
            raise InvalidInputError(
                f"{table_values.num_rows} rows of new columns for fragment {fragment.id} with "
                f"{fragment.num_rows} rows"
            )
        schema, transform, columns = table_values.schema, _NextRows(table_values), []
    return _filled(table, fragment, columns, schema, transform, batch_size)


def joined(
    dataset: Dataset,
    fragment: Fragment,
    data: Any,
    left_on: str,
    right_on: str | None,
    schema: pa.Schema | None,
) -> tuple[Fragment, Schema]:
    """Return a fragment with the columns of other rows; see `DatasetFragment.merge`."""
    join = _join(dataset, data, left_on, right_on, schema)
    # Rows without a match have null.
    new = pa.schema([field.with_nullable(True) for field in join.columns.schema])
    return _filled(dataset._table, fragment, [left_on], new, join, None)


def _filled(
    table: OpenTable,
    fragment: Fragment,
    columns: Sequence[str] | None,
    new: pa.Schema,
    transform: Transform,
    batch_size: int | None,
) -> tuple[Fragment, Schema]:
    """Compute new columns of one fragment, and write their file."""
    existing = [name for name in new.names if name in table.schema.names]
    if existing:
        raise InvalidInputError(f"column {existing[0]!r} exists already")
    schema = with_new_ids(table, new)
    read = handled(
        row_meta.select(table.schema, columns),
        Handling.parse("all_binary"),
        table.manifest.data_storage_version,
    )
    others = [part.id for part in table.manifest.fragments if part.id != fragment.id]
    tasks = plan_columns(
        table,
        read,
        schema,
        FunctionColumns(transform, tuple(new.names)),
        batch_size=batch_size or DEFAULT_BATCH_SIZE,
        done=others,
    )
    files = [file for task in tasks for file in task.run()]
    proto = fragment.to_proto()
    proto.files.extend(file.file.to_proto() for file in files)
    merged = replace(table.schema, fields=table.schema.fields + schema.fields)
    return Fragment.from_proto(proto, fragment.source), merged


def updated(
    dataset: Dataset,
    fragment: Fragment,
    data: Any,
    left_on: str,
    right_on: str | None,
    schema: pa.Schema | None,
) -> tuple[Fragment, list[int], bytes]:
    """Return a fragment with new values of columns; see `DatasetFragment.update_columns`.

    Returns
    -------
    tuple of Fragment, list of int and bytes
        The fragment, the ids of its new fields, and the offsets of the changed rows.
    """
    table = dataset._table
    join = _join(dataset, data, left_on, right_on, schema)
    names = [name for name in join.columns.schema.names if name != left_on]
    if not names:
        raise InvalidInputError("the rows have no column to update besides the key")
    known = set(table.schema.names)
    missing = [name for name in names if name not in known]
    if missing:
        raise InvalidInputError(f"column {missing[0]!r} not found")
    selected = table.schema.select(names)
    address = row_meta.ROW_ADDRESS.name
    read = list(dict.fromkeys([left_on, address]))
    keys = dataset.scanner(read, fragments=[fragment]).to_table().combine_chunks()
    places = join.places(keys.column(left_on))
    is_found = places.is_valid()
    addresses = keys.column(address).to_numpy()[is_found.to_numpy(zero_copy_only=False)]
    if not len(addresses):
        return fragment, [node.id for node in selected.walk()], encode_bitmap(BitMap())
    values = join.columns.select(names).take(places.drop_null())
    rewriter = ColumnRewriter(table, selected, target="old")
    try:
        rewriter.put(addresses.astype(np.uint64), values)
        (file,) = rewriter.finish()
    except BaseException:
        rewriter.abort()
        raise
    ids = [node.id for node in selected.walk()]
    changed = replace_data_file(table.paths, fragment, file.file, ids)
    return changed, ids, file.rows


# --------------------------------------------------------------------------------------------------
# The description of a data file that exists, for operations that a caller plans.


def fragment_of_file(table: OpenTable, path: str, fragment_id: int) -> Fragment:
    """Return a fragment of one file; see `DatasetFragment.create_from_file`."""
    check_relative(path)
    store, full_path = table.paths.locate(None, DATA, path)
    with closing(open_file(store.open(full_path))) as file:
        if not isinstance(file, FileReader):
            raise UnsupportedFeatureError(
                f"{file.source.name} has the version 0.1, whose files cannot be described; write "
                "its rows again"
            )
        name = file.source.name
        ids = dict(_pairs(file.schema.fields, table.schema.fields, name, ""))
        columns = file.own_columns
        major, minor = version_in_manifests(file.version)
        described = DataFile(
            path=path,
            fields=tuple(ids[field_id] for field_id in columns),
            column_indices=tuple(columns.values()),
            file_major_version=major,
            file_minor_version=minor,
            file_size_bytes=file.source.size,
        )
        return Fragment(fragment_id, (described,), file.num_rows)


def _pairs(
    own: Sequence[Field], fields: Sequence[Field], file: str, above: str
) -> Iterator[tuple[int, int]]:
    """Yield the ids of fields of a file, each with the id of the table's field of that name."""
    by_name = {field.name: field for field in fields}
    for field in own:
        path = f"{above}{field.name}"
        table_field = by_name.get(field.name)
        if table_field is None:
            raise InvalidInputError(
                f"{file}: the table has no column {path!r}; add it, or write a file without it"
            )
        if table_field.logical_type != field.logical_type:
            raise InvalidInputError(
                f"{file}: column {path!r} has the type {field.logical_type!r}, and "
                f"{table_field.logical_type!r} in the table"
            )
        yield field.id, table_field.id
        yield from _pairs(field.children, table_field.children, file, f"{path}.")


# --------------------------------------------------------------------------------------------------
# `write_fragments`: writes rows to the files of new fragments, without a commit.

#: Rows that can be written.
Rows: TypeAlias = pa.Table | pa.RecordBatch | pa.RecordBatchReader | Iterable[pa.RecordBatch]

#: Parameters of pylance that find the table.
_REFUSED = dict.fromkeys(
    ("namespace_client", "table_id"),
    ((), "open the table by the namespace, and give the Dataset as dataset_uri"),
)


@overload
def write_fragments(
    data: Rows,
    dataset_uri: str | os.PathLike[str] | Dataset,
    schema: pa.Schema | None = None,
    *,
    return_transaction: Literal[False] = False,
    mode: Mode = "append",
    **keywords: Unpack[FragmentKeywords],
) -> list[Fragment]: ...


@overload
def write_fragments(
    data: Rows,
    dataset_uri: str | os.PathLike[str] | Dataset,
    schema: pa.Schema | None = None,
    *,
    return_transaction: Literal[True],
    mode: Mode = "append",
    **keywords: Unpack[FragmentKeywords],
) -> Transaction: ...


@pylance_keywords(unused=UNUSED, refused={**REFUSED, **_REFUSED})
@checks_arguments
def write_fragments(
    data: Rows,
    dataset_uri: str | os.PathLike[str] | Dataset,
    schema: pa.Schema | None = None,
    *,
    return_transaction: bool = False,
    mode: Mode = "append",
    **keywords: Unpack[FragmentKeywords],
) -> list[Fragment] | Transaction:
    """Write rows to the files of new fragments. No version refers to them before a commit.

    For programs that distribute a write themselves: each worker writes fragments, and one process
    commits all of them.

    Parameters
    ----------
    data, schema
        As in `write_dataset`.
    dataset_uri : str, path or Dataset
        Root of the table.
    return_transaction : bool
        Whether to return a transaction in place of the fragments, for `Dataset.commit` or
        `Dataset.commit_batch`.
    mode : str
        ``append`` (to the columns of the table), ``create`` or ``overwrite``.

    Returns
    -------
    list of Fragment, or Transaction
        The ids of the fragments are 0 until the commit.

    Raises
    ------
    SchemaMismatchError
        The schema of the data does not fit the table.
    InvalidInputError, InvalidOptionError, UnsupportedTypeError, StorageError

    Examples
    --------
    >>> fragments = write_fragments(pa.table({"id": [3]}), dataset)
    >>> Dataset.commit(dataset, LanceOperation.Append(fragments), dataset.version)
    """
    from lance_spark.table.commit.transaction import Transaction, with_message

    given = checked(FragmentKeywords, keywords)
    if not isinstance(dataset_uri, str | os.PathLike):
        if not hasattr(dataset_uri, "_storage_options"):
            raise InvalidInputError(
                f"dataset_uri must be a path or a Dataset, not {type(dataset_uri).__name__}"
            )
        if given["storage_options"] is None:
            given["storage_options"] = dataset_uri._storage_options
        dataset_uri = dataset_uri.uri
    check_observer(given["progress"])
    properties = with_message(given["transaction_properties"], None)
    storage_options = with_base_params(given["storage_options"], given["base_store_params"])
    files = of_group(FileKeywords, keywords)
    job, batches = plan_write(data, dataset_uri, mode, schema, storage_options, **files)
    fragments = job.writer(observer=given["progress"]).write_all(batches)
    if not return_transaction:
        return fragments
    operation = job.operation(fragments)
    return Transaction.new(job.read_version, operation, properties)


def as_fragments(fragments: Iterable[Any]) -> Sequence[Fragment]:
    """Return fragments that a caller gave: metadata, or fragments of a dataset.

    Raises InvalidInputError: an item is not a fragment.
    """
    metadata = [getattr(item, "metadata", item) for item in fragments]
    return instances(metadata, Fragment, "fragments", "Fragment (the metadata of a fragment)")


# --------------------------------------------------------------------------------------------------
# `DatasetFragment`: one fragment of a version, as pylance's `LanceFragment`.


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
    @pylance_keywords(unused=UNUSED, refused={**REFUSED, **_REFUSED})
    @shows_keywords
    @also_takes(FragmentKeywords, others=False, leaves_out=["max_rows_per_file"])
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
        dataset_uri, data, schema, mode
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

    @shows_keywords
    @also_takes(scan_request, others=False, leaves_out=["fragments"])
    def scanner(self, columns: Columns | None = None, **arguments: Any) -> Scanner:
        """Return a scanner of the rows; the parameters are those of `Dataset.scanner`."""
        return self._dataset.scanner(columns, fragments=[self._fragment], **arguments)

    @shows_keywords
    @also_takes(scan_request, others=False, leaves_out=["fragments"])
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

    @shows_keywords
    @also_takes(scan_request, others=False, leaves_out=["fragments"])
    def to_batches(self, **arguments: Any) -> Iterator[pa.RecordBatch]:
        """Yield the rows as record batches; the parameters are those of `Dataset.scanner`."""
        yield from self.scanner(**arguments).to_batches()

    @shows_keywords
    @also_takes(scan_request, leaves_out=["fragments"])
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
        from lance_spark.dataset.frames import parted

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
        from lance_spark.mutations.rewrite.readers import matching_offsets
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
        from lance_spark.table.operations.update import with_deletion_file

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

        fragment, fields, rows = updated(
            self._dataset, self._fragment, data_obj, left_on, right_on, schema
        )
        return (fragment, fields, rows) if with_offsets else (fragment, fields)
