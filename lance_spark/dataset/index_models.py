"""`IvfModel` and `PqModel`: trained centroids and codewords, and their files.

Builds of indexes in several processes share them: `Dataset.create_index_uncommitted` takes the
arrays. The files are those of pylance.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Self

import pyarrow as pa

from lance_spark.dataset.files import LanceFileReader, LanceFileWriter
from lance_spark.errors import CorruptFileError, InvalidInputError
from lance_spark.indexes.files import IndexFiles
from lance_spark.indexes.vectors.segment import open_segment
from lance_spark.table.indexes import sections
from lance_spark.table.open import OpenTable


class IvfModel:
    """Centroids of partitions.

    Parameters
    ----------
    centroids : pa.FixedSizeListArray
        One vector for each partition.
    distance_type : str
        ``l2``, ``cosine``, ``dot`` or ``hamming``.
    """

    def __init__(self, centroids: pa.Array, distance_type: str) -> None:
        self.centroids = centroids
        self.distance_type = distance_type

    @property
    def num_partitions(self) -> int:
        """The number of centroids."""
        return len(self.centroids)

    def save(
        self, uri: str | os.PathLike[str], *, storage_options: Mapping[str, Any] | None = None
    ) -> None:
        """Write the model to a file. Raises StorageError."""
        _save(
            uri, "centroids", self.centroids, {"distance_type": self.distance_type}, storage_options
        )

    @classmethod
    def load(
        cls, uri: str | os.PathLike[str], *, storage_options: Mapping[str, Any] | None = None
    ) -> Self:
        """Read a model from a file.

        Raises
        ------
        CorruptFileError
            The file has no model.
        MissingFileError, StorageError
        """
        centroids, metadata = _load(uri, "centroids", "distance_type", storage_options)
        return cls(centroids, metadata[b"distance_type"].decode())


class PqModel:
    """Codewords of parts of vectors.

    Parameters
    ----------
    num_subvectors : int
        Number of parts.
    codebook : pa.FixedSizeListArray
        The codewords of all parts one after the other, as rows of a whole vector's dimension.
    num_bits : int
        Bits of a code, 8 or 4.
    """

    def __init__(
        self, num_subvectors: int, codebook: pa.FixedSizeListArray, *, num_bits: int = 8
    ) -> None:
        self.num_subvectors = num_subvectors
        self.num_bits = num_bits
        self.codebook = codebook

    @property
    def dimension(self) -> int:
        """The dimension of the vectors."""
        return int(self.codebook.type.list_size)

    def save(
        self, uri: str | os.PathLike[str], *, storage_options: Mapping[str, Any] | None = None
    ) -> None:
        """Write the model to a file. Raises StorageError."""
        facts = {"num_subvectors": str(self.num_subvectors), "num_bits": str(self.num_bits)}
        _save(uri, "codebook", self.codebook, facts, storage_options)

    @classmethod
    def load(
        cls, uri: str | os.PathLike[str], *, storage_options: Mapping[str, Any] | None = None
    ) -> Self:
        """Read a model from a file; the errors are those of `IvfModel.load`."""
        codebook, metadata = _load(uri, "codebook", "num_subvectors", storage_options)
        try:
            count = int(metadata[b"num_subvectors"])
            return cls(count, codebook, num_bits=int(metadata.get(b"num_bits", b"8")))
        except ValueError as error:
            raise CorruptFileError(f"{os.fspath(uri)}: the model has no number: {error}") from None


def _save(
    uri: str | os.PathLike[str],
    name: str,
    values: pa.Array,
    metadata: Mapping[str, str],
    storage_options: Mapping[str, Any] | None,
) -> None:
    schema = pa.schema([pa.field(name, values.type)], metadata=dict(metadata))
    with LanceFileWriter(uri, schema, storage_options=storage_options) as writer:
        writer.write_batch(pa.table([values], schema=schema))


def _load(
    uri: str | os.PathLike[str],
    name: str,
    key: str,
    storage_options: Mapping[str, Any] | None,
) -> tuple[pa.Array, Mapping[bytes, bytes]]:
    reader = LanceFileReader(uri, storage_options)
    table = reader.read_all().to_table()
    metadata = reader.metadata().schema.metadata or {}
    if table.column_names != [name] or key.encode() not in metadata:
        raise CorruptFileError(f"{os.fspath(uri)}: the file has no model with {name}")
    return table.column(0).combine_chunks(), metadata


def ivf_model(table: OpenTable, index_name: str) -> IvfModel:
    """Return the centroids of an index of vectors; see `Dataset.get_ivf_model`.

    Raises CorruptFileError, StorageError. Raises InvalidInputError: the index does not exist, has
    no vectors, or is empty.
    """
    for segment in sections.section_of(table.manifest).indices:
        if segment.name != index_name or sections.type_of_index(segment) != "VECTOR":
            continue
        opened = open_segment(IndexFiles(table.paths, segment))
        if opened is not None:
            centroids = opened.ivf.centroids
            values = pa.array(centroids.ravel())
            array = pa.FixedSizeListArray.from_arrays(values, centroids.shape[1])
            return IvfModel(array, opened.metric.value)
    raise InvalidInputError(f"index {index_name!r} is not an index of vectors, or is empty")


def name_of_vector_index(table: OpenTable, column: str) -> str:
    """Return the name of the first index of a column of vectors.

    Raises InvalidInputError: there is none.
    """
    number = table.schema.field(column).id
    for segment in sections.section_of(table.manifest).indices:
        if number in segment.fields and sections.type_of_index(segment) == "VECTOR":
            return segment.name
    raise InvalidInputError(f"column {column!r} has no index of vectors")
