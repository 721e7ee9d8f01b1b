"""The search of one column, planned over the whole index; `column_search` evaluates it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from pyroaring import BitMap

from lance_spark.errors import (
    CorruptError,
    InvalidInputError,
    LanceError,
    MissingFileError,
    UnsupportedFeatureError,
)
from lance_spark.file.schema.field import Field
from lance_spark.file.schema.json_fields import paged_json
from lance_spark.proto import table_pb2
from lance_spark.scan.indexes.files import INDEX_ERRORS, IndexFiles
from lance_spark.scan.indexes.moved_rows import MovedRows
from lance_spark.scan.search_task import SearchedVersion
from lance_spark.scan.text.files.index import TextIndexPart
from lance_spark.scan.text.files.segment import open_index
from lance_spark.scan.text.json_documents import tokenizer_of, value_start
from lance_spark.scan.text.parameters import JSON, TextParameters, is_text
from lance_spark.scan.text.queries import MatchQuery, PhraseQuery
from lance_spark.scan.text.ranking.scoring import Statistics, Terms
from lance_spark.scan.text.terms import expanded_terms, is_fuzzy, terms_of
from lance_spark.scan.text.tokenizer import DocumentTokenizer
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.indexes import sections as indexes
from lance_spark.table.paths import TablePaths
from lance_spark.table.rows.index import FindRows
from lance_spark.table.rows.u64_segments import UInt64Array

_LOG = logging.getLogger(__name__)

INVERTED = "INVERTED"
#: The tokenizer of columns without an index.
PLAIN = TextParameters(
    lower_case=False,
    stem=False,
    remove_stop_words=False,
    ascii_folding=False,
    max_token_length=None,
)

#: A query of one column.
Leaf = MatchQuery | PhraseQuery
#: Reads a column of some fragments, and of rows given by their addresses, which increase: the texts
#: of live rows, and the address of each.
ReadTexts = Callable[
    [tuple[Field, ...], Sequence[Fragment], UInt64Array], Iterator[tuple[pa.Array, UInt64Array]]
]


@dataclass(frozen=True, slots=True)
class TextRows:
    """The rows that a search looks at.

    Attributes
    ----------
    paths : TablePaths
    fragments : sequence of Fragment
    find_rows : callable
    read_texts : callable
    moved : MovedRows
    stable_row_ids : bool
        Whether the table has them.
    """

    paths: TablePaths
    fragments: Sequence[Fragment]
    find_rows: FindRows
    read_texts: ReadTexts
    moved: MovedRows
    stable_row_ids: bool


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment of an index that a search uses.

    Attributes
    ----------
    metadata : table_pb2.IndexMetadata
    fragments : BitMap
        The fragments that its rows had when it was built.
    parts : mapping of int to int
        The parts that are searched, and how many postings the query has there.
    """

    metadata: table_pb2.IndexMetadata
    fragments: BitMap
    parts: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class LeafPlan:
    """What the scores of a query of one column depend on.

    Attributes
    ----------
    terms : Terms
        For rows of the index.
    statistics : Statistics
        Of these tokens in the whole index.
    flat_terms : Terms
        For other rows.
    flat_statistics : Statistics
        Of these tokens in the whole index.
    """

    terms: Terms
    statistics: Statistics
    flat_terms: Terms
    flat_statistics: Statistics


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """The search of one column.

    Attributes
    ----------
    path : tuple of Field
        The fields from the top-level field to the column.
    parameters : TextParameters
    segments : tuple of Segment
    covered : BitMap
        The fragments of the version that the index covers.
    uncovered : mapping of int to int
        Fragments with rows whose texts are read, and the number of these rows.
    overlaid : mapping of int to BitMap
        Rows of covered fragments that the index has old texts of.
    leaves : mapping of Leaf to LeafPlan
    has_index : bool
        Whether there is an index, even if it is not searched.
    """

    path: tuple[Field, ...]
    parameters: TextParameters
    segments: tuple[Segment, ...]
    covered: BitMap
    uncovered: Mapping[int, int]
    overlaid: Mapping[int, BitMap]
    leaves: Mapping[Leaf, LeafPlan]
    has_index: bool


#: A segment, the fragments that its rows had when it was built, and its parts.
_Opened = tuple[table_pb2.IndexMetadata, BitMap, list[TextIndexPart]]


