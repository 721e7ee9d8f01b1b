"""Python data sources to compare with.

`prebuilt` yields batches of a file without decoding. `pylance` reads and writes with pylance.
`nothing` yields ten rows, and drops all rows that it is given.

Each method imports the client that it needs, so that a Python worker loads one client alone.
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


class BatchRange(InputPartition):
    """A partition: batches `start` to `stop` of an Arrow file."""

    def __init__(self, start: int, stop: int) -> None:
        self.start, self.stop = start, stop


class PrebuiltSource(DataSource):
    """Yields the batches of an Arrow IPC file, mapped into memory: the cost of transport alone."""

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
    """Reads the batches of an Arrow IPC file in a number of tasks."""

    def __init__(self, path: str, tasks: int) -> None:
        self.path, self.tasks = path, tasks

    def partitions(self) -> list[InputPartition]:
        import pyarrow as pa

        with pa.memory_map(self.path) as source:
            count = pa.ipc.open_file(source).num_record_batches
        cuts = [count * task // self.tasks for task in range(self.tasks + 1)]
        return [BatchRange(start, stop) for start, stop in itertools.pairwise(cuts) if stop > start]

    def read(self, partition: Any) -> Iterator[Any]:
        import pyarrow as pa

        with pa.memory_map(self.path) as source:
            reader = pa.ipc.open_file(source)
            for number in range(partition.start, partition.stop):
                yield reader.get_batch(number)


class PylanceSource(DataSource):
    """Reads a Lance table with pylance, one fragment in each task."""

    @classmethod
    def name(cls) -> str:
        return "pylance"

    def schema(self) -> Any:
        import lance

        from benchmarks.arrow import spark_schema

        return from_arrow_schema(spark_schema(lance.dataset(self.options["path"]).schema))

    def reader(self, schema: Any) -> DataSourceReader:
        return PylanceReader(self.options["path"], int(self.options.get("batch_size", "8192")))

    def writer(self, schema: Any, overwrite: bool) -> DataSourceArrowWriter:
        return PylanceWriter(self.options["path"], schema)


class FragmentPartition(InputPartition):
    """A partition: a fragment of a table."""

    def __init__(self, fragment_id: int) -> None:
        self.fragment_id = fragment_id


class PylanceReader(DataSourceReader):
    """Reads the fragments of a table with pylance."""

    def __init__(self, path: str, batch_size: int) -> None:
        self.path, self.batch_size = path, batch_size

    def partitions(self) -> list[InputPartition]:
        import lance

        fragments = lance.dataset(self.path).get_fragments()
        return [FragmentPartition(fragment.fragment_id) for fragment in fragments]

    def read(self, partition: Any) -> Iterator[Any]:
        import lance

        from benchmarks.arrow import spark_batch, spark_schema

        fragment = lance.dataset(self.path).get_fragment(partition.fragment_id)
        for batch in fragment.to_batches(batch_size=self.batch_size):
            yield spark_batch(batch, spark_schema(batch.schema))


class WrittenFragments(WriterCommitMessage):
    """The fragments that a task wrote."""

    def __init__(self, fragments: list[Any]) -> None:
        self.fragments = fragments


class PylanceWriter(DataSourceArrowWriter):
    """Writes fragments with pylance on the executors and commits them on the driver."""

    def __init__(self, path: str, schema: Any) -> None:
        self.path, self.schema = path, schema

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        import lance
        import pyarrow as pa

        from benchmarks.arrow import lance_schema

        first = next(iterator)
        schema = lance_schema(first.schema)
        batches = (batch.cast(schema) for batch in itertools.chain([first], iterator))
        reader = pa.RecordBatchReader.from_batches(schema, batches)
        return WrittenFragments(lance.fragment.write_fragments(reader, self.path, schema=schema))

    def commit(self, messages: list[Any]) -> None:
        import lance
        from pyspark.sql.pandas.types import to_arrow_schema

        from benchmarks.arrow import lance_schema

        fragments = [
            fragment
            for message in messages
            if message is not None
            for fragment in message.fragments
        ]
        operation = lance.LanceOperation.Overwrite(
            lance_schema(to_arrow_schema(self.schema)), fragments
        )
        lance.LanceDataset.commit(self.path, operation)


class NothingSource(DataSource):
    """Yields ten rows of one column: the cost of starting a Python data source."""

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
    """Yields ten rows in one task."""

    def partitions(self) -> list[InputPartition]:
        return [BatchRange(0, 1)]

    def read(self, partition: Any) -> Iterator[Any]:
        import pyarrow as pa

        yield pa.record_batch({"id": pa.array(range(10), pa.int64())})


class NothingWriter(DataSourceArrowWriter):
    """Reads every batch and drops it: the cost of transport in a write."""

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WrittenFragments([])
