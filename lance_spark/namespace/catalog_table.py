"""The catalog table `__manifest` of a directory namespace: which names exist, and where.

| column | type | content |
| --- | --- | --- |
| object_id | string, not null, primary key | names with `$` between: `db$t1` |
| object_type | string, not null | `namespace` or `table`; others are kept, and not listed |
| location | string | folder of a table, relative to the root of the namespace |
| metadata | string | properties as a JSON object, or null |
| base_objects | list of string | not used |

It is a Lance table. Other clients may have added columns, which are kept. A change writes all rows
again and commits an overwrite as exactly the next version. If another client commits first, the
rows are read again, and the change is made again. pylance changes the table in the same way.

The metadata of the table may have feature flags. A client that does not know a flag must not read
or write the table:

| key in the table metadata | content |
| --- | --- |
| lance.namespace.manifest.reader_feature_flags | number, 0 if absent: what readers must know |
| lance.namespace.manifest.writer_feature_flags | number, 0 if absent: what writers must know |
| table_version_management | `true`: versions of tables are committed in the catalog table |

See docs/src/dir/catalog-spec.md of the specification of namespaces.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from lance_spark.errors import (
    CommitConflictError,
    CorruptTableError,
    TableExistsError,
    TableNotFoundError,
    UnsupportedFeatureError,
)
from lance_spark.scan.task import FragmentSlice, ScanTask
from lance_spark.table.commit.options import DEFAULT_MAX_RETRIES, Backoff, replan_on_conflict
from lance_spark.table.commit.write_commit import commit_or_clean_up
from lance_spark.table.commit.write_job import CreateTable, ReplaceVersion, WriteStrategy
from lance_spark.table.commit.write_plan import begin_write
from lance_spark.table.fragments.row_counts import counted_fragments
from lance_spark.table.open import OpenTable, open_table

NAME = "__manifest"
_KEY = {"lance-schema:unenforced-primary-key:position": "0"}
SCHEMA = pa.schema(
    [
        pa.field("object_id", pa.string(), nullable=False, metadata=_KEY),
        pa.field("object_type", pa.string(), nullable=False),
        pa.field("location", pa.string()),
        pa.field("metadata", pa.string()),
        pa.field("base_objects", pa.list_(pa.field("object_id", pa.string()))),
    ]
)
_BATCH_ROWS = 8192
_READER_FLAGS = "lance.namespace.manifest.reader_feature_flags"
_WRITER_FLAGS = "lance.namespace.manifest.writer_feature_flags"
_MANAGED_VERSIONS = "table_version_management"

Change = Callable[[pa.Table], pa.Table]


@dataclass(frozen=True, slots=True)
class CatalogTable:
    """The catalog table of a root folder. A table that does not exist yet has no rows.

    - `uri`: URI of the table.
    """

    uri: str
    storage_options: Mapping[str, Any]

    def __repr__(self) -> str:
        return f"CatalogTable({self.uri!r})"

    def rows(self) -> pa.Table:
        """Read all rows.

        Raises StorageError. Raises UnsupportedFeatureError: the table has a feature that this
        release does not know. Raises CorruptTableError: a column is missing or has another type.
        """
        table = self._open()
        return SCHEMA.empty_table() if table is None else self._rows_of(table)

    def change(self, change: Change) -> None:
        """Replace the rows by the rows that `change` returns for them.

        - `change`: Returns the new rows for the present rows, or the present rows to change
          nothing. It is called again with newer rows after another client committed first.

        Raises UnsupportedFeatureError, CorruptTableError, StorageError, UncertainCommitError.
        Raises CommitConflictError: other clients were faster too often.
        """
        backoff = Backoff()

        def again(change: Change, _: CommitConflictError) -> Change:
            backoff.wait()
            return change

        try:
            replan_on_conflict(self._change_once, change, again, DEFAULT_MAX_RETRIES)
        except CommitConflictError as error:
            raise CommitConflictError(
                f"{self.uri}: other clients changed the catalog table "
                f"{DEFAULT_MAX_RETRIES + 1} times at the same time; try again later",
                retryable=True,
            ) from error

    def _change_once(self, change: Change) -> None:
        table = self._open()
        strategy: WriteStrategy = CreateTable()
        rows = SCHEMA.empty_table()
        if table is not None:
            self._check_writable(table)
            strategy, rows = ReplaceVersion(), self._rows_of(table)
        changed = change(rows)
        if changed is rows:
            return
        # Not "create": it would be an error if another client has created the table by now.
        job = begin_write(
            self.uri, changed.schema, mode="overwrite", storage_options=self.storage_options
        ).with_strategy(strategy)
        if job.read_version != (0 if table is None else table.version):
            raise CommitConflictError(
                f"{self.uri}: another client changed the catalog table", retryable=True
            )
        fragments = job.writer().write_all(changed.combine_chunks().to_batches())
        try:
            commit_or_clean_up(job, fragments)
        except TableExistsError as error:
            raise CommitConflictError(str(error), retryable=True) from error

    def _open(self) -> OpenTable | None:
        try:
            table = open_table(self.uri, storage_options=self.storage_options)
        except TableNotFoundError:
            return None
        self._check_flags(table, _READER_FLAGS, "read")
        return table

    def _check_writable(self, table: OpenTable) -> None:
        self._check_flags(table, _WRITER_FLAGS, "write")
        if table.manifest.table_metadata.get(_MANAGED_VERSIONS) == "true":
            raise UnsupportedFeatureError(
                f"{self.uri}: the catalog table manages the versions of its tables "
                f"({_MANAGED_VERSIONS}), which this release does not write; use another client"
            )

    def _check_flags(self, table: OpenTable, key: str, action: str) -> None:
        flags = table.manifest.table_metadata.get(key, "0")
        if flags != "0":
            raise UnsupportedFeatureError(
                f"{self.uri}: the catalog table has feature flags {flags!r} ({key}), which this "
                f"release does not know; {action} it with a newer release"
            )

    def _rows_of(self, table: OpenTable) -> pa.Table:
        schema = table.schema.to_arrow()
        for name in ("object_id", "object_type", "location", "metadata"):
            index = schema.get_field_index(name)
            if index < 0 or schema.field(index).type != pa.string():
                existing = "is missing" if index < 0 else f"has type {schema.field(index).type}"
                raise CorruptTableError(
                    f"{self.uri}: column {name} of the catalog table {existing}; expected string"
                )
        fragments = counted_fragments(table.paths, table.manifest)
        task = ScanTask(
            uri=table.store.uri,
            lance_schema=table.schema,
            slices=tuple(
                FragmentSlice(fragment, 0, fragment.physical_rows) for fragment in fragments
            ),
            batch_size=_BATCH_ROWS,
            base_paths=table.manifest.base_paths,
            storage_options=table.store.options,
        )
        return pa.Table.from_batches(task.batches(prefetch=False), schema)
