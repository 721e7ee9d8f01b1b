"""A table with an index, and index sections."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
from pyroaring import BitMap

from lance_spark.proto import file_pb2, table_pb2
from lance_spark.table.indexes import sections as indexes


def table(path: Path) -> str:
    uri = str(path)
    for at in range(4):
        rows = pa.table({"a": range(at * 10, at * 10 + 10), "b": range(10)})
        lance.write_dataset(rows, uri, mode="append")
    lance.dataset(uri).create_scalar_index("a", "BTREE", name="x")
    return uri


def fields(*parents: int) -> list[file_pb2.Field]:
    return [file_pb2.Field(id=number, parent_id=above) for number, above in enumerate(parents)]


def section(*segments: tuple[str, list[int], list[int] | None]) -> table_pb2.IndexSection:
    result = table_pb2.IndexSection()
    for at, (name, on, covered) in enumerate(segments):
        index = result.indices.add(name=name, fields=on, dataset_version=at + 1)
        index.uuid.uuid = bytes([at]) * 16
        index.index_details.type_url = "/lance.table.BitmapIndexDetails"
        indexes.set_fragment_bitmap(index, None if covered is None else BitMap(covered))
    return result
