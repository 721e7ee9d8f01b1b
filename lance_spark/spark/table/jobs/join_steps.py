"""What tasks do in a nearest-neighbour join; see `nearest_join`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StructType

from lance_spark.dataset.dataset import Dataset
from lance_spark.scan.blob_sizes import bytes_at
from lance_spark.scan.fragment.column_reader import cuts
from lance_spark.scan.metrics import ScanMetrics
from lance_spark.scan.plan import estimated_bytes
from lance_spark.scan.take import take_addresses
from lance_spark.scan.vectors.neighbors import Neighbors
from lance_spark.spark.python_process import TaskObject
from lance_spark.spark.read.snapshot import TableSnapshot
from lance_spark.spark.table.jobs import join_rows
from lance_spark.spark.table.jobs.join_rows import FIRST, NEIGHBORS, ROW, SECOND, SLOT, VECTOR
from lance_spark.spark.table.jobs.nearest_slots import Slots, SlotSearcher
from lance_spark.spark.table.jobs.partition_keys import partition_keys
from lance_spark.spark.types.convert import BatchConverter
from lance_spark.spark.types.mapping import batch_schema, to_spark_schema
from lance_spark.table.rows.u64_segments import UInt64Array

if TYPE_CHECKING:
    from lance_spark.scan.vectors.ivf import Int64Array, Vectors

#: Queries, or rows of the result, that a step handles at once.
_BATCH_ROWS = 4_096
#: Bytes of the rows of the result that are handled at once, if rows are wide.
_BATCH_BYTES = 64 * 1024 * 1024
#: Bytes of the vectors that are sent at once: binary values of one array have less than 2 GiB.
_SENT_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class NearestJoin:
    """What the steps know of a join. Can be pickled.

    Attributes
    ----------
    table : TableSnapshot
    slots : Slots
    columns : tuple of str
        Columns of the table to read.
    names : tuple of str
        Their names in the result.
    blob_handling : str
    keeps_all : bool
        Whether queries without a row are returned.
    vectors : str
        What errors call the vectors of the queries.
    """

    table: TableSnapshot
    slots: Slots
    columns: tuple[str, ...]
    names: tuple[str, ...]
    blob_handling: str
    keeps_all: bool
    vectors: str

    def dataset(self) -> Dataset:
        """Open the version of the table."""
        return Dataset(self.table.open(), dict(self.table.storage_options) or None)

    def table_columns(self) -> StructType:
        """Return the columns of the table, as Spark has them."""
        dataset = self.dataset()
        return to_spark_schema(
            dataset._stored_schema(self.columns, blob_handling=self.blob_handling)
        )


@dataclass(frozen=True)
class AssignQueries(TaskObject):
    """Work that sends queries to slots."""

    join: NearestJoin

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        slots = self.join.slots
        dataset = self.join.dataset()
        slot_keys = partition_keys(slots.num_partitions)
        num_at_once = min(_BATCH_ROWS, slots.most_queries)
        for batch in batches:
            for first in range(0, batch.num_rows, num_at_once):
                part = batch.slice(first, num_at_once)
                row = part.column(ROW)
                vectors, has_vector = slots.queries(part.column(VECTOR), self.join.vectors)
                keys = join_rows.keys_of(vectors)
                yield self._queries(row, vectors, keys, has_vector, slot_keys)
                # Equal vectors of a batch are searched once.
                _, distinct = np.unique(keys, axis=0, return_index=True)
                for query, slot in slots.assigned(dataset, vectors[distinct], keys[distinct, 1]):
                    sent = slot_keys[slot]
                    yield from self._probes(distinct[query], sent, vectors, keys, row.type)

    def _probes(
        self,
        query: Int64Array,
        slot: npt.NDArray[np.int32],
        vectors: Vectors,
        keys: join_rows.Keys,
        dtype: pa.DataType,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows that send queries to slots."""
        step = max(1, _SENT_BYTES // max(1, vectors[:1].nbytes))
        for first in range(0, len(query), step):
            own = query[first : first + step]
            columns = {
                **_keys(keys[own]),
                SLOT: pa.array(slot[first : first + step]),
                VECTOR: join_rows.vectors_as_binaries(vectors[own]),
            }
            yield join_rows.batch_of(columns, len(own), dtype)

    def _queries(
        self,
        row: pa.Array,
        vectors: Vectors,
        keys: join_rows.Keys,
        has_vector: npt.NDArray[np.bool_],
        slot_keys: npt.NDArray[np.int32],
    ) -> pa.RecordBatch:
        """Return the rows that carry the columns of queries."""
        num_missing = int((~has_vector).sum())
        own = np.empty((len(row), 2), np.int64)
        own[has_vector] = keys
        # Any keys that do not bring all of them to one task: there is no partial result for them.
        own[~has_vector] = np.random.default_rng().integers(-(2**63), 2**63, (num_missing, 2))
        place = pa.array(np.cumsum(has_vector) - 1, mask=~has_vector)
        columns = {
            **_keys(own),
            SLOT: pa.array(slot_keys[own[:, 0] % len(slot_keys)]),
            VECTOR: join_rows.vectors_as_binaries(vectors).take(place),
            ROW: row,
        }
        batch = join_rows.batch_of(columns, len(row), row.type)
        return batch if self.join.keeps_all else batch.filter(pa.array(has_vector))


@dataclass(frozen=True)
class SearchSlots(TaskObject):
    """Work that searches slots, and passes the columns of queries on."""

    join: NearestJoin

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        slots = self.join.slots
        searcher = slots.searcher(self.join.dataset())
        shape = np.empty((0, slots.search.dtype.dimension), slots.item_type)
        runs = join_rows.Runs(slots.most_queries)
        slot_of = {
            key: slot for slot, key in enumerate(partition_keys(slots.num_partitions).tolist())
        }
        for batch in batches:
            is_query = batch.column(ROW).is_valid()
            yield batch.filter(is_query)
            for key, probes in runs.add(batch.filter(pc.invert(is_query))):
                yield self._search(searcher, shape, slot_of[key], probes)
        for key, probes in runs.finish():
            yield self._search(searcher, shape, slot_of[key], probes)

    def _search(
        self, searcher: SlotSearcher, shape: Vectors, slot: int, probes: pa.Table
    ) -> pa.RecordBatch:
        keys, first, _ = _numbered(probes)
        vector = probes.column(VECTOR).combine_chunks().take(pa.array(first))
        neighbors = searcher.neighbors(slot, join_rows.matrix_of(vector, shape))
        columns = {
            **_keys(keys),
            SLOT: pa.array(np.zeros(len(keys), np.int32)),
            NEIGHBORS: join_rows.neighbors_as_binaries(neighbors, len(keys)),
        }
        return join_rows.batch_of(columns, len(keys), probes.schema.field(ROW).type)


@dataclass(frozen=True)
class ReadRows(TaskObject):
    """Work that chooses the nearest rows of each query, and reads their columns.

    Attributes
    ----------
    schema : StructType
        Of the result.
    """

    join: NearestJoin
    schema: StructType

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        dataset = self.join.dataset()
        searcher = self.join.slots.searcher(dataset)
        rows = _FoundRows(self.join, dataset)
        names = batch_schema(self.schema).names
        for table in join_rows.groups(batches, _BATCH_ROWS):
            keys, _, number = _numbered(table)
            is_query = table.column(NEIGHBORS).is_null().to_numpy()
            queries = table.filter(pa.array(is_query)).combine_chunks()
            partial_results = table.column(NEIGHBORS).combine_chunks().filter(pa.array(~is_query))
            neighbors = join_rows.neighbors_of(partial_results, number[~is_query])
            neighbors = self._best(searcher, queries, number[is_query], len(keys), neighbors)
            yield from self._joined(rows, names, queries, number[is_query], len(keys), neighbors)

    def _best(
        self,
        searcher: SlotSearcher,
        queries: pa.Table,
        number: Int64Array,
        num_keys: int,
        neighbors: Neighbors,
    ) -> Neighbors:
        """Return the nearest rows of each key."""
        slots = self.join.slots
        if not slots.measures_again:
            return neighbors.best(slots.k)
        items = np.zeros((num_keys, slots.search.dtype.dimension), slots.item_type)
        vector = queries.column(VECTOR)
        has_vector = vector.is_valid().to_numpy()
        if has_vector.any():
            own = vector.combine_chunks().drop_null()
            items[number[has_vector]] = join_rows.matrix_of(own, items)
        best = neighbors.best(slots.num_candidates)
        return searcher.measured(items, best).best(slots.k)

    def _joined(
        self,
        rows: _FoundRows,
        names: Sequence[str],
        queries: pa.Table,
        number: Int64Array,
        num_keys: int,
        neighbors: Neighbors,
    ) -> Iterator[pa.RecordBatch]:
        """Yield each query with its rows."""
        counts = np.bincount(neighbors.queries, minlength=num_keys)
        starts = np.cumsum(counts) - counts
        own = counts[number]
        lengths = np.maximum(own, 1) if self.join.keeps_all else own
        query = np.repeat(np.arange(len(number)), lengths)
        within = np.arange(len(query)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        place = pa.array(starts[number[query]] + within, mask=own[query] == 0)
        if not len(query):
            return
        query_rows = queries.column(ROW).combine_chunks()
        distances = pa.array(neighbors.distances)
        for first, part in rows.parts(neighbors.addresses, place):
            columns = query_rows.take(pa.array(query[first : first + len(part)])).flatten()
            columns += [*rows.read(neighbors.addresses, part), distances.take(part)]
            yield pa.RecordBatch.from_arrays(columns, names=list(names))


class _FoundRows:
    """Reads rows of the table as Spark has them."""

    def __init__(self, join: NearestJoin, dataset: Dataset) -> None:
        self._dataset = dataset
        self._schema = dataset._reader.select(join.columns, join.blob_handling)
        self._output = batch_schema(join.table_columns())
        self._convert = BatchConverter(self._schema.to_arrow(), self._output, reading=True)
        num_rows = max(1, sum(fragment.physical_rows for fragment in dataset.fragments))
        width = estimated_bytes(dataset.fragments, num_rows) // num_rows
        self._num_at_once = max(1, min(_BATCH_ROWS, _BATCH_BYTES // max(1, width)))

    def parts(self, addresses: UInt64Array, place: pa.Array) -> Iterator[tuple[int, pa.Array]]:
        """Yield parts of places that are read at once, each with the number of its first place."""
        dataset = self._dataset
        for start in range(0, len(place), self._num_at_once):
            part = place.slice(start, self._num_at_once)
            is_row = part.is_valid().to_numpy(zero_copy_only=False)
            sizes = np.zeros(len(part), np.int64)
            sizes[is_row] = bytes_at(
                dataset._table.paths,
                dataset.fragments,
                self._schema,
                addresses[part.drop_null().to_numpy()],
                dataset._reader.open_files,
            )
            for rows in cuts(sizes):
                yield start + rows.start, part.slice(rows.start, rows.stop - rows.start)

    def read(self, addresses: UInt64Array, place: pa.Array) -> list[pa.Array]:
        """Return the columns of some of the addresses; null for a null place."""
        wanted = addresses[place.drop_null().to_numpy()]
        unique, row = np.unique(wanted, return_inverse=True)
        index = np.zeros(len(place), np.int64)
        is_row = place.is_valid().to_numpy(zero_copy_only=False)
        index[is_row] = row.reshape(-1)
        if not self._output.names:
            return []
        dataset = self._dataset
        taken = take_addresses(
            dataset._table.paths,
            dataset.fragments,
            self._schema,
            unique,
            dataset._reader.open_files,
            ScanMetrics(),
        )
        batches = [part for batch in taken.to_batches() for part in self._convert(batch)]
        table = pa.Table.from_batches(batches, self._output).combine_chunks()
        table = table.take(pa.array(index, mask=~is_row))
        return [column.combine_chunks() for column in table.columns]


def _keys(keys: join_rows.Keys) -> dict[str, pa.Array]:
    return {FIRST: pa.array(keys[:, 0]), SECOND: pa.array(keys[:, 1])}


def _numbered(rows: pa.Table) -> tuple[join_rows.Keys, Int64Array, Int64Array]:
    """Return distinct keys, the first row of each, and the number of the key of each row."""
    keys = np.column_stack([rows.column(name).to_numpy() for name in (FIRST, SECOND)])
    distinct, first, number = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    return distinct, first, number.reshape(-1)
