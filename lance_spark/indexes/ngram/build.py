"""How NGRAM indexes are built and merged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyroaring import BitMap64

from lance_spark.mutations.indexes.builder import Builder
from lance_spark.mutations.indexes.column_types import is_string
from lance_spark.mutations.indexes.merging.keyed import KeyedFile, merge_keys
from lance_spark.mutations.indexes.merging.sources import KeptRows, Merging, SegmentSource
from lance_spark.scan.indexes import ngram
from lance_spark.scan.indexes.files import IndexFiles, SegmentWriter
from lance_spark.table.rows.u64_segments import UInt64Array


def _write(
    segment: SegmentWriter, values: pa.Array, ids: UInt64Array, parameters: Mapping[str, Any]
) -> None:
    ngram.write(segment, values, ids)


def _can_merge(files: IndexFiles, dtype: pa.DataType, parameters: Mapping[str, Any]) -> bool:
    return True


def _merge(
    segment: SegmentWriter,
    dtype: pa.DataType,
    sources: Sequence[SegmentSource],
    parameters: Mapping[str, Any],
) -> None:
    layout = KeyedFile(ngram.FILE, ngram.TOKENS, ngram.POSTINGS, pa.uint32(), _union)
    merge_keys(ngram.create(segment), ngram.SCHEMA, sources, layout)


def _union(parts: Sequence[tuple[bytes, KeptRows | None]], name: str) -> bytes | None:
    union = BitMap64()
    for data, kept in parts:
        rows = ngram.decode_posting(data, name)
        union |= rows if kept is None else kept.of_bitmap(rows)
    return union.serialize() if union else None


BUILDER = Builder("NGRAM", _write, is_string, merging=Merging(_can_merge, _merge))
