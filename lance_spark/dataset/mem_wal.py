"""The arguments of `Dataset` for a MemWAL, and `evaluate_sharding_spec`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

from lance_spark.keywords import Keyword
from lance_spark.table.commit.options import CommitKeywords

if TYPE_CHECKING:
    import pyarrow as pa

    from lance_spark.dataset.dataset import Dataset
    from lance_spark.mem_wal.table.details import ShardingSpec

_WITHOUT_EFFECT = "Has no effect here; pylance has it."


class WriterKeywords(TypedDict, total=False):
    """Options of writers of a MemWAL."""

    durable_write: Annotated[
        bool | None,
        Keyword(
            "Whether a put returns only when its rows are stored in the log. True by default. If "
            "False, rows wait for others; a crash can lose them."
        ),
    ]
    max_wal_buffer_size: Annotated[
        int | None,
        Keyword("The number of bytes after which waiting rows are stored; 10 MiB by default."),
    ]
    max_wal_flush_interval_ms: Annotated[
        int | None, Keyword("The time after which waiting rows are stored; 100 ms by default.")
    ]
    max_memtable_size: Annotated[
        int | None,
        Keyword("Bytes in memory after which rows become an SSTable; 256 MiB by default."),
    ]
    max_memtable_rows: Annotated[
        int | None,
        Keyword("Rows in memory after which they become an SSTable; 100,000 by default."),
    ]
    max_memtable_batches: Annotated[
        int | None,
        Keyword("Log entries in memory after which rows become an SSTable; 8,000 by default."),
    ]
    max_unflushed_memtable_bytes: Annotated[int | None, Keyword(_WITHOUT_EFFECT)]
    manifest_scan_batch_size: Annotated[int | None, Keyword(_WITHOUT_EFFECT)]
    backpressure_log_interval_ms: Annotated[int | None, Keyword(_WITHOUT_EFFECT)]
    stats_log_interval_ms: Annotated[int | None, Keyword(_WITHOUT_EFFECT)]
    hnsw_params: Annotated[Mapping[str, Mapping[str, int]] | None, Keyword(_WITHOUT_EFFECT)]


class ShardingKeywords(TypedDict, total=False):
    """To which shards the rows of a new MemWAL belong, and the indexes of new rows."""

    bucket_column: Annotated[
        str | None,
        Keyword(
            "Deals rows out to `num_buckets` shards by the hash of this column, which must be in "
            "the primary key, if the table has one."
        ),
    ]
    num_buckets: Annotated[int | None, Keyword("The number of these shards, from 1 to 1024.")]
    identity_column: Annotated[
        str | None,
        Keyword(
            "Each value of this column has a shard. As `bucket_column`, with booleans, integers or "
            "strings."
        ),
    ]
    unsharded: Annotated[bool, Keyword("Whether all rows go to one shard.", False)]
    maintained_indexes: Annotated[
        Sequence[str] | None,
        Keyword("Indexes that pylance builds for new rows, too; by default all."),
    ]


class MemWalKeywords(ShardingKeywords, WriterKeywords, CommitKeywords, total=False):
    """Keywords of a new MemWAL: its shards, the defaults of its writers, and the commit."""


class DefaultsKeywords(TypedDict, total=False):
    """The defaults of writers in one argument, which a call in SQL can give."""

    writer_options: Annotated[
        Mapping[str, Any] | None,
        Keyword("Defaults of all writers, by the names of `Dataset.mem_wal_writer`."),
    ]


class NewMemWalKeywords(ShardingKeywords, DefaultsKeywords, CommitKeywords, total=False):
    """Keywords of `LanceTable.initialize_mem_wal`."""


def evaluate_sharding_spec(
    batch: pa.RecordBatch | pa.Table,
    spec: ShardingSpec | Mapping[str, Any],
    schema: Dataset,
) -> pa.RecordBatch:
    """Compute the values by which rows are dealt out to shards.

    Parameters
    ----------
    batch : pyarrow.RecordBatch or pyarrow.Table
        Rows with the columns that the spec uses.
    spec : ShardingSpec or mapping
        A mapping is one of the values ``sharding_specs`` of `Dataset.mem_wal_index_details`.
    schema : Dataset
        The table whose field ids the spec has.

    Returns
    -------
    pyarrow.RecordBatch
        One column for each sharding field, with its name.

    Raises
    ------
    InvalidInputError
        The spec or the rows lack a column or a parameter.
    UnsupportedError
        The transform is unknown, or not defined for the type of the column.

    Examples
    --------
    >>> (spec,) = dataset.mem_wal_index_details()["sharding_specs"]  # doctest: +SKIP
    >>> evaluate_sharding_spec(rows, spec, dataset)["bucket"]  # doctest: +SKIP
    """
    from lance_spark.mem_wal import sharding

    return sharding.evaluate_sharding_spec(batch, spec, schema._table.schema)
