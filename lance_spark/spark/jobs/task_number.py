"""Which task of a Spark job this process runs."""

from __future__ import annotations


def task_number() -> int:
    """Return the number of the partition that is computed; of a batch of a stream, with the number
    of the batch added.

    Tasks that each write a single file begin with different target bases by it.
    """
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        return 0
    batch = context.getLocalProperty("streaming.sql.batchId") or ""
    return context.partitionId() + (int(batch) if batch.isdecimal() else 0)
