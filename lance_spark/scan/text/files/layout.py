"""The content of `metadata.lance` of a segment of an INVERTED index.

The parameters are in the metadata of the schema, the numbers of the parts too.

Specification: table/index/scalar/fts.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from typing import TypeVar

from google.protobuf.message import DecodeError

from lance_spark.errors import CorruptFileError, MissingFileError, UnsupportedFeatureError
from lance_spark.indexes.registry import TYPES
from lance_spark.proto import index_old_pb2
from lance_spark.scan.indexes.files import IndexFiles, number_in
from lance_spark.scan.text.files.postings import FIXED, VARINT, PostingFormat
from lance_spark.scan.text.files.tokens import ARROW, FST
from lance_spark.scan.text.parameters import TextParameters

METADATA_FILE = "metadata.lance"
#: Files that only the first format has.
_FIRST_TOKENS, _FIRST_POSTINGS = "tokens.lance", "invert.lance"
#: Stands for the first format, which has no number.
FIRST_FORMAT = 0
DELETED_FRAGMENTS = "deleted_fragments"
#: Versions of the index. They are those of its format, or 0 if segments with token dictionaries in
#: the form `arrow` were merged; the files record their format.
VERSIONS = TYPES["INVERTED"].versions
_MAX_PARTS = 1 << 16

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Layout:
    """The content of `metadata.lance`.

    Attributes
    ----------
    parameters : TextParameters
    parts : tuple of int
        Numbers of the parts.
    format_version : int
    token_form : str
    posting_format : PostingFormat
    """

    parameters: TextParameters
    parts: tuple[int, ...]
    format_version: int
    token_form: str
    posting_format: PostingFormat


def layout_of(files: IndexFiles) -> Layout:
    """Return the content of `metadata.lance` of a segment; see `open_index`."""
    _check_granularity(files)
    content = files.cached(METADATA_FILE, _read_layout, lambda _: 1024)
    return required(files, METADATA_FILE, content)


def _check_granularity(files: IndexFiles) -> None:
    """Raise an error about an index with several documents in a row; the manifest alone says so."""
    details = index_old_pb2.InvertedIndexDetails()
    with suppress(DecodeError):
        details.ParseFromString(files.segment.index_details.value)
    if details.document_granularity:
        raise UnsupportedFeatureError(
            f"index {files.segment.name!r} has a document for each item of a list, which this "
            "release does not read; create an index whose document_granularity is row"
        )


def _has_first_format(files: IndexFiles) -> bool:
    """Return whether a segment has the files of the first format."""
    if files.segment.files:
        return any(file.path == _FIRST_TOKENS for file in files.segment.files)
    # Old releases list no files.
    store, path = files.locate(_FIRST_TOKENS)
    return store.exists(path)


def required(files: IndexFiles, file: str, content: _T | None) -> _T:
    """Return the content of a file of a segment.

    Raises
    ------
    MissingFileError
        The content is None: the file is missing.
    """
    if content is None:
        raise MissingFileError(
            f"index {files.segment.name!r}: file {file}, or a file that it needs, not found; "
            "rebuild the index"
        )
    return content


def _read_layout(files: IndexFiles) -> Layout:
    if _has_first_format(files):
        return _read_first_layout(files)
    with closing(files.open(METADATA_FILE)) as file:
        name, metadata = file.source.name, file.schema.metadata
        block_size = number_in(file, "posting_block_size", 128)
        version = number_in(file, "format_version", 1)
    parameters = TextParameters.of_json(metadata.get("params", b""), name)
    try:
        parts = json.loads(metadata.get("partitions", b"null"))
    except (ValueError, RecursionError):
        parts = None
    if (
        not isinstance(parts, list)
        or len(parts) > _MAX_PARTS
        or not all(isinstance(part, int) and 0 <= part < 1 << 64 for part in parts)
        or len(set(parts)) < len(parts)
    ):
        raise damaged(name, "partitions must be a list of distinct numbers")
    tail = _text(metadata, "posting_tail_codec", FIXED)
    form = _text(metadata, "token_set_format", ARROW)
    if version not in VERSIONS[1:]:
        raise UnsupportedFeatureError(
            f"{name}: format_version {version} is not supported; this release reads 1 to 3"
        )
    if block_size not in (128, 256) or tail not in (FIXED, VARINT) or form not in (ARROW, FST):
        raise UnsupportedFeatureError(
            f"{name}: postings of {block_size} documents, {tail!r}, {form!r} are not supported; "
            "create the index again"
        )
    return Layout(parameters, tuple(parts), version, form, PostingFormat(block_size, tail))


def _read_first_layout(files: IndexFiles) -> Layout:
    """Return what `metadata.lance` would have, from the files of the first format."""
    with closing(files.open(_FIRST_TOKENS)) as file:
        name, text = file.source.name, file.schema.metadata.get("tokenizer", b"{}")
    with closing(files.open(_FIRST_POSTINGS)) as file:
        with_position = any(stored.name == "_position" for stored in file.schema.fields)
    parameters = replace(TextParameters.of_json(text, name), with_position=with_position)
    return Layout(parameters, (0,), FIRST_FORMAT, ARROW, PostingFormat(tail=FIXED))


def _text(metadata: Mapping[str, bytes], key: str, default: str) -> str:
    return metadata.get(key, default.encode()).decode("ascii", "replace")


def damaged(name: str, problem: str) -> CorruptFileError:
    """Return the error about a damaged file."""
    return CorruptFileError(f"{name}: {problem}; rebuild the index")
