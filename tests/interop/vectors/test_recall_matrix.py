"""Recall of indexes on vectors of five shapes: built here or by pylance, and searched by both.

Indexes of one model (centroids, codewords, rotation) find the same rows, but for rounding. Indexes
that were trained apart differ by luck, which is measured:

| luck of | measured by |
| --- | --- |
| queries | standard error of the mean difference of the recall of a query |
| training | standard deviation of the recall of some indexes of pylance, each trained anew |

Rounding decides which of two groups of equal vectors is nearer, if their codes are as near. So with
duplicates, the luck of queries counts for indexes of one model, too.

A recall that is lower than allowed by more than three standard deviations of both is no luck.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pytest

import lance_spark
from lance_spark.indexes.files import IndexFiles
from lance_spark.indexes.vectors.columns import Metric
from lance_spark.indexes.vectors.distances import measured
from lance_spark.indexes.vectors.quantizers.rabit import RabitQuantizer
from lance_spark.indexes.vectors.segment import VectorSegment, open_segment
from lance_spark.table.indexes import sections
from tests.interop.vectors.data_sets import DATA_SETS, Array, data_set, queries_of, write
from tests.support.cells import ALL_CELLS

ROWS, QUERIES, PARTITIONS, PROBES = 3_000, 200, 6, 3
#: How many times pylance trains an index.
BUILDS = 4
#: What recall may be lower than that of pylance.
ALLOWED = 0.01
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "flat": ("IVF_FLAT", {}),
    "sq": ("IVF_SQ", {}),
    "pq": ("IVF_PQ", {"num_sub_vectors": 12}),
    "pq4": ("IVF_PQ", {"num_sub_vectors": 12, "num_bits": 4}),
    "rq": ("IVF_RQ", {"num_bits": 5}),
}
METRICS = ("l2", "cosine", "dot")
CLIENTS = {"ours": lance_spark.open_dataset, "pylance": lance.dataset}

#: By k, the recall of each query.
Recalls = dict[int, Array]


class Table:
    """A table with an index, and the recall of its searches.

    Parameters
    ----------
    path : Path
    vectors, queries : array
    metric, index_name : str
    """

    def __init__(
        self, path: Path, vectors: Array, queries: Array, metric: str, index_name: str
    ) -> None:
        self.uri = write(path, vectors)
        self.queries, self.metric = queries, metric
        self.index_type, self.parameters = KINDS[index_name]
        self.exact = measured(Metric(metric), queries, vectors)

    def build(self, client: str, **options: Any) -> None:
        CLIENTS[client](self.uri).create_index(  # type: ignore[operator]
            "v",
            self.index_type,
            metric=self.metric,
            num_partitions=PARTITIONS,
            **self.parameters,
            **options,
        )

    @property
    def segment(self) -> VectorSegment:
        table = lance_spark.open_dataset(self.uri)._table
        (index,) = sections.section_of(table.manifest).indices
        segment = open_segment(IndexFiles(table.paths, index))
        assert segment is not None
        return segment

    def recalls(self, client: str, probes: int = PROBES) -> Recalls:
        """Return, of each query, the part of its 10 and 100 nearest rows that a client finds."""
        nearest = {"column": "v", "q": self.queries, "k": 100, "nprobes": probes}
        # By default, pylance rounds the estimates of RQ.
        nearest["approx_mode"] = "accurate"
        table = CLIENTS[client](self.uri).to_table(columns=["i", "_distance"], nearest=nearest)
        rows, number = table["i"].to_numpy(), table["query_index"].to_numpy()
        result = {10: np.zeros(QUERIES), 100: np.zeros(QUERIES)}
        limits = np.sort(self.exact, axis=1)
        for query in range(QUERIES):
            own = rows[number == query]
            assert len(own) == len(set(own.tolist())) <= 100
            for k, recall in result.items():
                limit = limits[query, k - 1]
                # Rows of equal distance are as near.
                near = self.exact[query, own[:k]] <= limit + 1e-4 * abs(limit) + 1e-6
                recall[query] = near.sum() / k
        return result


def model_of(segment: VectorSegment) -> dict[str, Any]:
    """Return parameters that give another index the model of a segment."""
    model: dict[str, Any] = {"ivf_centroids": segment.ivf.centroids}
    if segment.index_type == "IVF_PQ":
        model["pq_codebook"] = segment.quantizer.codebook  # type: ignore[attr-defined]
    elif isinstance(segment.quantizer, RabitQuantizer):
        model["rabitq_model"] = segment.quantizer.model()
    return model


def assert_not_lower(
    own: Recalls, others: Sequence[Recalls], *, luck: bool, ties: bool = False
) -> None:
    """Check the mean recall of an index beside that of some indexes of pylance."""
    for k in (10, 100):
        other = np.stack([recalls[k] for recalls in others])
        less = other.mean(axis=0) - own[k]
        builds = other.mean(axis=1).var(ddof=1) * (1 + 1 / len(others)) if luck else 0.0
        deviation = (less.var() / len(less) + builds) ** 0.5 if luck or ties else 0.0
        assert less.mean() <= ALLOWED + 3 * deviation, (
            f"recall@{k} {own[k].mean():.4f}, that of pylance {other.mean():.4f} ({deviation:.4f})"
        )


#: Each type of index with each metric, and shapes in turn; `make test-long` has all shapes.
CELLS = [
    (shape, index_name, metric)
    for place, (index_name, metric) in enumerate(itertools.product(KINDS, METRICS))
    for number, shape in enumerate(DATA_SETS)
    if ALL_CELLS or number == (2 + place * 2 + place // len(METRICS)) % len(DATA_SETS)
]


@pytest.mark.sample(8)
@pytest.mark.parametrize(("shape", "index_name", "metric"), CELLS)
def test_recall(shape: str, index_name: str, metric: str, tmp_path: Path) -> None:
    vectors = data_set(shape, ROWS)
    queries = queries_of(vectors, QUERIES)

    def table(name: str, client: str, **options: Any) -> Table:
        result = Table(tmp_path / name, vectors, queries, metric, index_name)
        result.build(client, **options)
        return result

    theirs = [table(f"theirs {number}", "pylance") for number in range(BUILDS)]
    first = theirs[0].recalls("pylance")
    ties = shape == "duplicates"
    assert_not_lower(theirs[0].recalls("ours"), [first], luck=False, ties=ties)
    # Vectors without negative items have products with one centroid that are greater than with any
    # other: pylance's partitions have 0 to 800 rows of 3,000, and 3 partitions any part of them.
    probes = PARTITIONS if (shape, metric) == ("uniform", "dot") else PROBES
    expected = [built.recalls("pylance", probes) for built in theirs]
    given = table("given model", "ours", **model_of(theirs[0].segment))
    own = table("ours", "ours")
    for client in CLIENTS:
        assert_not_lower(given.recalls(client), [first], luck=False, ties=ties)
        assert_not_lower(own.recalls(client, probes), expected, luck=True)
