"""The last batch of each stream that a shard has, which only this package records.

It is a part of shard manifests, so that it changes together with the rows. Other clients do not
keep it in the versions that they write. Then it is searched in older versions.

A batch that was written as an SSTable is recorded with the claim. As long as the shard has this
claim, its log has no rows that are not flushed. A batch of the log is recorded without claim.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from lance_spark.proto import table_pb2
from lance_spark.table.mem_wal.shard_manifest import ShardManifest

#: Properties of a WAL entry with the rows of a batch.
QUERY_ID, BATCH = "lance_spark.stream.query_id", "lance_spark.stream.batch"
#: Streams that a shard manifest remembers.
_MOST_STREAMS = 32


def progress_of(manifest: ShardManifest, query_id: str) -> table_pb2.StreamProgress | None:
    """Return the last batch of a stream that a version has; None if it does not know the stream."""
    for progress in manifest.message.stream_progress:
        if progress.query_id == query_id:
            return progress
    return None


def progress_in(properties: Mapping[str, str]) -> table_pb2.StreamProgress | None:
    """Return the batch whose rows a WAL entry has, by its properties; None for other entries.

    It has no claim: later entries of the log can have rows of the same claim that are not flushed.
    """
    query_id, number = properties.get(QUERY_ID), properties.get(BATCH, "")
    if not query_id or not (number.isascii() and number.isdecimal() and len(number) < 20):
        return None
    return table_pb2.StreamProgress(query_id=query_id, batch=int(number))


def with_progress(
    manifest: ShardManifest, progress: Sequence[table_pb2.StreamProgress]
) -> ShardManifest:
    """Return a version that knows newer batches of some streams."""
    if not progress:
        return manifest
    newer = {part.query_id: part for part in progress}
    kept = [part for part in manifest.message.stream_progress if part.query_id not in newer] + list(
        newer.values()
    )
    message = table_pb2.ShardManifest()
    message.CopyFrom(manifest.message)
    message.ClearField("stream_progress")
    message.stream_progress.extend(kept[-_MOST_STREAMS:])
    return replace(manifest, message=message)
