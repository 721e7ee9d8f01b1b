"""`batch_udf`: functions of batches whose results outlive an interruption.

A checkpoint is an SQLite database with one table:

| column | content |
| --- | --- |
| `input` | BLAKE2b digest, of 32 bytes, of the batch that the function got, in Arrow's IPC format |
| `output` | the batch that it returned, in the same format |

Results belong to the values of a batch, not to its place, so that a checkpoint stays valid if the
table changes. Equal batches of one run have a result each, because a function can make new values,
such as random numbers: from the second one on, `input` ends with the number of the batch, in 8
bytes. A file that is not a checkpoint of this form is refused.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from hashlib import blake2b
from typing import Any

import pyarrow as pa

from lance_spark.errors import InvalidInputError
from lance_spark.mutations.columns.batches import as_batch

_TABLE = "CREATE TABLE IF NOT EXISTS results (input BLOB PRIMARY KEY, output BLOB NOT NULL)"


class BatchUDF:
    """A function of batches for `Dataset.add_columns`; `batch_udf` returns it.

    A call runs the function itself, without the checkpoint.
    """

    def __init__(
        self,
        function: Callable[[pa.RecordBatch], Any],
        output_schema: pa.Schema | None = None,
        checkpoint_file: str | os.PathLike[str] | None = None,
    ) -> None:
        self.function = function
        self.output_schema = output_schema
        self.checkpoint_file = checkpoint_file
        self._checkpoint: _Checkpoint | None = None
        #: How often each batch was computed since the checkpoint was opened, by its digest.
        self._computed: Counter[bytes] = Counter()
        self._lock = threading.Lock()

    def __call__(self, batch: pa.RecordBatch) -> Any:
        return self.function(batch)

    def sample(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the columns of a batch, which is computed again later; see `compute`."""
        return self._result(batch, is_counted=False)

    def compute(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the columns of a batch, from the checkpoint if it has them.

        Raises InvalidInputError: the function does not return columns, or the checkpoint cannot be
        used.
        """
        return self._result(batch, is_counted=True)

    def _result(self, batch: pa.RecordBatch, *, is_counted: bool) -> pa.RecordBatch:
        if self.checkpoint_file is None:
            return as_batch(self.function(batch), batch.num_rows)
        with self._lock:
            if self._checkpoint is None:
                self._checkpoint = _Checkpoint(os.fspath(self.checkpoint_file))
        digest = _digest(batch)
        with self._lock:
            number = self._computed[digest]
            self._computed[digest] += is_counted
        key = digest + number.to_bytes(8, "little") if number else digest
        result = self._checkpoint.get(key)
        if result is None or result.num_rows != batch.num_rows:
            result = as_batch(self.function(batch), batch.num_rows)
            self._checkpoint.put(key, result)
        return result

    def close(self, *, delete: bool) -> None:
        """Close the checkpoint; delete it if its results are in the table."""
        checkpoint, self._checkpoint = self._checkpoint, None
        self._computed.clear()
        if checkpoint is not None:
            checkpoint.close()
            if delete:
                with suppress(FileNotFoundError):
                    os.unlink(checkpoint.path)


def batch_udf(
    output_schema: pa.Schema | None = None,
    checkpoint_file: str | os.PathLike[str] | None = None,
) -> Callable[[Callable[[pa.RecordBatch], Any]], BatchUDF]:
    """Make a function of batches that `Dataset.add_columns` takes, by decoration.

    Parameters
    ----------
    output_schema : pa.Schema, optional
        Types of the new columns; those of the values for the first rows by default.
    checkpoint_file : str or path, optional
        A file that keeps the results until the columns are committed. If a run is interrupted, the
        next run with the same file calls the function only for batches that have no result. The
        file does not notice that the function changed.

    Returns
    -------
    callable
        Takes a function, which gets a record batch and returns the new columns of its rows: a
        record batch, a Table, a mapping, or a DataFrame of pandas. Returns a `BatchUDF`.

    Examples
    --------
    >>> @lance_spark.batch_udf(checkpoint_file="lengths.sqlite")
    ... def lengths(batch):
    ...     return {"length": pc.utf8_length(batch["name"])}
    >>> dataset = dataset.add_columns(lengths, read_columns=["name"])
    """

    def decorate(function: Callable[[pa.RecordBatch], Any]) -> BatchUDF:
        return BatchUDF(function, output_schema, checkpoint_file)

    return decorate


class _Checkpoint:
    """Results by the digests of the batches; for several threads."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._lock = threading.Lock()
        try:
            self._connection = sqlite3.connect(path, check_same_thread=False)
            self._connection.execute(_TABLE)
            self._connection.execute("SELECT input, output FROM results LIMIT 0")
        except sqlite3.Error as error:
            raise InvalidInputError(
                f"checkpoint_file {path} cannot be used: {error}; name another file"
            ) from None

    def get(self, key: bytes) -> pa.RecordBatch | None:
        with self._lock:
            rows = self._connection.execute("SELECT output FROM results WHERE input = ?", (key,))
            row = rows.fetchone()
        if row is None:
            return None
        try:
            return pa.ipc.open_stream(row[0]).read_next_batch()
        except (pa.ArrowException, StopIteration):
            return None

    def put(self, key: bytes, result: pa.RecordBatch) -> None:
        values = (key, _serialized(result))
        with self._lock, self._connection:
            self._connection.execute("INSERT OR REPLACE INTO results VALUES (?, ?)", values)

    def close(self) -> None:
        with self._lock:
            self._connection.close()


def _digest(batch: pa.RecordBatch) -> bytes:
    return blake2b(_serialized(batch), digest_size=32).digest()


def _serialized(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    data: bytes = sink.getvalue().to_pybytes()
    return data
