"""Stable row ids and versions of rows: those that new fragments get when they are committed, and those that fragments have.

| field of `DataFragment` | hidden column | what a commit of n new rows writes |
| --- | --- | --- |
| `inline_row_ids` | -3 `_rowid` | one range: `next_row_id` to `next_row_id + n` |
| `inline_created_at_versions` | -4 `_row_created_at_version` | one run: rows 0 to n, the new version |
| `inline_last_updated_at_versions` | -5 `_row_last_updated_at_version` | the same |

Only tables with feature flag 2 (stable row ids) have them, and there every fragment has row ids. Where a fragment has
`column_row_ids` (or its like for versions) instead of the inline bytes, the values are a column of uint64 without nulls in one of its
data files, whose `fields` name it by the negative id. Where it has `external_row_ids` (or its like), the bytes that would be inline
are a range of a file below the table's root; this package reads them and writes none: what it notes anew is inline.

Rows that move to another fragment, by an update or a compaction, take their ids and the version that they were created in along:
`row_ids_of`, `created_versions_of` and `updated_versions_of` read them, `without` and `concatenate` of
`lance_spark.table.rows.sequences` put them together, and `carry` notes them in the new fragment.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from lance_spark.errors import CorruptTableError, InvalidInputError
from lance_spark.proto import rowids_pb2, table_pb2
from lance_spark.table.fragments.files import Lineage
from lance_spark.table.fragments.fragment import Fragment

if TYPE_CHECKING:
    from lance_spark.table.paths import TablePaths
    from lance_spark.table.rows.sequences import RowIds
    from lance_spark.table.rows.u64_segments import Words

_MAX_U64 = 2**64 - 1

#: Columns that every table has of its rows; pylance refuses tables that have one of their own.
RESERVED_NAMES = frozenset(
    {"_rowid", "_rowaddr", "_rowoffset", "_row_created_at_version", "_row_last_updated_at_version"}
)


def check_names(names: Iterable[str]) -> None:
    """Refuse top-level columns that have the name of one about rows.

    Raises
    ------
    InvalidInputError
    """
    for name in names:
        if name in RESERVED_NAMES:
            raise InvalidInputError(
                f"column {name!r}: every table has a column of that name, about its rows; rename it"
            )


def assign(fragment: table_pb2.DataFragment, next_row_id: int, version: int) -> int:
    """Give the rows of a new fragment their ids and versions.

    What the fragment brings stays: ids, and versions, of its first rows, if they come from other fragments.

    Parameters
    ----------
    fragment : table_pb2.DataFragment
        Changed.
    next_row_id : int
        The id of its first new row.
    version : int
        The version that the fragment is committed in.

    Returns
    -------
    int
        The id that the next new row gets.

    Raises
    ------
    InvalidInputError
        It brings more ids than it has rows, or there are not enough new ones.
    CorruptTableError
        What it brings cannot be read.
    """
    from lance_spark.table.rows.sequences import parse_row_ids

    rows = fragment.physical_rows
    if next_row_id + rows > _MAX_U64:
        raise InvalidInputError(
            f"row ids are used up: the next one would be {next_row_id}; write the table anew"
        )
    brought = fragment.WhichOneof("row_id_sequence")
    if brought is None:
        new = rows
        ids = rowids_pb2.RowIdSequence(segments=[_range(next_row_id, next_row_id + rows)])
        fragment.inline_row_ids = ids.SerializeToString()
    elif brought != "inline_row_ids":
        # Those of a file are there for all rows.
        new = 0
    else:
        carried = parse_row_ids(fragment.inline_row_ids, "new fragment")
        new = _fill_up(fragment, carried, next_row_id, version)
    versions = one_version(rows, version)
    for kind in (Lineage.CREATED, Lineage.UPDATED):
        group, inline, _ = kind.value
        if fragment.WhichOneof(group) is None:
            setattr(fragment, inline, versions)
    return next_row_id + new


def one_version(rows: int, version: int) -> bytes:
    """Return the bytes of a sequence of versions that is the same for all rows."""
    run = rowids_pb2.RowDatasetVersionRun(span=_range(0, rows), version=version)
    data: bytes = rowids_pb2.RowDatasetVersionSequence(runs=[run]).SerializeToString()
    return data


def _fill_up(
    fragment: table_pb2.DataFragment, carried: RowIds, next_row_id: int, version: int
) -> int:
    """Give ids and versions to the rows that come after those that carry some; return their number."""
    import numpy as np

    from lance_spark.table.rows.sequences import decode_versions, encode_row_ids, encode_versions

    known_rows = carried.num_rows
    _check_room(carried, fragment.physical_rows)
    new = fragment.physical_rows - known_rows
    if not new:
        return 0
    fresh = np.arange(next_row_id, next_row_id + new, dtype=np.uint64)
    fragment.inline_row_ids = encode_row_ids(np.concatenate([carried.to_array(), fresh]))
    for kind in (Lineage.CREATED, Lineage.UPDATED):
        group, inline, _ = kind.value
        if fragment.WhichOneof(group) == inline:
            known = decode_versions(getattr(fragment, inline), known_rows, "new fragment")
            filled = np.concatenate([known, np.full(new, version, np.uint64)])
            setattr(fragment, inline, encode_versions(filled))
    return new


def _check_room(carried: RowIds, rows: int) -> None:
    if carried.num_rows > rows:
        raise InvalidInputError(f"a new fragment has {carried.num_rows} row ids for {rows} rows")


def carry(
    fragment: table_pb2.DataFragment,
    *,
    row_ids: Words | None = None,
    created: Words | None = None,
    updated: Words | None = None,
) -> None:
    """Note ids and versions of rows that come from other fragments; what is not given stays as it is.

    Parameters
    ----------
    fragment : table_pb2.DataFragment
        Changed.
    row_ids, created, updated : uint64 array, optional
        One value for each physical row: id, version that the row was created in, version of its last change.

    Raises
    ------
    InvalidInputError
        There are more or fewer values than rows.
    """
    from lance_spark.table.rows.sequences import encode_row_ids, encode_versions

    for given in (row_ids, created, updated):
        if given is not None and len(given) != fragment.physical_rows:
            raise InvalidInputError(
                f"fragment {fragment.id}: {len(given)} row ids or versions for {fragment.physical_rows} rows"
            )
    if row_ids is not None:
        fragment.inline_row_ids = encode_row_ids(row_ids)
    if created is not None:
        fragment.inline_created_at_versions = encode_versions(created)
    if updated is not None:
        fragment.inline_last_updated_at_versions = encode_versions(updated)


def row_ids_of(fragment: Fragment, paths: TablePaths) -> Words | None:
    """Return the stable ids of a fragment's rows, wherever they are stored.

    Parameters
    ----------
    fragment : Fragment
    paths : TablePaths
        Of the table: ids may be in a file.

    Returns
    -------
    uint64 array or None
        An id for each physical row, deleted ones included; None in tables without stable row ids, where the id of a row is its
        address.

    Raises
    ------
    CorruptTableError, CorruptFileError, MissingFileError, StorageError
    """
    found = parsed_row_ids_of(fragment, paths)
    return None if found is None else found.to_array()


def created_versions_of(fragment: Fragment, paths: TablePaths) -> Words | None:
    """Return the version that each physical row was created in; None if that is not noted. See `row_ids_of`."""
    return _versions_of(fragment, paths, Lineage.CREATED)


def updated_versions_of(fragment: Fragment, paths: TablePaths) -> Words | None:
    """Return the version that each physical row was last changed in; None if that is not noted. See `row_ids_of`."""
    return _versions_of(fragment, paths, Lineage.UPDATED)


def created_versions_by_id(fragments: Iterable[Fragment], paths: TablePaths) -> tuple[Words, Words]:
    """Return the versions that rows of some fragments of a table with stable row ids were created in.

    Returns
    -------
    (uint64 array, uint64 array)
        Row ids, increasing, and the version of each. See `row_ids_of`.
    """
    import numpy as np

    ids, versions = [np.empty(0, np.uint64)], [np.empty(0, np.uint64)]
    for fragment in fragments:
        own = row_ids_of(fragment, paths)
        if own is None:
            continue
        created = created_versions_of(fragment, paths)
        ids.append(own)
        # Readers take what is not noted for the first version.
        versions.append(np.ones(len(own), np.uint64) if created is None else created)
    known = np.concatenate(ids)
    order = np.argsort(known, kind="stable")
    return known[order], np.concatenate(versions)[order]


def with_created_versions(fragment: Fragment, known: tuple[Words, Words], version: int) -> Fragment:
    """Return a new fragment that notes the versions which the rows that bring their ids were created in.

    Parameters
    ----------
    fragment : Fragment
    known : (uint64 array, uint64 array)
        Row ids, increasing, and the version of each.
    version : int
        That of rows whose ids are not among them.

    Raises
    ------
    InvalidInputError
        There are more than the fragment has rows.
    CorruptTableError
        The ids cannot be read.
    """
    import numpy as np

    from lance_spark.table.rows.sequences import encode_versions, parse_row_ids

    proto = fragment.to_proto()
    carried = parse_row_ids(proto.inline_row_ids, "new fragment")
    _check_room(carried, fragment.physical_rows)
    brought = carried.to_array()
    ids, versions = known
    created = np.full(len(brought), version, np.uint64)
    at = np.searchsorted(ids, brought)
    found = np.flatnonzero(at < len(ids))
    found = found[ids[at[found]] == brought[found]]
    created[found] = versions[at[found]]
    proto.inline_created_at_versions = encode_versions(created)
    return Fragment.from_proto(proto, "new fragment")


def parsed_row_ids_of(fragment: Fragment, paths: TablePaths) -> RowIds | None:
    """Return the stable ids of a fragment's rows, ranges as ranges; see `row_ids_of`."""
    from lance_spark.table.rows.sequences import RowIds, parse_row_ids

    found = sequence_of(fragment, paths, Lineage.ROW_IDS)
    if found is not None:
        return parse_row_ids(*found, fragment.physical_rows)
    if not fragment.has_lineage(Lineage.ROW_IDS):
        return None
    return RowIds.of(_column(fragment, paths, Lineage.ROW_IDS))


