"""Lance files, written and read by this package and by pylance without a table.

Each function imports its client when it is called, so that a process loads one client alone.
"""

from __future__ import annotations

import pyarrow as pa

#: Rows of a batch that pylance reads.
READ_ROWS = 65_536


def write_by_lance_spark(table: pa.Table, path: str, version: str) -> None:
    """Write a file of a file version, batch by batch."""
    from lance_spark.file.schema.schema import Schema
    from lance_spark.file.writer import FileWriter
    from lance_spark.storage.output import LocalOutput

    major, minor = version.split(".")
    output = LocalOutput(path)
    writer = FileWriter(output, Schema.from_arrow(table.schema), (int(major), int(minor)))
    for batch in table.to_batches():
        writer.write(batch)
    writer.finish()
    output.close()


def read_by_lance_spark(path: str) -> list[pa.Array]:
    """Return the columns of a file."""
    from lance_spark.file.reader import FileReader
    from lance_spark.storage.local import LocalSource

    reader = FileReader.open(LocalSource(path))
    arrays = reader.read(reader.schema.fields, range(reader.num_rows))
    reader.close()
    return arrays


def write_by_pylance(table: pa.Table, path: str, version: str) -> None:
    """Write a file of a file version, batch by batch."""
    from lance.file import LanceFileWriter

    with LanceFileWriter(path, table.schema, version=version) as writer:
        for batch in table.to_batches():
            writer.write_batch(batch)


def read_by_pylance(path: str) -> pa.RecordBatchReader:
    """Return the rows of a file, which pylance decodes while they are read."""
    from lance.file import LanceFileReader

    return LanceFileReader(path).read_all(batch_size=READ_ROWS).to_batches()
