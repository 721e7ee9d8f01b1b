"""Opens the writer of a data file, by the file version."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa

from lance_spark.file.blobs.writer import BlobWriter
from lance_spark.file.schema.schema import Schema
from lance_spark.file.writer import FileWriter, WrittenFile
from lance_spark.storage.write.output import OutputFile


class DataFileWriter(Protocol):
    """Writes one data file; `lance_spark.file.writer.FileWriter` documents the methods."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Add the rows of a batch."""
        ...

    def tell(self) -> int:
        """Return the bytes written so far."""
        ...

    def finish(self) -> WrittenFile:
        """Write the buffered rows and the end of the file."""
        ...


def create_file(
    output: OutputFile,
    schema: Schema,
    version: tuple[int, int],
    blobs: BlobWriter | None = None,
) -> DataFileWriter:
    """Return the writer of a new data file.

    Parameters
    ----------
    output : OutputFile
        A new output, without any bytes.
    schema : Schema
        The file's columns with their field ids.
    version : tuple of int
        For example ``(2, 2)``.
    blobs : BlobWriter, optional
        Writes the blobs of this output; required if the schema has blobs.

    Raises
    ------
    UnsupportedFeatureError
        Files of that version cannot be written.
    UnsupportedTypeError
        The version cannot store a field.
    """
    if version == (0, 1):
        # Imported here, as few tables have such files.
        from lance_spark.file.v0_1.writer import LegacyFileWriter

        return LegacyFileWriter(output, schema)
    return FileWriter(output, schema, version, blobs=blobs)


def version_in_manifests(version: tuple[int, int]) -> tuple[int, int]:
    """Return the version of a data file in manifests: for 0.1, the version of its footer."""
    return (0, 2) if version == (0, 1) else version
