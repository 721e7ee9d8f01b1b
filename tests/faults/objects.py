"""An object store in memory with the semantics of S3: whole objects, complete listings, conditional
puts.
"""

from __future__ import annotations

from hashlib import md5
from typing import NamedTuple


class Object(NamedTuple):
    """The bytes of an object, and the time of its put."""

    data: bytes
    modified: float


class PartError(Exception):
    """An error for a list of parts that S3 refuses; the text is its code."""


class Objects:
    """All objects of the store.

    Attributes
    ----------
    now : dict of str to Object
        By path, without scheme.
    """

    def __init__(self) -> None:
        self.now: dict[str, Object] = {}
        self._uploads: dict[str, dict[int, bytes]] = {}
        self._begun = 0

    def begin(self, path: str) -> str:
        """Begin an upload in parts."""
        self._begun += 1
        upload = f"{path}#{self._begun}"
        self._uploads[upload] = {}
        return upload

    def put_part(self, upload: str, number: int, data: bytes) -> str:
        """Store a part, which replaces a part of the same number; return its tag."""
        if upload not in self._uploads:
            raise FileNotFoundError(upload)
        self._uploads[upload][number] = data
        return _tag(data)

    def complete(self, upload: str, listed: list[tuple[int, str]]) -> bytes:
        """Return the bytes of the parts in a list of numbers and tags, and end the upload."""
        parts = self._uploads.get(upload)
        if parts is None:
            raise FileNotFoundError(upload)
        numbers = [number for number, _ in listed]
        if numbers != sorted(set(numbers)):
            raise PartError("InvalidPartOrder")
        if not listed or any(_tag(parts.get(number, b"")) != tag for number, tag in listed):
            raise PartError("InvalidPart")
        del self._uploads[upload]
        return b"".join(parts[number] for number in numbers)

    def abort(self, upload: str) -> None:
        """Forget the parts of an upload."""
        if self._uploads.pop(upload, None) is None:
            raise FileNotFoundError(upload)

    def uploads(self, prefix: str = "", least: int = 0) -> list[str]:
        """Return the unfinished uploads of paths with a prefix that have at least so many parts."""
        return [
            upload
            for upload, parts in self._uploads.items()
            if upload.startswith(prefix) and len(parts) >= least
        ]

    def copy(self) -> Objects:
        twin = Objects()
        twin.now = dict(self.now)
        return twin

    def put(self, path: str, data: bytes, modified: float, *, create: bool = False) -> None:
        if create and path in self.now:
            raise FileExistsError(path)
        self.now[path] = Object(data, modified)

    def get(self, path: str) -> Object:
        stored = self.now.get(path)
        if stored is None:
            raise FileNotFoundError(path)
        return stored

    def delete(self, path: str) -> None:
        self.now.pop(path, None)

    def below(self, folder: str) -> list[str]:
        """Return the paths below a folder, in the order of their bytes."""
        prefix = folder.rstrip("/") + "/"
        return sorted(path for path in self.now if path.startswith(prefix))


def _tag(data: bytes) -> str:
    return md5(data, usedforsecurity=False).hexdigest()
