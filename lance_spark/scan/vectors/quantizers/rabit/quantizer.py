"""RQ (RaBitQ): the sign of each dimension of a rotated residual, and extra bits of its size.

| column | type | content |
| --- | --- | --- |
| `_rabit_codes` | fixed_size_list<uint8>[dimension / 8] | a bit for r >= 0, the least bit first |
| `__add_factors`, `__scale_factors`, `__error_factors` | float | those of signs |
| `__blocked_ex_codes` | fixed_size_list<uint8> | extra codes (`packing`), above 1 bit |
| `__add_factors_ex`, `__scale_factors_ex` | float | those of extra codes, above 1 bit |

| `storage_metadata` | content |
| --- | --- |
| rotation_type | `fast` or `matrix`; absent: `matrix` |
| fast_rotation_signs | list of bytes (`rotation`), or null |
| rotate_mat_position | number of the global buffer with the matrix, or null |
| code_dim | the dimension; 0 or absent: that of the matrix |
| num_bits | 1 to 9 |
| packed | whether the sign codes of a partition are in blocks (`packing`) |
| query_estimator | `raw_query`; absent or `residual_query` in files of old releases |

With the names of `codes`, and v = b or g, the distance of a query q from a stored vector is

    add + ||q - c||**2 + scale <q,v>                            l2, cosine
    1 + a (add - 1) - <q,c> + scale <q,v>,  a = <q,c> / <c,c>   dot

The error factors bound the estimates by signs; pylance skips rows by them. Old files have no error
factors. Theirs are add = s (`l2`, `cosine`) or 1 - <r,c> (`dot`), and scale is larger by
``sqrt(dimension) / 2``; the distance is the same, with a = 1.

Columns of other names that begin with `__` belong to forms that this release does not read: such a
segment is not used.

Specification: table/index/vector.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from lance_spark.errors import CorruptFileError, InvalidInputError, UnsupportedFeatureError
from lance_spark.scan.vectors.ivf import Vectors
from lance_spark.scan.vectors.metric import Metric
from lance_spark.scan.vectors.quantizers.columns import list_field, matrix, vector_list
from lance_spark.scan.vectors.quantizers.lookup import positions_of
from lance_spark.scan.vectors.quantizers.rabit import codes as coding
from lance_spark.scan.vectors.quantizers.rabit import packing
from lance_spark.scan.vectors.quantizers.rabit.codes import Factors, Levels
from lance_spark.scan.vectors.quantizers.rabit.partition import (
    LevelCodes,
    RabitPartition,
    SignCodes,
    products,
)
from lance_spark.scan.vectors.quantizers.rabit.rotation import (
    ROUNDS,
    FastRotation,
    Rotation,
    open_rotation,
)
from lance_spark.scan.vectors.quantizers.stored_model import StoredModel

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

    Attributes
    ----------
    metric : Metric
    num_bits : int
        Bits of a dimension, 1 to 9.
    rotation : Rotation
    packed : bool
        Whether sign codes of a partition are stored in blocks.
    has_residual_factors : bool
        Whether factors are those of old files.
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

        Parameters
        ----------
        metric : Metric
        dimension : int
            A multiple of 8.
        num_bits : int
            1 to 9.
        seed : int, optional
            Of the rotation; another one at each call by default.

        Raises
        ------
        InvalidInputError
            The dimension, the number of bits or the metric cannot be stored.
        """
        signs = np.random.default_rng(seed).bytes(ROUNDS * dimension // 8)
        return cls._checked(metric, num_bits, FastRotation(dimension, signs))

    @classmethod
    def of_model(cls, metric: Metric, dimension: int, num_bits: int, model: str) -> RabitQuantizer:
        """Return a quantizer with the rotation of a model, as pylance's `build_rq_model` makes it.

        Parameters
        ----------
        metric : Metric
        dimension : int
        num_bits : int
            Bits of an item, from 1 to 9.
        model : str
            JSON.

        Raises
        ------
        InvalidInputError
            The text is not a model, or the model has another dimension or number of bits.
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

        Raises
        ------
        CorruptFileError
            The metadata are damaged.
        UnsupportedFeatureError
            Codes have a form that this release does not know.
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
        width = packing.extra_code_bytes(self.dimension, self.extra_bits)
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

        Raises
        ------
        UnsupportedFeatureError
            The rotation is a matrix, which the text cannot have.
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
        packed = vector_list(packing.pack_signs(matrix(codes.column(0))))
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
            factors = coding.from_residual(factors, products(codes, rotated)[0], self.dimension)
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
            columns.append(vector_list(packing.pack_extra(extra, self.extra_bits)))
            columns += factors_of(level, self.num_bits)
        return pa.RecordBatch.from_arrays(columns, schema=self.fields)

    def _signs(self, stored: pa.RecordBatch) -> packing.Bytes:
        """Return the sign codes of a partition of a file, row by row."""
        signs: packing.Bytes = matrix(stored.column(0))
        return packing.unpack_signs(signs) if self.packed else signs

    def _levels(self, signs: packing.Bytes, extra: packing.Bytes) -> LevelCodes:
        level = packing.unpack_extra(extra, self.extra_bits, self.dimension).astype(
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
