"""Uploads to S3: parts sent in parallel.

| item | size |
| --- | --- |
| a file of up to one part | one put |
| parts 1 to 100 | `lance_initial_upload_size`, 5 MiB by default |
| each further 100 parts | 5 MiB more, unless the store requires one size: 10,000 hold 2.5 TB |
| parallel parts | `lance_upload_concurrency`, 10 by default; fewer if larger, at least one |

An open file holds at most 11 parts of 5 MiB, or two parts of a very large file, besides the buffers
of connections (`multipart`).

An aborted file leaves no parts behind: its upload is aborted after its last part. A killed process
cannot abort; a lifecycle rule of the bucket (`AbortIncompleteMultipartUpload`) removes its parts.
"""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from lance_spark.storage.s3 import size_of
from lance_spark.storage.write.multipart import PartsOutput


class S3Output(PartsOutput):
    """A new object of S3; see `PartsOutput`."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        bucket, key, _ = self._fs.split_path(self._path)
        self._object = {"Bucket": bucket, "Key": key}
        self._upload: Future[str] | None = None
        self._uploads_unknown = False

    def _put_whole(self, data: bytearray) -> None:
        self._retries.call(self._fs.pipe_file, self._path, data, chunksize=len(data) + 1)

    def _begin(self) -> None:
        if self._upload is None:
            self._upload = self._started(
                self._retries.call_async(self._begin_upload, self._is_cancelled)
            )

    async def _begin_upload(self) -> str:
        try:
            begun = await self._fs._call_s3("create_multipart_upload", **self._object)
        except Exception:
            # The upload may exist, under a name that this process does not know.
            self._uploads_unknown = True
            raise
        return str(begun["UploadId"])

    async def _send_part(self, number: int, part: bytearray, last: bool) -> dict[str, Any]:
        assert self._upload is not None
        upload = await asyncio.wrap_future(self._upload)
        arguments = {**self._object, "UploadId": upload, "PartNumber": number, "Body": part}
        answer = await self._retries.call_async(
            lambda: self._fs._call_s3("upload_part", **arguments), self._is_cancelled
        )
        sent = {"PartNumber": number, "ETag": answer["ETag"]}
        algorithm = (self._fs.s3_additional_kwargs or {}).get("ChecksumAlgorithm")
        if algorithm:
            sent[f"Checksum{algorithm}"] = answer[f"Checksum{algorithm}"]
        return sent

    def _complete(self) -> None:
        assert self._upload is not None
        self._parts.sort(key=lambda part: int(part["PartNumber"]))
        arguments = {"UploadId": self._upload.result(), "MultipartUpload": {"Parts": self._parts}}
        tries = self._retries.tries()
        while True:
            try:
                self._fs.call_s3("complete_multipart_upload", **self._object, **arguments)
                return
            except FileNotFoundError:
                # An earlier request, whose answer was lost, has completed the upload.
                if self._retries.call(size_of, self._fs, self._path) != self._written:
                    raise
                return
            except Exception as error:
                pause = tries.wait_after(error)
                if pause is None:
                    raise
            time.sleep(pause)

    def _discard(self) -> None:
        assert self._upload is not None
        with suppress(Exception):
            self._abort_upload(self._upload.result())
        with suppress(Exception):
            self._abort_unknown()

    def _abort_upload(self, upload: str) -> None:
        # A missing upload was aborted by an earlier request.
        with suppress(FileNotFoundError):
            self._retries.call(
                self._fs.call_s3, "abort_multipart_upload", **self._object, UploadId=upload
            )

    def _abort_unknown(self) -> None:
        """Abort the uploads of this object whose names were lost with an answer."""
        if not self._uploads_unknown:
            return
        key = self._object["Key"]
        answer = self._retries.call(
            self._fs.call_s3, "list_multipart_uploads", Bucket=self._object["Bucket"], Prefix=key
        )
        for upload in answer.get("Uploads", ()):
            if upload["Key"] == key:
                self._abort_upload(upload["UploadId"])
