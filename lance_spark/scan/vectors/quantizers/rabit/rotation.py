"""The random rotations of RQ: they spread what a vector has over all dimensions.

The rotation `fast` has four rounds. A round changes the signs of the dimensions whose bits are set,
then applies the Hadamard transform of length `t` divided by the root of `t`, where `t` is the
greatest power of 2 that is not more than the dimension. If the two are not equal, then

* even rounds transform the first `t` dimensions, and odd rounds the last,
* each round adds the second half of the vector to the first, and subtracts it from the first,
* the result is divided by 4.

| rotation | stored as |
| --- | --- |
| `fast` | 4 rounds of a bit for each dimension, the least bit of a byte first |
| `matrix` | tensor of shape (dimension, dimension) in a global buffer: a row for each result |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from lance_spark.errors import CorruptFileError, UnsupportedFeatureError
from lance_spark.scan.vectors.distances import products
from lance_spark.scan.vectors.quantizers.stored_model import StoredModel
from lance_spark.scan.vectors.tensors import encode_tensor, parse_tensor

Floats = npt.NDArray[np.float32]

ROUNDS = 4
#: Up to this dimension a product with the matrix is faster than the rounds.
_DENSE_DIMENSION = 256
_MAX_BUFFER = 1 << 16


class Rotation(Protocol):
    """Rotates vectors. Can be pickled."""

    @property
    def dimension(self) -> int: ...

    def rotated(self, vectors: npt.NDArray[Any]) -> Floats:
        """Return vectors of shape (rows, dimension), rotated."""

    def metadata(self, buffers: Sequence[int]) -> dict[str, Any]:
        """Return the entries of `storage_metadata`; see `Quantizer`."""

    def buffers(self) -> Sequence[bytes]:
        """Return the contents of global buffers."""


@dataclass(frozen=True, slots=True)
class FastRotation:
    """The rotation `fast`.

    Attributes
    ----------
    dimension : int
        A multiple of 8.
    signs : bytes
        ``ROUNDS * dimension / 8`` bytes.
    """

    dimension: int
    signs: bytes

    def rotated(self, vectors: npt.NDArray[Any]) -> Floats:
        """Return vectors of shape (rows, dimension), rotated."""
        values = np.asarray(vectors, np.float32)
        if self.dimension <= _DENSE_DIMENSION:
            return products(values, _transposed(self))
        return self.in_rounds(values)

    def metadata(self, buffers: Sequence[int]) -> dict[str, Any]:
        """Return the entries of `storage_metadata`."""
        return {
            "rotate_mat_position": None,
            "fast_rotation_signs": list(self.signs),
            "rotation_type": "fast",
        }

    def buffers(self) -> Sequence[bytes]:
        """Return no global buffers."""
        return ()

    def in_rounds(self, vectors: Floats) -> Floats:
        """Return vectors rotated, as `rotated` does for large dimensions."""
        width = 1 << (self.dimension.bit_length() - 1)
        half = self.dimension // 2
        values = vectors
        for number, factors in enumerate(_factors(self)):
            values = values * factors
            if width == self.dimension:
                values = _hadamard(values)
                continue
            part = values[:, -width:] if number % 2 else values[:, :width]
            part[...] = _hadamard(part)
            first, second = values[:, :half], values[:, half:]
            values = np.concatenate([first + second, first - second], axis=1)
        return values if width == self.dimension else values * np.float32(1 / ROUNDS)


@dataclass(frozen=True, slots=True, eq=False)
class MatrixRotation:
    """The rotation `matrix`.

    Attributes
    ----------
    matrix : array of shape (dimension, dimension)
    """

    matrix: npt.NDArray[Any]

    @property
    def dimension(self) -> int:
        """Items of a vector."""
        return len(self.matrix)

    def rotated(self, vectors: npt.NDArray[Any]) -> Floats:
        """Return vectors of shape (rows, dimension), rotated."""
        return np.asarray(vectors, np.float32) @ np.asarray(self.matrix, np.float32).T

    def metadata(self, buffers: Sequence[int]) -> dict[str, Any]:
        """Return the entries of `storage_metadata`."""
        return {
            "rotate_mat_position": buffers[0],
            "fast_rotation_signs": None,
            "rotation_type": "matrix",
        }

    def buffers(self) -> Sequence[bytes]:
        """Return the matrix as a global buffer."""
        return [encode_tensor(self.matrix).SerializeToString()]


def open_rotation(stored: StoredModel) -> Rotation:
    """Return the rotation of a file.

    Raises
    ------
    CorruptFileError
        It is damaged.
    UnsupportedFeatureError
        This release does not know it.
    """
    metadata, name, dimension = stored.metadata, stored.name, stored.dimension
    match metadata.get("rotation_type", "matrix"):
        case "fast":
            signs = metadata.get("fast_rotation_signs")
            count = ROUNDS * dimension // 8
            if not isinstance(signs, list) or len(signs) != count:
                raise CorruptFileError(
                    f"{name}: fast_rotation_signs must have {count} bytes; rebuild the index"
                )
            if not all(type(item) is int and 0 <= item < 256 for item in signs):
                raise CorruptFileError(
                    f"{name}: fast_rotation_signs must have bytes; rebuild the index"
                )
            return FastRotation(dimension, bytes(signs))
        case "matrix":
            number = stored.number("rotate_mat_position", 0, _MAX_BUFFER)
            rotation = parse_tensor(stored.buffer(number), 2, name)
            if rotation.shape != (dimension, dimension):
                raise CorruptFileError(
                    f"{name}: the rotation has the shape {rotation.shape}, not "
                    f"{(dimension, dimension)}; rebuild the index"
                )
            return MatrixRotation(rotation)
        case other:
            raise UnsupportedFeatureError(f"{name}: RQ rotation {str(other)[:40]!r} is not known")


@lru_cache(maxsize=16)
def _factors(rotation: FastRotation) -> Floats:
    """Return -1 or 1 for each round and dimension."""
    rows = np.frombuffer(rotation.signs, np.uint8).reshape(ROUNDS, -1)
    return 1 - 2 * np.unpackbits(rows, axis=1, bitorder="little").astype(np.float32)


@lru_cache(maxsize=16)
def _transposed(rotation: FastRotation) -> Floats:
    """Return the matrix that vectors in rows are multiplied with."""
    return rotation.in_rounds(np.eye(rotation.dimension, dtype=np.float32))


@lru_cache(maxsize=16)
def _matrix(length: int) -> Floats:
    """Return the Hadamard transform of a length as a matrix whose rows have the length 1."""
    matrix = np.ones((1, 1))
    while len(matrix) < length:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    scaled: Floats = (matrix / np.sqrt(length)).astype(np.float32)
    return scaled


def _hadamard(values: Floats) -> Floats:
    """Return the transform of each row: that of a matrix along both of its axes."""
    rows, length = values.shape
    inner = _matrix(1 << (length.bit_length() // 2))
    outer = _matrix(length // len(inner))
    along = products(values.reshape(-1, len(inner)), inner)
    result: Floats = outer @ along.reshape(rows, len(outer), len(inner))
    return result.reshape(rows, length)
