"""What readers of all versions do around the plan of a field: check the rows, and name file and
column in errors.
"""

from __future__ import annotations

import pyarrow as pa

from lance_spark.encoding.rows import Rows
from lance_spark.errors import (
    CorruptFileError,
    InvalidInputError,
    LanceError,
    UnsupportedEncodingError,
)
from lance_spark.file.schema.field import Field
from lance_spark.storage.source import ReadPlan


def check_rows(rows: Rows, num_rows: int, file: str) -> None:
    """Check that rows lie in a file.

    Raises
    ------
    InvalidInputError
        They do not, or they are a range whose step is not 1.
    """
    if isinstance(rows, range) and rows.step != 1:
        raise InvalidInputError(f"rows must be a range with step 1, not {rows}")
    if len(rows) and (rows[0] < 0 or rows[-1] >= num_rows):
        raise InvalidInputError(
            f"{file}: rows {rows[0]} to {rows[-1]} are asked for, but the file has {num_rows}"
        )


def named(plan: ReadPlan[pa.Array], file: str, field: Field, num_rows: int) -> ReadPlan[pa.Array]:
    """Yield what the plan of a field yields, and name the field in what it raises.

    Raises
    ------
    CorruptFileError
        The array has another length than `num_rows`.
    """
    try:
        array = yield from plan
    except LanceError as error:
        if file in str(error):
            raise
        raise type(error)(f"{file}, column {field.name!r}: {error}") from error
    except pa.ArrowException as error:
        # Pages may each have a dictionary whose union is too large for the type of the indices.
        raise UnsupportedEncodingError(
            f"{file}, column {field.name!r}: Arrow cannot hold these {num_rows} rows in one "
            f"array of {field.arrow_field.type}: {error} Read fewer rows at once"
        ) from error
    if len(array) != num_rows:
        raise CorruptFileError(
            f"{file}, column {field.name!r}: {len(array)} values for {num_rows} rows"
        )
    return array
