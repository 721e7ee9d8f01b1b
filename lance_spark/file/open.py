"""Opens the reader or the writer of a data file, by the file version."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from lance_spark.errors import CorruptFileError
from lance_spark.file.footer import is_legacy, open_tail
from lance_spark.file.reader import FileReader
from lance_spark.storage.remote import RemoteSource
from lance_spark.storage.source import ByteSource

if TYPE_CHECKING:
    from lance_spark.file.blobs.writer import BlobWriter
    from lance_spark.file.schema.schema import Schema
    from lance_spark.file.v0_1.reader import LegacyFileReader
    from lance_spark.file.v0_1.writer import LegacyFileWriter
    from lance_spark.file.writer import FileWriter
    from lance_spark.storage.output import OutputFile

#: An open data file; `FileReader` documents the methods.
DataFileReader: TypeAlias = "FileReader | LegacyFileReader"
#: Writes one data file; `FileWriter` documents the methods.
DataFileWriter: TypeAlias = "FileWriter | LegacyFileWriter"


def open_file(source: ByteSource, field_ids: Sequence[int] = ()) -> DataFileReader:
    """Open a data file.

    - `source`: The reader closes it.
    - `field_ids`: Ids of the fields in the file, from the manifest; files of version 0.1 may lack
      them.

    Raises CorruptFileError: the file is not a Lance file, or it is damaged. Raises
    UnsupportedFeatureError: the file's version is unknown.
    """
    try:
        tail = open_tail(source)
        if is_legacy(tail):
            # Imported here, as few tables have such files.
            from lance_spark.file.v0_1.reader import LegacyFileReader

            return LegacyFileReader.open(source, field_ids, tail)
        return FileReader.open(source, tail)
    except CorruptFileError:
        if isinstance(source, RemoteSource):
            source.forget()
        raise


def create_file(
    output: OutputFile, schema: Schema, version: tuple[int, int], blobs: BlobWriter | None = None
) -> DataFileWriter:
    """Return the writer of a new data file.

    - `output`: A new output, without any bytes.
    - `schema`: The file's columns with their field ids.
    - `version`: For example ``(2, 2)``.
    - `blobs`: Writes the blobs of this output; required if the schema has blobs.

    Raises UnsupportedFeatureError: files of that version cannot be written. Raises
    UnsupportedTypeError: the version cannot store a field.
    """
    if version == (0, 1):
        # Imported here, as few tables have such files.
        from lance_spark.file.v0_1.writer import LegacyFileWriter

        return LegacyFileWriter(output, schema)
    # Imported here, so that a reader never loads the writer.
    from lance_spark.file.writer import FileWriter

    return FileWriter(output, schema, version, blobs=blobs)


def version_in_manifests(version: tuple[int, int]) -> tuple[int, int]:
    """Return the version of a data file in manifests: for 0.1, the version of its footer."""
    return (0, 2) if version == (0, 1) else version
