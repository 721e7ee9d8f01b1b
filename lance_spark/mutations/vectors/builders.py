"""The types of vector indexes that can be created."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from lance_spark.mutations.indexes.builder import Builder
from lance_spark.mutations.vectors import writing
from lance_spark.mutations.vectors.parameters import parse
from lance_spark.mutations.vectors.rows import items_of
from lance_spark.mutations.vectors.training import PARAMETERS, train
from lance_spark.scan.indexes.files import SegmentWriter
from lance_spark.table.rows.u64_segments import UInt64Array


def _write(
    segment: SegmentWriter, values: pa.Array, ids: UInt64Array, parameters: Mapping[str, Any]
) -> None:
    writing.write(segment, [(values, ids)], parameters, ())


def _parse(options: Mapping[str, Any], index_type: str) -> dict[str, Any]:
    return {PARAMETERS: parse(index_type, options)}


def _supports(dtype: pa.DataType, index_type: str) -> bool:
    items = items_of(dtype)
    return items is not None and (items != np.uint8 or index_type.endswith("FLAT"))


def _builder(index_type: str, version: int = 1) -> Builder:
    return Builder(
        index_type,
        _write,
        partial(_supports, index_type=index_type),
        version=version,
        parse=partial(_parse, index_type=index_type),
        details=writing.details_value,
        existing=partial(writing.parameters_of, index_type),
        write_batches=writing.write,
        stage="shuffle",
        train=train,
        can_merge=writing.can_merge,
    )


IVF_FLAT = _builder("IVF_FLAT")
IVF_SQ = _builder("IVF_SQ")
IVF_PQ = _builder("IVF_PQ")
IVF_RQ = _builder("IVF_RQ", version=2)
IVF_HNSW_FLAT = _builder("IVF_HNSW_FLAT")
IVF_HNSW_SQ = _builder("IVF_HNSW_SQ")
IVF_HNSW_PQ = _builder("IVF_HNSW_PQ")
