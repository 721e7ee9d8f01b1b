"""How INVERTED indexes are built, merged, checked, and rewritten after a compaction."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, fields
from hashlib import blake2b
from importlib.util import find_spec
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from google.protobuf.message import DecodeError
from pyroaring import BitMap

from lance_spark.encoding.rows import RowNumbers
from lance_spark.errors import CorruptFileError, InvalidOptionError, MissingFileError
from lance_spark.file.schema.field import Field
from lance_spark.indexes.address_map import AddressMap, Remapping, rewritten
from lance_spark.indexes.builds import Builder
from lance_spark.indexes.checks import ColumnCheck, CoveredRows, Findings
from lance_spark.indexes.details import Described
from lance_spark.indexes.files import IndexFiles, SegmentWriter
from lance_spark.indexes.registry import TYPES
from lance_spark.indexes.row_sets import MovedRows, in_fragments
from lance_spark.indexes.text.files import (
    FST,
    FirstFormatPart,
    TextIndexPart,
    TokenBlocks,
    layout_of,
    open_index,
)
from lance_spark.indexes.text.parameters import (
    BLOCK_SIZE,
    JSON,
    TEXT,
    TOKENIZERS,
    TextParameters,
    is_text,
)
from lance_spark.indexes.text.postings import PostingFormat
from lance_spark.indexes.text.tokenizer import Tokenizer, tokenizer_of
from lance_spark.indexes.text.wand import TOLERANCE, score_ratios
from lance_spark.indexes.text.writer import (
    DEFAULT_MEMORY,
    MAX_FORMAT,
    Form,
    IndexWriter,
    StoredPart,
    all_postings,
    all_words,
    default_format,
    token_ranges,
)
from lance_spark.proto import index_old_pb2, table_pb2
from lance_spark.table.indexes import sections as indexes
from lance_spark.table.indexes.updates import RewrittenIndex
from lance_spark.table.paths import TablePaths
from lance_spark.table.rows.u64_segments import UInt64Array

# --------------------------------------------------------------------------------------------------
# Builds INVERTED indexes: options, segments of new rows, and segments of other segments.

_MEBIBYTE = 1 << 20
#: Keys of the parameters besides those of the tokenizer.
FORMAT, _MEMORY, _TOKEN_FORM = "format_version", "memory_bytes", "token_form"
_BUILD_OPTIONS = ("block_size", "document_granularity", "memory_limit", "num_workers", FORMAT)
_MAX_COUNT = 1 << 20
#: Tokens whose postings are read at once.
_TOKENS = 1 << 16


def parse(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return all parameters of an index for the options of the caller.

    Raises InvalidOptionError: an option is unknown, has a wrong value, or one that this release
    cannot write. Raises UnsupportedFeatureError: stems are needed, and the package PyStemmer is
    missing.
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


def existing_parameters(files: IndexFiles) -> dict[str, Any]:
    """Return the parameters of an existing segment.

    Raises CorruptFileError, MissingFileError, UnsupportedFeatureError, StorageError.
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

    Raises CorruptFileError, MissingFileError, UnsupportedFeatureError, StorageError.
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

    - `batches` (iterable of (pa.Array, uint64 array)): Texts, and the row id of each.
    - `stored`: Parts of other segments.

    Raises CorruptFileError, MissingFileError, InvalidInputError, UnsupportedFeatureError,
    StorageError.
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

    - `covered`: The fragments that the new segment covers in place of the old one.
    - `row_ids` (uint64 array or None): In tables with stable row ids, the ids of the rows of these
      fragments, increasing.

    Raises CorruptFileError, MissingFileError, UnsupportedFeatureError, StorageError.
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
    None,
    is_text,
    plain_only=True,
    json_too=True,
    of_column=of_column,
    version=2,
    version_of=_version_of,
    parse=parse,
    details=details,
    existing=existing_parameters,
    write_batches=write,
    stored_parts=stored_parts,
    replaces_all=replaces_all,
    stage="tokenize_docs",
)
DESCRIBED = Described(meaning=_meaning)


# --------------------------------------------------------------------------------------------------
# Checks INVERTED indexes: the tokens of each row, how often it has them, and where.
#
# The tokens of a row become one number: the sum of a hash of each token, and of its position if the
# index has positions. The number from the text must be that from the postings. No document may have
# a greater score than its block of postings says: readers skip blocks by these scores.

Hashes = npt.NDArray[np.uint64]

