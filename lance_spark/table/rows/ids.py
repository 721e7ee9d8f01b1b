"""Row lineage of fragments: stable row ids, and the versions that created and updated each row.

| field of `DataFragment` | hidden column | what a commit of n new rows writes |
| --- | --- | --- |
| `inline_row_ids` | -3 `_rowid` | one range: `next_row_id` to `next_row_id + n` |
| `inline_created_at_versions` | -4 `_row_created_at_version` | one run: n rows, the new version |
| `inline_last_updated_at_versions` | -5 `_row_last_updated_at_version` | the same |

Only tables with feature flag 2 (stable row ids) have row lineage, and there every fragment has row
ids. A fragment stores each of the three sequences in one of three forms:

- `inline_*`: as bytes in the manifest. This package writes only this form.
- `column_*`: as a column of uint64 without nulls in one of its data files, whose `fields` have the
  negative id.
- `external_*`: as a range of a file below the table's root, with the same bytes as the inline form.

Rows that an update or a compaction moves to another fragment keep their ids and the versions that
created them. `row_ids_of`, `created_versions_of` and `updated_versions_of` read the sequences;
`without` and `concatenate` of `lance_spark.table.rows.sequences` combine them; `carry` writes them
into the new fragment.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from lance_spark.encoding.rows import distinct
from lance_spark.errors import CorruptTableError, InvalidInputError
from lance_spark.proto import rowids_pb2, table_pb2
from lance_spark.table.fragments.files import Lineage
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.paths import TablePaths
from lance_spark.table.rows.u64_segments import UInt64Array

if TYPE_CHECKING:
    from lance_spark.table.rows.sequences import RowIds


_MAX_U64 = 2**64 - 1

#: Names of hidden columns of every table. pylance refuses tables with a regular column of such a
#: name.
RESERVED_NAMES = frozenset(
    {"_rowid", "_rowaddr", "_rowoffset", "_row_created_at_version", "_row_last_updated_at_version"}
)


def check_names(names: Iterable[str]) -> None:
    """Raise an error if a top-level column has the name of a hidden column.

    Raises InvalidInputError.
    """
    for name in names:
        if name in RESERVED_NAMES:
            raise InvalidInputError(
                f"column name {name!r} is reserved for a hidden column of every table; rename the "
                "column"
            )


def assign_lineage(fragment: table_pb2.DataFragment, next_row_id: int, version: int) -> int:
    """Assign row ids and versions to the rows of a new fragment that have none yet.

    The fragment may already have ids and versions of its first rows, if these rows come from other
    fragments.

    - `fragment`: Modified in place.
    - `next_row_id`: The first unused row id.
    - `version`: The version that commits the fragment.

    Returns the first row id that is still unused. Raises InvalidInputError: the fragment has more
    ids than rows, or the ids are exhausted. Raises CorruptTableError: a sequence of the fragment
    cannot be parsed.
    """
    from lance_spark.table.rows.sequences import parse_row_ids

    rows = fragment.physical_rows
    if next_row_id + rows > _MAX_U64:
        raise InvalidInputError(
            f"the row ids of the table are exhausted: the next one would be {next_row_id}; write "
            "the rows as a new table"
        )
    stored_as = fragment.WhichOneof("row_id_sequence")
    if stored_as is None:
        num_new = rows
        ids = rowids_pb2.RowIdSequence(segments=[_range(next_row_id, next_row_id + rows)])
        fragment.inline_row_ids = ids.SerializeToString()
    elif stored_as != "inline_row_ids":
        # A sequence in a file is complete.
        num_new = 0
    else:
        carried = parse_row_ids(fragment.inline_row_ids, "new fragment")
        num_new = _complete(fragment, carried, next_row_id, version)
    versions = constant_versions(rows, version)
    for lineage in (Lineage.CREATED, Lineage.UPDATED):
        group, inline, _ = lineage.value
        if fragment.WhichOneof(group) is None:
            setattr(fragment, inline, versions)
    return next_row_id + num_new


def clear_versions(fragment: table_pb2.DataFragment, *, keeps_created: bool) -> None:
    """Remove the versions that a new fragment records, so that `assign_lineage` sets the new one.

    Fragments that a user takes from an earlier version record versions. The version that adds them
    is the last that updated their rows.

    - `fragment`: Modified in place.
    - `keeps_created`: Whether the versions that created the rows stay.
    """
    lineages = [Lineage.UPDATED] if keeps_created else [Lineage.UPDATED, Lineage.CREATED]
    for lineage in lineages:
        stored_as = fragment.WhichOneof(lineage.value[0])
        if stored_as is not None:
            fragment.ClearField(stored_as)


def constant_versions(rows: int, version: int) -> bytes:
    """Return the bytes of a row version sequence with the same version for all rows."""
    run = rowids_pb2.RowDatasetVersionRun(span=_range(0, rows), version=version)
    data: bytes = rowids_pb2.RowDatasetVersionSequence(runs=[run]).SerializeToString()
    return data


def _complete(
    fragment: table_pb2.DataFragment, carried: RowIds, next_row_id: int, version: int
) -> int:
    """Assign ids and versions to the rows after those with ids; return their number."""
    import numpy as np

    from lance_spark.table.rows.sequences import decode_versions, encode_row_ids, encode_versions

    _check_count(carried, fragment.physical_rows)
    num_new = fragment.physical_rows - carried.num_rows
    if not num_new:
        return 0
    new_ids = np.arange(next_row_id, next_row_id + num_new, dtype=np.uint64)
    fragment.inline_row_ids = encode_row_ids(np.concatenate([carried.to_array(), new_ids]))
    for lineage in (Lineage.CREATED, Lineage.UPDATED):
        group, inline, _ = lineage.value
        if fragment.WhichOneof(group) == inline:
            old = decode_versions(getattr(fragment, inline), carried.num_rows, "new fragment")
            versions = np.concatenate([old, np.full(num_new, version, np.uint64)])
            setattr(fragment, inline, encode_versions(versions))
    return num_new


def _check_count(carried: RowIds, rows: int) -> None:
    if carried.num_rows > rows:
        raise InvalidInputError(f"a new fragment has {carried.num_rows} row ids for {rows} rows")


def store_lineage(
    fragment: table_pb2.DataFragment,
    *,
    row_ids: UInt64Array | None = None,
    created: UInt64Array | None = None,
    updated: UInt64Array | None = None,
    has_new_rows: bool = False,
) -> None:
    """Store ids and versions of rows that come from other fragments, in the inline form.

    - `fragment`: Modified in place.
    - `row_ids`, `created`, `updated`: One value for each physical row: the id, the version that
      created the row, and the version that last updated it. A sequence that is not given stays
      unchanged.
    - `has_new_rows`: Whether rows without values may follow: new rows, which `assign_lineage`
      completes.

    Raises InvalidInputError: the number of values is not the number of rows.
    """
    from lance_spark.table.rows.sequences import encode_row_ids, encode_versions

    rows = fragment.physical_rows
    if has_new_rows and row_ids is not None:
        rows = min(rows, len(row_ids))
    for values in (row_ids, created, updated):
        if values is not None and len(values) != rows:
            raise InvalidInputError(
                f"fragment {fragment.id}: {len(values)} row ids or versions for {rows} rows"
            )
    if row_ids is not None:
        fragment.inline_row_ids = encode_row_ids(row_ids)
    if created is not None:
        fragment.inline_created_at_versions = encode_versions(created)
    if updated is not None:
        fragment.inline_last_updated_at_versions = encode_versions(updated)


def row_ids_of(fragment: Fragment, paths: TablePaths) -> UInt64Array | None:
    """Return the stable row ids of a fragment, in any form that they are stored in.

    Returns the id of each physical row, deleted rows included; None in tables without stable row
    ids. Raises CorruptTableError, CorruptFileError, MissingFileError, StorageError.
    """
    row_ids = parsed_row_ids_of(fragment, paths)
    return None if row_ids is None else row_ids.to_array()


def created_versions_of(fragment: Fragment, paths: TablePaths) -> UInt64Array | None:
    """Return the version that created each physical row; None if it is not recorded.

    See `row_ids_of`.
    """
    return _versions_of(fragment, paths, Lineage.CREATED)


def updated_versions_of(fragment: Fragment, paths: TablePaths) -> UInt64Array | None:
    """Return the version that last updated each physical row; None if it is not recorded.

    See `row_ids_of`.
    """
    return _versions_of(fragment, paths, Lineage.UPDATED)


def created_versions_by_id(
    fragments: Iterable[Fragment], paths: TablePaths
) -> tuple[UInt64Array, UInt64Array]:
    """Return the row ids of fragments with the versions that created the rows.

    Returns row ids, increasing, and the version of each. See `row_ids_of`.
    """
    import numpy as np

    ids, versions = [np.empty(0, np.uint64)], [np.empty(0, np.uint64)]
    for fragment in fragments:
        fragment_ids = row_ids_of(fragment, paths)
        if fragment_ids is None:
            continue
        created = created_versions_of(fragment, paths)
        ids.append(fragment_ids)
        # Readers take version 1 if none is recorded.
        versions.append(np.ones(len(fragment_ids), np.uint64) if created is None else created)
    all_ids = np.concatenate(ids)
    order = np.argsort(all_ids, kind="stable")
    return all_ids[order], np.concatenate(versions)[order]


def with_created_versions(
    fragment: Fragment, created_versions: tuple[UInt64Array, UInt64Array], version: int
) -> Fragment:
    """Add the versions that created the rows to a new fragment whose rows have ids already.

    - `created_versions` ((uint64 array, uint64 array)): Row ids, increasing, and the version of
      each; as `created_versions_by_id` returns them.
    - `version`: The version of rows whose ids are not known.

    Raises InvalidInputError: the fragment has more ids than rows. Raises CorruptTableError: the ids
    cannot be parsed.
    """
    import numpy as np

    from lance_spark.table.rows.sequences import encode_versions, parse_row_ids

    proto = fragment.to_proto()
    carried = parse_row_ids(proto.inline_row_ids, "new fragment")
    _check_count(carried, fragment.physical_rows)
    carried_ids = carried.to_array()
    ids, versions = created_versions
    created = np.full(len(carried_ids), version, np.uint64)
    position = np.searchsorted(ids, carried_ids)
    matches = np.flatnonzero(position < len(ids))
    matches = matches[ids[position[matches]] == carried_ids[matches]]
    created[matches] = versions[position[matches]]
    proto.inline_created_at_versions = encode_versions(created)
    return Fragment.from_proto(proto, "new fragment")


def parsed_row_ids_of(fragment: Fragment, paths: TablePaths) -> RowIds | None:
    """Return the stable row ids of a fragment without expanding ranges; see `row_ids_of`."""
    from lance_spark.table.rows.sequences import RowIds, parse_row_ids

    sequence = sequence_of(fragment, paths, Lineage.ROW_IDS)
    if sequence is not None:
        return parse_row_ids(*sequence, fragment.physical_rows)
    if not fragment.has_lineage(Lineage.ROW_IDS):
        return None
    return RowIds.of(_read_column(fragment, paths, Lineage.ROW_IDS))


def sequence_of(
    fragment: Fragment, paths: TablePaths, lineage: Lineage
) -> tuple[bytes, str] | None:
    """Return a serialised sequence in the inline or external form, and its name for errors.

    None if the fragment does not have the sequence, or has it as a column of a data file. Raises
    CorruptTableError, CorruptFileError, MissingFileError, StorageError.
    """
    data = fragment.inline_lineage(lineage)
    if data is not None:
        return data, fragment.name
    location = fragment.external_lineage(lineage)
    if location is None:
        return None
    data, file = paths.read_external_range(location)
    return data, f"{fragment.name}: {file}"


def inline_external_sequences(
    proto: table_pb2.DataFragment, paths: TablePaths, lineages: Iterable[Lineage] = Lineage
) -> None:
    """Replace external sequences of a fragment message by the same sequences in the inline form.

    Raises CorruptTableError, CorruptFileError, MissingFileError, StorageError.
    """
    for lineage in lineages:
        if proto.HasField(lineage.external):
            fragment = Fragment.from_proto(proto, paths.store.display)
            sequence = sequence_of(fragment, paths, lineage)
            if sequence is not None:
                setattr(proto, lineage.value[1], sequence[0])


def column_file_index(fragment: Fragment, lineage: Lineage) -> int:
    """Return the index of the data file that has a sequence as a column.

    Raises CorruptTableError: no data file has the column.
    """
    for index, file in enumerate(fragment.files):
        if lineage.field_id in file.fields:
            return index
    raise CorruptTableError(
        f"{fragment.name}: column {lineage.field_id} ({lineage.value[0]}) not found in any data "
        "file"
    )


def _versions_of(fragment: Fragment, paths: TablePaths, lineage: Lineage) -> UInt64Array | None:
    from lance_spark.table.rows.sequences import decode_versions

    sequence = sequence_of(fragment, paths, lineage)
    if sequence is not None:
        return decode_versions(sequence[0], fragment.physical_rows, sequence[1])
    return _read_column(fragment, paths, lineage) if fragment.has_lineage(lineage) else None


def _read_column(fragment: Fragment, paths: TablePaths, lineage: Lineage) -> UInt64Array:
    # Imported here: only tables with sequences in data files need these modules.
    from lance_spark.file.open import open_file
    from lance_spark.file.schema.field import Field
    from lance_spark.table.fragments.row_counts import check_row_count

    file = fragment.files[column_file_index(fragment, lineage)]
    reader = open_file(paths.open_data_file(file), file.fields)
    try:
        check_row_count(reader, fragment)
        field = Field(lineage.name.lower(), lineage.field_id, "uint64", nullable=False)
        columns = dict(zip(file.fields, file.column_indices, strict=False))
        (column,) = reader.read([field], range(reader.num_rows), columns)
    finally:
        reader.close()
    if column.null_count:
        raise CorruptTableError(
            f"{reader.source.name}: column {lineage.field_id} ({lineage.value[0]}) has nulls"
        )
    values: UInt64Array = column.to_numpy()
    return values


def _range(start: int, end: int) -> rowids_pb2.U64Segment:
    return rowids_pb2.U64Segment(range=rowids_pb2.U64Segment.Range(start=start, end=end))


# --------------------------------------------------------------------------------------------------
# Rows with stable ids that were updated since they were created.

_OFFSET = np.uint64(0xFFFFFFFF)


class UpdatedRows:
    """Finds rows whose last update is not their creation."""

    def __init__(self, paths: TablePaths, fragments: Sequence[Fragment]) -> None:
        self._paths = paths
        self._fragments = {
            fragment.id: fragment for fragment in fragments if _may_have_updates(fragment)
        }
        self._flags: dict[int, npt.NDArray[np.bool_]] = {}

    def of(self, addresses: UInt64Array) -> UInt64Array:
        """Return the addresses of updated rows among some addresses, in order, each once.

        Raises CorruptTableError, CorruptFileError, MissingFileError, StorageError.
        """
        ordered = distinct(addresses)
        ids, starts = np.unique(ordered >> np.uint64(32), return_index=True)
        updated = [ordered[:0]]
        bounds = pairwise([*starts.tolist(), len(ordered)])
        for fragment_id, (start, stop) in zip(ids.tolist(), bounds, strict=True):
            if fragment_id in self._fragments:
                own = ordered[start:stop]
                updated.append(own[self._updated(fragment_id)[own & _OFFSET]])
        return np.concatenate(updated)

    def _updated(self, fragment_id: int) -> npt.NDArray[np.bool_]:
        if fragment_id not in self._flags:
            fragment = self._fragments[fragment_id]
            versions = [
                np.ones(fragment.physical_rows, np.uint64) if recorded is None else recorded
                for recorded in (
                    created_versions_of(fragment, self._paths),
                    updated_versions_of(fragment, self._paths),
                )
            ]
            self._flags[fragment_id] = versions[0] != versions[1]
        return self._flags[fragment_id]


def _may_have_updates(fragment: Fragment) -> bool:
    created = fragment.inline_lineage(Lineage.CREATED)
    return created is None or created != fragment.inline_lineage(Lineage.UPDATED)
