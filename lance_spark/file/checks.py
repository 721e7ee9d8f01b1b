"""Checks of readers and writers of files.

Readers check rows, and name file and column in errors. Writers check limits: the dictionaries of a
column, and structs without fields.

Each page has its own dictionary, but a reader merges the dictionaries of all pages that it reads
together. Indices of 8 or 16 bits overflow soon: no client could read such a column as a whole.
Wider indices are wide enough for all values of a file.

A file of version 2.1 or later has a column for a struct without fields, as for any other leaf, but
pylance (14.0 too) reads no column for it: each leaf that follows in the schema is read from the
column of the leaf before. pylance then panics, or gives values of another column, also for files
that pylance wrote. It reads the other leaves right if the structs without fields are the last
leaves of the file. It cannot store them in lists, maps and fixed-size lists, and cannot read packed
ones. Version 2.0 has no such limits. The writer refuses what pylance does not read right. The
reader reads all files.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.types as pat

from lance_spark.encoding.rows import Rows
from lance_spark.errors import (
    CorruptFileError,
    InvalidInputError,
    LanceError,
    UnsupportedEncodingError,
    UnsupportedTypeError,
)
from lance_spark.file.page_buffer import dictionaries
from lance_spark.file.schema.field import Field
from lance_spark.storage.source import ReadPlan

_NARROW_BITS = 16
#: What to do about a column with too many distinct values.
CAST_ADVICE = (
    "cast the column by alter_columns, or LanceTable.alter_column, to a dictionary with wider "
    "indices or to the type of its values"
)
_ADVICE = "or write data storage version 2.0"


def narrow_indices(dtype: pa.DataType) -> list[pa.DataType | None]:
    """Return the index type of each dictionary in a type, depth-first; None for wide indices."""
    if not dtype.num_fields:
        if not pat.is_dictionary(dtype):
            return []
        return [dtype.index_type if dtype.index_type.bit_width <= _NARROW_BITS else None]
    children = (dtype.field(index).type for index in range(dtype.num_fields))
    return [result for child in children for result in narrow_indices(child)]


class DistinctValuesError(InvalidInputError):
    """The rows of a file have more distinct values than the indices of a dictionary can number."""


class DictionaryCapacity:
    """Collects the distinct values in the dictionaries of one column of a file.

    - `dtype`: Type of the column.
    - `name`: Name of the column in errors.
    """

    def __init__(self, dtype: pa.DataType, name: str) -> None:
        self._name = name
        self._indices = narrow_indices(dtype)
        self._is_narrow = any(index is not None for index in self._indices)
        self._dictionaries: list[pa.Array | None] = [None] * len(self._indices)

    def add(self, array: pa.Array) -> None:
        """Add the dictionaries of some rows.

        Raises DistinctValuesError: the dictionaries have too many distinct values together.
        """
        if not self._is_narrow:
            return
        for index, (indices, result) in enumerate(
            zip(self._indices, dictionaries(array), strict=True)
        ):
            if indices is not None:
                self._dictionaries[index] = self._joined(self._dictionaries[index], result, indices)

    def _joined(self, existing: pa.Array | None, new: pa.Array, indices: pa.DataType) -> pa.Array:
        if existing is None or new.equals(existing):
            return new
        # Imported here, as readers import this module while they plan.
        import pyarrow.compute as pc

        joined = pc.unique(pa.chunked_array([existing, new]))
        # Arrow merges dictionaries only up to this size, although the indices could hold one more.
        capacity = (1 << (indices.bit_width - int(pat.is_signed_integer(indices)))) - 1
        if len(joined) > capacity:
            raise DistinctValuesError(
                f"{self._name}: its dictionaries have more than {capacity} distinct values "
                f"together, which is too many for indices of type {indices}, so no client could "
                f"read the column; {CAST_ADVICE}"
            )
        return joined


def check_empty_structs(fields: Iterable[Field]) -> None:
    """Refuse a schema of a file of version 2.1 or later that pylance would read wrongly.

    - `fields`: The columns of the file, in their order.

    Raises UnsupportedTypeError: a struct without fields is inside a list or map, or packed, or
    another leaf follows.
    """
    before: str | None = None
    for path, field, repeated in _leaves(fields, (), False):
        if field.logical_type != "struct" or field.children or field.is_blob:
            if before is not None:
                raise UnsupportedTypeError(
                    f"column {before!r} is a struct without fields and {path!r} follows: other "
                    f"Lance clients read such a file wrongly; put {before!r} last, {_ADVICE}"
                )
        elif repeated:
            raise UnsupportedTypeError(
                f"column {path!r}: a struct without fields cannot be stored in lists and maps; "
                f"give it a field, {_ADVICE}"
            )
        elif field.is_packed:
            raise UnsupportedTypeError(
                f"column {path!r}: other Lance clients cannot read a packed struct without fields; "
                "give it a field, or drop its 'packed' metadata"
            )
        else:
            before = path


def _leaves(
    fields: Iterable[Field], above: tuple[str, ...], repeated: bool
) -> Iterator[tuple[str, Field, bool]]:
    """Yield the path of each leaf, the leaf, and whether it is in a list or map."""
    for field in fields:
        path = (*above, field.name)
        if not field.children or field.is_packed or field.is_blob:
            yield ".".join(path), field, repeated
        else:
            yield from _leaves(field.children, path, repeated or field.logical_type != "struct")


def check_rows(rows: Rows, num_rows: int, file: str) -> None:
    """Check that rows lie in a file.

    Raises InvalidInputError: a row is outside of the file, or the rows are a range whose step is
    not 1.
    """
    if isinstance(rows, range) and rows.step != 1:
        raise InvalidInputError(f"rows must be a range with step 1, not {rows}")
    if len(rows) and (rows[0] < 0 or rows[-1] >= num_rows):
        raise InvalidInputError(
            f"{file}: rows {rows[0]} to {rows[-1]} are asked for, but the file has {num_rows}"
        )


def named(plan: ReadPlan[pa.Array], file: str, field: Field, num_rows: int) -> ReadPlan[pa.Array]:
    """Run the plan of a field, and name the field in its errors.

    Raises CorruptFileError: the array has another length than `num_rows`.
    """
    try:
        array = yield from plan
    except LanceError as error:
        if file in str(error):
            raise
        raise type(error)(f"{file}, column {field.name!r}: {error}") from error
    except pa.ArrowException as error:
        # The union of the dictionaries of the pages can be too large for the type of the indices.
        raise UnsupportedEncodingError(
            f"{file}, column {field.name!r}: Arrow cannot hold these {num_rows} rows in one "
            f"array of {field.arrow_field.type}: {error} Read fewer rows at once"
        ) from error
    if len(array) != num_rows:
        raise CorruptFileError(
            f"{file}, column {field.name!r}: {len(array)} values for {num_rows} rows"
        )
    return array
