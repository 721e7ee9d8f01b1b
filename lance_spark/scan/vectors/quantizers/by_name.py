"""The quantizer of an index file."""

from __future__ import annotations

from collections.abc import Callable

from lance_spark.errors import UnsupportedFeatureError
from lance_spark.scan.vectors.quantizers.flat import FlatQuantizer
from lance_spark.scan.vectors.quantizers.product import ProductQuantizer
from lance_spark.scan.vectors.quantizers.quantizer import Quantizer
from lance_spark.scan.vectors.quantizers.rabit.quantizer import RabitQuantizer
from lance_spark.scan.vectors.quantizers.scalar import ScalarQuantizer
from lance_spark.scan.vectors.quantizers.stored_model import StoredModel

#: Functions that open a quantizer, by index type.
_OPENERS: dict[str, Callable[[StoredModel], Quantizer]] = {
    "IVF_FLAT": FlatQuantizer.open,
    "IVF_SQ": ScalarQuantizer.open,
    "IVF_PQ": ProductQuantizer.open,
    "IVF_RQ": RabitQuantizer.open,
    "IVF_HNSW_FLAT": FlatQuantizer.open,
    "IVF_HNSW_SQ": ScalarQuantizer.open,
    "IVF_HNSW_PQ": ProductQuantizer.open,
}


def open_quantizer(index_type: str, stored: StoredModel) -> Quantizer:
    """Return the quantizer of an index file.

    Raises
    ------
    UnsupportedFeatureError
        The index has an unknown type.
    CorruptFileError
        The metadata are damaged.
    """
    opener = _OPENERS.get(index_type)
    if opener is None:
        names = ", ".join(_OPENERS)
        raise UnsupportedFeatureError(
            f"{stored.name}: an index of type {index_type[:40]!r} is not one of {names}"
        )
    return opener(stored)
