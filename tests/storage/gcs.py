"""A server in place of Google Cloud Storage: `gcp-storage-emulator`, and what it leaves out.

The emulator speaks the JSON API, which gcsfs uses, but takes no notice of preconditions. Here they are checked before it gets a request; as
it answers one after the other, nothing comes between. The XML API, which pylance uses, is served from the emulator's own objects.

`Gcs(honest=False)` is the emulator as it is: a store that takes a condition and does not honour it.
"""

from __future__ import annotations

import email.utils
import json
import threading
from collections.abc import Iterator
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


class _Server(HTTPServer):
    request_queue_size = 128
    honest = True
    refuses = False
    requests: list[str]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients hang up when they have what they want."""


class _Handler(RequestHandler):
    server: _Server

    def _dispatch(self, method: str) -> None:
        url = urlsplit(self.path)
        query = {key: found[0] for key, found in parse_qs(url.query, True).items()}
        self.server.requests.append(f"{method} {self.path}")
        if self.server.refuses and method != "GET":
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            text = json.dumps({"error": {"code": 403, "message": "no access to that bucket"}})
            self._answer(403, text.encode(), {"Content-Type": "application/json"})
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
        """Refuse an upload whose object is there; hand on what was read of any other."""
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
            found: dict[str, Any] = self.storage.get_file_obj(bucket, key)
        except NotFound:
            return None
        return found

    def _answer(
        self, status: int, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> None:
        self.send_response(status)
        given = {"Content-Length": str(len(body)), **(headers or {})}
        for name, text in given.items():
            self.send_header(name, text)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _get(self, bucket: str, key: str) -> None:
        found = self._object(bucket, key)
        if found is None:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
            return
        data: bytes = self.storage.get_file(bucket, key)
        headers = {
            "ETag": f'"{found["etag"]}"',
            "x-goog-generation": found["generation"],
            "Last-Modified": email.utils.formatdate(int(found["generation"]) / 1e9, usegmt=True),
        }
        status, start, stop = 200, 0, len(data)
        asked = self.headers.get("Range")
        if asked:
            first, _, last = asked.removeprefix("bytes=").partition("-")
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
            other, _, path = unquote(source).lstrip("/").partition("/")
            body = self.storage.get_file(other, path)
        made = _make_object_resource("", bucket, key, "application/octet-stream", str(len(body)))
        made = _checksums(body, made)
        self.storage.create_file(bucket, key, body, made)
        headers = {"ETag": f'"{made["etag"]}"', "x-goog-generation": made["generation"]}
        self._answer(200, headers=headers)

    def _delete(self, bucket: str, key: str) -> None:
        try:
            self.storage.delete_file(bucket, key)
        except NotFound:
            self._answer(404, b"<Error><Code>NoSuchKey</Code></Error>")
            return
        self._answer(204)

    def _list(self, bucket: str, query: dict[str, str]) -> None:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        after = query.get("continuation-token") or query.get("start-after") or ""
        names, folders = [], set()
        for name in sorted(self.storage.objects.get(bucket, {}), key=str.encode):
            if not name.startswith(prefix) or name.encode() <= after.encode():
                continue
            rest = name[len(prefix) :]
            if delimiter and delimiter in rest:
                folders.add(prefix + rest.partition(delimiter)[0] + delimiter)
            else:
                names.append(name)
        most = int(query.get("max-keys", 1000))
        more = (
            f"<NextContinuationToken>{escape(names[most - 1])}</NextContinuationToken>"
            if len(names) > most
            else ""
        )
        parts = [
            f"<Contents><Key>{escape(name)}</Key><LastModified>{one['updated']}</LastModified>"
            f"<ETag>{one['etag']}</ETag><Size>{one['size']}</Size></Contents>"
            for name in names[:most]
            for one in [self.storage.objects[bucket][name]]
        ]
        parts += [
            f"<CommonPrefixes><Prefix>{escape(one)}</Prefix></CommonPrefixes>"
            for one in sorted(folders)
        ]
        text = f"<ListBucketResult>{''.join(parts)}{more}</ListBucketResult>"
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
        """Storage options as pylance has them."""
        return {"google_service_account": str(self.account), "allow_http": "true"}

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """Have it forbid all but reads for a while."""
        self._server.refuses = True
        try:
            yield
        finally:
            self._server.refuses = False

    def names(self, prefix: str) -> list[str]:
        """Objects of the bucket that start with a prefix, without it."""
        every = self.storage.objects.get(BUCKET, {})
        return sorted(name[len(prefix) :] for name in every if name.startswith(prefix))

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
