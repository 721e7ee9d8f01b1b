"""Parameters of vector indexes: names, defaults and limits, and what the manifest keeps of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lance_spark.errors import InvalidInputError, InvalidOptionError
from lance_spark.indexes.vectors.columns import Metric
from lance_spark.indexes.vectors.training import of_details, parse
from lance_spark.proto import index_pb2


@pytest.mark.parametrize(
    ("index_type", "options", "rows", "expected"),
    [
        ("IVF_FLAT", {}, 20_000, 4),
        ("IVF_SQ", {}, 20_000, 2),
        ("IVF_RQ", {}, 20_000, 4),
        ("IVF_HNSW_SQ", {}, 20_000, 1),
        ("IVF_FLAT", {}, 10**9, 4096),
        ("IVF_FLAT", {"target_partition_size": 100}, 5_000, 50),
        ("IVF_FLAT", {"num_partitions": 50}, 100, 50),
        ("IVF_PQ", {"num_partitions": 50}, 5_000, 19),
        ("IVF_PQ", {"num_partitions": 50, "sample_rate": 10}, 5_000, 50),
        ("IVF_PQ", {"target_partition_size": 100}, 5_000, 50),
    ],
)
def test_partitions(index_type: str, options: dict[str, Any], rows: int, expected: int) -> None:
    assert parse(index_type, options).partitions_of(rows) == expected


@pytest.mark.parametrize(
    ("index_type", "options", "message"),
    [
        ("IVF_FLAT", {"num_sub_vectors": 4}, "option 'num_sub_vectors' is unknown"),
        ("IVF_FLAT", {"m": 4}, "option 'm' is unknown"),
        ("IVF_FLAT", {"shape": 4}, "option 'shape' is unknown; the options are metric"),
        ("IVF_FLAT", {"num_partitions": 0}, "num_partitions must be at least 1"),
        ("IVF_FLAT", {"num_partitions": "2"}, "num_partitions must be a whole number"),
        ("IVF_FLAT", {"sample_rate": 2.5}, "sample_rate must be a whole number"),
        ("IVF_FLAT", {"metric": "manhattan"}, "metric must be one of"),
        ("IVF_SQ", {"metric": "hamming"}, "only IVF_FLAT and IVF_HNSW_FLAT"),
        ("IVF_SQ", {"num_bits": 4}, "num_bits must be one of 8"),
        ("IVF_PQ", {"num_bits": 5}, "num_bits must be one of 4, 8"),
        ("IVF_RQ", {"num_bits": 10}, "num_bits must be one of 1"),
        ("IVF_PQ", {"num_bits": 4, "num_sub_vectors": 3}, "must be even"),
        ("IVF_PQ", {"pq_codebook": np.zeros((2, 256, 4)), "num_sub_vectors": 2}, "ivf_centroids"),
        (
            "IVF_PQ",
            {
                "pq_codebook": np.zeros((2, 16, 4)),
                "ivf_centroids": np.zeros((2, 8)),
                "num_sub_vectors": 2,
            },
            r"shape \(2, 256, dimension / 2\)",
        ),
        ("IVF_FLAT", {"ivf_centroids": np.zeros(4)}, r"shape \(partitions, dimension\)"),
        ("IVF_FLAT", {"ivf_centroids": np.zeros((2, 4)), "num_partitions": 3}, "has 2 centroids"),
        ("IVF_FLAT", {"ivf_centroids": np.full((2, 4), np.nan)}, "finite"),
        ("IVF_FLAT", {"ivf_centroids": np.zeros((2, 4), np.int64)}, "floating-point"),
        ("IVF_HNSW_SQ", {"m": 2}, "m must be 4 to 1024"),
        ("IVF_HNSW_SQ", {"ef_construction": 5}, "ef_construction"),
    ],
)
def test_wrong_options(index_type: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises((InvalidOptionError, InvalidInputError), match=message):
        parse(index_type, options)


def test_options_of_pylance_and_of_sql() -> None:
    parsed = parse("IVF_PQ", {"distance_type": "Cosine", "num_partitions": 4.0, "accelerator": "x"})
    assert (parsed.metric, parsed.num_partitions) == (Metric.COSINE, 4)
    assert parsed.with_sub_vectors(48).num_sub_vectors == 3
    assert parsed.with_sub_vectors(40).num_sub_vectors == 5
    with pytest.raises(InvalidOptionError, match="num_sub_vectors is required"):
        parsed.with_sub_vectors(12)
    centroids = pa.FixedSizeListArray.from_arrays(pa.array(np.arange(6.0)), 2)
    given = parse("IVF_FLAT", {"ivf_centroids": centroids})
    assert given.ivf_centroids is not None
    assert (given.num_partitions, given.ivf_centroids.shape) == (3, (3, 2))


@pytest.mark.parametrize(
    ("index_type", "options"),
    [
        ("IVF_FLAT", {"metric": "hamming", "sample_rate": 7}),
        ("IVF_SQ", {"max_iters": 3}),
        ("IVF_PQ", {"num_sub_vectors": 8, "num_bits": 4, "target_partition_size": 9}),
        ("IVF_RQ", {"num_bits": 3, "metric": "dot"}),
        ("IVF_HNSW_PQ", {"num_sub_vectors": 8, "m": 12, "ef_construction": 90, "max_level": 3}),
    ],
)
def test_the_manifest_has_the_parameters(index_type: str, options: dict[str, Any]) -> None:
    parsed = parse(index_type, options)
    details = index_pb2.VectorIndexDetails.FromString(parsed.details())
    assert of_details(index_type, details) == parsed
