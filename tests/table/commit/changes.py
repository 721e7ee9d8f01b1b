"""Changes that tests commit."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from lance_spark.file.schema.schema import Schema
from lance_spark.storage.store import ObjectStore
from lance_spark.table.commit.commit import commit
from lance_spark.table.commit.transaction import Transaction
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.open import read_latest
from lance_spark.table.operations.append import Append, Overwrite
from tests.support.tables.pylance_written import rows, written_by_pylance


def append(
    path: Path, start: int, store: ObjectStore | None = None, base: Manifest | None = None
) -> Manifest:
    store = store or ObjectStore.from_uri(path)
    base = base or read_latest(ObjectStore.from_uri(path))
    version = ".".join(map(str, base.data_storage_version))
    operation = Append(written_by_pylance(path, rows(start), version))
    return commit(store, Transaction.new(base.version, operation), base)


def overwrite(path: Path, data: pa.Table, **options: object) -> Overwrite:
    schema = Schema.from_arrow(data.schema)
    return Overwrite(
        written_by_pylance(path, data), tuple(schema.to_protos()), schema.metadata, **options
    )


def create(path: Path, *, enable_stable_row_ids: bool = False, **options: object) -> Manifest:
    operation = overwrite(path, rows(0), data_storage_version=(2, 2), **options)
    return commit(
        ObjectStore.from_uri(path),
        Transaction.new(0, operation),
        None,
        enable_stable_row_ids=enable_stable_row_ids,
    )


def transaction_files(path: Path) -> set[str]:
    return {file.name for file in (path / "_transactions").iterdir()}
