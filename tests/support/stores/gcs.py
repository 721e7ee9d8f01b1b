"""A server in place of Google Cloud Storage: `gcp-storage-emulator`, and what it leaves out.

The emulator speaks the JSON API, which gcsfs uses, but takes no notice of preconditions. Here they are checked before it gets a request; as
it answers one after the other, nothing comes between. Pages of listings and what becomes of upload sessions are as Google documents them, and
served from the emulator's own objects, as is the XML API, which pylance uses.

`Gcs(honest=False)` is the emulator as it is: a store that takes a condition and does not honour it.
"""

from __future__ import annotations

import email.utils
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from gcp_storage_emulator.exceptions import NotFound
from gcp_storage_emulator.handlers import buckets
from gcp_storage_emulator.handlers.objects import _checksums, _make_object_resource
from gcp_storage_emulator.server import RequestHandler
from gcp_storage_emulator.storage import Storage

BUCKET = "bucket"
_JSON = ("/storage/", "/upload/", "/download/", "/batch/", "/b/")
_LISTING = re.compile("/storage/v1/b/([^/]+)/o")
_RANGE = re.compile(r"bytes (?:([0-9]+)-([0-9]+)|\*)/([0-9]+|\*)")
#: The size of each part of an upload is a multiple of this number, except the last part.
_GRAIN = 256 * 1024


