"""How the distance of two vectors is measured.

| metric | distance | rows without a distance |
| --- | --- | --- |
| `l2` | sum of the squares of the differences | null vectors, vectors with NaN |
| `cosine` | 1 - cosine of the angle | the same, and vectors of length 0 |
| `dot` | 1 - sum of the products | as `l2` |
| `hamming` | number of different bits | null vectors |
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

from lance_spark.errors import InvalidInputError

#: Names of the parameter: of pylance, of its searches, and of the index files and LanceDB.
METRIC_KEYS = ("metric", "distance_type", "metric_type")
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


def given_metric(parameters: Mapping[str, Any]) -> Metric | None:
    """Return the metric that parameters name by one of `METRIC_KEYS`; None if none does.

    Raises
    ------
    InvalidInputError
        No metric has the name, or two names differ.
    """
    names = [parameters[key] for key in METRIC_KEYS if parameters.get(key) is not None]
    metrics = {parse_metric(name) for name in names}
    if len(metrics) > 1:
        raise InvalidInputError(
            f"{', '.join(METRIC_KEYS)} are names of one parameter: give one metric"
        )
    return metrics.pop() if metrics else None
