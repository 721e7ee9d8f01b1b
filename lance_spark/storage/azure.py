"""Uploads to Azure: blocks sent in parallel, then a block list that creates the blob.

| item | size |
| --- | --- |
| a file of up to one part | one put |
| blocks 1 to 100 | `lance_initial_upload_size`, 5 MiB by default |
| each further 100 blocks | 5 MiB more: 50,000 blocks, the most of Azure, hold 60 TB |
| parallel blocks | `lance_upload_concurrency`, 10 by default; fewer if larger, at least one |

adlfs itself collects 50 MiB or one write, and blocks the writer until they are sent.

An aborted file is not visible. Azure removes its blocks after a week; no request can remove them.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from lance_spark.storage.multipart import PartSizes, PartsOutput
from lance_spark.storage.renewal import RenewedArguments

_MOST_BLOCKS = 50_000
_COPY_SOURCE = "x-ms-copy-source"


def sizes_of(options: Mapping[str, Any]) -> PartSizes:
    """Return the sizes of blocks. Raises InvalidOptionError."""
    return replace(PartSizes.of(options, None), max_parts=_MOST_BLOCKS)


def renew(fs: Any, arguments: RenewedArguments) -> None:
    """Send each request with the newest signature or key, also the requests of running uploads.

    Azure's library keeps a shared access signature in the URLs of clients. So a policy, the first
    of the pipeline that all clients share, replaces it in the URL of a request.
    """
    from azure.core.pipeline.policies import AsyncHTTPPolicy

    policies = fs.service_client._pipeline._impl_policies
    names = set(_query(_signature(arguments())))

    class RenewedRequests(AsyncHTTPPolicy[Any, Any]):
        async def send(self, request: Any) -> Any:
            current = await arguments.of_loop()
            signature, http = _signature(current), request.http_request
            if current.get("account_key") and hasattr(fs.service_client.credential, "account_key"):
                fs.service_client.credential.account_key = current["account_key"]
            elif signature:
                names.update(_query(signature))
                http.url = _signed(http.url, signature, names)
                source = http.headers.get(_COPY_SOURCE)
                if source is not None:
                    http.headers[_COPY_SOURCE] = _signed(source, signature, names)
            return await self.next.send(request)

    policies.insert(0, RenewedRequests())
    policies[0].next = policies[1]


def _signature(arguments: Mapping[str, Any]) -> str:
    return str(arguments.get("sas_token") or "").removeprefix("?")


def _query(text: str) -> list[str]:
    return [part.partition("=")[0] for part in text.split("&") if part]


def _signed(url: str, signature: str, names: Collection[str]) -> str:
    """Return a URL with another signature."""
    address, _, query = url.partition("?")
    kept = [part for part in query.split("&") if part and part.partition("=")[0] not in names]
    return f"{address}?{'&'.join([*kept, signature])}"


class AzureOutput(PartsOutput):
    """A new blob; see `PartsOutput`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        container, name, _ = self._fs.split_path(self._path)
        self._blob = self._fs.service_client.get_blob_client(container=container, blob=name)
        # All block names of a blob, also of blocks left behind, must have one length: that of
        # adlfs.
        self._names = uuid.uuid4().hex[:24]
        #: Azure's library sends these requests once, with the timeouts of adlfs.
        self._once = {"retry_total": 0, **(getattr(self._fs, "_timeout_kwargs", None) or {})}

    def _put_whole(self, data: bytearray) -> None:
        # Azure's library iterates over the single bytes of any buffer other than bytes.
        self._upload_retries.call(self._fs.pipe_file, self._path, bytes(data), retry_total=0)

    async def _send_part(self, number: int, part: bytearray, last: bool) -> str:
        block = f"{self._names}{number:08d}"
        stage = partial(self._blob.stage_block, block, part, length=len(part), **self._once)
        await self._upload_retries.call_async(stage, self._is_cancelled)
        return block

    def _complete(self) -> None:
        from azure.storage.blob import BlobBlock

        commit = partial(
            self._blob.commit_block_list,
            [BlobBlock(block) for block in sorted(self._parts)],
            # The same metadata as adlfs writes.
            metadata={"is_directory": "false"},
            **self._once,
        )
        self._started(self._upload_retries.call_async(commit, self._is_cancelled)).result()

    def _discard(self) -> None:
        """Do nothing: Azure has no request to remove blocks."""
