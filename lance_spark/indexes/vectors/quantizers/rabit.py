"""RQ (RaBitQ): the sign of each dimension of a rotated residual, and extra bits of its size."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from lance_spark.encoding.compiled import CompiledLoop, sums_of
from lance_spark.errors import CorruptFileError, InvalidInputError, UnsupportedFeatureError
from lance_spark.indexes.vectors import distances
from lance_spark.indexes.vectors.columns import Int64Array, Metric, Vectors
from lance_spark.indexes.vectors.distances import products
from lance_spark.indexes.vectors.quantizers import rabit_codes
from lance_spark.indexes.vectors.quantizers import rabit_codes as coding
from lance_spark.indexes.vectors.quantizers.quantizer import (
    Distances,
    Positions,
    StoredModel,
    list_field,
    matrix,
    positions_of,
    summed,
    vector_list,
)
from lance_spark.indexes.vectors.quantizers.rabit_codes import (
    ROUNDS,
    Factors,
    FastRotation,
    Floats,
    Levels,
    Rotation,
    level_center,
    open_rotation,
)

# --------------------------------------------------------------------------------------------------
# Products of queries with the levels of stored vectors.
#
# If numba is installed, a compiled loop multiplies one query in a quarter of the time of numpy.

#: Items that are decoded in one step, so that they stay in the caches.
_STEP_PRODUCTS = 1 << 18


def steps(num_rows: int, dimension: int) -> Iterator[slice]:
    """Yield parts of the rows that are decoded at once."""
    count = max(1, _STEP_PRODUCTS // dimension)
    return (slice(first, first + count) for first in range(0, num_rows, count))


def level_products(levels: Levels, queries: Floats) -> Floats:
    """Return the product of each query with the levels of each row.

    - `levels` (integer array of shape (dimension, rows)): The dimension is a multiple of 8.
    - `queries`: Float32 array of shape (queries, dimension).
    """
    dimension, num_rows = levels.shape
    result = np.empty((len(queries), num_rows), np.float32)
    is_single = len(queries) == 1
    if is_single and levels.dtype == np.uint8 and levels.flags.c_contiguous:
        loop = LOOP.after(levels.size)
        if loop is not None:
            loop(levels, np.ascontiguousarray(queries[0]), result[0])
            return result
    # BLAS multiplies one row in one thread.
    multiply = np.matmul if is_single else products
    for step in steps(num_rows, dimension):
        result[:, step] = multiply(queries, levels[:, step].astype(np.float32))
    return result


def _multiply(levels: Any, query: Any, out: Any) -> None:
    """Do the same for one query, eight dimensions at a time."""
    out[:] = 0
    for place in range(0, len(query), 8):
        first, second, third = levels[place], levels[place + 1], levels[place + 2]
        fourth, fifth, sixth = levels[place + 3], levels[place + 4], levels[place + 5]
        seventh, eighth = levels[place + 6], levels[place + 7]
        for row in range(len(out)):
            first_half = np.float32(first[row]) * query[place]
            first_half += np.float32(second[row]) * query[place + 1]
            first_half += np.float32(third[row]) * query[place + 2]
            first_half += np.float32(fourth[row]) * query[place + 3]
            second_half = np.float32(fifth[row]) * query[place + 4]
            second_half += np.float32(sixth[row]) * query[place + 5]
            second_half += np.float32(seventh[row]) * query[place + 6]
            second_half += np.float32(eighth[row]) * query[place + 7]
            out[row] += first_half + second_half


#: It compiles `_multiply`.
LOOP = CompiledLoop(_multiply, sums_of(("uint8", 2), ("float32", 1)), 1 << 28)


# --------------------------------------------------------------------------------------------------
# Distances of the vectors of a partition that is stored by RQ, by the formulas of `quantizer`.

#: Up to this number of queries, sums of 8 dimensions are looked up, not computed.
_FEW_QUERIES = 2
#: The bits of each byte, the least one first.
_BITS = np.unpackbits(np.arange(256, dtype=np.uint8)[None], axis=0, bitorder="little").astype("f4")


@dataclass(frozen=True, slots=True)
class SignCodes:
    """Codes of one bit.

    - `positions` (integer array of shape (dimension / 8, rows)): Where sums of 8 dimensions are
      (`lookup`). The low byte of each is that of the code.
    """

    positions: Positions

    center = level_center(1)

    @property
    def num_rows(self) -> int:
        """Number of vectors."""
        return len(self.positions[0])

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return self.positions.nbytes

    def taken(self, rows: Int64Array) -> SignCodes:
        """Return the codes of some rows."""
        return SignCodes(self.positions[:, rows])

    def values(self) -> Floats:
        """Return the value of each dimension, shape (rows, dimension)."""
        return self._levels(slice(None)) - np.float32(self.center)

    def products(self, queries: Floats) -> Floats:
        """Return the product of each query with the levels of each row."""
        result = np.empty((len(queries), self.num_rows), np.float32)
        if len(queries) <= _FEW_QUERIES:
            for number, query in enumerate(queries):
                summed(query.reshape(-1, 8) @ _BITS, self.positions, result[number])
            return result
        factor = np.ascontiguousarray(queries.T)
        for step in steps(self.num_rows, 8 * len(self.positions)):
            result[:, step] = distances.products(self._levels(step), factor).T
        return result

    def _levels(self, step: slice) -> Floats:
        """Return the levels of some rows, shape (rows, dimension)."""
        codes = np.ascontiguousarray(self.positions[:, step].T.astype(np.uint8))
        return np.unpackbits(codes, axis=1, bitorder="little").astype(np.float32)


@dataclass(frozen=True, slots=True)
class LevelCodes:
    """Codes of several bits.

    - `levels`: Integer array of shape (dimension, rows).
    - `center`: The level that stands for 0.
    """

    levels: Levels
    center: float

    @property
    def num_rows(self) -> int:
        """Number of vectors."""
        return len(self.levels[0])

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        return self.levels.nbytes

    def taken(self, rows: Int64Array) -> LevelCodes:
        """Return the codes of some rows."""
        return LevelCodes(self.levels[:, rows], self.center)

    def values(self) -> Floats:
        """Return the value of each dimension, shape (rows, dimension)."""
        return np.subtract(self.levels.T, self.center, dtype=np.float32)

    def products(self, queries: Floats) -> Floats:
        """Return the product of each query with the levels of each row."""
        return level_products(self.levels, queries)


@dataclass(frozen=True, slots=True)
class RabitPartition:
    """The vectors of one partition, ready to be measured.

    - `centroid`: Array of shape (dimension,).
    - `is_projected`: Whether the add factors of `dot` are scaled by the projection of the query.
    """

    metric: Metric
    rotation: Rotation
    codes: SignCodes | LevelCodes
    factors: Factors
    centroid: Vectors
    is_projected: bool = True

    @property
    def num_rows(self) -> int:
        """Number of vectors."""
        return self.codes.num_rows

    @property
    def nbytes(self) -> int:
        """Bytes in memory."""
        factors = self.factors
        return self.codes.nbytes + factors.add.nbytes + factors.scale.nbytes + self.centroid.nbytes

    def distances(self, queries: Vectors, rows: Int64Array | None = None) -> Distances:
        """Return the distances of vectors from each query; see `Partition`."""
        codes, add, scale = self.codes, self.factors.add, self.factors.scale
        if rows is not None:
            codes, add, scale = codes.taken(rows), add[rows], scale[rows]
        result = products_of_codes(codes, self.rotation.rotated(queries))
        result *= scale
        vectors = np.asarray(queries, np.float32)
        centroid = np.asarray(self.centroid, np.float32)
        if self.metric is not Metric.DOT:
            result += add
            result += np.square(vectors - centroid).sum(axis=1, dtype=np.float32)[:, None]
            return result
        product = vectors @ centroid
        if self.is_projected:
            with np.errstate(divide="ignore", invalid="ignore"):
                parts = product / (centroid @ centroid)
            result += np.where(np.isfinite(parts), parts, 0)[:, None] * (add - 1)
        else:
            result += add - 1
        result += (1 - product)[:, None]
        return result

    def decoded(self, queries: Vectors, rows: Int64Array) -> None:
        """Return nothing: distances are estimates; see `Partition`."""

    def measure(self, query: Vectors) -> Callable[[Int64Array], Distances]:
        """Return a function that measures rows; see `Partition`."""
        queries = query[None]
        return lambda rows: self.distances(queries, rows)[0]

    def vectors(self) -> Vectors:
        """Return the decoded differences from the centroid, after the rotation."""
        part = -self.factors.scale if self.metric is Metric.DOT else self.factors.scale / -2
        return self.codes.values() * part[:, None]


def products_of_codes(codes: SignCodes | LevelCodes, queries: Floats) -> Floats:
    """Return the product of each rotated query with the value of each code."""
    result = codes.products(queries)
    result -= (queries.sum(axis=1, dtype=np.float32) * np.float32(codes.center))[:, None]
    return result


# --------------------------------------------------------------------------------------------------
# RQ (RaBitQ): the sign of each dimension of a rotated residual, and extra bits of its size.
#
# | column | type | content |
# | --- | --- | --- |
# | `_rabit_codes` | fixed_size_list<uint8>[dimension / 8] | a bit for r >= 0, the least bit first |
# | `__add_factors`, `__scale_factors`, `__error_factors` | float | those of signs |
# | `__blocked_ex_codes` | fixed_size_list<uint8> | extra codes (`packing`), above 1 bit |
# | `__add_factors_ex`, `__scale_factors_ex` | float | those of extra codes, above 1 bit |
#
# | `storage_metadata` | content |
# | --- | --- |
# | rotation_type | `fast` or `matrix`; absent: `matrix` |
# | fast_rotation_signs | list of bytes (`rotation`), or null |
# | rotate_mat_position | number of the global buffer with the matrix, or null |
# | code_dim | the dimension; 0 or absent: that of the matrix |
# | num_bits | 1 to 9 |
# | packed | whether the sign codes of a partition are in blocks (`packing`) |
# | query_estimator | `raw_query`; absent or `residual_query` in files of old releases |
#
# With the names of `codes`, and v = b or g, the distance of a query q from a stored vector is
#
#     add + ||q - c||**2 + scale <q,v>                            l2, cosine
#     1 + a (add - 1) - <q,c> + scale <q,v>,  a = <q,c> / <c,c>   dot
#
# The error factors bound the estimates by signs; pylance skips rows by them. Old files have no
# error factors. Theirs are add = s (`l2`, `cosine`) or 1 - <r,c> (`dot`), and scale is larger by
# ``sqrt(dimension) / 2``; the distance is the same, with a = 1.
#
# Columns of other names that begin with `__` belong to forms that this release does not read: such
# a segment is not used.
#
# Specification: table/index/vector.

CODES, EXTRA_CODES = "_rabit_codes", "__blocked_ex_codes"
ADD, SCALE, ERROR = "__add_factors", "__scale_factors", "__error_factors"
EXTRA_ADD, EXTRA_SCALE = "__add_factors_ex", "__scale_factors_ex"
DEFAULT_BITS, MAX_BITS = 5, 9
_RAW, _RESIDUAL = "raw_query", "residual_query"
#: All keys of `storage_metadata`. Another one can mean another form of codes.
_KEYS = frozenset(
    (
        "rotation_type",
        "fast_rotation_signs",
        "rotate_mat_position",
        "code_dim",
        "num_bits",
        "packed",
        "query_estimator",
    )
)
_COLUMNS = frozenset((EXTRA_CODES, ADD, SCALE, ERROR, EXTRA_ADD, EXTRA_SCALE))
#: Items of vectors that are encoded in one step.
_STEP_ITEMS = 1 << 20


@dataclass(frozen=True, slots=True)
class RabitQuantizer:
    """Stores vectors as the signs and sizes of their rotated residuals. Can be pickled.

    - `num_bits`: Bits of a dimension, 1 to 9.
    - `packed`: Whether sign codes of a partition are stored in blocks.
    - `has_residual_factors`: Whether factors are those of old files.
    """

    metric: Metric
    num_bits: int
    rotation: Rotation
    packed: bool = True
    has_residual_factors: bool = False

    name = "RQ"

    @classmethod
    def new(
        cls, metric: Metric, dimension: int, num_bits: int = DEFAULT_BITS, seed: int | None = None
    ) -> RabitQuantizer:
        """Return a quantizer with a random rotation.

        - `dimension`: A multiple of 8.
        - `num_bits`: 1 to 9.
        - `seed`: Of the rotation; another one at each call by default.

        Raises InvalidInputError: the dimension, the number of bits or the metric cannot be stored.
        """
        signs = np.random.default_rng(seed).bytes(ROUNDS * dimension // 8)
        return cls._checked(metric, num_bits, FastRotation(dimension, signs))

    @classmethod
    def of_model(cls, metric: Metric, dimension: int, num_bits: int, model: str) -> RabitQuantizer:
        """Return a quantizer with the rotation of a model, as pylance's `build_rq_model` makes it.

        - `num_bits`: Bits of an item, from 1 to 9.
        - `model`: JSON.

        Raises InvalidInputError: the text is not a model, or the model has another dimension or
        number of bits.
        """
        stored = StoredModel(
            _parsed(model), metric, np.empty((0, dimension)), _no_buffer, (), "model"
        )
        try:
            quantizer = cls.open(stored)
        except (CorruptFileError, UnsupportedFeatureError) as error:
            raise InvalidInputError(
                f"rabitq_model is not a model for this column: {error}"
            ) from None
        if quantizer.num_bits != num_bits:
            raise InvalidInputError(
                f"rabitq_model has {quantizer.num_bits} bits, num_bits is {num_bits}: choose one"
            )
        return cls._checked(metric, num_bits, quantizer.rotation)

    @classmethod
    def _checked(cls, metric: Metric, num_bits: int, rotation: Rotation) -> RabitQuantizer:
        if metric is Metric.HAMMING:
            raise InvalidInputError("an IVF_RQ index must have the metric l2, cosine or dot")
        if not 1 <= num_bits <= MAX_BITS:
            raise InvalidInputError(f"num_bits must be from 1 to {MAX_BITS}, not {num_bits}")
        if not rotation.dimension or rotation.dimension % 8:
            raise InvalidInputError(
                f"an IVF_RQ index needs vectors of a multiple of 8 items, not {rotation.dimension}"
            )
        return cls(metric, num_bits, rotation)

    @classmethod
    def open(cls, stored: StoredModel) -> RabitQuantizer:
        """Return the quantizer of a file.

        Raises CorruptFileError: the metadata are damaged. Raises UnsupportedFeatureError: codes
        have a form that this release does not know.
        """
        metadata, name = stored.metadata, stored.name
        hidden = {column for column in stored.columns if column.startswith("__")}
        unknown = sorted(set(metadata) - _KEYS | hidden - _COLUMNS)
        estimator = metadata.get("query_estimator", _RESIDUAL)
        if unknown or estimator not in (_RAW, _RESIDUAL):
            raise UnsupportedFeatureError(
                f"{name}: RQ codes with {(unknown or [estimator])[0]!r} are not known"
            )
        if stored.metric is Metric.HAMMING or stored.dimension % 8:
            raise CorruptFileError(
                f"{name}: RQ codes need l2, cosine or dot, and a multiple of 8 dimensions, not "
                f"{stored.metric.value} and {stored.dimension}; rebuild the index"
            )
        num_bits = stored.number("num_bits", 1, MAX_BITS)
        if estimator == _RESIDUAL and num_bits > 1:
            raise UnsupportedFeatureError(
                f"{name}: RQ codes of {num_bits} bits of this old form are not known"
            )
        if metadata.get("code_dim"):
            stored.check_dimension("code_dim")
        packed = metadata.get("packed")
        if not isinstance(packed, bool):
            raise CorruptFileError(f"{name}: packed must be true or false; rebuild the index")
        is_residual = estimator == _RESIDUAL
        return cls(stored.metric, num_bits, open_rotation(stored), packed, is_residual)

    @property
    def dimension(self) -> int:
        """Items of a vector."""
        return self.rotation.dimension

    @property
    def extra_bits(self) -> int:
        """Bits of the size of a dimension."""
        return self.num_bits - 1

    @property
    def fields(self) -> pa.Schema:
        """The columns of codes in the file, without `_rowid`."""
        names = [ADD, SCALE] if self.has_residual_factors else [ADD, SCALE, ERROR]
        fields = [list_field(CODES, np.uint8, self.dimension // 8)]
        fields += [pa.field(name, pa.float32()) for name in names]
        if not self.extra_bits:
            return pa.schema(fields)
        width = rabit_codes.extra_code_bytes(self.dimension, self.extra_bits)
        fields.append(list_field(EXTRA_CODES, np.uint8, width))
        return pa.schema(fields + [pa.field(n, pa.float32()) for n in (EXTRA_ADD, EXTRA_SCALE)])

    def metadata(self, buffers: Sequence[int]) -> Mapping[str, Any]:
        """Return the object in `storage_metadata` of the file."""
        return {
            **self.rotation.metadata(buffers),
            "code_dim": self.dimension,
            "num_bits": self.num_bits,
            "packed": self.packed,
            "query_estimator": _RESIDUAL if self.has_residual_factors else _RAW,
        }

    def buffers(self) -> Sequence[bytes]:
        """Return the contents of global buffers: the matrix of a rotation that has one."""
        return self.rotation.buffers()

    def model(self) -> str:
        """Return the rotation as a text, as pylance's `build_rq_model` does.

        Raises UnsupportedFeatureError: the rotation is a matrix, which the text cannot have.
        """
        if not isinstance(self.rotation, FastRotation):
            raise UnsupportedFeatureError("an RQ index whose rotation is a matrix has no model")
        return json.dumps({**self.metadata(()), "packed": False})

    def encode(self, vectors: Vectors, centroids: Vectors) -> pa.RecordBatch:
        """Return the codes of vectors."""
        step = max(1, _STEP_ITEMS // self.dimension)
        batches = [
            self._encode(vectors[first : first + step], centroids[first : first + step])
            for first in range(0, max(len(vectors), 1), step)
        ]
        if len(batches) == 1:
            return batches[0]
        return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]

    def stored(self, codes: pa.RecordBatch) -> pa.RecordBatch:
        """Return the codes of one partition in the order of bytes that files have."""
        if not self.packed:
            return codes
        packed = vector_list(rabit_codes.pack_signs(matrix(codes.column(0))))
        return codes.set_column(0, self.fields[0], packed)

    def unstored(self, stored: pa.RecordBatch) -> pa.RecordBatch:
        """Return the codes of a partition of a file, with rows that are independent again."""
        if not self.packed:
            return stored
        return stored.set_column(0, self.fields[0], vector_list(self._signs(stored)))

    def open_partition(self, stored: pa.RecordBatch, centroid: Vectors) -> RabitPartition:
        """Return a partition of a file."""
        signs, names = self._signs(stored), (ADD, SCALE)
        codes: SignCodes | LevelCodes = SignCodes(positions_of(np.ascontiguousarray(signs.T)))
        if self.extra_bits:
            names = (EXTRA_ADD, EXTRA_SCALE)
            codes = self._levels(signs, matrix(stored.column(EXTRA_CODES)))
        factors = Factors(*(stored.column(name).to_numpy() for name in names))
        if self.has_residual_factors:
            rotated = self.rotation.rotated(centroid[None])
            factors = coding.from_residual(
                factors, products_of_codes(codes, rotated)[0], self.dimension
            )
        is_projected = not self.has_residual_factors
        return RabitPartition(self.metric, self.rotation, codes, factors, centroid, is_projected)

    def _encode(self, vectors: Vectors, centroids: Vectors) -> pa.RecordBatch:
        rotated = self.rotation.rotated(vectors - centroids)
        rotated_centroids = self.rotation.rotated(centroids)

        def factors_of(level: Levels, num_bits: int) -> list[pa.Array]:
            factors = coding.factors(rotated, rotated_centroids, level, num_bits, self.metric)
            if self.has_residual_factors:
                factors = coding.as_residual(factors, rotated_centroids, level)
            return [pa.array(factors.add), pa.array(factors.scale)]

        level = coding.levels(rotated, self.num_bits)
        signs = level >> self.extra_bits
        columns = [vector_list(np.packbits(signs, axis=1, bitorder="little"))]
        columns += factors_of(signs, 1)
        if not self.has_residual_factors:
            columns.append(pa.array(coding.error_factors(rotated, self.metric)))
        if self.extra_bits:
            extra = (level & ((1 << self.extra_bits) - 1)).astype(np.uint8)
            columns.append(vector_list(rabit_codes.pack_extra(extra, self.extra_bits)))
            columns += factors_of(level, self.num_bits)
        return pa.RecordBatch.from_arrays(columns, schema=self.fields)

    def _signs(self, stored: pa.RecordBatch) -> rabit_codes.Bytes:
        """Return the sign codes of a partition of a file, row by row."""
        signs: rabit_codes.Bytes = matrix(stored.column(0))
        return rabit_codes.unpack_signs(signs) if self.packed else signs

    def _levels(self, signs: rabit_codes.Bytes, extra: rabit_codes.Bytes) -> LevelCodes:
        level = rabit_codes.unpack_extra(extra, self.extra_bits, self.dimension).astype(
            coding.level_type(self.num_bits), copy=False
        )
        bits = np.unpackbits(signs, axis=1, bitorder="little")
        level |= bits.astype(level.dtype, copy=False) << self.extra_bits
        return LevelCodes(np.ascontiguousarray(level.T), coding.level_center(self.num_bits))


def _parsed(model: str) -> Mapping[str, Any]:
    try:
        metadata = json.loads(model)
    except (TypeError, ValueError, RecursionError):
        metadata = None
    if not isinstance(metadata, dict):
        raise InvalidInputError(
            "rabitq_model must be the JSON of a model, as `build_rq_model` makes"
        )
    return metadata


def _no_buffer(number: int) -> bytes:
    raise CorruptFileError(f"the model of an RQ index has no buffer {number}")
