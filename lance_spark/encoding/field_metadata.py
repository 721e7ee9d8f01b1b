"""Metadata of a field that says how its values are stored."""

from __future__ import annotations

from collections.abc import Mapping

#: Extension of blob columns of version 2.2 and later.
BLOB_V2 = b"lance.blob.v2"
#: Marks blob columns before 2.2, and blob columns in data files.
BLOB_KEY = "lance-encoding:blob"
#: The id of a field, in schemas of Arrow that come from pylance.
FIELD_ID = "lance:field_id"
PACKED_KEYS = ("lance-encoding:packed", "packed")
_TRUE = frozenset({b"true", b"1", b"yes", b"y", b"on"})


def is_true(value: bytes | None) -> bool:
    """Return whether pylance takes a value of metadata for true."""
    return value is not None and value.lower() in _TRUE


def is_packed(metadata: Mapping[str, bytes]) -> bool:
    """Return whether metadata says that a struct is stored as one column, row by row."""
    return any(is_true(metadata.get(key)) for key in PACKED_KEYS)
