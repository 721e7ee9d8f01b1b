"""What index files have of a quantizer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from lance_spark.errors import CorruptFileError
from lance_spark.scan.vectors.ivf import Vectors
from lance_spark.scan.vectors.metric import Metric


@dataclass(frozen=True, slots=True)
class StoredModel:
    """What a quantizer is opened from.

    Attributes
    ----------
    metadata : mapping of str to object
        The object in `storage_metadata`.
    metric : Metric
    centroids : array of shape (partitions, dimension)
    buffer : callable
        Returns the global buffer of a number.
    columns : collection of str
        Names of the columns of the file.
    name : str
        What errors call the file.
    """

    metadata: Mapping[str, Any]
    metric: Metric
    centroids: Vectors
    buffer: Callable[[int], bytes]
    columns: Collection[str]
    name: str

    @property
    def dimension(self) -> int:
        """Items of a vector."""
        return int(self.centroids.shape[1])

    def number(self, key: str, least: int, most: int) -> int:
        """Return an integer of the metadata.

        Raises
        ------
        CorruptFileError
            It is missing, or out of range.
        """
        value = self.metadata.get(key)
        if type(value) is not int or not least <= value <= most:
            raise CorruptFileError(
                f"{self.name}: {key} must be an integer from {least} to {most}, not "
                f"{str(value)[:40]}; rebuild the index"
            )
        return value

    def check_dimension(self, key: str) -> None:
        """Raise an error if the metadata have another dimension than the centroids.

        Raises
        ------
        CorruptFileError
        """
        self.number(key, self.dimension, self.dimension)