def plan_column(
    version: SearchedVersion,
    path: tuple[Field, ...],
    moved: MovedRows,
    queries: Sequence[Leaf],
    *,
    use_index: bool = True,
    without_index: TextParameters = PLAIN,
) -> ColumnPlan:
    """Plan the search of a column.

    Parameters
    ----------
    version : SearchedVersion
    path : tuple of Field
        The fields from the top-level field to the column.
    moved : MovedRows
    queries : sequence of Leaf
        All queries of this column.
    use_index : bool
        Whether the index is searched. Otherwise only its parameters are used.
    without_index : TextParameters
        How text is split if there is no index.

    Raises
    ------
    InvalidInputError
        The column is not of strings.
    UnsupportedFeatureError
        An index has another tokenizer or format.
    CorruptFileError, CorruptTableError, MissingFileError, StorageError
    """
    name = ".".join(node.name for node in path)
    dtype = path[-1].arrow_field.type
    if not is_text(dtype):
        raise InvalidInputError(
            f"column {name!r} of type {dtype} is not text: full-text search needs a column of "
            "strings, of lists of strings or of JSON"
        )
    indices = version.section.indices
    opened, parameters = _open_segments(version.paths, path, indices, must_read=version.fast_search)
    if any(other != parameters[0] for other in parameters):
        raise UnsupportedFeatureError(
            f"the segments of the index of column {name!r} split text differently; create the "
            "index again"
        )
    tokenizer = tokenizer_of(parameters[0] if parameters else without_index)
    if tokenizer.parameters.lance_tokenizer == JSON:
        # Documents are read as JSONB.
        path = (*path[:-1], paged_json(path[-1]))
    if not use_index:
        opened = []
    try:
        used, leaves = _used(opened, queries, tokenizer)
    except (CorruptError, MissingFileError) as error:
        if version.fast_search or needs_index(queries):
            raise
        _LOG.warning("the index of column %r is ignored: %s", name, error)
        used, leaves = _used([], queries, tokenizer)
    built_on = [segment.fragments for segment in used]
    coverage = version.coverage(path, built_on, moved)
    return ColumnPlan(path, tokenizer.parameters, used, *coverage, leaves, bool(parameters))


def needs_index(queries: Sequence[Leaf]) -> bool:
    """Return whether texts cannot be read in place of an index: only an index has similar words."""
    return any(is_fuzzy(query) for query in queries)


def _open_segments(
    paths: TablePaths,
    path: tuple[Field, ...],
    segments: Sequence[table_pb2.IndexMetadata],
    *,
    must_read: bool,
) -> tuple[list[_Opened], list[TextParameters]]:
    """Return the segments of the index of a column, and the parameters of each.

    A segment that cannot be read is left out with a warning, if another segment has the parameters.
    """
    name = ".".join(node.name for node in path)
    built_on = BitMap()
    opened: list[_Opened] = []
    parameters: list[TextParameters] = []
    errors: list[LanceError] = []
    for segment in _segments_of(path[-1], segments):
        named = indexes.fragment_bitmap(segment) or BitMap()
        bitmap = named - built_on
        if named and not bitmap:
            continue
        try:
            if not indexes.has_known_version(segment):
                raise UnsupportedFeatureError(
                    f"index {segment.name!r} of column {name!r} has version "
                    f"{segment.index_version}, which this release does not read; create the index "
                    "again"
                )
            own_parameters, parts = open_index(IndexFiles(paths, segment))
        except INDEX_ERRORS as problem:
            errors.append(problem)
            continue
        built_on |= bitmap
        parameters.append(own_parameters)
        opened.append((segment, bitmap, parts))
    if errors and (not opened or must_read):
        # Without its parameters, the search cannot split texts as the index does.
        raise errors[0]
    for error in errors:
        _LOG.warning("the index of column %r is ignored: %s", name, error)
    return opened, parameters


def _segments_of(
    field: Field, segments: Sequence[table_pb2.IndexMetadata]
) -> list[table_pb2.IndexMetadata]:
    """Return the segments of the index of a column: the first one in the manifest, as in pylance.

    Another index of the column may split text differently, and its documents are the same rows.
    """
    existing = [
        segment
        for segment in segments
        if list(segment.fields) == [field.id] and indexes.type_of_index(segment) == INVERTED
    ]
    # pylance ignores indexes whose version it does not know.
    known = [segment for segment in existing if indexes.has_known_version(segment)] or existing
    return [segment for segment in existing if segment.name == known[0].name]


def _used(
    opened: Sequence[_Opened], queries: Sequence[Leaf], tokenizer: DocumentTokenizer
) -> tuple[tuple[Segment, ...], dict[Leaf, LeafPlan]]:
    """Return segments with the postings of queries, and what the scores depend on."""
    parts = [part for _, _, own in opened for part in own]
    leaves = {query: _plan_leaf(query, tokenizer, parts) for query in queries}
    used = [
        Segment(metadata, bitmap, {part.number: _num_postings(part, leaves) for part in own})
        for metadata, bitmap, own in opened
    ]
    return tuple(used), leaves


def _plan_leaf(
    query: Leaf, tokenizer: DocumentTokenizer, parts: Sequence[TextIndexPart]
) -> LeafPlan:
    tokens = tokenizer.split_query(query.query)
    words = [tokenizer.vocabulary[number] for number in tokens.ids.tolist()]
    positions = tokens.positions.tolist()
    flat_terms = terms_of(query, words, positions, is_flat=True)
    flat_statistics = Statistics.of(parts, flat_terms.tokens)
    if is_fuzzy(query):
        assert isinstance(query, MatchQuery)
        plain = tokenizer_of(replace(PLAIN, lance_tokenizer=tokenizer.parameters.lance_tokenizer))
        similar = [(word, value_start(word, plain.parameters)) for word in plain.words(query.query)]
        terms = expanded_terms(query, similar, parts)
        statistics = Statistics.of(parts, terms.tokens)
    else:
        terms = terms_of(query, words, positions, is_flat=False)
        # Both have the same tokens.
        statistics = flat_statistics
    return LeafPlan(terms, statistics, flat_terms, flat_statistics)


def _num_postings(part: TextIndexPart, leaves: Mapping[Leaf, LeafPlan]) -> int:
    return sum(int(part.document_counts(leaf.terms.tokens).sum()) for leaf in leaves.values())
