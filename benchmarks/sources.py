"""Python data sources to compare with: one that decodes nothing, one around pylance, one that does
nothing.

They are pickled by value into Spark's workers, so everything they need is imported inside their
methods.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.pandas.types import from_arrow_schema


class Piece(InputPartition):
    def __init__(self, start: int, stop: int) -> None:
        self.start, self.stop = start, stop


class PrebuiltSource(DataSource):
    """Yields the batches of an Arrow IPC file, mapped into memory: what transport alone costs."""

    @classmethod
    def name(cls) -> str:
        return "prebuilt"

    def schema(self) -> Any:
        import pyarrow as pa

        with pa.memory_map(self.options["path"]) as source:
            return from_arrow_schema(pa.ipc.open_file(source).schema)

    def reader(self, schema: Any) -> DataSourceReader:
        return PrebuiltReader(self.options["path"], int(self.options.get("tasks", "4")))


class PrebuiltReader(DataSourceReader):
    def __init__(self, path: str, tasks: int) -> None:
        self.path, self.tasks = path, tasks

    def partitions(self) -> list[InputPartition]:
        import pyarrow as pa

        with pa.memory_map(self.path) as source:
            count = pa.ipc.open_file(source).num_record_batches
        cuts = [count * i // self.tasks for i in range(self.tasks + 1)]
        return [Piece(a, b) for a, b in itertools.pairwise(cuts) if b > a]

    def read(self, partition: Any) -> Iterator[Any]:
        import pyarrow as pa

        with pa.memory_map(self.path) as source:
            reader = pa.ipc.open_file(source)
            for i in range(partition.start, partition.stop):
                yield reader.get_batch(i)


class PylanceSource(DataSource):
    """Reads a Lance table with pylance, one fragment a partition."""

    @classmethod
    def name(cls) -> str:
        return "pylance"

    def schema(self) -> Any:
        import lance

        from benchmarks.arrow import as_spark

        return from_arrow_schema(as_spark(lance.dataset(self.options["path"]).schema))

    def reader(self, schema: Any) -> DataSourceReader:
        return PylanceReader(self.options["path"], int(self.options.get("batch_size", "8192")))

    def writer(self, schema: Any, overwrite: bool) -> DataSourceArrowWriter:
        return PylanceWriter(self.options["path"], schema)


class PylanceReader(DataSourceReader):
    def __init__(self, path: str, batch_size: int) -> None:
        self.path, self.batch_size = path, batch_size

    def partitions(self) -> list[InputPartition]:
        import lance

        return [Piece(f.fragment_id, 0) for f in lance.dataset(self.path).get_fragments()]

    def read(self, partition: Any) -> Iterator[Any]:
        import lance

        from benchmarks.arrow import as_spark, to_spark

        fragment = lance.dataset(self.path).get_fragment(partition.start)
        for batch in fragment.to_batches(batch_size=self.batch_size):
            yield to_spark(batch, as_spark(batch.schema))


class Written(WriterCommitMessage):
    def __init__(self, fragments: list[Any]) -> None:
        self.fragments = fragments


class PylanceWriter(DataSourceArrowWriter):
    """Writes fragments with pylance on the executors and commits them on the driver."""

    def __init__(self, path: str, schema: Any) -> None:
        self.path, self.schema = path, schema

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        import lance
        import pyarrow as pa

        from benchmarks.arrow import from_spark

        first = next(iterator)
        target = from_spark(first.schema)

        def batches() -> Iterator[pa.RecordBatch]:
            yield first.cast(target)
            for batch in iterator:
                yield batch.cast(target)

        reader = pa.RecordBatchReader.from_batches(target, batches())
        return Written(lance.fragment.write_fragments(reader, self.path, schema=target))

    def commit(self, messages: list[Any]) -> None:
        import lance

        fragments = [f for m in messages if m is not None for f in m.fragments]
        from pyspark.sql.pandas.types import to_arrow_schema

        from benchmarks.arrow import from_spark

        operation = lance.LanceOperation.Overwrite(
            from_spark(to_arrow_schema(self.schema)), fragments
        )
        lance.LanceDataset.commit(self.path, operation)


class NothingSource(DataSource):
    """Ten rows of one column, out of nowhere: what starting a Python data source costs."""

    @classmethod
    def name(cls) -> str:
        return "nothing"

    def schema(self) -> str:
        return "id bigint"

    def reader(self, schema: Any) -> DataSourceReader:
        return NothingReader()

    def writer(self, schema: Any, overwrite: bool) -> DataSourceArrowWriter:
        return NothingWriter()


class NothingReader(DataSourceReader):
    def partitions(self) -> list[InputPartition]:
        return [Piece(0, 10)]

    def read(self, partition: Any) -> Iterator[Any]:
        import pyarrow as pa

        yield pa.record_batch({"id": pa.array(range(10), pa.int64())})


class NothingWriter(DataSourceArrowWriter):
    """Takes every batch and keeps none: what transport costs a write."""

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return Written([])
