"""Uploads to Azure: blocks, several under way at the same time, and then a list of them that makes
a blob.

| what | size |
| --- | --- |
| a file of up to one part | one put |
| blocks 1 to 100 | `lance_initial_upload_size`, 5 MiB by default |
| 100 blocks further on | 5 MiB more, so that 50,000 blocks, which is all that Azure takes, hold 60 TB |
| blocks under way | `lance_upload_concurrency`, 10 by default, fewer of greater ones, one at least |

adlfs by itself collects 50 MiB or whatever is written at a time, and stops its writer until they
are sent.

A file that is given up is not visible. Its blocks are no blob; Azure removes them after a week, and
there is no request that does.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from lance_spark.storage.write.multipart import PartSizes, PartsOutput

_MOST_BLOCKS = 50_000


def sizes_of(options: Mapping[str, Any]) -> PartSizes:
    """Return the sizes of blocks.

    Raises
    ------
    InvalidOptionError
    """
    return replace(PartSizes.of(options, None), most=_MOST_BLOCKS)


class AzureOutput(PartsOutput):
    """A new blob; see `PartsOutput`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        container, name, _ = self._fs.split_path(self._path)
        self._blob = self._fs.service_client.get_blob_client(container=container, blob=name)
        # Names of blocks are as long as those of adlfs: all that a blob is made of, and what is
        # left over, have to be of one length.
        self._names = uuid.uuid4().hex[:24]
        #: Azure's library does not repeat these requests, and waits for them as long as adlfs has
        #: been told.
        self._once = {"retry_total": 0, **(getattr(self._fs, "_timeout_kwargs", None) or {})}

    def _put_whole(self, data: bytearray) -> None:
        # Of other buffers than bytes, Azure's library makes an iterator over single bytes.
        self._own.call(self._fs.pipe_file, self._path, bytes(data), retry_total=0)

    async def _send_part(self, number: int, part: bytearray, last: bool) -> str:
        block = f"{self._names}{number:08d}"
        stage = partial(self._blob.stage_block, block, part, length=len(part), **self._once)
        await self._own.call_async(stage, self._is_given_up)
        return block

    def _complete(self) -> None:
        from azure.storage.blob import BlobBlock

        commit = partial(
            self._blob.commit_block_list,
            [BlobBlock(block) for block in sorted(self._parts)],
            # As adlfs has it.
            metadata={"is_directory": "false"},
            **self._once,
        )
        self._started(self._own.call_async(commit, self._is_given_up)).result()

    def _discard(self) -> None:
        """There is nothing that could be done."""