def sequence_of(fragment: Fragment, paths: TablePaths, kind: Lineage) -> tuple[bytes, str] | None:
    """Return a serialised sequence of a fragment, from the manifest or the file that has it, and what errors call it.

    Returns
    -------
    (bytes, str) or None
        None if there is none, or if the values are a column of a data file.

    Raises
    ------
    CorruptTableError, CorruptFileError, MissingFileError, StorageError
    """
    data = fragment.inline_lineage(kind)
    if data is not None:
        return data, fragment.name
    place = fragment.external_lineage(kind)
    if place is None:
        return None
    data, file = paths.read_external_range(place)
    return data, f"{fragment.name}: {file}"


def take_in(
    proto: table_pb2.DataFragment, paths: TablePaths, kinds: Iterable[Lineage] = Lineage
) -> None:
    """Put sequences that stand in files of their own into the message of a fragment, unchanged.

    Raises
    ------
    CorruptTableError, CorruptFileError, MissingFileError, StorageError
    """
    for kind in kinds:
        if proto.HasField(kind.external):
            found = sequence_of(Fragment.from_proto(proto, paths.store.display), paths, kind)
            if found is not None:
                setattr(proto, kind.value[1], found[0])


def file_with(fragment: Fragment, kind: Lineage) -> int:
    """Return the number of the data file that has a hidden column.

    Raises
    ------
    CorruptTableError
        None has it.
    """
    for number, file in enumerate(fragment.files):
        if kind.field_id in file.fields:
            return number
    raise CorruptTableError(
        f"{fragment.name}: its {kind.value[0]} should be column {kind.field_id} of a data file, but none has it"
    )


