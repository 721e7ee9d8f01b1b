"""An S3 server for measurements: objects in memory, a delay before the first byte of each answer,
and a limit of bytes in a second for each connection.

    python benchmarks/slow_store.py PORT [--delay 30] [--mbps 80]

It serves the requests that Lance clients send, and checks no signatures. Requests below `/_control`
are for the benchmark, and have no delay:

| request | effect |
|---|---|
| `GET /_control/counts` | the counts since the last such request, as JSON |
| `POST /_control/set?delay=30&mbps=80` | sets the delay in milliseconds, and the limit |
| `POST /_control/copy?source=a/&target=b/` | copies all objects below a prefix of the bucket |
| `POST /_control/remove?prefix=a/` | removes all objects below a prefix |
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import hashlib
import json
import re
import time
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from email.utils import formatdate
from urllib.parse import unquote
from xml.sax.saxutils import escape

from aiohttp import web

BUCKET = "bucket"
#: Puts and listings take longer than reads on S3.
PUT_FACTOR, LIST_FACTOR = 4 / 3, 5 / 3
_CHUNK = 256 * 1024
_PAGE = 1000
_RANGE = re.compile(r"bytes=(\d*)-(\d*)")
_KEY = re.compile(rb"<Key>(.*?)</Key>")
_MOST_BYTES = 1 << 33


@dataclass(frozen=True)
class StoredObject:
    """An object: its bytes, entity tag, and time of the last change."""

    data: bytes
    tag: str
    changed: float


@dataclass
class Counts:
    """What clients have requested."""

    requests: int = 0
    most_at_once: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    methods: dict[str, int] = field(default_factory=dict)


class SlowStore:
    """The server; `delay` is in seconds, `rate` in bytes per second."""

    def __init__(self, delay: float, rate: float) -> None:
        self.delay = delay
        self.rate = rate
        self.objects: dict[str, StoredObject] = {}
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.counts = Counts()
        self.under_way = 0

    # -- the benchmark's own requests --------------------------------------------------------------
    async def control(self, request: web.Request) -> web.Response:
        query = request.query
        name = request.match_info["name"]
        if name == "counts":
            counts, self.counts = self.counts, Counts()
            return web.json_response(asdict(counts))
        if name == "set":
            self.delay, self.rate = float(query["delay"]) / 1e3, float(query["mbps"]) * 1e6
        elif name == "copy":
            source, target = query["source"], query["target"]
            for key in [key for key in self.objects if key.startswith(source)]:
                self.objects[target + key.removeprefix(source)] = self.objects[key]
        elif name == "remove":
            for key in [key for key in self.objects if key.startswith(query["prefix"])]:
                del self.objects[key]
        return web.json_response({})

    # -- the requests of clients -------------------------------------------------------------------
    async def serve(self, request: web.Request) -> web.StreamResponse:
        counts = self.counts
        self.under_way += 1
        counts.requests += 1
        counts.most_at_once = max(counts.most_at_once, self.under_way)
        counts.methods[request.method] = counts.methods.get(request.method, 0) + 1
        try:
            return await self._answer(request)
        finally:
            self.under_way -= 1

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        bucket, _, key = unquote(request.rel_url.raw_path).lstrip("/").partition("/")
        if bucket != BUCKET:
            return _error(404, "NoSuchBucket")
        method = request.method
        if method == "GET" and not key:
            await asyncio.sleep(self.delay * LIST_FACTOR)
            return self._list(request)
        if method in ("GET", "HEAD"):
            await asyncio.sleep(self.delay)
            return await self._read(request, key)
        body = await _body_of(request)
        self.counts.bytes_received += len(body)
        await asyncio.sleep(self.delay * PUT_FACTOR + len(body) / self.rate)
        if method == "PUT":
            return self._put(request, key, body)
        if method == "POST":
            return self._post(request, key, body)
        if method == "DELETE":
            self.objects.pop(key, None)
            self.uploads.pop(request.query.get("uploadId", ""), None)
            return web.Response(status=204)
        return _error(501, "NotImplemented")

    def _list(self, request: web.Request) -> web.Response:
        query = request.query
        if "location" in query:
            return _xml("<LocationConstraint/>")
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        after = query.get("continuation-token") or query.get("start-after", "")
        most = int(query.get("max-keys", _PAGE))
        found = [key for key in self.objects if key.startswith(prefix) and key > after]
        names: list[str] = []
        folders: dict[str, None] = {}
        last, is_cut = "", False
        for key in sorted(found):
            head, cut, _ = key[len(prefix) :].partition(delimiter) if delimiter else (key, "", "")
            folder = f"{prefix}{head}{delimiter}" if cut else None
            if folder is None or folder not in folders:
                # The token of a page that ends with a folder is its last file.
                if len(names) + len(folders) >= most:
                    is_cut = True
                    break
                if folder is None:
                    names.append(key)
                elif not after.startswith(folder):
                    folders[folder] = None
            last = key
        parts = [
            f"<Contents><Key>{escape(name)}</Key><LastModified>{_stamp(item.changed)}</LastModified>"
            f"<ETag>{item.tag}</ETag><Size>{len(item.data)}</Size></Contents>"
            for name in names
            for item in [self.objects[name]]
        ]
        parts += [f"<CommonPrefixes><Prefix>{escape(f)}</Prefix></CommonPrefixes>" for f in folders]
        if is_cut:
            parts.append(f"<NextContinuationToken>{escape(last)}</NextContinuationToken>")
        return _xml(
            f"<ListBucketResult><Name>{BUCKET}</Name><Prefix>{escape(prefix)}</Prefix>"
            f"<IsTruncated>{str(is_cut).lower()}</IsTruncated>{''.join(parts)}</ListBucketResult>"
        )

    async def _read(self, request: web.Request, key: str) -> web.StreamResponse:
        item = self.objects.get(key)
        if item is None:
            return _error(404, "NoSuchKey")
        size = len(item.data)
        headers = {
            "ETag": item.tag,
            "Last-Modified": formatdate(item.changed, usegmt=True),
            "Accept-Ranges": "bytes",
        }
        start, stop, status = 0, size, 200
        match = _RANGE.match(request.headers.get("Range", ""))
        if match is not None:
            first, last = match.groups()
            start = int(first) if first else max(0, size - int(last))
            stop = min(size, int(last) + 1) if first and last else size
            if start >= size:
                return _error(416, "InvalidRange")
            status = 206
            headers["Content-Range"] = f"bytes {start}-{stop - 1}/{size}"
        headers["Content-Length"] = str(stop - start)
        if request.method == "HEAD":
            return web.Response(status=status, headers=headers)
        self.counts.bytes_sent += stop - start
        if stop - start < _CHUNK:
            await asyncio.sleep((stop - start) / self.rate)
            return web.Response(status=status, headers=headers, body=item.data[start:stop])
        response = web.StreamResponse(status=status, headers=headers)
        await response.prepare(request)
        view, begun = memoryview(item.data), time.perf_counter()
        for position in range(start, stop, _CHUNK):
            await response.write(view[position : min(position + _CHUNK, stop)])
            sent_at = begun + (position + _CHUNK - start) / self.rate
            # The clock of the event loop is not finer.
            if (ahead := sent_at - time.perf_counter()) > 0.002:
                await asyncio.sleep(ahead)
        await response.write_eof()
        return response

    def _put(self, request: web.Request, key: str, body: bytes) -> web.Response:
        query, headers = request.query, request.headers
        if not key:
            return web.Response()
        if "partNumber" in query:
            self.uploads[query["uploadId"]][int(query["partNumber"])] = body
            return web.Response(headers={"ETag": _tag(body)})
        if not self._may_create(request, key):
            return _error(412, "PreconditionFailed", "<Condition>If-None-Match</Condition>")
        source = headers.get("x-amz-copy-source")
        if source is None:
            item = self.objects[key] = StoredObject(body, _tag(body), time.time())
            return web.Response(headers={"ETag": item.tag})
        copied = self.objects.get(unquote(source).lstrip("/").partition("/")[2])
        if copied is None:
            return _error(404, "NoSuchKey")
        item = self.objects[key] = StoredObject(copied.data, copied.tag, time.time())
        changed = f"<LastModified>{_stamp(item.changed)}</LastModified>"
        return _xml(f"<CopyObjectResult>{changed}<ETag>{item.tag}</ETag></CopyObjectResult>")

    def _may_create(self, request: web.Request, key: str) -> bool:
        return request.headers.get("If-None-Match") != "*" or key not in self.objects

    def _post(self, request: web.Request, key: str, body: bytes) -> web.Response:
        query = request.query
        place = f"<Bucket>{BUCKET}</Bucket><Key>{escape(key)}</Key>"
        if "uploads" in query:
            upload = uuid.uuid4().hex
            self.uploads[upload] = {}
            return _xml(
                f"<InitiateMultipartUploadResult>{place}<UploadId>{upload}</UploadId>"
                "</InitiateMultipartUploadResult>"
            )
        if "uploadId" in query:
            if not self._may_create(request, key):
                return _error(412, "PreconditionFailed", "<Condition>If-None-Match</Condition>")
            parts = self.uploads.pop(query["uploadId"], None)
            if parts is None:
                return _error(404, "NoSuchUpload")
            data = b"".join(parts[number] for number in sorted(parts))
            self.objects[key] = StoredObject(data, _tag(data), time.time())
            return _xml(
                f"<CompleteMultipartUploadResult>{place}<ETag>{self.objects[key].tag}</ETag>"
                "</CompleteMultipartUploadResult>"
            )
        if "delete" in query:
            keys = [match.decode() for match in _KEY.findall(body)]
            for name in keys:
                self.objects.pop(name, None)
            deleted = "".join(f"<Deleted><Key>{escape(name)}</Key></Deleted>" for name in keys)
            return _xml(f"<DeleteResult>{deleted}</DeleteResult>")
        return _error(501, "NotImplemented")


async def _body_of(request: web.Request) -> bytes:
    body = await request.read()
    is_chunked = "aws-chunked" in request.headers.get("Content-Encoding", "") or (
        request.headers.get("x-amz-content-sha256", "").startswith("STREAMING")
    )
    return b"".join(_chunks(body)) if is_chunked else body


def _chunks(body: bytes) -> Iterator[bytes]:
    """Yield the chunks of a body in Amazon's encoding, without their headers."""
    position = 0
    while True:
        end = body.index(b"\r\n", position)
        size = int(body[position:end].partition(b";")[0], 16)
        if not size:
            return
        yield body[end + 2 : end + 2 + size]
        position = end + 4 + size


