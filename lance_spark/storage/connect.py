"""Connects to a store: from a URI and options to an fsspec file system.

The module also tests whether a store honours conditional puts, on which commits rely. Some servers
with the protocol of a cloud accept the condition of a put and replace an existing object anyway. So
before a process writes to an unknown server, it creates a small object twice: the second put must
be refused. That costs three requests, once for each process, server and bucket. The servers of AWS,
Google and Microsoft are known and not probed.

The object has the name of a transaction file that no version refers to. Lance clients do not read
it, and cleanup removes it if a crash leaves it behind.
"""

from __future__ import annotations

import os
import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache
from importlib.util import find_spec
from typing import Any, ClassVar
from urllib.parse import urlsplit

from lance_spark._forks import ForkLock, after_fork
from lance_spark.errors import StorageError
from lance_spark.last_used import LastUsed
from lance_spark.storage import azure, google, s3
from lance_spark.storage.endpoints import endpoint_of, is_own_endpoint
from lance_spark.storage.errors import is_not_understood, is_refusal, translated
from lance_spark.storage.options import CREDENTIALS, FILE_SYSTEM, family_of, is_obstore
from lance_spark.storage.renewal import RenewedArguments
from lance_spark.storage.uri import Location

_CONNECT_SECONDS = 30.0
#: Seconds without a byte of an answer after which a request fails.
_SILENT_SECONDS = 120.0
_PACKAGES = {"s3": "s3fs", "google": "gcsfs", "azure": "adlfs"}
_PROBE_FOLDER = "_transactions"
#: Those that were used longest ago are left to their users.
_MOST_FILE_SYSTEMS = 64
#: Buckets of which a process knows the result of the probe.
_MOST_PROBES = 1024


class _Connected:
    """The file systems of clouds in this process: by scheme and arguments."""

    lock = threading.Lock()
    file_systems: ClassVar[OrderedDict[tuple[str, str], Any]] = OrderedDict()


@after_fork
def _forked() -> None:
    _Connected.lock = threading.Lock()
    _Connected.file_systems.clear()


class _Probes:
    """The results of the probes of a process: by scheme, server and bucket."""

    #: One probe of a bucket at a time.
    lock = ForkLock()
    results: ClassVar[LastUsed[tuple[str, str, str], bool]] = LastUsed(_MOST_PROBES)


def of_uri(location: Location) -> dict[str, Any]:
    """Return the storage options that a URI implies. Options of the user take precedence."""
    account = location.azure_account
    if account is None:
        return {}
    name, domain = account
    if domain == "core.windows.net":
        return {"account_name": name}
    return {"account_name": name, "account_host": f"{name}.blob.{domain}"}


def connect(
    location: Location, arguments: Mapping[str, Any], secrets: Mapping[str, Any] | None = None
) -> Any:
    """Return the file system of a location that is not on a local disk.

    - `arguments`: Arguments of the file system; those that the URI implies are added.
    - `secrets`: Options whose values are left out of every error.

    Raises StorageError: the scheme is unknown, its package is not installed, or it does not take
    these arguments.
    """
    # Tables on local disks do not need fsspec, and its import is slow.
    import fsspec

    try:
        with translated(location.display, secrets or arguments):
            # A cached listing would hide the versions that other clients commit.
            all_arguments: dict[str, Any] = ordered({"use_listings_cache": False, **arguments})
            if location.scheme in ("hdfs", "viewfs"):
                return _hadoop(location, all_arguments)
            if family_of(location.scheme) is None:
                filesystem = fsspec.get_filesystem_class(location.scheme)
                # Host, port and user of FTP and similar schemes.
                from_uri = filesystem._get_kwargs_from_urls(location.uri)
                all_arguments = {**from_uri, **all_arguments}
            elif family_of(location.scheme) == "google" and _is_another_google(arguments):
                # gcsfs would ask this server for the type of the bucket, by a protocol that only
                # Google's own servers speak.
                from gcsfs.core import GCSFileSystem

                return _with_timeouts(GCSFileSystem(**all_arguments))
            if family_of(location.scheme) is None:
                return _with_timeouts(fsspec.filesystem(location.scheme, **all_arguments))
            return _shared(location.scheme, all_arguments)
    except StorageError as error:
        cause = error.__cause__
        if isinstance(cause, ImportError):
            raise StorageError(
                f"{location.display}: {_package_hint(location.scheme, str(cause))}"
            ) from cause
        if isinstance(cause, ValueError) and "Protocol not known" in str(cause):
            raise StorageError(
                f"{location.display}: unknown scheme {location.scheme!r}; give a local path, or "
                "a scheme that an installed fsspec file system handles, such as s3, gs or abfs"
            ) from cause
        raise


