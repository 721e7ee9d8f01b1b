"""Tables with vectors, and the answers of both clients to a vector search."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa

import lance_spark

Vectors = npt.NDArray[Any]

#: Distances of both clients agree to this part of them, or to this.
RELATIVE, ABSOLUTE = 1e-5, 1e-6


def vector_list(vectors: Vectors, mask: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """Return vectors as a column, with nulls where a mask says so."""
    items = pa.array(vectors.reshape(-1))
    nulls = None if mask is None else pa.array(mask)
    return pa.FixedSizeListArray.from_arrays(items, vectors.shape[1], mask=nulls)


def rows(rng: np.random.Generator, first: int, count: int, dimension: int = 16) -> pa.Table:
    """Return rows with a vector of float32 and a number below 10."""
    vectors = rng.normal(size=(count, dimension)).astype(np.float32)
    return pa.table(
        {
            "id": range(first, first + count),
            "v": vector_list(vectors),
            "number": rng.integers(0, 10, count),
        }
    )


def check_equal(
    path: Path, nearest: dict[str, Any], *, absolute: float = ABSOLUTE, **arguments: Any
) -> pa.Table:
    """Check that both clients find the same rows, and return them.

    Rows whose distances differ by rounding only can be in another order.
    """
    wanted = {"columns": ["id", "_distance"], "with_row_id": True, "nearest": nearest, **arguments}
    expected = lance.dataset(str(path)).to_table(**wanted)
    own = lance_spark.open_dataset(str(path)).to_table(**wanted)
    assert own.schema.equals(expected.schema)
    assert own.num_rows == expected.num_rows, (own.num_rows, expected.num_rows)
    distances = own["_distance"].to_numpy(), expected["_distance"].to_numpy()
    np.testing.assert_allclose(*distances, rtol=RELATIVE, atol=absolute)
    ids = own["id"].to_numpy(), expected["id"].to_numpy()
    differ = np.flatnonzero(ids[0] != ids[1])
    for place in differ.tolist():
        # The other row with this id is as far, but for rounding.
        other = np.flatnonzero(ids[1] == ids[0][place])
        near = np.abs(distances[1][other] - distances[0][place])
        is_last = place + 1 == len(ids[0]) or not len(other)
        limit = 2 * absolute + RELATIVE * abs(distances[0][place])
        assert is_last or near.min() <= limit, (place, ids[0][place])
    return own