#: Odd numbers that mix the bits of a hash.
_STEP, _FIRST, _SECOND = map(
    np.uint64, (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)


def check(files: IndexFiles, rows: CoveredRows, findings: Findings) -> None:
    """Compare a segment with its rows.

    Raises CorruptFileError, MissingFileError, UnsupportedFeatureError, StorageError.
    """
    parameters, parts = open_index(files)
    expected, counts = _of_texts(rows, parameters)
    num_documents = np.zeros(len(rows), np.int64)
    is_wrong = np.zeros(len(rows), np.bool_)
    for part in parts:
        documents = part.documents
        place, is_live = rows.find(documents.row_ids)
        place = place[is_live]
        findings.stale += len(is_live) - len(place)
        hashes, num_tokens = _of_postings(part)
        differs = (hashes[is_live] != expected[place]) | (num_tokens[is_live] != counts[place])
        differs |= documents.lengths[is_live] != counts[place]
        is_wrong[place[differs]] = True
        np.add.at(num_documents, place, 1)
        wrong_blocks = list(_wrong_blocks(part)) if part.has_scores else []
        findings.wrong += len(wrong_blocks)
        findings.add(wrong_blocks)
    is_missing = (counts > 0) & (num_documents == 0)
    is_wrong |= num_documents > 1
    findings.missing += int(is_missing.sum())
    findings.wrong += int(is_wrong.sum())
    for flags, text in (
        (is_missing, "the index does not have it"),
        (is_wrong, "the index has other tokens, or has it more than once"),
    ):
        places = np.flatnonzero(flags).tolist()
        findings.add(rows.problem(place, text) for place in places)


def _of_texts(rows: CoveredRows, parameters: TextParameters) -> tuple[Hashes, RowNumbers]:
    """Return the number of each row by its text, and how many tokens it has."""
    tokenizer = tokenizer_of(parameters)
    hashes = np.zeros(len(rows), np.uint64)
    counts = np.zeros(len(rows), np.int64)
    token_hashes = np.empty(0, np.uint64)
    for first, piece in tokenizer.pieces(rows.values):
        tokens = tokenizer.split(piece)
        new = islice(tokenizer.vocabulary, len(token_hashes), None)
        token_hashes = np.append(token_hashes, _hashed([token.encode("utf-8") for token in new]))
        of_token = token_hashes[tokens.ids]
        if parameters.with_position:
            of_token = _placed(of_token, tokens.positions)
        counts[first : first + len(piece)] = np.bincount(tokens.rows, minlength=len(piece))
        np.add.at(hashes, tokens.rows + first, of_token)
    return hashes, counts


def _of_postings(part: TextIndexPart) -> tuple[Hashes, RowNumbers]:
    """Return the number of each document by its postings, and how many tokens it has."""
    hashes = np.zeros(part.num_documents, np.uint64)
    counts = np.zeros(part.num_documents, np.int64)
    token_hashes = _hashed(all_words(part))
    for first, postings in all_postings(part):
        sizes = np.diff(postings.bounds)
        of_posting = np.repeat(token_hashes[first : first + len(sizes)], sizes)
        if postings.positions is None:
            of_posting = of_posting * postings.frequencies.astype(np.uint64)
            np.add.at(hashes, postings.documents, of_posting)
        else:
            of_token = np.repeat(of_posting, postings.frequencies)
            documents = np.repeat(postings.documents, postings.frequencies)
            np.add.at(hashes, documents, _placed(of_token, postings.positions))
        np.add.at(counts, postings.documents, postings.frequencies)
    return hashes, counts


def _wrong_blocks(part: TextIndexPart) -> Iterator[str]:
    """Yield problems: blocks with a lesser score than one of their documents."""
    words = all_words(part)
    for first, stop in token_ranges(part):
        blocks = TokenBlocks.joined(part.blocks_of(np.arange(first, stop)))
        ratios = score_ratios(part, blocks, np.arange(len(blocks.firsts)))
        of_token = np.repeat(np.arange(stop - first), np.diff(blocks.blocks.bounds))
        expected = np.zeros(stop - first)
        np.maximum.at(expected, of_token, ratios)
        is_wrong = ~(ratios * TOLERANCE >= expected[of_token])
        for token in np.unique(of_token[is_wrong]).tolist():
            yield f"token {words[first + token].decode()!r}: the score of a block is too small"


def _hashed(tokens: list[bytes]) -> Hashes:
    digests = b"".join(blake2b(token, digest_size=8).digest() for token in tokens)
    return np.frombuffer(digests, np.uint64)


def _placed(hashes: Hashes, positions: RowNumbers) -> Hashes:
    """Return the hash of tokens and their positions."""
    mixed = hashes + positions.astype(np.uint64) * _STEP
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _FIRST
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _SECOND
    result: Hashes = mixed ^ (mixed >> np.uint64(31))
    return result


def _prepare(files: IndexFiles) -> None:
    # An unknown tokenizer is an error; damage is a problem that the task finds.
    with suppress(CorruptFileError, MissingFileError):
        Tokenizer(open_index(files)[0])


CHECK = ColumnCheck(check, versions=TYPES["INVERTED"].versions, prepare=_prepare)


# --------------------------------------------------------------------------------------------------
# INVERTED indexes rewritten with the row addresses after a compaction.
#
# `lance_spark.indexes.text.files` has the layout of the files. Deleted rows are left out of the
# postings, which are decoded for that.


def can_remap_text(index: table_pb2.IndexMetadata) -> bool:
    """Return whether this release writes the format of a segment of type INVERTED."""
    try:
        details = index_old_pb2.InvertedIndexDetails.FromString(index.index_details.value)
    except DecodeError:
        return False
    code = details.code_config
    return (
        details.base_tokenizer in TOKENIZERS
        and not (code.split_identifiers or code.index_operators)
        and not details.document_granularity
        and details.block_size == BLOCK_SIZE
        and default_format(TextParameters()) <= details.posting_format_version <= MAX_FORMAT
        # The writer makes a tokenizer, although it splits no text.
        and (not details.stem or find_spec("Stemmer") is not None)
    )


def remap_text(
    paths: TablePaths,
    index: table_pb2.IndexMetadata,
    address_map: AddressMap,
    version: tuple[int, int],
    parts: Sequence[object],
) -> RewrittenIndex | None:
    """Write the files of a segment with new row addresses.

    - `index`: A segment of type INVERTED.
    - `version`: File version of the table.
    - `parts`: None: no task builds a part.

    Returns None if this release does not write the format of the segment. Raises CorruptFileError,
    MissingFileError, UnsupportedFeatureError, StorageError.
    """
    files = IndexFiles(paths, index)
    parameters = existing_parameters(files)
    _, existing = open_index(files)
    if any(part.layout.posting_format != PostingFormat() for part in existing):
        return None
    stored = (
        StoredPart(part, *address_map.new_addresses(part.documents.row_ids)) for part in existing
    )
    with SegmentWriter(paths, version) as segment:
        write(segment, (), parameters, stored)
        written = segment.finish()
    return rewritten(index, segment, written)


REMAPPING = Remapping(remap_text, can_remap_text)
