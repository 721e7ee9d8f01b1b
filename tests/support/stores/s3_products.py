"""A small S3 server, in this process, that answers as other products do where they differ from
Amazon: statuses, bodies, headers, listings, checksums, virtual hosts, TLS.

What a product does is known from its source, its documentation or reports of its users; see
docs/reference/stores.md.
"""

from __future__ import annotations

import asyncio
import base64
import datetime
import hashlib
import html
import ipaddress
import itertools
import re
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote, unquote_plus
from xml.sax.saxutils import escape

from aiohttp import web

BUCKET = "bucket"
SECRET = "secretsecret"
_DECLARATION = '<?xml version="1.0" encoding="UTF-8"?>'


@dataclass(frozen=True)
class Body:
    """The body of an error; `{code}`, `{message}`, `{key}` are replaced."""

    text: str
    kind: str = "application/xml"

    def of(self, code: str, message: str, key: str) -> tuple[bytes, str]:
        text = self.text
        for name, value in (("code", code), ("message", message), ("key", escape(key))):
            text = text.replace(f"{{{name}}}", value)
        return text.encode(), self.kind


XML = Body(f"{_DECLARATION}<Error><Code>{{code}}</Code><Message>{{message}}</Message></Error>")
#: Of Amazon: the only one from which s3fs knows that the condition is `If-None-Match`.
AMAZON = Body(
    f"{_DECLARATION}<Error><Code>{{code}}</Code><Message>{{message}}</Message>"
    "<Condition>If-None-Match</Condition><RequestId>1</RequestId></Error>"
)
MINIO = Body(
    f"{_DECLARATION}\n<Error><Code>{{code}}</Code><Message>{{message}}</Message><Key>{{key}}</Key>"
    "<BucketName>bucket</BucketName><Resource>/bucket/{key}</Resource><RequestId>18A</RequestId>"
    "<HostId>dd9</HostId></Error>"
)
#: Ceph's gateway has no text.
CEPH = Body(
    f"{_DECLARATION}<Error><Code>{{code}}</Code><BucketName>bucket</BucketName>"
    "<RequestId>tx00000</RequestId><HostId>10-default-default</HostId></Error>"
)
GARAGE = Body(
    f"{_DECLARATION}<Error><Code>{{code}}</Code><Message>{{message}}</Message>"
    "<Resource>/bucket/{key}</Resource><Region>garage</Region></Error>"
)
EMPTY = Body("", "text/plain")
JSON = Body('{"error": {"code": "{code}", "message": "{message}"}}', "application/json")
HTML = Body("<html><head><title>{message}</title></head><body>nginx</body></html>", "text/html")
TEXT = Body("{message} & nothing more <", "text/plain")


@dataclass(frozen=True)
class Product:
    """How a server answers.

    Attributes
    ----------
    body : Body
        Of errors.
    exists : int
        Status if the condition of a put does not hold.
    condition : tuple of int and str, optional
        Answer to every put with a condition. By default, it is honoured.
    ignores : bool
        Whether it replaces objects in spite of the condition.
    conflicts : int
        Number of puts with a condition that are answered by 409 before one is served.
    checksums : tuple of int and str, optional
        Answer to a put with a checksum.
    unchecked : tuple of int and str, optional
        Answer to a put without a checksum.
    chunks : tuple of int and str, optional
        Answer to a put in chunks with a trailer.
    wants_md5 : bool
        Whether the removal of several objects needs Content-MD5.
    removals : tuple of int and str, optional
        Answer to the removal of several objects. By default, it is served.
    kept : str, optional
        Pattern of the keys for which that answer has an error.
    is_silent : bool
        Whether that answer names no object, and none is removed.
    equal_parts : bool
        Whether all parts of an upload but the last must have one length.
    starts_after : bool
        Whether listings honour `start-after`.
    virtual_hosts : bool
        Whether the bucket is in the name of the host only.
    """

    body: Body = XML
    exists: int = 412
    condition: tuple[int, str] | None = None
    ignores: bool = False
    conflicts: int = 0
    checksums: tuple[int, str] | None = None
    unchecked: tuple[int, str] | None = None
    chunks: tuple[int, str] | None = None
    wants_md5: bool = False
    removals: tuple[int, str] | None = None
    kept: str | None = None
    is_silent: bool = False
    equal_parts: bool = False
    starts_after: bool = True
    virtual_hosts: bool = False