def _shared(scheme: str, arguments: Mapping[str, Any]) -> Any:
    """Return the file system of a cloud that all threads of the process share.

    fsspec would make one for each thread, with connections of its own. It sends all requests from
    one thread anyway.
    """
    import fsspec

    if arguments.get("skip_instance_cache"):
        return _with_timeouts(fsspec.filesystem(scheme, **arguments))
    key = scheme, repr(arguments)
    with _Connected.lock:
        fs = _Connected.file_systems.pop(key, None)
        if fs is None:
            fs = _with_timeouts(fsspec.filesystem(scheme, **arguments))
        if not fs.cachable:
            return fs
        _Connected.file_systems[key] = fs
        while len(_Connected.file_systems) > _MOST_FILE_SYSTEMS:
            _Connected.file_systems.popitem(last=False)
    return fs


def ordered(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments by name, so that fsspec makes one file system of equal ones in any order.

    Each step of Spark has the options of a read or write in another order.
    """
    return {
        name: ordered(value) if isinstance(value, Mapping) else value
        for name, value in sorted(arguments.items())
    }


def uses_obstore(scheme: str, arguments: Mapping[str, Any]) -> bool:
    """Return whether the requests to a store are sent by obstore; only for the clouds.

    Raises InvalidOptionError: the option `file_system` is invalid.
    """
    if not is_obstore(arguments) or family_of(scheme) is None:
        return False
    if find_spec("obstore") is None:
        raise StorageError(
            f"storage option {FILE_SYSTEM}: the package obstore is not installed: "
            "pip install 'lance-spark[obstore]'"
        )
    from lance_spark.storage import obstore

    return obstore.is_usable()


def connect_obstore(
    location: Location, arguments: Mapping[str, Any], secrets: Mapping[str, Any]
) -> Any:
    """Return the file system of obstore for a location; see `connect`."""
    from lance_spark.storage import obstore

    with translated(location.display, secrets):
        return obstore.connect(location, arguments)


def connect_renewing(
    arguments: RenewedArguments,
    options: Mapping[str, Any],
    make_fs: Callable[[Mapping[str, Any]], Any],
) -> Any:
    """Return the file system of a store whose credentials expire.

    Each request has the newest credentials. Stores with the same credentials share the file system.
    Packages of stores other than S3, Google Cloud Storage and Azure keep the first credentials.

    - `options`: Arguments of the file system.
    - `make_fs`: Makes a file system from arguments.
    """
    family = family_of(arguments.scheme)
    if family is None:
        return make_fs(options)
    secret = CREDENTIALS[family] if arguments.credentials.is_renewable else ()
    shown = sorted((name, repr(value)) for name, value in options.items() if name not in secret)

    def make() -> Any:
        # The cache of fsspec would share one client among tables with different sources.
        renewable = {**options, "skip_instance_cache": True}
        if family == "google" and "token" in renewable:
            renewable["token"] = google.token_object(renewable["token"])
        fs = make_fs(renewable)
        if hasattr(fs, "renew"):
            fs.renew(arguments)
            return fs
        {"s3": s3.renew, "google": google.renew, "azure": azure.renew}[family](fs, arguments)
        return fs

    return arguments.credentials.client((arguments.scheme, *shown), make)


def _with_timeouts(fs: Any) -> Any:
    """Give gcsfs timeouts, which it does not have by default, unless the user set them."""
    if getattr(fs, "requests_timeout", 0) is None:
        from aiohttp import ClientTimeout

        # No timeout for a whole request: a part of a file can take long.
        fs.requests_timeout = ClientTimeout(
            sock_connect=_CONNECT_SECONDS, sock_read=_SILENT_SECONDS
        )
    return fs


def _hadoop(location: Location, arguments: Mapping[str, Any]) -> Any:
    import fsspec

    filesystem = _seekable(fsspec.get_filesystem_class("hdfs"))
    from_uri = filesystem._get_kwargs_from_urls(location.uri)
    if location.scheme == "viewfs":
        # fsspec does not know the scheme, but Hadoop's library accepts it as a host.
        host = urlsplit(location.uri).netloc
        from_uri = {"host": f"viewfs://{host}" if host else "default"}
    try:
        return filesystem(**{**from_uri, **arguments})
    except OSError as error:
        if "libjvm" not in str(error) and "libhdfs" not in str(error):
            raise
        # The library lists every path that it has tried, one a line.
        first = str(error).partition("\n")[0]
        raise StorageError(
            f"{location.display}: Hadoop's native library cannot be used ({first}); set JAVA_HOME, "
            "HADOOP_HOME or ARROW_LIBHDFS_DIR, and CLASSPATH to what `hadoop classpath --glob` "
            "prints"
        ) from error


@lru_cache(maxsize=4)
def _seekable(filesystem: Any) -> Any:
    """Return a subclass that can read a range of a file.

    The class of fsspec opens a stream, in which it cannot seek. In releases before 2026, it returns
    the whole file.
    """
    from fsspec.spec import AbstractFileSystem

    class Seekable(filesystem):  # type: ignore[misc]
        def cat_file(
            self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any
        ) -> Any:
            kwargs.setdefault("seekable", start is not None or end is not None)
            return AbstractFileSystem.cat_file(self, path, start, end, **kwargs)

    return Seekable


def _is_another_google(arguments: Mapping[str, Any]) -> bool:
    endpoint = arguments.get("endpoint_url") or os.environ.get("STORAGE_EMULATOR_HOST") or ""
    if endpoint in ("", "default"):
        return False
    return not is_own_endpoint("gs", endpoint if "://" in endpoint else f"http://{endpoint}")


def _package_hint(scheme: str, reason: str) -> str:
    package = _PACKAGES.get(family_of(scheme) or "")
    if package is not None:
        return f"tables on {scheme}:// need the package {package}: pip install {package}"
    return f"tables on {scheme}:// need another package: {reason}"


def is_probed(scheme: str, fs: Any) -> bool:
    """Return whether a store must be probed."""
    if fs is None or scheme == "memory":
        return False
    return not is_own_endpoint(scheme, endpoint_of(scheme, fs))


def check_conditional_put(
    scheme: str,
    fs: Any,
    uri: str,
    name: str,
    put: Callable[[str, bytes], bool],
    put_bare: Callable[[str, bytes], bool],
    write: Callable[[str, bytes], None],
    delete: Callable[[str], None],
) -> None:
    """Refuse a store that replaces an existing file in spite of the condition.

    - `uri`: The root of the files.
    - `name`: Name of the root in errors.
    - `put`: Creates a file below the root if it is absent, even if answers are lost; returns
      whether it did. Raises StorageError.
    - `put_bare`: Does the same, but returns the plain answer of the store. Raises StorageError.
    - `write`: Creates or replaces a file below the root. Raises StorageError.
    - `delete`: Deletes a file. Raises StorageError.

    Raises StorageError: the store replaces files; or the probe failed. Nothing else was written.
    """
    if not is_probed(scheme, fs):
        return
    server = endpoint_of(scheme, fs)
    bucket = (scheme, server or "", uri.partition("://")[2].partition("/")[0])
    with _Probes.lock:
        honours = _Probes.results.get(bucket)
        if honours is None:
            honours = _honours_condition(name, put, put_bare, write, delete)
            _Probes.results.put(bucket, honours)
    if not honours:
        server_label = f"the server {server}" if server else f"{scheme}://"
        raise StorageError(
            f"{name}: {server_label} does not refuse to replace a file that is to be created only "
            "if it is absent, so that two writers could overwrite each other's version, and "
            "commits on it would not be safe. Name a lock that all writers use by the storage "
            "option commit_lock, or keep the manifests in a database "
            "(s3+ddb://, or the storage option manifest_store), "
            "or keep the table elsewhere; it can be read as it is"
        )


def forget_probes() -> None:
    """Forget the results of all probes."""
    _Probes.results.clear()


def _honours_condition(
    name: str,
    put: Callable[[str, bytes], bool],
    put_bare: Callable[[str, bytes], bool],
    write: Callable[[str, bytes], None],
    delete: Callable[[str], None],
) -> bool:
    path = f"{_PROBE_FOLDER}/{uuid.uuid4()}.probe.txn"
    try:
        try:
            if not put(path, b"first"):
                # No other client uses that name, so this answer is wrong.
                return False
            # Only the plain answer counts: a repeated request could meet its own file.
            return not put_bare(path, b"second")
        except StorageError as error:
            if is_not_understood(error) and _succeeds(write, path):
                # The store accepts the same put without the condition.
                return False
            if is_refusal(error):
                raise
            # Without a cause: the table is unchanged.
            raise StorageError(
                f"{error}; this was the test whether commits on the store are safe; nothing was "
                "written"
            ) from None
    finally:
        # Otherwise cleanup finds it.
        with suppress(StorageError):
            delete(path)


def _succeeds(write: Callable[[str, bytes], None], path: str) -> bool:
    try:
        write(path, b"third")
    except StorageError:
        return False
    return True
