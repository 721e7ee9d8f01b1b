"""Files of 1,000 columns, of which one column is read: the bytes, the parsed messages, and the
time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from lance.file import LanceFileWriter

from lance_spark.file import footer as metadata
from lance_spark.file import reader as files
from lance_spark.file.open import open_file
from lance_spark.file.schema import schema as schemas
from lance_spark.file.schema.field import column_fields
from lance_spark.file.schema.schema import Schema
from tests.file.sources import MemorySource, file_bytes

#: Writes files of thousands of columns.
pytestmark = pytest.mark.slow

VERSIONS = ["2.0", "2.1", "2.2", "2.3"]
ROWS = 3_000
#: The number of bytes at the end of a file that are read to open it.
TAIL = 64 * 1024


def table(columns: int) -> pa.Table:
    rng = np.random.default_rng(columns)
    arrays = {f"column_{i:04d}": rng.integers(0, 1 << 30, ROWS) for i in range(columns - 1)}
    return pa.table(arrays | {"text": [f"row {i}" for i in range(ROWS)]})


def by_pylance(data: pa.Table, version: str, folder: Path) -> bytes:
    path = folder / f"{data.num_columns}.lance"
    with LanceFileWriter(str(path), data.schema, version=version) as writer:
        writer.write_batch(data)
    return path.read_bytes()


def by_us(data: pa.Table, version: str, folder: Path) -> bytes:
    return file_bytes(data.combine_chunks(), version)


def numbered(data: bytes) -> tuple[Schema, dict[int, int]]:
    """Return the fields and their columns, as in the manifest of a table."""
    reader = files.FileReader.open(MemorySource(data))
    nodes = [
        node for field in reader.schema.fields for node in column_fields(field, reader.version)
    ]
    return reader.schema, {node.id: at for at, node in enumerate(nodes)}


@pytest.mark.sample(5)
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("write", [by_pylance, by_us])
def test_one_column_of_many(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    write: Callable[[pa.Table, str, Path], bytes],
    version: str,
) -> None:
    content = table(1_000)
    data = write(content, version, tmp_path)
    schema, columns = numbered(data)
    # Files with the same schema share the parsed schema.
    files._schema.cache_clear()
    files._described.cache_clear()
    parsed: list[int] = []
    built: list[int] = []
    parse, build = metadata._parse, schemas._from_proto

    def count_parse(tail: object, version: object, index: int, raw: bytes) -> object:
        parsed.append(index)
        return parse(tail, version, index, raw)  # type: ignore[arg-type]

    def count_build(proto: object, children: tuple[schemas.Field, ...]) -> schemas.Field:
        built.append(proto.id)  # type: ignore[attr-defined]
        return build(proto, children)  # type: ignore[arg-type]

    monkeypatch.setattr(metadata, "_parse", count_parse)
    monkeypatch.setattr(schemas, "_from_proto", count_build)
    field = schema.fields[500]
    source = MemorySource(data)
    reader = open_file(source)
    (array,) = reader.read([field], range(ROWS), columns)
    assert array.equals(content.column(500).combine_chunks())
    assert parsed == [columns[field.id]]
    assert built == [field.id]

    meta = reader._columns[columns[field.id]]  # type: ignore[attr-defined]
    footer = reader._footer  # type: ignore[attr-defined]
    of_column = int(footer.column_metadata[columns[field.id], 1])
    page_bytes = sum(buffer.length for page in meta.pages for buffer in page.buffers)
    size = sum(part.length for call in source.calls for part in call)
    # The schema of all columns is one message, and each table of offsets has one entry for each
    # column.
    assert size <= TAIL + len(footer.descriptor) + 16 * 1_001 + of_column + page_bytes
    assert of_column < 300
    assert len(source.calls) <= 4 + (version == "2.0")


@pytest.mark.parametrize("version", VERSIONS)
def test_time_of_one_column_of_many(tmp_path: Path, version: str) -> None:
    took = {}
    for count in (10, 1_000):
        data = by_us(table(count), version, tmp_path)
        schema, columns = numbered(data)
        field = schema.fields[count // 2]
        times = []
        for _ in range(15):
            started = time.process_time()
            open_file(MemorySource(data)).read([field], range(ROWS), columns)
            times.append(time.process_time() - started)
        took[count] = min(times)
    # Only the bytes of the schema grow with the columns. Building the whole schema took ten times
    # as long as all other steps together.
    assert took[1_000] < 8 * took[10]
