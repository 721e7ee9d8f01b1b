"""Uploads to S3: several parts under way at the same time.

| what | size |
| --- | --- |
| a file of up to one part | one put |
| parts 1 to 100 | `lance_initial_upload_size`, 5 MiB by default |
| 100 parts further on | 5 MiB more, unless the store wants parts of one size, so that 10,000 parts hold 2.5 TB |
| parts under way | `lance_upload_concurrency`, 10 by default, fewer of greater ones, one at least |

A file that is written holds no more than 11 parts of 5 MiB, or two parts of a very large file; see
`parts` for what is on top.

A file that is given up leaves no parts behind: the upload is aborted once none of them is under
way. A process that is killed cannot do that; a lifecycle rule of the bucket
(`AbortIncompleteMultipartUpload`) removes such parts.
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
                self._retries.call_async(self._begin_upload, self._is_given_up)
            )

    async def _begin_upload(self) -> str:
        try:
            begun = await self._fs._call_s3("create_multipart_upload", **self._object)
        except Exception:
            # It may have been begun, and then nobody has told us its name.
            self._uploads_unknown = True
            raise
        return str(begun["UploadId"])

    async def _send_part(self, number: int, part: bytearray, last: bool) -> dict[str, Any]:
        assert self._upload is not None
        upload = await asyncio.wrap_future(self._upload)
        asked = {**self._object, "UploadId": upload, "PartNumber": number, "Body": part}
        answer = await self._retries.call_async(
            lambda: self._fs._call_s3("upload_part", **asked), self._is_given_up
        )
        sent = {"PartNumber": number, "ETag": answer["ETag"]}
        algorithm = (self._fs.s3_additional_kwargs or {}).get("ChecksumAlgorithm")
        if algorithm:
            sent[f"Checksum{algorithm}"] = answer[f"Checksum{algorithm}"]
        return sent

    def _complete(self) -> None:
        assert self._upload is not None
        self._parts.sort(key=lambda part: int(part["PartNumber"]))
        asked = {"UploadId": self._upload.result(), "MultipartUpload": {"Parts": self._parts}}
        tries = self._retries.tries()
        while True:
            try:
                self._fs.call_s3("complete_multipart_upload", **self._object, **asked)
                return
            except FileNotFoundError:
                # There is no such upload any more: an earlier request, whose answer was lost, has
                # completed it.
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
        # One that is not there any more was aborted by an earlier request.
        with suppress(FileNotFoundError):
            self._retries.call(
                self._fs.call_s3, "abort_multipart_upload", **self._object, UploadId=upload
            )

    def _abort_unknown(self) -> None:
        """Abort the uploads of this object that were begun by requests without an answer."""
        if not self._uploads_unknown:
            return
        key = self._object["Key"]
        answer = self._retries.call(
            self._fs.call_s3, "list_multipart_uploads", Bucket=self._object["Bucket"], Prefix=key
        )
        for found in answer.get("Uploads", ()):
            if found["Key"] == key:
                self._abort_upload(found["UploadId"])
