"""Sizes of blobs by their descriptors, without a read of the bytes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from lance_spark.file.blobs.fields import has_bytes, paged
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.nested import Lengths, sum_blobs
from lance_spark.scan.blob_loader import EXTERNAL, BlobDescriptors
from lance_spark.scan.task import ScanTask


def loads_blobs(task: ScanTask) -> bool:
    """Return whether a task reads the bytes of blobs."""
    return any(
        node.is_blob and not node.children and has_bytes(node)
        for field in task.lance_schema.fields
        for node in field.walk()
    )


def described_task(task: ScanTask, version: tuple[int, int]) -> ScanTask:
    """Return the task of the same rows that reads the descriptors of blobs.

    Parameters
    ----------
    version : tuple of int
        Version of the table's data files.
    """
    fields = tuple(paged(field, version) for field in task.lance_schema.fields)
    return replace(task, lance_schema=replace(task.lance_schema, fields=fields))


def described_bytes(batch: pa.RecordBatch, task: ScanTask) -> int | None:
    """Return the bytes of the blobs in a batch of a `described_task`.

    Returns
    -------
    int or None
        None if a blob is a whole object elsewhere, whose size is not known.
    """
    is_known = True

    def measure(array: pa.Array, field: Field) -> Lengths:
        nonlocal is_known
        blobs = BlobDescriptors.of(array, field.name)
        whole = blobs.live & (blobs.storage_modes == EXTERNAL) & (blobs.sizes == 0)
        is_known = is_known and not whole.any()
        return np.where(blobs.live, blobs.sizes, 0)

    total = 0
    for column, field in zip(batch.columns, task.lance_schema.fields, strict=True):
        total += int(sum_blobs(column, field, measure).sum())
    return total if is_known else None
