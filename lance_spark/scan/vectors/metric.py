"""How the distance of two vectors is measured.

| metric | distance | rows without a distance |
| --- | --- | --- |
| `l2` | sum of the squares of the differences | null vectors, vectors with NaN |
| `cosine` | 1 - cosine of the angle | the same, and vectors of length 0 |
| `dot` | 1 - sum of the products | as `l2` |
| `hamming` | number of different bits | null vectors |
"""

from __future__ import annotations

from enum import Enum

from lance_spark.errors import InvalidInputError

#: Other names of metrics.
_ALIASES = {"euclidean": "l2"}


class Metric(Enum):
    """How the distance of two vectors is measured. Values are the names in index files."""

    L2 = "l2"
    COSINE = "cosine"
    DOT = "dot"
    HAMMING = "hamming"


def parse_metric(name: object) -> Metric:
    """Return the metric of a name, in any case.

    Raises
    ------
    InvalidInputError
        No metric has the name.
    """
    lower = name.lower() if isinstance(name, str) else ""
    try:
        return Metric(_ALIASES.get(lower, lower))
    except ValueError:
        names = ", ".join(metric.value for metric in Metric)
        raise InvalidInputError(f"metric must be one of {names}, not {name!r}") from None