def _versions_of(fragment: Fragment, paths: TablePaths, kind: Lineage) -> Words | None:
    from lance_spark.table.rows.sequences import decode_versions

    found = sequence_of(fragment, paths, kind)
    if found is not None:
        return decode_versions(found[0], fragment.physical_rows, found[1])
    return _column(fragment, paths, kind) if fragment.has_lineage(kind) else None


def _column(fragment: Fragment, paths: TablePaths, kind: Lineage) -> Words:
    # Only tables that spill their row ids get here.
    from lance_spark.file.open import open_file
    from lance_spark.file.schema.schema import Field
    from lance_spark.table.fragments.row_counts import check_row_count

    file = fragment.files[file_with(fragment, kind)]
    reader = open_file(paths.open_data_file(file), file.fields)
    try:
        check_row_count(reader, fragment)
        field = Field(kind.name.lower(), kind.field_id, "uint64", nullable=False)
        columns = dict(zip(file.fields, file.column_indices, strict=False))
        (values,) = reader.read([field], range(reader.num_rows), columns)
    finally:
        reader.close()
    if values.null_count:
        raise CorruptTableError(f"{reader.source.name}: row ids or versions of rows are null")
    found: Words = values.to_numpy()
    return found


def _range(start: int, end: int) -> rowids_pb2.U64Segment:
    return rowids_pb2.U64Segment(range=rowids_pb2.U64Segment.Range(start=start, end=end))
