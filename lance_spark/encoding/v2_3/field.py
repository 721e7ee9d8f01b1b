"""Entry point of file version 2.3, for reading: fields and leaf columns are as in versions 2.1 and
2.2.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from lance_spark.encoding.meta import ColumnMeta, FieldReader


def open_field(field: pa.Field, columns: Sequence[ColumnMeta], file: str) -> FieldReader:
    """Return the reader of a field; see `lance_spark.encoding.v2_1.field.open_field`."""
    from lance_spark.encoding.v2_1.field_read import StructuralField
    from lance_spark.encoding.v2_3.page import open_page

    return StructuralField(field, columns, file, open_page)