class _Server(HTTPServer):
    request_queue_size = 128
    honest = True
    refuses = False
    requests: list[str]
    finished: set[str]
    listed = 0

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients close the connection when they have what they need."""


class _Handler(RequestHandler):
    server: _Server

    def _dispatch(self, method: str) -> None:
        url = urlsplit(self.path)
        query = {key: texts[0] for key, texts in parse_qs(url.query, True).items()}
        self.server.requests.append(f"{method} {self.path}")
        if self.server.refuses and method != "GET":
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            text = json.dumps({"error": {"code": 403, "message": "no access to that bucket"}})
            self._answer(403, text.encode(), {"Content-Type": "application/json"})
            return
        if "upload_id" in query:
            self._goes_on(method, query["upload_id"])
            return
        if query.get("uploadType") == "media":
            # The emulator cannot create an empty object.
            self._put(url.path.split("/")[5], query["name"])
            return
        listed = _LISTING.fullmatch(url.path)
        if listed is not None and method == "GET":
            self._list_page(unquote(listed[1]), query)
            return
        if url.path.startswith(_JSON):
            if (
                self.server.honest
                and url.path.startswith("/upload/")
                and query.get("ifGenerationMatch") == "0"
                and self._uploads_again(url.path, query)
            ):
                return
            getattr(RequestHandler, f"do_{method}")(self)
            return
        bucket, _, key = unquote(url.path).lstrip("/").partition("/")
        if not key:
            self._list(bucket, query)
            return
        getattr(self, f"_{method.lower()}")(bucket, key)

    def do_GET(self) -> None:
        self._dispatch("GET")

    def do_HEAD(self) -> None:
        self._dispatch("HEAD")

    def do_PUT(self) -> None:
        self._dispatch("PUT")

    def do_POST(self) -> None:
        self._dispatch("POST")

    def do_DELETE(self) -> None:
        self._dispatch("DELETE")

    def _uploads_again(self, path: str, query: dict[str, str]) -> bool:
        """Refuse an upload if its object exists; pass on the body of any other request."""
        import io

        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.rfile = io.BytesIO(body)
        name = query.get("name")
        if name is None:
            start = body.index(b"{")
            name = json.JSONDecoder().raw_decode(body[start:].decode("utf-8", "replace"))[0]["name"]
        if self._object(path.split("/")[5], name) is None:
            return False
        message = "At least one of the pre-conditions you specified did not hold."
        text = json.dumps({"error": {"code": 412, "message": message}})
        self._answer(412, text.encode(), {"Content-Type": "application/json"})
        return True

    def _object(self, bucket: str, key: str) -> dict[str, Any] | None:
        try:
            result: dict[str, Any] = self.storage.get_file_obj(bucket, key)
        except NotFound:
            return None
        return result

    def _answer(
        self, status: int, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> None:
        self.send_response(status)
        headers_sent = {"Content-Length": str(len(body)), **(headers or {})}
        for name, text in headers_sent.items():
            self.send_header(name, text)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _get(self, bucket: str, key: str) -> None:
        result = self._object(bucket, key)
        if result is None:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
            return
        data: bytes = self.storage.get_file(bucket, key)
        headers = {
            "ETag": f'"{result["etag"]}"',
            "x-goog-generation": result["generation"],
            "Last-Modified": email.utils.formatdate(int(result["generation"]) / 1e9, usegmt=True),
        }
        status, start, stop = 200, 0, len(data)
        requested_range = self.headers.get("Range")
        if requested_range:
            first, _, last = requested_range.removeprefix("bytes=").partition("-")
            start = int(first) if first else max(0, len(data) - int(last))
            stop = min(len(data), int(last) + 1) if first and last else len(data)
            if start >= len(data):
                self._answer(416, headers={"Content-Range": f"bytes */{len(data)}"})
                return
            status = 206
            headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(data)}"
        headers["Content-Length"] = str(stop - start)
        self._answer(status, data[start:stop], headers)

    _head = _get

    def _put(self, bucket: str, key: str) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.headers.get("x-goog-if-generation-match") == "0" and self._object(bucket, key):
            self._answer(412, b"<Error><Code>PreconditionFailed</Code></Error>")
            return
        source = self.headers.get("x-goog-copy-source")
        if source is not None:
            source_bucket, _, path = unquote(source).lstrip("/").partition("/")
            body = self.storage.get_file(source_bucket, path)
        resource = _make_object_resource(
            "", bucket, key, "application/octet-stream", str(len(body))
        )
        resource = _checksums(body, resource)
        self.storage.create_file(bucket, key, body, resource)
        headers = {"ETag": f'"{resource["etag"]}"', "x-goog-generation": resource["generation"]}
        self._answer(200, headers=headers)

    def _delete(self, bucket: str, key: str) -> None:
        try:
            self.storage.delete_file(bucket, key)
        except NotFound:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
            return
        self._answer(204)

    def _goes_on(self, method: str, upload: str) -> None:
        """Answer a request of an upload session."""
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if method == "DELETE":
            self.storage.resumable.pop(upload, None)
            self._answer(499)
            return
        if upload in self.server.finished:
            self._answer(200, b"{}")
            return
        if upload not in self.storage.resumable:
            self._answer(404)
            return
        content_range = _RANGE.fullmatch(self.headers["Content-Range"])
        assert content_range is not None
        total = None if content_range[3] == "*" else int(content_range[3])
        if content_range[1] is not None:
            start, stop = int(content_range[1]), int(content_range[2]) + 1
            has = self.storage.get_resumable_byte_count(upload)
            if start != has or stop - start != len(body) or (total is None and len(body) % _GRAIN):
                self._answer(400, b"Invalid request.")
                return
        data = self.storage.add_to_resumable_upload(upload, body, total)
        if data is None:
            has = self.storage.get_resumable_byte_count(upload)
            self._answer(308, headers={"Range": f"bytes=0-{has - 1}"} if has else {})
            return
        resource = _checksums(data, {**self.storage.get_resumable_file_obj(upload)})
        resource["size"] = str(len(data))
        self.storage.create_file(resource["bucket"], resource["name"], data, resource, upload)
        self.server.finished.add(upload)
        self._answer(200, json.dumps(resource).encode(), {"Content-Type": "application/json"})

    def _page(
        self, bucket: str, query: dict[str, str], is_next: Callable[[bytes], bool]
    ) -> tuple[list[str], set[str]]:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        names, folders = [], set()
        for name in sorted(self.storage.objects.get(bucket, {}), key=str.encode):
            if not name.startswith(prefix) or not is_next(name.encode()):
                continue
            suffix = name[len(prefix) :]
            if delimiter and delimiter in suffix:
                folders.add(prefix + suffix.partition(delimiter)[0] + delimiter)
            else:
                names.append(name)
        return names, folders

    def _list_page(self, bucket: str, query: dict[str, str]) -> None:
        if bucket not in self.storage.buckets:
            self._answer(404)
            return
        first, token = query.get("startOffset", "").encode(), query.get("pageToken", "").encode()
        names, folders = self._page(bucket, query, lambda name: name >= first and name > token)
        most = int(query.get("maxResults", 1000))
        page: dict[str, Any] = {"kind": "storage#objects", "prefixes": sorted(folders)}
        page["items"] = [self.storage.objects[bucket][name] for name in names[:most]]
        if len(names) > most:
            page["nextPageToken"] = names[most - 1]
            page["prefixes"] = [item for item in page["prefixes"] if item <= names[most - 1]]
        self.server.listed += len(page["items"])
        self._answer(200, json.dumps(page).encode(), {"Content-Type": "application/json"})

    def _list(self, bucket: str, query: dict[str, str]) -> None:
        after = (query.get("continuation-token") or query.get("start-after") or "").encode()
        names, folders = self._page(bucket, query, lambda name: name > after)
        most = int(query.get("max-keys", 1000))
        continuation = (
            f"<NextContinuationToken>{escape(names[most - 1])}</NextContinuationToken>"
            if len(names) > most
            else ""
        )
        parts = [
            f"<Contents><Key>{escape(name)}</Key><LastModified>{item['updated']}</LastModified>"
            f"<ETag>{item['etag']}</ETag><Size>{item['size']}</Size></Contents>"
            for name in names[:most]
            for item in [self.storage.objects[bucket][name]]
        ]
        parts += [
            f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>"
            for folder in sorted(folders)
        ]
        text = f"<ListBucketResult>{''.join(parts)}{continuation}</ListBucketResult>"
        self._answer(200, text.encode(), {"Content-Type": "application/xml"})


class Gcs:
    """The server.

    Attributes
    ----------
    endpoint : str
    requests : list of str
        Method and path of those that reached it.
    """

    def __init__(self, folder: Path, honest: bool = True) -> None:
        storage = Storage(use_memory_fs=True)
        buckets.create_bucket(BUCKET, storage)
        self._server = _Server(("127.0.0.1", 0), partial(_Handler, storage))
        self._server.honest = honest
        self.requests = self._server.requests = []
        self._server.finished = set()
        self.storage = storage
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), daemon=True
        )
        self._thread.start()
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"
        account = {
            "gcs_base_url": self.endpoint,
            "disable_oauth": True,
            "client_email": "",
            "private_key": "",
            "private_key_id": "",
        }
        self.account = folder / "account.json"
        self.account.write_text(json.dumps(account))

    @property
    def options(self) -> dict[str, Any]:
        """Return storage options with the names of pylance."""
        return {"google_service_account": str(self.account), "allow_http": "true"}

    def sessions(self, prefix: str) -> int:
        """Return the uploads of objects with a prefix that began and did not end."""
        names = [value["name"] for value in self.storage.resumable.values()]
        return sum(name.startswith(prefix) for name in names)

    @property
    def listed(self) -> int:
        """Return the objects that listings of the JSON API have named."""
        return self._server.listed

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """Let the server forbid all requests but reads in this block."""
        self._server.refuses = True
        try:
            yield
        finally:
            self._server.refuses = False

    def names(self, prefix: str) -> list[str]:
        """Return the objects of the bucket that start with a prefix, without the prefix."""
        every = self.storage.objects.get(BUCKET, {})
        return sorted(name[len(prefix) :] for name in every if name.startswith(prefix))

    def put(self, key: str, data: bytes) -> None:
        """Create or replace an object."""
        resource = _make_object_resource(
            "", BUCKET, key, "application/octet-stream", str(len(data))
        )
        self.storage.create_file(BUCKET, key, data, _checksums(data, resource))

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@contextmanager
def serving(folder: Path, honest: bool = True) -> Iterator[Gcs]:
    server = Gcs(folder, honest)
    try:
        yield server
    finally:
        server.stop()
