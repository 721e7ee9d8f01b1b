"""The codes of RQ: random rotations, codes and factors of residuals, and their bytes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from lance_spark.errors import CorruptFileError, UnsupportedFeatureError
from lance_spark.indexes.vectors.columns import Metric
from lance_spark.indexes.vectors.distances import products
from lance_spark.indexes.vectors.files import encode_tensor, parse_tensor
from lance_spark.indexes.vectors.quantizers.quantizer import StoredModel

# --------------------------------------------------------------------------------------------------
# The random rotations of RQ: they spread what a vector has over all dimensions.
#
# The rotation `fast` has four rounds. A round changes the signs of the dimensions whose bits are
# set, then applies the Hadamard transform of length `t` divided by the root of `t`, where `t` is
# the greatest power of 2 that is not more than the dimension. If the two are not equal, then
#
# * even rounds transform the first `t` dimensions, and odd rounds the last,
# * each round adds the second half of the vector to the first, and subtracts it from the first,
# * the result is divided by 4.
#
# | rotation | stored as |
# | --- | --- |
# | `fast` | 4 rounds of a bit for each dimension, the least bit of a byte first |
# | `matrix` | tensor of shape (dimension, dimension) in a global buffer: a row for each result |

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

    - `dimension`: A multiple of 8.
    - `signs`: ``ROUNDS * dimension / 8`` bytes.
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

    - `matrix`: Array of shape (dimension, dimension).
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

    Raises CorruptFileError: it is damaged. Raises UnsupportedFeatureError: this release does not
    know it.
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


# --------------------------------------------------------------------------------------------------
# The codes and factors of RQ: residuals of vectors, after the random rotation.
#
# | name | what it is |
# | --- | --- |
# | r, c, q | rotated residual, centroid and query |
# | s | sum of the squares of r |
# | level | ``2 ** e`` where r >= 0, and the extra code: with `e` = 0, the sign |
# | b | level of the sign alone, as -0.5 or 0.5 |
# | g | level - 2 ** e + 0.5; the extra code is complemented where r < 0, so g has the sign of r |
#
# The extra code is the size of r, scaled by `t` and rounded down. Any `t` gives right factors; the
# best one of a few makes the angle of r and g small.
#
# | factor | `l2`, `cosine` | `dot` |
# | --- | --- | --- |
# | add | s + 2 s <c,v> / <r,v> | 1 - <r,c> + s <c,v> / <r,v> |
# | scale | - 2 s / <r,v> | - s / <r,v> |
# | error | 3.8 w | 1.9 w |
#
# v is b, or g for factors of extra codes, and
# ``w = sqrt(s) * sqrt(max(0, s * dimension / 4 / <r,b>**2 - 1) / (dimension - 1))``.

#: Levels of dimensions: uint8, or uint16 for 9 bits.
Levels = npt.NDArray[Any]

_EPSILON = np.float32(1e-5)
_ERROR = 1.9
#: Where the search of `t` starts, as a part of its end, by number of extra bits.
_STARTS = (0.0, 0.15, 0.20, 0.52, 0.59, 0.71, 0.75, 0.77, 0.81)
#: Values of `t` that are tried.
_TRIALS = 16
#: Items of a chunk that stays in the cache of a processor core.
_CHUNK_ITEMS = 1 << 15


@dataclass(frozen=True, slots=True)
class Factors:
    """Numbers of each row that estimates are made of.

    - `add`, `scale`: Float32 arrays.
    """

    add: Floats
    scale: Floats


def level_type(num_bits: int) -> npt.DTypeLike:
    """Return the type of levels."""
    return np.uint8 if num_bits <= 8 else np.uint16


def level_center(num_bits: int) -> float:
    """Return the level that stands for 0."""
    return float((1 << (num_bits - 1)) - 0.5)


def levels(rotated: Floats, num_bits: int) -> Levels:
    """Return the level of each dimension of rotated residuals."""
    extra_bits = num_bits - 1
    signs = ~np.signbit(rotated)
    result = np.empty(rotated.shape, level_type(num_bits))
    if not extra_bits:
        result[...] = signs
        return result
    chunk = max(1, _CHUNK_ITEMS // rotated.shape[1])
    for start in range(0, len(rotated), chunk):
        sizes = _rounded(np.abs(rotated[start : start + chunk]), extra_bits)
        result[start : start + chunk] = sizes
    highest = (1 << extra_bits) - 1
    # The complement of a size: what is left to the highest one.
    np.subtract(highest, result, out=result, where=~signs)
    result += signs.astype(result.dtype) << extra_bits
    return result


def factors(
    rotated: Floats, centroids: Floats, level: Levels, num_bits: int, metric: Metric
) -> Factors:
    """Return the factors of levels.

    - `rotated`, `centroids` (float32 arrays of shape (rows, dimension)): Rotated residuals, and the
      rotated centroid of each row.
    - `level` (integer array of shape (rows, dimension)): Levels; for the factors of signs alone,
      with `num_bits` 1.
    """
    values = _values(level, num_bits)
    squares = _products(rotated, rotated)
    part = _ratio(squares, _products(rotated, values))
    correction = part * _products(centroids, values)
    if metric is Metric.DOT:
        return Factors(1 - _products(rotated, centroids) + correction, -part)
    return Factors(squares + 2 * correction, -2 * part)


def as_residual(factors: Factors, centroids: Floats, level: Levels) -> Factors:
    """Return factors for the difference of a query from the centroid, as old files have them."""
    added = factors.scale * _products(centroids, _values(level, 1))
    return Factors(factors.add + added, factors.scale * _residual_scale(level.shape[1]))


def from_residual(factors: Factors, products: Floats, dimension: int) -> Factors:
    """Return factors for a query.

    - `factors`: For the difference of a query from the centroid.
    - `products` (float32 array): <c,b> of each row.
    """
    scale = factors.scale / _residual_scale(dimension)
    return Factors(factors.add - scale * products, scale)


def error_factors(rotated: Floats, metric: Metric) -> Floats:
    """Return what lower bounds of estimates by signs are made of."""
    dimension = rotated.shape[1]
    squares = _products(rotated, rotated)
    alignment = np.abs(rotated).sum(axis=1, dtype=np.float32) / 2
    excess = _ratio(squares * np.float32(dimension / 4), alignment * alignment) - 1
    angles = np.sqrt(np.maximum(excess, 0) / (dimension - 1))
    factor = _ERROR if metric is Metric.DOT else 2 * _ERROR
    result: Floats = (np.sqrt(squares) * angles * factor).astype(np.float32)
    return result


def _values(level: Levels, num_bits: int) -> Floats:
    """Return b or g."""
    values: Floats = np.subtract(level, level_center(num_bits), dtype=np.float32)
    return values


def _residual_scale(dimension: int) -> np.float32:
    return np.float32(math.sqrt(dimension) / 2)


def _rounded(sizes: Floats, bits: int) -> Floats:
    """Return the extra codes of sizes of one chunk, as floats."""
    greatest = sizes.max(axis=1, keepdims=True)
    greatest[greatest == 0] = 1
    ratios: Floats = sizes / greatest
    highest = (1 << bits) - 1
    end = highest + 10
    best = np.full(len(sizes), -1, np.float32)
    scales = np.zeros(len(sizes), np.float32)
    for scale in np.linspace(_STARTS[bits] * end, end, _TRIALS, dtype=np.float32):
        codes = _floors(ratios, scale, highest)
        codes += np.float32(0.5)
        score = _products(ratios, codes)
        score /= np.sqrt(_products(codes, codes))
        better = score > best
        best[better], scales[better] = score[better], scale
    return _floors(ratios, scales[:, None], highest)


def _floors(ratios: Floats, scale: Any, highest: int) -> Floats:
    codes: Floats = ratios * scale
    codes += _EPSILON
    np.floor(codes, out=codes)
    np.minimum(codes, np.float32(highest), out=codes)
    return codes


def _products(first: Floats, second: Floats) -> Floats:
    """Return the product of each row with a row."""
    result: Floats = np.einsum("ij,ij->i", first, second)
    return result


def _ratio(numerators: Floats, denominators: Floats) -> Floats:
    """Return quotients, and 0 for a denominator of 0."""
    quotients = np.zeros(len(numerators), np.float32)
    np.divide(numerators, denominators, out=quotients, where=denominators != 0)
    return quotients


# --------------------------------------------------------------------------------------------------
# How the codes of RQ are laid out in bytes.
#
# Sign codes of a partition (`packed`): blocks of 32 rows, one after the other. A block has 32 bytes
# for each byte of a code. With the rows P = 0 8 1 9 2 10 3 11 4 12 5 13 6 14 7 15, byte `j` < 16
# has the low halves of the bytes of row `P[j]` (low) and `P[j] + 16` (high), byte ``16 + j`` the
# high halves. The rows after the last whole block are stored byte position by byte position.
#
# Extra codes of a row: blocks of 64 dimensions, the last one padded with zeros, of 8 bytes for each
# bit of a code.
#
# | bits | bytes of a block |
# | --- | --- |
# | 1 | bit `i` is that of dimension `i`, the least bit of a byte first |
# | 2 | byte `b` < 16: dimensions `b`, ``b + 16``, ``b + 32``, ``b + 48``, from the low bits up |
# | 4 | byte ``8 u + b``: dimensions ``16 u + b`` (low) and ``16 u + 8 + b`` (high) |
# | 6 | byte ``16 k + b``, `k` < 3: dimension ``16 k + b``; above, bits 2k, 2k+1 of ``48 + b`` |
# | 8 | byte `i`: dimension `i` |
# | 3, 7 | the low 2 or 6 bits as above, then the top bits |
# | 5 | byte ``16 k + b``, `k` < 2: 4 bits of ``32 k + b`` and ``32 k + 16 + b``, then the top bits
#     |
#
# The top bits are 8 bytes: that of dimension ``16 k + 8 h + b`` is bit ``2 k + h`` of byte `b`.

#: Arrays of uint8.
Bytes = npt.NDArray[Any]

#: Dimensions of a block of extra codes, and rows of a block of sign codes.
BLOCK, ROWS = 64, 32
_PERMUTATION = np.arange(16).reshape(2, 8).T.ravel()
_WITH_TOP_BITS = (3, 5, 7)
#: Shape of a block whose bytes have 4 bits of the one and of the other of two dimensions.
_HALVES = {4: (4, 2, 8), 5: (2, 2, 16)}
#: First bits of the pairs of a byte, and of the three pairs of 6 bits.
_QUARTERS = np.array([[0], [2], [4], [6]], np.uint8)
_PAIRS = _QUARTERS[:3]


def extra_code_bytes(dimension: int, bits: int) -> int:
    """Return the bytes of the extra codes of a row."""
    return -(-dimension // BLOCK) * BLOCK * bits // 8


def pack_signs(codes: Bytes) -> Bytes:
    """Return the sign codes of a partition, shape (rows, bytes), in the order of the file."""
    num_packed = len(codes) // ROWS * ROWS
    width = codes.shape[1]
    blocks = codes[:num_packed].reshape(-1, 2, 16, width)[:, :, _PERMUTATION].transpose(0, 3, 1, 2)
    packed = np.empty((len(blocks), width, 2, 16), np.uint8)
    packed[:, :, 0] = blocks[:, :, 0] & 15 | blocks[:, :, 1] << 4
    packed[:, :, 1] = blocks[:, :, 0] >> 4 | blocks[:, :, 1] & 0xF0
    return np.concatenate([packed.ravel(), codes[num_packed:].T.ravel()]).reshape(codes.shape)


def unpack_signs(packed: Bytes) -> Bytes:
    """Return the sign codes of a partition, shape (rows, bytes), row by row; see `pack_signs`."""
    num_packed = len(packed) // ROWS * ROWS
    width = packed.shape[1]
    halves = packed[:num_packed].reshape(-1, width, 2, 16)
    blocks = np.empty((len(halves), 2, 16, width), np.uint8)
    low, high = halves[:, :, 0].transpose(0, 2, 1), halves[:, :, 1].transpose(0, 2, 1)
    blocks[:, 0, _PERMUTATION] = low & 15 | high << 4
    blocks[:, 1, _PERMUTATION] = low >> 4 | high & 0xF0
    tail = packed[num_packed:].reshape(width, len(packed) - num_packed).T
    return np.concatenate([blocks.reshape(num_packed, width), tail])


def pack_extra(codes: Bytes, bits: int) -> Bytes:
    """Return extra codes in bytes.

    - `codes` (uint8 array of shape (rows, dimension)): Less than ``2 ** bits``.
    - `bits`: 1 to 8.
    """
    rows, dimension = codes.shape
    size = extra_code_bytes(dimension, bits)
    padded = np.pad(codes, ((0, 0), (0, -dimension % BLOCK))) if dimension % BLOCK else codes
    values = padded.reshape(-1, BLOCK)
    if bits not in _WITH_TOP_BITS:
        return _pack_low(values, bits).reshape(rows, size)
    low = _pack_low(values & ((1 << (bits - 1)) - 1), bits)
    top = (values >> (bits - 1)).reshape(-1, 8, 8).transpose(0, 2, 1)
    top_bytes = np.packbits(top, axis=2, bitorder="little")[:, :, 0]
    return np.concatenate([low, top_bytes], axis=1).reshape(rows, size)


def unpack_extra(packed: Bytes, bits: int, dimension: int) -> Bytes:
    """Return the extra codes of rows, shape (rows, dimension); see `pack_extra`."""
    blocks = packed.reshape(-1, 8 * bits)
    if bits in _WITH_TOP_BITS:
        values = _unpack_low(blocks[:, :-8], bits)
        top = np.unpackbits(blocks[:, -8:, None], axis=2, bitorder="little").transpose(0, 2, 1)
        values |= top.reshape(-1, BLOCK) << (bits - 1)
    else:
        values = _unpack_low(blocks, bits)
    padded = -(-dimension // BLOCK) * BLOCK
    return values.reshape(len(packed), padded)[:, :dimension]


def _pack_low(values: Bytes, bits: int) -> Bytes:
    """Return blocks without their top bits, if codes of so many bits have these apart."""
    match bits:
        case 1:
            return np.packbits(values, axis=1, bitorder="little")
        case 2 | 3:
            parts = values.reshape(-1, 4, 16)
            joined: Bytes = parts[:, 0] | parts[:, 1] << 2 | parts[:, 2] << 4 | parts[:, 3] << 6
            return joined
        case 4 | 5:
            halves = values.reshape(-1, *_HALVES[bits])
            joined = halves[:, :, 0] | halves[:, :, 1] << 4
            return joined.reshape(len(values), BLOCK // 2)
        case 6 | 7:
            parts = values.reshape(-1, 4, 16)
            joined = parts[:, :3] | (parts[:, 3:] >> _PAIRS & 3) << 6
            return joined.reshape(len(values), BLOCK * 3 // 4)
        case _:
            return values


def _unpack_low(blocks: Bytes, bits: int) -> Bytes:
    """Return the values of blocks, shape (blocks, 64); see `_pack_low`."""
    count = len(blocks)
    match bits:
        case 1:
            return np.unpackbits(blocks, axis=1, bitorder="little")
        case 2 | 3:
            pairs: Bytes = blocks[:, None] >> _QUARTERS & 3
            return pairs.reshape(count, BLOCK)
        case 4 | 5:
            parts = np.empty((count, *_HALVES[bits]), np.uint8)
            joined: Bytes = blocks.reshape(parts[:, :, 0].shape)
            parts[:, :, 0], parts[:, :, 1] = joined & 15, joined >> 4
            return parts.reshape(count, BLOCK)
        case 6 | 7:
            values = np.empty((count, 4, 16), np.uint8)
            joined = blocks.reshape(count, 3, 16)
            values[:, :3] = joined & 63
            values[:, 3] = np.bitwise_or.reduce(joined >> 6 << _PAIRS, axis=1)
            return values.reshape(count, BLOCK)
        case _:
            return blocks.copy()