def _xml(text: str, status: int = 200) -> web.Response:
    declaration = '<?xml version="1.0" encoding="UTF-8"?>'
    return web.Response(text=declaration + text, status=status, content_type="application/xml")


def _error(status: int, code: str, more: str = "") -> web.Response:
    return _xml(f"<Error><Code>{code}</Code><Message>{code}</Message>{more}</Error>", status)


def _tag(data: bytes) -> str:
    return f'"{hashlib.md5(data, usedforsecurity=False).hexdigest()}"'


def _stamp(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(seconds))


async def run(port: int, delay: float, rate: float) -> None:
    """Serve until the process ends; print the port as JSON."""
    store = SlowStore(delay, rate)
    app = web.Application(client_max_size=_MOST_BYTES)
    app.router.add_route("*", "/_control/{name}", store.control)
    app.router.add_route("*", "/{path:.*}", store.serve)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", port)
    await site.start()
    print(json.dumps({"port": runner.addresses[0][1]}), flush=True)
    await asyncio.Event().wait()


def main() -> None:
    description = (__doc__ or "").partition("\n\n")[0]
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("port", type=int, help="0 chooses a free one")
    parser.add_argument("--delay", type=float, default=30, help="milliseconds")
    parser.add_argument("--mbps", type=float, default=80, help="megabytes per second")
    arguments = parser.parse_args()
    with contextlib.suppress(ImportError):
        import uvloop

        uvloop.install()
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(run(arguments.port, arguments.delay / 1e3, arguments.mbps * 1e6))


if __name__ == "__main__":
    main()
