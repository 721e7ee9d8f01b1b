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
from lance_spark.scan.vectors.details import TYPE_URL
from lance_spark.table.rows.u64_segments import UInt64Array

#: Index types, and their versions.
_VERSIONS = {"IVF_FLAT": 1, "IVF_SQ": 1, "IVF_PQ": 1, "IVF_RQ": 2}
_VERSIONS |= dict.fromkeys(("IVF_HNSW_FLAT", "IVF_HNSW_SQ", "IVF_HNSW_PQ"), 1)


def _write(
    segment: SegmentWriter, values: pa.Array, ids: UInt64Array, parameters: Mapping[str, Any]
) -> None:
    writing.write(segment, [(values, ids)], parameters, ())


def _parse(options: Mapping[str, Any], index_type: str) -> dict[str, Any]:
    return {PARAMETERS: parse(index_type, options)}


def _supports(dtype: pa.DataType, index_type: str) -> bool:
    items = items_of(dtype)
    return items is not None and (items != np.uint8 or index_type.endswith("FLAT"))


VECTOR_BUILDERS = tuple(
    Builder(
        index_type,
        TYPE_URL,
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
    for index_type, version in _VERSIONS.items()
)
