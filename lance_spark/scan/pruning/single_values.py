"""The only value of a column in each fragment, from zone maps.

A fragment has one value if the bounds of all of its zones are this value, and no zone has a null or
a NaN: bounds hold for all rows, whichever of them are deleted. It has only nulls if all of its
zones have, or if no file holds the column. Anything else is unknown, so that no fragment with two
values passes for one with one value. Rows without a zone are unknown, too: appended and updated
rows, and those of zones with overlays.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lance_spark.file.schema.field import Field
from lance_spark.proto import table_pb2
from lance_spark.scan.pruning.bounds import ZoneStatistics
from lance_spark.scan.pruning.metadata_aggregates import is_all_null
from lance_spark.scan.pruning.table_rows import starts_of
from lance_spark.scan.pruning.zones import is_zone_index, read_zones
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.open import OpenTable

#: Of fragments whose values are unknown, and of those with only nulls.
_UNKNOWN, _NULL = -2, -1


def single_values(
    table: OpenTable,
    section: table_pb2.IndexSection,
    fragments: Sequence[Fragment],
    field: Field,
) -> pa.Array | None:
    """Return the value of a column in each fragment; None if one has several values, or may have.

    Parameters
    ----------
    table : OpenTable
    section : IndexSection
        Its indexes.
    fragments : sequence of Fragment
        The table's, with their rows counted.
    field : Field
        A top-level column without children, whose values are equal if they compare equal.

    Returns
    -------
    pa.Array or None
        A value, or null, for each fragment. Without meaning for fragments without live rows.

    Raises
    ------
    CorruptTableError, CorruptFileError, StorageError
    """
    maps = [
        index
        for index in section.indices
        if is_zone_index(index) and list(index.fields) == [field.id]
    ]
    if not maps:
        return None
    starts = starts_of(fragments)
    zones = read_zones(table.paths, fragments, starts, (field,), maps)
    if zones is None:
        return None
    values = zones.minimum.dictionary_encode()
    of_zones = _codes(zones, values)
    codes = np.full(len(fragments), _UNKNOWN, np.int64)
    fragment_of = np.searchsorted(starts, zones.bounds[:-1], side="right") - 1
    heads = np.flatnonzero(np.diff(fragment_of, prepend=-1))
    least, most = (bound.reduceat(of_zones, heads) for bound in (np.minimum, np.maximum))
    codes[fragment_of[heads]] = np.where(least == most, least, _UNKNOWN)
    for index in np.flatnonzero(codes == _UNKNOWN).tolist():
        if not fragments[index].num_rows or is_all_null(fragments[index], (field,)):
            codes[index] = _NULL
        else:
            return None
    return values.dictionary.take(pa.array(codes, mask=codes == _NULL))


def _codes(zones: ZoneStatistics, values: pa.DictionaryArray) -> npt.NDArray[np.int64]:
    """Return the number of the value of each zone."""
    import pyarrow.compute as pc

    is_one = pc.equal(zones.minimum, zones.maximum).fill_null(False)
    is_one = is_one.to_numpy(zero_copy_only=False) & zones.has_bounds
    is_one &= (zones.null_count == 0) & (zones.nan_count == 0)
    codes = values.indices.fill_null(_UNKNOWN).to_numpy().astype(np.int64)
    codes = np.where(is_one, codes, _UNKNOWN)
    return np.where(zones.has_bounds & zones.only_nulls, _NULL, codes)
