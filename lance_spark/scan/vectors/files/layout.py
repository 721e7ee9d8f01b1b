"""Names in the files of vector indexes, and JSON in their metadata; `segment` has the layout."""

from __future__ import annotations

import json
from typing import Any

from lance_spark.errors import CorruptFileError
from lance_spark.file.open import DataFileReader

INDEX, CODES = "index.idx", "auxiliary.idx"
ROW_ID = "_rowid"
TYPE_KEY, IVF_KEY, FLAT_KEY, GRAPHS_KEY = "lance:index", "lance:ivf", "lance:flat", "lance:hnsw"
METRIC_KEY, STORAGE_KEY = "distance_type", "storage_metadata"
#: Part of the names of index types with graphs.
GRAPHS = "HNSW"
#: Most bytes of a text in the metadata of a file.
_MAX_TEXT = 1 << 20


def json_in(file: DataFileReader, key: str, max_bytes: int = _MAX_TEXT) -> object:
    """Return the JSON in the metadata of an index file.

    Raises
    ------
    CorruptFileError
        The entry is missing, too long, or no JSON.
    """
    return parsed_json(text_in(file, key, max_bytes), key, file.source.name)


def parsed_json(text: str, key: str, name: str) -> object:
    """Return the JSON of a text.

    Raises
    ------
    CorruptFileError
        It is no JSON.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CorruptFileError(f"{name}: {key} is no JSON: {error}; rebuild the index") from None


def text_in(file: DataFileReader, key: str, max_bytes: int = _MAX_TEXT) -> str:
    """Return a text in the metadata of an index file.

    Raises
    ------
    CorruptFileError
        The entry is missing or too long.
    """
    data = file.schema.metadata.get(key, b"")
    if not data or len(data) > max_bytes:
        raise CorruptFileError(
            f"{file.source.name}: {key} must have 1 to {max_bytes} bytes, not {len(data)}; rebuild "
            "the index"
        )
    return data.decode("utf-8", "replace")


def json_text(content: Any) -> str:
    """Return JSON as pylance writes it."""
    return json.dumps(content, separators=(",", ":"))
