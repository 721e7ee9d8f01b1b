"""What the only file of an index holds, and tables with a column of each type."""

from __future__ import annotations

import math
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

import lance_spark
from lance_spark.indexes.files import IndexFiles, number_in
from lance_spark.indexes.row_sets import RowSet
from lance_spark.table.indexes import sections as indexes


@dataclass(frozen=True)
class IndexContent:
    """What the only file of an index holds, and what the manifest says about it.

    Attributes
    ----------
    rows : pa.Table
    nulls : list of int
        Addresses of null rows.
    metadata : dict
    manifest : tuple
        Type URL and bytes of the details, and the version.
    """

    rows: pa.Table
    nulls: list[int]
    metadata: dict[str, bytes]
    manifest: tuple[str, bytes, int]

    @classmethod
    def read(cls, path: Path, name: str) -> IndexContent:
        """Read an index of one segment."""
        table = lance_spark.open_dataset(str(path))._table
        section = indexes.section_of(table.manifest)
        (segment,) = [index for index in section.indices if index.name == name]
        (file,) = segment.files
        with closing(IndexFiles(table.paths, segment).open(file.path)) as reader:
            schema = pa.schema([field.arrow_field for field in reader.schema.fields])
            arrays = reader.read(list(reader.schema.fields), range(reader.num_rows))
            nulls = reader.global_buffer(number_in(reader, "null_bitmap"))
            metadata = dict(reader.schema.metadata)
        details = segment.index_details
        return cls(
            pa.table(arrays, schema=schema),
            RowSet.decode(nulls, "the null bitmap").row_keys().tolist(),
            metadata,
            (details.type_url, details.value, segment.index_version),
        )

    def bits(self) -> list[list[object]]:
        """Return the columns, with floats as their bytes: NaN is not equal to itself."""
        return [_with_bits(column).to_pylist() for column in self.rows.columns]


def _with_bits(column: pa.ChunkedArray) -> pa.Array:
    values = column.combine_chunks()
    if not pa.types.is_floating(values.type):
        return values
    return values.view(pa.binary(values.type.bit_width // 8))


def typed_rows(count: int) -> pa.Table:
    """Return rows with a column of each type of single values."""
    ids = np.arange(count)
    f = ids * 0.5 - 1000
    f[ids % 97 == 0] = math.nan
    f[ids % 89 == 1] = -0.0
    f[ids % 83 == 2] = 0.0
    f[count // 3 : count // 2] = math.nan
    negative = np.where(ids == 20, np.copysign(math.nan, -1), np.where(ids % 2 == 0, -0.0, 0.0))
    numbers = np.random.default_rng(7).permutation(ids)
    # Lengths on both sides of those at which the hash takes other steps.
    words = [f"{number:x}" * (number % 40) for number in numbers.tolist()]
    small = numbers.astype(np.int32)
    return pa.table(
        {
            "id": ids,
            "i8": pa.array((numbers % 100 - 50).astype(np.int8), mask=ids % 7 == 0),
            "i16": pa.array((numbers - 99).astype(np.int16)),
            "i32": pa.array(small - 500, mask=ids < count // 2),
            "u8": (numbers % 250).astype(np.uint8),
            "u64": numbers.astype(np.uint64) * np.uint64(1 << 49),
            "f16": f.astype(np.float16),
            "f32": pa.array(f.astype(np.float32), mask=ids % 3 == 0),
            "f64": f,
            "negative": negative,
            "s": pa.array(words, mask=ids % 11 == 4),
            "big": pa.array(words, pa.large_string()),
            "raw": pa.array([word.encode() for word in words]),
            "large": pa.array([word.encode() for word in words], pa.large_binary()),
            "flag": pa.array(ids % 1000 == 1, mask=ids % 10 == 0),
            "day": pa.array(small, pa.date32()),
            "ms_day": pa.array(numbers * 86_400_000, pa.date64()),
            "ts": pa.array(numbers, pa.timestamp("us")),
            "tz": pa.array(numbers, pa.timestamp("ns", "UTC")),
            "t32": pa.array(small, pa.time32("s")),
            "t64": pa.array(numbers, pa.time64("us")),
            "span": pa.array(numbers, pa.duration("us")),
            "d": pa.array(numbers - 500).cast(pa.decimal128(22, 2)),
            "d256": pa.array(numbers - 500).cast(pa.decimal256(60, 2)),
            "nulls": pa.nulls(count, pa.int64()),
            "st": pa.StructArray.from_arrays([pa.array(ids)], ["a"], mask=pa.array(ids % 5 == 0)),
        }
    )


def column_names(rows: pa.Table) -> list[str]:
    """Return the columns of single values."""
    return ["st.a" if name == "st" else name for name in rows.column_names]
