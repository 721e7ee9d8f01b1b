"""Evaluates full-text queries over the rows of a version.

Rows that segments of an index cover are searched by the index, with statistics of the index. Other
rows are read, and searched with statistics of the index and of these rows. Rows are identified by
their addresses.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
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
from lance_spark.proto import table_pb2
from lance_spark.scan.indexes.files import IndexFiles
from lance_spark.scan.indexes.moved_rows import MovedRows, in_fragments
from lance_spark.scan.pruning.zone_places import INDEX_ERRORS, is_overlaid
from lance_spark.scan.text.files.index import VERSIONS, TextIndexPart, open_index
from lance_spark.scan.text.flat import FlatPart
from lance_spark.scan.text.parameters import TextParameters
from lance_spark.scan.text.queries import (
    BooleanQuery,
    BoostQuery,
    FullTextQuery,
    MatchQuery,
    MultiMatchQuery,
    Occur,
    PhraseQuery,
    leaves,
)
from lance_spark.scan.text.scoring import Scores, Statistics, scored
from lance_spark.scan.text.terms import expanded_terms, is_fuzzy, terms_of
from lance_spark.scan.text.tokenizer import Tokenizer
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.indexes import sections as indexes
from lance_spark.table.paths import TablePaths
from lance_spark.table.rows.u64_segments import UInt64Array

_LOG = logging.getLogger(__name__)

INVERTED = "INVERTED"
#: The tokenizer of columns without an index.
_PLAIN = TextParameters(
    lower_case=False,
    stem=False,
    remove_stop_words=False,
    ascii_folding=False,
    max_token_length=None,
)

#: Returns for row ids whether a live row has the id, and the address of that row.
FindRows = Callable[[UInt64Array], tuple[npt.NDArray[np.bool_], UInt64Array]]
#: Reads a column of some fragments, and of rows given by their addresses, which increase: the texts
#: of live rows, and the address of each.
ReadTexts = Callable[
    [tuple[Field, ...], Sequence[Fragment], UInt64Array], Iterator[tuple[pa.Array, UInt64Array]]
]


@dataclass(frozen=True, slots=True)
class Hits:
    """Rows that match a query.

    Attributes
    ----------
    addresses : uint64 array
        Increasing.
    scores : float64 array
    """

    addresses: UInt64Array
    scores: Scores

    @classmethod
    def none(cls) -> Hits:
        """Return no rows."""
        return cls(np.empty(0, np.uint64), np.empty(0, np.float64))

    def best(self, limit: int | None) -> Hits:
        """Return the rows with the greatest scores, the greatest first."""
        scores, addresses = self.scores, self.addresses
        if limit is not None and limit < len(scores):
            chosen = np.sort(np.argpartition(-scores, limit)[:limit]) if limit else slice(0)
            scores, addresses = scores[chosen], addresses[chosen]
        order = np.argsort(-scores, kind="stable")
        return Hits(addresses[order], scores[order])

    def at(self, addresses: UInt64Array) -> tuple[npt.NDArray[np.bool_], Scores]:
        """Return which rows match, and their scores; 0 for others."""
        if not len(self.addresses):
            return np.zeros(len(addresses), np.bool_), np.zeros(len(addresses))
        place = np.minimum(np.searchsorted(self.addresses, addresses), len(self.addresses) - 1)
        matches = self.addresses[place] == addresses
        return matches, np.where(matches, self.scores[place], 0.0)


@dataclass(frozen=True)
class TextTable:
    """The rows of a version, for full-text search.

    Attributes
    ----------
    paths : TablePaths
    segments : sequence of IndexMetadata
        The segments of all indexes.
    moved : MovedRows
    stable_row_ids : bool
        Whether the table has them.
    fragments : sequence of Fragment
    find_rows : callable
    read_texts : callable
    field_path : callable
        Returns the fields from the top-level field to a column, by its name.
    fast_search : bool
        Whether rows that no index covers are left out.
    """

    paths: TablePaths
    segments: Sequence[table_pb2.IndexMetadata]
    moved: MovedRows
    stable_row_ids: bool
    fragments: Sequence[Fragment]
    find_rows: FindRows
    read_texts: ReadTexts
    field_path: Callable[[str], tuple[Field, ...]]
    fast_search: bool = False

    def search(self, query: FullTextQuery) -> Hits:
        """Return the live rows that match a query.

        Raises
        ------
        InvalidInputError
            A column does not exist, or is not of strings.
        UnsupportedFeatureError
            An index has another tokenizer or format, or no positions for a phrase.
        CorruptFileError, CorruptTableError, MissingFileError, StorageError
        """
        columns: dict[str, _Column] = {}
        for leaf in leaves(query):
            if leaf.column not in columns:
                columns[leaf.column] = _Column(self, leaf.column)
            columns[leaf.column].prepare(leaf)
        return self._hits(query, columns)

    def _hits(self, query: FullTextQuery, columns: dict[str, _Column]) -> Hits:
        match query:
            case MatchQuery() | PhraseQuery():
                return columns[query.column].hits(query)
            case MultiMatchQuery():
                hits = [columns[match.column].hits(match) for match in query.matches]
                return _combined(hits, np.maximum)
            case BoostQuery():
                positive = self._hits(query.positive, columns)
                _, negative = self._hits(query.negative, columns).at(positive.addresses)
                scores = positive.scores - query.negative_boost * negative
                return Hits(positive.addresses, scores)
            case BooleanQuery():
                must, should, must_not = (
                    [self._hits(clause, columns) for clause in query.of(occur)]
                    for occur in (Occur.MUST, Occur.SHOULD, Occur.MUST_NOT)
                )
                return _boolean(must, should, must_not)
        raise InvalidInputError(f"a query of type {type(query).__name__} is not supported")


def indexed_columns(
    segments: Sequence[table_pb2.IndexMetadata], names: dict[int, str]
) -> list[str]:
    """Return the columns with an INVERTED index, by the names of field ids."""
    ids = [
        index.fields[0]
        for index in segments
        if len(index.fields) == 1 and indexes.type_of_index(index) == INVERTED
    ]
    return [names[number] for number in dict.fromkeys(ids) if number in names]


@dataclass(frozen=True)
class _Segment:
    """A segment of an index.

    Attributes
    ----------
    bitmap : BitMap
        The fragments that its rows had when it was built.
    parts : list of TextIndexPart
    """

    bitmap: BitMap
    parts: list[TextIndexPart]

    @cached_property
    def repeated(self) -> UInt64Array:
        """The row ids that have several documents."""
        ids = [part.documents.row_ids for part in self.parts]
        row_ids = np.concatenate([np.empty(0, np.uint64), *ids])
        if (row_ids[1:] > row_ids[:-1]).all():
            return row_ids[:0]
        row_ids = np.sort(row_ids)
        return np.unique(row_ids[1:][row_ids[1:] == row_ids[:-1]])


class _Column:
    """Searches one column."""

    def __init__(self, table: TextTable, name: str) -> None:
        self._table = table
        self._path = table.field_path(name)
        dtype = self._path[-1].arrow_field.type
        if dtype not in (pa.string(), pa.large_string()):
            raise InvalidInputError(
                f"column {name!r} of type {dtype} is not text: full-text search needs a column of "
                "strings"
            )
        self._prepared: dict[MatchQuery | PhraseQuery, tuple[list[int], list[int]]] = {}
        parameters: list[TextParameters] = []
        self._segments, self._covered = self._covering(name, parameters)
        if any(other != parameters[0] for other in parameters):
            raise UnsupportedFeatureError(
                f"the segments of the index of column {name!r} split text differently; create the "
                "index again"
            )
        self._tokenizer = Tokenizer(parameters[0] if parameters else _PLAIN)

    def prepare(self, query: MatchQuery | PhraseQuery) -> None:
        """Split the text of a query. All queries are prepared before texts are read."""
        tokens = self._tokenizer.split(pa.array([query.query], pa.string()))
        self._prepared[query] = tokens.ids.tolist(), tokens.positions.tolist()

    def hits(self, query: MatchQuery | PhraseQuery) -> Hits:
        """Return the rows that match a query."""
        try:
            hits = self._all_hits(query)
        except (CorruptError, MissingFileError) as error:
            # Without an index, there are no similar words.
            if not self._segments or self._table.fast_search or is_fuzzy(query):
                raise
            _LOG.warning("the index of column %r is ignored: %s", query.column, error)
            self._segments, self._covered = [], BitMap()
            self.__dict__.pop("_flat", None)
            self.__dict__.pop("_repeated", None)
            hits = self._all_hits(query)
        boost = query.boost if isinstance(query, MatchQuery) else 1.0
        return Hits(hits.addresses, hits.scores * boost)

    def _all_hits(self, query: MatchQuery | PhraseQuery) -> Hits:
        ids, positions = self._prepared[query]
        words = [self._tokenizer.vocabulary[number] for number in ids]
        results = self._index_hits(query, words, positions)
        if self._flat is not None:
            results.append(self._flat_hits(self._flat, query, words, positions))
        addresses = np.concatenate([np.empty(0, np.uint64), *(hits.addresses for hits in results)])
        scores = np.concatenate([np.empty(0, np.float64), *(hits.scores for hits in results)])
        order = np.argsort(addresses)
        addresses, first = np.unique(addresses[order], return_index=True)
        return Hits(addresses, np.maximum.reduceat(scores[order], first) if len(first) else scores)

    def _index_hits(
        self, query: MatchQuery | PhraseQuery, words: list[str], positions: list[int]
    ) -> list[Hits]:
        """Return the rows of each part of the index."""
        parts = self._parts
        with_similar = is_fuzzy(query)
        if with_similar:
            assert isinstance(query, MatchQuery)
            terms = expanded_terms(query, Tokenizer(_PLAIN).words(query.query), parts)
        else:
            terms = terms_of(query, words, positions, is_flat=False)
        with_positions = isinstance(query, PhraseQuery)
        postings = [part.postings(terms.tokens, with_positions=with_positions) for part in parts]
        statistics = Statistics.of(parts, postings, terms)
        bitmaps = [segment.bitmap for segment in self._segments for _ in segment.parts]
        results = []
        for part, part_postings, bitmap in zip(parts, postings, bitmaps, strict=True):
            documents, scores = scored(part, part_postings, terms, statistics)
            addresses, kept = self._live_rows(part.documents.row_ids[documents], bitmap)
            if len(self._repeated) and not with_similar:
                kept &= ~np.isin(addresses, self._repeated)
            results.append(Hits(addresses[kept], scores[kept]))
        return results

    def _live_rows(
        self, row_ids: UInt64Array, bitmap: BitMap
    ) -> tuple[UInt64Array, npt.NDArray[np.bool_]]:
        """Return addresses of rows of a segment, and which of them the segment covers.

        A row that moved to a fragment that the segment does not cover has another text.
        """
        table = self._table
        if table.stable_row_ids:
            is_live, addresses = table.find_rows(row_ids)
            return addresses, is_live & in_fragments(addresses, table.moved.fragments(bitmap))
        moved, is_own = table.moved.addresses(row_ids, bitmap)
        is_live, addresses = table.find_rows(moved)
        return addresses, is_own & is_live & in_fragments(addresses, self._covered)

    def _flat_hits(
        self,
        flat: FlatPart,
        query: MatchQuery | PhraseQuery,
        words: list[str],
        positions: list[int],
    ) -> Hits:
        """Return the rows that no index covers. Their scores depend on the index, too."""
        terms = terms_of(query, words, positions, is_flat=True)
        with_positions = isinstance(query, PhraseQuery)
        of_index = [part.postings(terms.tokens) for part in self._parts]
        of_flat = flat.postings(terms.tokens, with_positions=with_positions)
        statistics = Statistics.of([*self._parts, flat], [*of_index, of_flat], terms)
        documents, scores = scored(flat, of_flat, terms, statistics)
        return Hits(flat.documents.row_ids[documents], scores)

    @property
    def _parts(self) -> list[TextIndexPart]:
        return [part for segment in self._segments for part in segment.parts]

    @cached_property
    def _repeated(self) -> UInt64Array:
        """The live rows that have several documents in a segment.

        pylance merges segments of tables with stable row ids without a look at rows that were
        updated: they keep their ids, and have a document with the old text. So their texts are
        read.
        """
        rows = [
            self._live_rows(segment.repeated, segment.bitmap)
            for segment in self._segments
            if len(segment.repeated)
        ]
        kept = [addresses[is_live] for addresses, is_live in rows]
        return np.unique(np.concatenate([np.empty(0, np.uint64), *kept]))

    @cached_property
    def _flat(self) -> FlatPart | None:
        uncovered = [
            fragment
            for fragment in self._table.fragments
            if fragment.id not in self._covered and not self._table.fast_search
        ]
        if not uncovered and not len(self._repeated):
            return None
        wanted = {number for ids, _ in self._prepared.values() for number in ids}
        flat = FlatPart(self._tokenizer, wanted)
        for texts, addresses in self._table.read_texts(self._path, uncovered, self._repeated):
            flat.add(texts, addresses)
        return flat

    def _covering(
        self, name: str, parameters: list[TextParameters]
    ) -> tuple[list[_Segment], BitMap]:
        """Return the segments, and the fragments of the table that they cover.

        The parameters of each segment are added to `parameters`. A segment that cannot be read is
        left out with a warning, if another segment has the parameters.
        """
        field_ids = {node.id for node in self._path}
        fragments = [
            fragment.id
            for fragment in self._table.fragments
            if not (fragment.has_overlays and is_overlaid(fragment, field_ids))
        ]
        built_on = BitMap()
        segments = []
        errors: list[LanceError] = []
        for segment in self._table.segments:
            is_own = list(segment.fields) == [self._path[-1].id]
            if not is_own or indexes.type_of_index(segment) != INVERTED:
                continue
            named = indexes.fragment_bitmap(segment) or BitMap()
            bitmap = named - built_on
            if named and not bitmap:
                continue
            try:
                own_parameters, parts = _opened(self._table.paths, segment, name)
            except INDEX_ERRORS as problem:
                errors.append(problem)
                continue
            built_on |= bitmap
            parameters.append(own_parameters)
            segments.append(_Segment(bitmap, parts))
        if errors and (not segments or self._table.fast_search):
            # The rows are split in a way that is not known.
            raise errors[0]
        for error in errors:
            _LOG.warning("the index of column %r is ignored: %s", name, error)
        return segments, self._table.moved.fragments(built_on) & BitMap(fragments)


def _opened(
    paths: TablePaths, segment: table_pb2.IndexMetadata, name: str
) -> tuple[TextParameters, list[TextIndexPart]]:
    """Return the parameters and the parts of a segment of the column `name`."""
    if segment.index_version not in VERSIONS:
        raise UnsupportedFeatureError(
            f"index {segment.name!r} of column {name!r} has version {segment.index_version}, which "
            "this release does not read; create the index again"
        )
    return open_index(IndexFiles(paths, segment))


def _combined(hits: Sequence[Hits], combine: np.ufunc) -> Hits:
    """Return the rows of any of several results."""
    addresses = np.unique(np.concatenate([np.empty(0, np.uint64), *(h.addresses for h in hits)]))
    scores = np.zeros(len(addresses))
    for result in hits:
        _, own = result.at(addresses)
        scores = combine(scores, own)
    return Hits(addresses, scores)


def _boolean(must: Sequence[Hits], should: Sequence[Hits], must_not: Sequence[Hits]) -> Hits:
    addresses = must[0].addresses if must else _combined(should, np.add).addresses
    kept = np.ones(len(addresses), np.bool_)
    scores = np.zeros(len(addresses))
    for result in must:
        matches, own = result.at(addresses)
        kept &= matches
        scores += own
    for result in should:
        scores += result.at(addresses)[1]
    for result in must_not:
        kept &= ~result.at(addresses)[0]
    return Hits(addresses[kept], scores[kept])
