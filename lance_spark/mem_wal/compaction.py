"""Compactions of a MemWAL: the rows of SSTables are brought into the base table, in one commit.

| step | action |
| --- | --- |
| plan | reads the shard manifests, then the newest version of the base table |
| task | takes the newest row of each key of some shards, and finds these keys in the base table |
| commit | one `Update`: deletes the old rows, adds the new ones, records the generations |
| drain | a new shard manifest, without the compacted SSTables |

Shard manifests are read first: a compaction of another client commits before it drains, so no
SSTable is missed. A tombstone deletes the rows of its key. If the base table has several rows of a
key, one row replaces them all. Without a primary key, all rows are new.

A commit fails if another client has compacted one of the generations. Then the compaction is
planned again, and has nothing left to do there. A crash before the commit leaves files that no
version refers to; a crash before the drain leaves SSTables that readers skip, and that the next
compaction drains. Specification: table/mem_wal.md.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lance_spark.encoding.rows import RowNumbers
from lance_spark.errors import CorruptTableError, InvalidInputError, StorageError, error_context
from lance_spark.file.arrays import without_sliced_matrices
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.schema import Schema
from lance_spark.mem_wal.clone_progress import check_generations
from lance_spark.mem_wal.entries import TOMBSTONE
from lance_spark.mem_wal.key_index import key_values
from lance_spark.mem_wal.sstable import key_columns, live_rows, open_sstable
from lance_spark.mem_wal.table.details import MemWalDetails, compacted_messages, details_of
from lance_spark.mem_wal.table.shard_manifest import (
    ShardManifest,
    list_shards,
    publish,
    read_latest_manifest,
)
from lance_spark.mutations.commits import at_version, check_rows_writable, retry_on_conflict
from lance_spark.mutations.rewrite.readers import matching_rows
from lance_spark.mutations.rewrite.writers import RewrittenRows, RowRewriter
from lance_spark.mutations.rows.conditions import candidate_rows, with_candidates
from lance_spark.mutations.rows.delete import run_delete, union_rows
from lance_spark.mutations.rows.merge import KeyFilter
from lance_spark.mutations.rows.update import commit_moved_rows
from lance_spark.predicates.conditions import Condition
from lance_spark.predicates.tuples import Comparison
from lance_spark.runner import Runner, abort_on_error, runner_for
from lance_spark.storage.parallel import read_all
from lance_spark.table.commit.options import Backoff, CommitOptions
from lance_spark.table.fragments.row_counts import counted_fragments
from lance_spark.table.fragments.writer import delete_fragments
from lance_spark.table.manifest.manifest import Manifest
from lance_spark.table.open import OpenTable, open_table
from lance_spark.table.open import read_latest as read_latest_version
from lance_spark.table.primary_key import primary_key
from lance_spark.table.rows.u64_segments import UInt64Array

# --------------------------------------------------------------------------------------------------
# Removes compacted SSTables from the shard manifests.
#
# A client creates the next version of the shard manifest, without these SSTables and with all else
# as it is. The epoch stays, so that the writer of the shard goes on. If the writer creates the
# version first, the client reads the shard again. The files of the SSTables stay, for readers that
# have read an older shard manifest (`cleanup`).
#
# Shards of a MemWAL that was disabled and initialized again have the same ids, and count their
# generations from 1 again. Therefore the client reads the progress of compactions after the shard
# manifests.

#: Attempts to create the next version before the writer of the shard does.
_ATTEMPTS = 10


def drain(table: OpenTable) -> Mapping[uuid.UUID, int]:
    """Remove the SSTables whose rows a version of the base table has from the shard manifests.

    - `table`: A version of the table. The shards of compactions that it has are read.

    Returns the number of removed SSTables of each shard that had some. Raises CorruptTableError,
    CorruptFileError, UnsupportedFeatureError, StorageError.
    """
    store, backoff = table.store, Backoff()
    removed: dict[uuid.UUID, int] = {}
    shards = list(_compacted(table.manifest))
    for _ in range(_ATTEMPTS):
        manifests = read_all(partial(read_latest_manifest, store), shards, local=store.is_local)
        filled = [manifest for manifest in manifests if manifest is not None and manifest.sstables]
        compacted = _compacted(read_latest_version(store)) if filled else {}
        shards = []
        for manifest in filled:
            newest = compacted.get(manifest.shard, 0)
            kept = tuple(part for part in manifest.sstables if part.generation > newest)
            if len(kept) == len(manifest.sstables):
                continue
            if publish(store, replace(manifest, version=manifest.version + 1, sstables=kept)):
                removed[manifest.shard] = len(manifest.sstables) - len(kept)
            else:
                shards.append(manifest.shard)
        if not shards:
            return removed
        backoff.wait()
    raise StorageError(
        f"{store.display}: shard {shards[0]} of the MemWAL was changed {_ATTEMPTS} times while its "
        "compacted SSTables were removed from its manifest; their rows are in the table. Compact "
        "the MemWAL again to remove them (Dataset.compact_mem_wal, LanceTable.compact_mem_wal)"
    )


def _compacted(manifest: Manifest) -> Mapping[uuid.UUID, int]:
    details = details_of(manifest)
    return details.compacted if details is not None else {}


# --------------------------------------------------------------------------------------------------
# Compactions of a MemWAL: the rows of SSTables are brought into the base table, in one commit.

#: Up to this number of keys, an index of the key finds each of them.
_FEW_KEYS = 1000
#: Bytes of SSTables, as they were in memory, that a task reads at most, unless a shard has more.
_TASK_BYTES = 256 * 1024 * 1024
#: Rows, and bytes of rows, that are written at once.
_BATCH_ROWS, _BATCH_BYTES = 65_536, 64 * 1024 * 1024
#: What `_find` returns if no row has a fresh key.
_NO_MATCHES = np.empty(0, np.int64), np.empty(0, np.uint64)


@dataclass(frozen=True, slots=True)
class MemWalCompaction:
    """The outcome of a compaction.

    - `version`: The version of the base table with the rows, or as it was if there was nothing to
      do.
    - `generations`: The newest generation of each shard that was compacted.
    - `num_inserted`, `num_updated`, `num_deleted`: Rows of the base table.
    """

    version: int
    generations: Mapping[uuid.UUID, int] = field(default_factory=dict)
    num_sstables: int = 0
    num_inserted: int = 0
    num_updated: int = 0
    num_deleted: int = 0


@dataclass(frozen=True, slots=True)
class ShardSsTables:
    """SSTables of a shard that a task compacts.

    - `generation`: The newest one.
    - `folders`: In increasing order of their generations.
    - `num_bytes`: Size of the rows in memory.
    """

    shard: uuid.UUID
    generation: int
    folders: tuple[str, ...]
    num_bytes: int = 0


@dataclass(frozen=True, slots=True)
class CompactedRows:
    """The result of a task. Small, and can be pickled."""

    rewritten: RewrittenRows
    num_deleted: int
    keys: KeyFilter


@dataclass(frozen=True, slots=True)
class MemWalTask:
    """Compacts SSTables of some shards. Can be pickled; holds no manifest.

    - `uri`: Root of the base table.
    - `version`: The version of the base table that the compaction was planned on.
    - `tag`: Tag in the names of the new files.
    - `first`: Number of the task.
    """

    uri: str = field(repr=False)
    version: int
    shards: tuple[ShardSsTables, ...]
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    tag: bytes = b""
    first: int = 0

    def run(self) -> CompactedRows:
        """Write the new rows, and find the old ones.

        Raises CorruptFileError, CorruptTableError, UnsupportedEncodingError, StorageError.
        """
        table = open_table(
            self.uri, version=self.version, storage_options=self.storage_options or None
        )
        schema = table.schema
        names = schema.names
        rewriter = RowRewriter(table, schema, names, tag=self.tag, first=self.first)
        key = primary_key(schema)
        keys = KeyFilter([path[-1].arrow_field.type for path in key])
        with error_context(table.store.display), abort_on_error(rewriter.abort):
            fresh = _newest_rows(table, self.shards) if key else _all_rows(table, self.shards)
            rows, addresses = _find(table, fresh) if key else _NO_MATCHES
            is_deleted = fresh.rows.column(TOMBSTONE).to_numpy()
            values = fresh.rows.select(names)
            # Further rows of a key in the base table give way, too.
            is_first = np.ones(len(rows), np.bool_)
            is_first[1:] = rows[1:] != rows[:-1]
            is_moved = is_first & ~is_deleted[rows]
            rewriter.mark_deleted(addresses[~is_moved])
            num_deleted = int((~is_moved).sum())
            moved, old = rows[is_moved], addresses[is_moved]
            for part, batch in _parts(values, moved):
                rewriter.move(old[part], batch)
            is_new = ~is_deleted
            is_new[rows] = False
            for _, batch in _parts(values, np.flatnonzero(is_new)):
                rewriter.insert(batch)
                if key:
                    columns = key_columns(schema, pa.Table.from_batches([batch]))
                    names_of_keys = [str(number) for number in range(len(columns))]
                    keys.add(pa.RecordBatch.from_arrays(columns, names=names_of_keys))
            return CompactedRows(rewriter.finish(), num_deleted, keys)


@dataclass(frozen=True, slots=True)
class _FreshRows:
    """The newest row of each key; all rows without a primary key.

    - `rows`: Columns of the base table, and `_tombstone`.
    - `keys`: See `key_index.key_values`; distinct. Empty without a primary key.
    """

    rows: pa.Table
    keys: pa.Array


def compact_mem_wal(
    table: OpenTable,
    options: CommitOptions | None = None,
    *,
    runner: Runner | None = None,
    drains: bool = True,
) -> MemWalCompaction:
    """Bring the rows of all SSTables into the base table, in one commit.

    Rows of logs stay where they are, until their writer flushes them.

    - `table`: Any version of the branch.
    - `runner`: Runs the tasks; by default in this process.
    - `drains`: Whether compacted SSTables are removed from the shard manifests. Their files stay
      for readers of older shard manifests; see `cleanup`.

    Raises CorruptTableError, CorruptFileError, UnsupportedFeatureError, StorageError. Raises
    InvalidInputError: the table has no MemWAL. Raises CommitConflictError: other clients changed
    the same rows in all attempts.
    """
    options = options or CommitOptions()
    done = retry_on_conflict(
        table,
        lambda current: _compact(current, options, runner),
        options,
        replan_always=True,
    )
    if drains:
        newest = at_version(table, read_latest_version(table.store))
        drain(newest)
    return done


def _compact(table: OpenTable, options: CommitOptions, runner: Runner | None) -> MemWalCompaction:
    newest, shards = plan_shards(table)
    if not shards:
        return MemWalCompaction(newest.version)
    check_rows_writable(newest, data_files=True)
    task_runner = runner_for(newest, runner)
    tasks = plan_tasks(newest, shards, task_runner.tag)
    results = task_runner.run(tasks, MemWalTask.run, partial(_undo, newest))
    return commit_tasks(newest, shards, results, task_runner, options)


def commit_tasks(
    table: OpenTable,
    shards: Sequence[ShardSsTables],
    results: Sequence[CompactedRows],
    runner: Runner,
    options: CommitOptions | None = None,
) -> MemWalCompaction:
    """Commit the results of all tasks of a plan.

    - `table`: The version that the compaction was planned on.
    - `runner`: Runs the tasks that write deletion files.

    Raises UncertainCommitError, StorageError. Raises CommitConflictError: another client has
    compacted one of the generations, or changed the same rows. Raises InvalidInputError: SSTables
    of several tasks have the same key.
    """
    rewritten = [result.rewritten for result in results]
    with abort_on_error(lambda: _undo(table, *results)):
        rows = union_rows((part.rows for part in rewritten), disjoint=True)
        deletions = run_delete(table, runner, (), rows, check_rows_writable) if rows else []
    updated = sum(part.num_rows for part in rewritten)
    deleted = sum(result.num_deleted for result in results)
    inserted = sum(part.num_inserted for part in rewritten)
    keys = results[0].keys
    for result in results[1:]:
        keys.merge(result.keys)
    key = primary_key(table.schema)
    generations = {part.shard: part.generation for part in shards}
    manifest = commit_moved_rows(
        table,
        rewritten,
        deletions,
        updated + deleted,
        table.schema.names,
        options or CommitOptions(),
        keys.inserted([path[-1].id for path in key]) if inserted and key else None,
        compacted_messages(generations),
    )
    num_sstables = sum(len(part.folders) for part in shards)
    return MemWalCompaction(manifest.version, generations, num_sstables, inserted, updated, deleted)


def plan_shards(table: OpenTable) -> tuple[OpenTable, list[ShardSsTables]]:
    """Return the newest version of the base table, and the SSTables that it does not have.

    Raises CorruptFileError, StorageError. Raises InvalidInputError: the table has no MemWAL. Raises
    CorruptTableError: a shard lacks an SSTable whose rows the base table does not have, or has one
    that counts as compacted and is not; or the table has no columns.
    """
    store = table.store
    manifests = read_shards(table)
    newest = at_version(table, read_latest_version(store))
    details = mem_wal_of(newest)
    check_generations(store, manifests, details.compacted)
    if not newest.schema.names:
        raise CorruptTableError(f"{store.display}: the table has a MemWAL, but no columns")
    shards = []
    for manifest in manifests:
        compacted = details.compacted.get(manifest.shard, 0)
        sstables = [part for part in manifest.sstables if part.generation > compacted]
        if not sstables:
            continue
        # Generations of a manifest are distinct, in order, and below the current generation.
        if len(sstables) != manifest.current_generation - 1 - compacted:
            raise CorruptTableError(
                f"{store.display}: shard {manifest.shard} of the MemWAL lists the generations "
                f"{[part.generation for part in sstables]}, but the table lacks the rows of all "
                f"from {compacted + 1} to {manifest.current_generation - 1}: an SSTable is lost, "
                "or the table was restored to an older version; restore the newer version"
            )
        shards.append(
            ShardSsTables(
                manifest.shard,
                sstables[-1].generation,
                tuple(part.folder for part in sstables),
                sum(part.in_memory_bytes or 0 for part in sstables),
            )
        )
    return newest, shards


def read_shards(table: OpenTable) -> list[ShardManifest]:
    """Return the newest manifest of each shard.

    Raises CorruptFileError, UnsupportedFeatureError, StorageError.
    """
    store = table.store
    manifests = read_all(
        lambda shard: read_latest_manifest(store, shard), list_shards(store), local=store.is_local
    )
    return [manifest for manifest in manifests if manifest is not None]


def mem_wal_of(table: OpenTable) -> MemWalDetails:
    """Return the details of the MemWAL of a version.

    Raises CorruptTableError. Raises InvalidInputError: the table has no MemWAL.
    """
    details = details_of(table.manifest)
    if details is None:
        raise InvalidInputError(
            f"{table.store.display}: the table has no MemWAL; initialize one first "
            "(Dataset.initialize_mem_wal, LanceTable.initialize_mem_wal)"
        )
    return details


def plan_tasks(table: OpenTable, shards: Iterable[ShardSsTables], tag: bytes) -> list[MemWalTask]:
    """Distribute shards to tasks. Each task reads the keys of the base table."""
    groups: list[list[ShardSsTables]] = []
    size = 0
    for part in shards:
        if not groups or size + part.num_bytes > _TASK_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(part)
        size += part.num_bytes
    return [
        MemWalTask(table.store.uri, table.version, tuple(group), table.store.options, tag, number)
        for number, group in enumerate(groups)
    ]


def _newest_rows(table: OpenTable, shards: Iterable[ShardSsTables]) -> _FreshRows:
    tables: list[pa.Table] = []
    seen: list[pa.Array] = []
    for part in shards:
        for folder in reversed(part.folders):
            rows = live_rows(table, open_sstable(table, part.shard, folder))
            values = key_values(key_columns(table.schema, rows))
            # Also a key of another shard: writers that ignore the sharding must not double it.
            if seen:
                known = pa.chunked_array(seen).combine_chunks()
                is_new = pc.invert(pc.is_in(values, value_set=known))
                rows, values = rows.filter(is_new), values.filter(is_new)
            seen.append(values)
            tables.append(rows)
    return _FreshRows(pa.concat_tables(tables), pa.chunked_array(seen).combine_chunks())


def _all_rows(table: OpenTable, shards: Iterable[ShardSsTables]) -> _FreshRows:
    """Return the rows of SSTables of a table without a primary key, in their order."""
    tables = [
        live_rows(table, open_sstable(table, part.shard, folder))
        for part in shards
        for folder in part.folders
    ]
    return _FreshRows(pa.concat_tables(tables), pa.nulls(0))


def _find(table: OpenTable, fresh: _FreshRows) -> tuple[np.ndarray[Any, Any], UInt64Array]:
    """Return the rows of the base table with fresh keys: number of the fresh row, and address.

    They are in the order of the fresh rows.
    """
    schema, manifest = table.schema, table.manifest
    paths = primary_key(schema)
    fields = Schema.of_paths(paths).fields
    fragments = counted_fragments(table.paths, manifest)
    conditions = _conditions(paths, fresh.keys)
    candidates = candidate_rows(table, fragments, conditions)
    numbers: list[np.ndarray[Any, Any]] = [np.empty(0, np.int64)]
    addresses: list[UInt64Array] = [np.empty(0, np.uint64)]
    for batch in matching_rows(
        table.paths,
        with_candidates(fragments, candidates),
        fields,
        manifest.data_storage_version,
        manifest.base_paths,
        conditions,
        candidates,
        with_lineage=False,
    ):
        values = key_values(key_columns(schema, pa.Table.from_batches([batch.values])))
        matches = pc.index_in(values, value_set=fresh.keys)
        matched = np.flatnonzero(matches.is_valid().to_numpy(zero_copy_only=False))
        numbers.append(matches.drop_null().to_numpy().astype(np.int64))
        addresses.append(batch.addresses[matched])
    rows, places = np.concatenate(numbers), np.concatenate(addresses)
    order = np.argsort(rows, kind="stable")
    return rows[order], places[order]


def _conditions(paths: Sequence[tuple[Field, ...]], keys: pa.Array) -> tuple[Condition, ...]:
    """Return conditions that all rows with some keys meet, by which indexes find the rows."""
    if len(paths) > 1 or not len(keys) or pa.types.is_boolean(keys.type):
        return ()
    if len(keys) <= _FEW_KEYS:
        return (Comparison(paths[0], "in", keys),)
    bounds = pc.min_max(keys)
    return (
        Comparison(paths[0], ">=", bounds["min"]),
        Comparison(paths[0], "<=", bounds["max"]),
    )


def _parts(values: pa.Table, numbers: RowNumbers) -> Iterator[tuple[slice, pa.RecordBatch]]:
    """Yield rows with increasing numbers, in batches of a limited size.

    Yields
    ------
    slice
        The places of the numbers of the rows.
    pa.RecordBatch
        The rows.
    """
    row_bytes = values.nbytes // max(values.num_rows, 1)
    step = max(1, min(_BATCH_ROWS, _BATCH_BYTES // max(row_bytes, 1)))
    for start in range(0, values.num_rows, step):
        first, stop = np.searchsorted(numbers, (start, start + step)).tolist()
        if first == stop:
            continue
        # Arrow joins all chunks of a column that it takes rows from, and cannot join strings of
        # 2 GiB.
        pieces = map(without_sliced_matrices, values.slice(start, step).to_batches())
        window = pa.Table.from_batches(pieces, values.schema)
        (batch,) = window.take(pa.array(numbers[first:stop] - start)).combine_chunks().to_batches()
        yield slice(first, stop), batch


def _undo(table: OpenTable, *results: CompactedRows) -> None:
    for result in results:
        rewritten = result.rewritten
        delete_fragments(table.paths, [*rewritten.fragments, *rewritten.inserted])
