"""Builds INVERTED indexes: options, segments of new rows, and segments of other segments."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, fields
from typing import Any

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from lance_spark.errors import InvalidOptionError
from lance_spark.file.schema.field import Field
from lance_spark.mutations.indexes.builder import Builder
from lance_spark.mutations.indexes.described import Described
from lance_spark.scan.indexes.files import IndexFiles, SegmentWriter
from lance_spark.scan.indexes.moved_rows import MovedRows, in_fragments
from lance_spark.scan.text.files.first_format import FirstFormatPart
from lance_spark.scan.text.files.layout import layout_of
from lance_spark.scan.text.files.part_writer import MAX_FORMAT, Form, default_format
from lance_spark.scan.text.files.postings import PostingFormat
from lance_spark.scan.text.files.segment import open_index
from lance_spark.scan.text.files.stored_parts import StoredPart
from lance_spark.scan.text.files.tokens import FST
from lance_spark.scan.text.files.writer import DEFAULT_MEMORY, IndexWriter
from lance_spark.scan.text.parameters import BLOCK_SIZE, JSON, TEXT, TextParameters, is_text
from lance_spark.scan.text.tokenizer import Tokenizer
from lance_spark.table.indexes import sections as indexes
from lance_spark.table.rows.u64_segments import UInt64Array

_MEBIBYTE = 1 << 20
#: Keys of the parameters besides those of the tokenizer.
FORMAT, _MEMORY, _TOKEN_FORM = "format_version", "memory_bytes", "token_form"
_BUILD_OPTIONS = ("block_size", "document_granularity", "memory_limit", "num_workers", FORMAT)
_MAX_COUNT = 1 << 20
#: Tokens whose postings are read at once.
_TOKENS = 1 << 16


def parse(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return all parameters of an index for the options of the caller.

    Raises
    ------
    InvalidOptionError
        An option is unknown, has a wrong value, or one that this release cannot write.
    UnsupportedFeatureError
        Stems are needed, and the package PyStemmer is missing.
    """
    remaining = dict(options)
    for name in _BUILD_OPTIONS:
        if name in remaining and remaining[name] is None:
            del remaining[name]
    _only(remaining, "block_size", BLOCK_SIZE)
    _only(remaining, "document_granularity", "row")
    memory = _count(remaining, "memory_limit")
    workers = _count(remaining, "num_workers") or 1
    version = remaining.pop(FORMAT, None)
    parameters = TextParameters.of_options(remaining)
    # A missing package is found before a task is run.
    Tokenizer(parameters)
    return {
        **asdict(parameters),
        FORMAT: _format_version(version, parameters),
        _TOKEN_FORM: FST,
        # As in pylance, workers share the memory. Here, a task is one worker.
        _MEMORY: DEFAULT_MEMORY if memory is None else max(1, memory * _MEBIBYTE // workers),
    }


def of_column(field: Field) -> dict[str, Any]:
    """Return the parameters that depend on the column: the kind of its documents."""
    return {"lance_tokenizer": JSON if field.logical_type == "json" else TEXT}


def existing(files: IndexFiles) -> dict[str, Any]:
    """Return the parameters of an existing segment.

    Raises
    ------
    CorruptFileError, MissingFileError, UnsupportedFeatureError, StorageError
    """
    layout = layout_of(files)
    return {
        **asdict(layout.parameters),
        # pylance merges no segments of different forms.
        FORMAT: max(layout.format_version, default_format(layout.parameters)),
        _TOKEN_FORM: layout.token_form,
        _MEMORY: DEFAULT_MEMORY,
    }


def replaces_all(segments: Iterable[IndexFiles]) -> bool:
    """Return whether a new segment of an index must replace all its segments.

    pylance searches no index whose segments have posting blocks of different sizes. It merges none
    whose segments differ in their format or their form of token dictionaries.

    Raises
    ------
    CorruptFileError, MissingFileError, UnsupportedFeatureError, StorageError
    """
    layouts = [layout_of(files) for files in segments]
    forms = {(layout.format_version, layout.token_form) for layout in layouts}
    return len(forms) > 1 or any(layout.posting_format != PostingFormat() for layout in layouts)


def details(dtype: pa.DataType, parameters: Mapping[str, Any]) -> bytes:
    """Return the message in the manifest."""
    form = _form(parameters)
    return form.parameters.details(form.format_version)


def write(
    segment: SegmentWriter,
    batches: Iterable[tuple[pa.Array, UInt64Array]],
    parameters: Mapping[str, Any],
    stored: Iterable[StoredPart] = (),
) -> None:
    """Write the files of a segment.

    Parameters
    ----------
    segment : SegmentWriter
    batches : iterable of (pa.Array, uint64 array)
        Texts, and the row id of each.
    parameters : mapping of str to object
    stored : iterable of StoredPart
        Parts of other segments.

    Raises
    ------
    CorruptFileError, MissingFileError, InvalidInputError, UnsupportedFeatureError, StorageError
    """
    writer = IndexWriter(segment, _form(parameters), parameters[_MEMORY])
    for part in stored:
        writer.add_part(part)
    for texts, row_ids in batches:
        writer.add_texts(texts, row_ids)
    writer.finish()


def stored_parts(
    files: IndexFiles, covered: BitMap, moved: MovedRows, row_ids: UInt64Array | None
) -> Iterator[StoredPart]:
    """Yield the parts of a segment, for a new segment that covers the same rows.

    Parameters
    ----------
    files : IndexFiles
    covered : BitMap
        The fragments that the new segment covers in place of the old one.
    moved : MovedRows
    row_ids : uint64 array or None
        In tables with stable row ids, the ids of the rows of these fragments, increasing.

    Raises
    ------
    CorruptFileError, MissingFileError, UnsupportedFeatureError, StorageError
    """
    bitmap = indexes.fragment_bitmap(files.segment) or BitMap()
    for part in open_index(files)[1]:
        old = part.documents.row_ids
        if row_ids is None:
            # Deleted rows of the fragments stay: readers leave them out.
            new, is_own = moved.addresses(old, bitmap)
            yield StoredPart(part, new, is_own & in_fragments(new, covered))
        else:
            # An id may have another text in a fragment of another segment.
            place = np.minimum(np.searchsorted(row_ids, old), max(len(row_ids) - 1, 0))
            is_kept = row_ids[place] == old if len(row_ids) else np.zeros(len(old), np.bool_)
            yield StoredPart(part, old, is_kept)


def _form(parameters: Mapping[str, Any]) -> Form:
    names = (field.name for field in fields(TextParameters))
    text_parameters = TextParameters(**{name: parameters[name] for name in names})
    return Form(text_parameters, parameters[FORMAT], parameters[_TOKEN_FORM])


def _format_version(value: Any, parameters: TextParameters) -> int:
    if value is None:
        return default_format(parameters)
    version = str(value).lower().removeprefix("v")
    minimum = default_format(parameters)
    versions = [str(number) for number in range(minimum, MAX_FORMAT + 1)]
    if isinstance(value, bool) or version not in versions:
        raise InvalidOptionError(
            f"INVERTED index: format_version must be one of {', '.join(versions)}, not {value!r}"
        )
    return int(version)


def _only(options: dict[str, Any], name: str, expected: object) -> None:
    """Remove an option that can have one value."""
    value = options.pop(name, expected)
    if value != expected:
        raise InvalidOptionError(
            f"INVERTED index: {name} must be {expected!r}, not {value!r}: this release writes no "
            "other"
        )


def _count(options: dict[str, Any], name: str) -> int | None:
    """Remove an option that is a number; return None if it is missing."""
    value = options.pop(name, None)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= _MAX_COUNT:
        raise InvalidOptionError(
            f"INVERTED index: {name} must be an integer from 1 to {_MAX_COUNT}, not {value!r}"
        )
    return value


def _write(
    segment: SegmentWriter, values: pa.Array, ids: UInt64Array, parameters: Mapping[str, Any]
) -> None:
    write(segment, [(values, ids)], parameters)


def _version_of(parameters: Mapping[str, Any]) -> int:
    version: int = parameters[FORMAT]
    return version


def _meaning(files: IndexFiles) -> dict[str, Any]:
    return asdict(layout_of(files).parameters)


def prewarm(files: IndexFiles) -> None:
    """Read the documents and postings of a segment into the cache."""
    for part in open_index(files)[1]:
        _ = part.documents, part.tokens
        if isinstance(part, FirstFormatPart):
            continue
        rows = np.arange(len(part.token_lengths))
        for start in range(0, len(rows), _TOKENS):
            part.blocks_of(rows[start : start + _TOKENS])


BUILDER = Builder(
    "INVERTED",
    _write,
    is_text,
    plain_only=True,
    json_too=True,
    of_column=of_column,
    version=2,
    version_of=_version_of,
    parse=parse,
    details=details,
    existing=existing,
    write_batches=write,
    stored_parts=stored_parts,
    replaces_all=replaces_all,
    stage="tokenize_docs",
)
DESCRIBED = Described(meaning=_meaning)