PRODUCTS = {
    "MinIO": Product(MINIO),
    # Until April 2024, the status of a put was that of a read.
    "older MinIO": Product(MINIO, exists=304, wants_md5=True),
    "MinIO without conditions": Product(MINIO, ignores=True, wants_md5=True),
    "Ceph": Product(CEPH, chunks=(411, "MissingContentLength")),
    "R2": Product(XML, chunks=(401, "Unauthorized"), equal_parts=True),
    "SeaweedFS": Product(MINIO, wants_md5=True),
    "Garage": Product(GARAGE, ignores=True),
    "Google's S3 door": Product(
        XML, condition=(501, "NotImplemented"), checksums=(403, "SignatureDoesNotMatch")
    ),
    "Qumulo": Product(XML, chunks=(400, "AuthorizationHeaderMalformed")),
    "Backblaze": Product(
        XML, condition=(501, "NotImplemented"), checksums=(400, "InvalidArgument")
    ),
}  # fmt: skip


@dataclass
class _Upload:
    key: str
    parts: dict[int, bytes] = field(default_factory=dict)


class S3Server:
    """The server.

    Attributes
    ----------
    product : Product
        Can be changed at any time.
    requests : list of str
        Method, path and query of each request.
    headers : list of dict
        Its headers, in lower case.
    objects : dict
        From key to bytes, tag and time.
    """

    def __init__(self, product: Product, certificate: ssl.SSLContext | None = None) -> None:
        self.product = product
        self.requests: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.objects: dict[str, tuple[bytes, str, float]] = {}
        self._uploads: dict[str, _Upload] = {}
        self._numbers = itertools.count()
        self._conflicts = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._runner = asyncio.run_coroutine_threadsafe(
            self._start(certificate), self._loop
        ).result()
        port = self._runner.addresses[0][1]
        self.endpoint = f"http{'s' if certificate else ''}://127.0.0.1:{port}"

    async def _start(self, certificate: ssl.SSLContext | None) -> web.AppRunner:
        app = web.Application(client_max_size=1 << 30)
        app.router.add_route("*", "/{path:.*}", self._serve)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=certificate).start()
        return runner

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self._runner.cleanup(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def options(self) -> dict[str, str]:
        """Return storage options for both clients."""
        return {
            "aws_access_key_id": "k",
            "aws_secret_access_key": SECRET,
            "aws_region": "us-east-1",
            "aws_endpoint": self.endpoint,
            "allow_http": "true",
        }

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        path = unquote_plus(request.raw_path.partition("?")[0].replace("+", "%2B")).lstrip("/")
        self.requests.append(f"{request.method} {request.raw_path}")
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        if self.product.virtual_hosts:
            bucket, key = request.host.partition(".")[0], path
        else:
            bucket, _, key = path.partition("/")
        body = await request.read()
        if bucket != BUCKET:
            return self._error(404, "NoSuchBucket", key)
        if request.method == "GET" and not key:
            return self._list(request)
        if request.method == "HEAD" and not key:
            return web.Response()
        if request.method in ("GET", "HEAD"):
            return self._get(request, key)
        if request.method == "PUT":
            return self._put(request, key, body)
        if request.method == "DELETE":
            self._uploads.pop(request.query.get("uploadId", ""), None)
            if "uploadId" not in request.query:
                self.objects.pop(key, None)
            return web.Response(status=204)
        return self._post(request, key, body)

    def _error(self, status: int, code: str, key: str) -> web.Response:
        message = {"PreconditionFailed": "At least one of the pre-conditions did not hold"}
        body, kind = self.product.body.of(code, message.get(code, f"this is {code}"), key)
        return web.Response(status=status, body=body, content_type=kind)

    def _xml(self, text: str) -> web.Response:
        return web.Response(text=_DECLARATION + text, content_type="application/xml")

    def _list(self, request: web.Request) -> web.Response:
        query = request.query
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        after = query.get("continuation-token", "")
        if self.product.starts_after:
            after = after or query.get("start-after", "")
        most = int(query.get("max-keys", 1000))
        url_encoded = query.get("encoding-type") == "url"
        shown: Callable[[str], str] = quote if url_encoded else escape
        # From name to whether it is an object; in the order of its bytes.
        found: dict[str, bool] = {}
        for key in sorted(self.objects, key=str.encode):
            inner = key[len(prefix) :].find(delimiter) if delimiter else -1
            name = key if inner < 0 else key[: len(prefix) + inner + 1]
            if key.startswith(prefix) and name.encode() > after.encode():
                found[name] = inner < 0
        names = list(found)[:most]
        text = "<EncodingType>url</EncodingType>" if url_encoded else ""
        for name in names:
            if found[name]:
                data, tag, at = self.objects[name]
                text += (
                    f"<Contents><Key>{shown(name)}</Key><LastModified>{_stamp(at)}</LastModified>"
                    f"<ETag>{escape(tag)}</ETag><Size>{len(data)}</Size></Contents>"
                )
            else:
                text += f"<CommonPrefixes><Prefix>{shown(name)}</Prefix></CommonPrefixes>"
        cut = len(names) < len(found)
        if cut and names:
            token = escape(names[-1])
            text += f"<NextContinuationToken>{token}</NextContinuationToken>"
        return self._xml(
            f"<ListBucketResult><Name>{BUCKET}</Name><Prefix>{shown(prefix)}</Prefix>"
            f"<IsTruncated>{str(cut).lower()}</IsTruncated>{text}</ListBucketResult>"
        )

    def _get(self, request: web.Request, key: str) -> web.Response:
        if key not in self.objects:
            return self._error(404, "NoSuchKey", key)
        data, tag, at = self.objects[key]
        headers = {"ETag": tag, "Last-Modified": _date(at), "Accept-Ranges": "bytes"}
        if request.method == "HEAD":
            return web.Response(headers={**headers, "Content-Length": str(len(data))})
        asked = re.fullmatch(r"bytes=(\d*)-(\d*)", request.headers.get("Range", ""))
        if asked is None:
            return web.Response(body=data, headers=headers)
        if asked[1]:
            start, stop = int(asked[1]), int(asked[2] or len(data)) + 1
        else:
            start, stop = max(0, len(data) - int(asked[2])), len(data)
        if start >= len(data):
            return self._error(416, "InvalidRange", key)
        stop = min(stop, len(data))
        headers["Content-Range"] = f"bytes {start}-{stop - 1}/{len(data)}"
        return web.Response(status=206, body=data[start:stop], headers=headers)

    def _refused(self, request: web.Request, key: str) -> web.Response | None:
        """Return the answer to a put that the product does not serve."""
        product, headers = self.product, request.headers
        if "aws-chunked" in headers.get("Content-Encoding", "") and product.chunks:
            return self._error(*product.chunks, key)
        if "x-amz-sdk-checksum-algorithm" in headers and product.checksums:
            return self._error(*product.checksums, key)
        if "x-amz-sdk-checksum-algorithm" not in headers and product.unchecked:
            return self._error(*product.unchecked, key)
        if headers.get("If-None-Match") != "*" or product.ignores:
            return None
        if product.condition:
            return self._error(*product.condition, key)
        if self._conflicts < product.conflicts:
            self._conflicts += 1
            return self._error(409, "ConditionalRequestConflict", key)
        self._conflicts = 0
        if key in self.objects:
            return self._error(product.exists, "PreconditionFailed", key)
        return None

    def _put(self, request: web.Request, key: str, body: bytes) -> web.Response:
        if "aws-chunked" in request.headers.get("Content-Encoding", ""):
            body = _joined(body)
        signed = request.headers.get("x-amz-content-sha256", "")
        if len(signed) == 64 and hashlib.sha256(body).hexdigest() != signed:
            return self._error(400, "XAmzContentSHA256Mismatch", key)
        refused = self._refused(request, key)
        if refused is not None:
            return refused
        if "partNumber" in request.query:
            upload = self._uploads.get(request.query["uploadId"])
            if upload is None:
                return self._error(404, "NoSuchUpload", key)
            upload.parts[int(request.query["partNumber"])] = body
            return web.Response(headers={"ETag": _tag(body)})
        source = request.headers.get("x-amz-copy-source")
        if source is not None:
            name = unquote_plus(source.replace("+", "%2B")).lstrip("/").removeprefix(f"{BUCKET}/")
            if name not in self.objects:
                return self._error(404, "NoSuchKey", name)
            self._store(key, self.objects[name][0])
            tag = escape(self.objects[key][1])
            return self._xml(f"<CopyObjectResult><ETag>{tag}</ETag></CopyObjectResult>")
        self._store(key, body)
        return web.Response(headers={"ETag": self.objects[key][1]})

    def _store(self, key: str, data: bytes) -> None:
        self.objects[key] = (data, _tag(data), time.time())

    def _post(self, request: web.Request, key: str, body: bytes) -> web.Response:
        if "uploads" in request.query:
            name = f"upload{next(self._numbers)}"
            self._uploads[name] = _Upload(key)
            return self._xml(
                f"<InitiateMultipartUploadResult><Key>{escape(key)}</Key>"
                f"<UploadId>{name}</UploadId></InitiateMultipartUploadResult>"
            )
        if "uploadId" in request.query:
            return self._complete(request, key)
        return self._remove(request, key, body)

    def _remove(self, request: web.Request, key: str, body: bytes) -> web.Response:
        """Remove several objects."""
        product = self.product
        md5 = request.headers.get("Content-MD5")
        named = [name for name in request.headers if name.lower().startswith("x-amz-checksum-")]
        if product.removals:
            return self._error(*product.removals, key)
        if md5 is None and (product.wants_md5 or not named):
            return self._error(400, "MissingContentMD5", key)
        if product.checksums and named:
            return self._error(*product.checksums, key)
        if md5 is not None and base64.b64decode(md5) != hashlib.md5(body).digest():
            return self._error(400, "BadDigest", key)
        text = ""
        for name in map(html.unescape, re.findall("<Key>(.*?)</Key>", body.decode())):
            if product.is_silent:
                continue
            if product.kept and re.search(product.kept, name):
                text += f"<Error><Key>{escape(name)}</Key><Code>InternalError</Code></Error>"
                continue
            self.objects.pop(name, None)
            text += f"<Deleted><Key>{escape(name)}</Key></Deleted>"
        return self._xml(f"<DeleteResult>{text}</DeleteResult>")

    def _complete(self, request: web.Request, key: str) -> web.Response:
        refused = self._refused(request, key)
        if refused is not None:
            return refused
        upload = self._uploads.pop(request.query["uploadId"], None)
        if upload is None:
            return self._error(404, "NoSuchUpload", key)
        parts = [part for _, part in sorted(upload.parts.items())]
        if self.product.equal_parts and len({len(part) for part in parts[:-1]}) > 1:
            return self._error(400, "InvalidPart", key)
        self._store(key, b"".join(parts))
        tag = escape(self.objects[key][1])
        return self._xml(
            f"<CompleteMultipartUploadResult><Key>{escape(key)}</Key><ETag>{tag}</ETag>"
            "</CompleteMultipartUploadResult>"
        )


def _joined(body: bytes) -> bytes:
    """Return the bytes of chunks."""
    joined, at = bytearray(), 0
    while True:
        end = body.index(b"\r\n", at)
        size = int(body[at:end].partition(b";")[0], 16)
        if not size:
            return bytes(joined)
        joined += body[end + 2 : end + 2 + size]
        at = end + 4 + size


def _tag(data: bytes) -> str:
    return f'"{hashlib.md5(data).hexdigest()}"'


def _stamp(at: float) -> str:
    moment = datetime.datetime.fromtimestamp(at, datetime.UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _date(at: float) -> str:
    moment = datetime.datetime.fromtimestamp(at, datetime.UTC)
    return moment.strftime("%a, %d %b %Y %H:%M:%S GMT")


@contextmanager
def serving(product: Product, certificate: ssl.SSLContext | None = None) -> Iterator[S3Server]:
    server = S3Server(product, certificate)
    try:
        yield server
    finally:
        server.stop()


#: File with the certificate, for clients that trust it.
AUTHORITY = "authority.pem"


def certificate(folder: Path) -> ssl.SSLContext:
    """Return a certificate of this machine that no authority has signed."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    host = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(host, critical=False)
        .sign(key, hashes.SHA256())
    )
    public = made.public_bytes(serialization.Encoding.PEM)
    (folder / AUTHORITY).write_bytes(public)
    file = folder / "server.pem"
    file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        + public
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return context
