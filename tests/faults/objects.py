"""An object store in memory, with the semantics of S3: whole objects, listings that have everything, puts on condition."""

from __future__ import annotations

from typing import NamedTuple


class Object(NamedTuple):
    """Bytes, and when they were put."""

    data: bytes
    modified: float


class Objects:
    """The objects that there are.

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

    def put_part(self, upload: str, number: int, data: bytes) -> None:
        if upload not in self._uploads:
            raise FileNotFoundError(upload)
        self._uploads[upload][number] = data

    def end(self, upload: str, numbers: list[int]) -> bytes:
        """Return the bytes of some parts; the upload is over."""
        parts = self._uploads.pop(upload, None)
        if parts is None:
            raise FileNotFoundError(upload)
        return b"".join(parts[number] for number in numbers)

    def copy(self) -> Objects:
        other = Objects()
        other.now = dict(self.now)
        return other

    def put(self, path: str, data: bytes, at: float, *, create: bool = False) -> None:
        if create and path in self.now:
            raise FileExistsError(path)
        self.now[path] = Object(data, at)

    def get(self, path: str) -> Object:
        found = self.now.get(path)
        if found is None:
            raise FileNotFoundError(path)
        return found

    def delete(self, path: str) -> None:
        self.now.pop(path, None)

    def below(self, folder: str) -> list[str]:
        """Paths below a folder, in the order of their bytes."""
        prefix = folder.rstrip("/") + "/"
        return sorted(path for path in self.now if path.startswith(prefix))
