"""Number of the current task of a Spark job."""

from __future__ import annotations


def task_number() -> int:
    """Return the number of the current partition, plus the number of the batch in a stream.

    By this number, tasks that each write a single file start with different target bases.
    """
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        return 0
    batch = context.getLocalProperty("streaming.sql.batchId") or ""
    return context.partitionId() + (int(batch) if batch.isdecimal() else 0)
