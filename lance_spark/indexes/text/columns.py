"""The search of one column, planned over the whole index; `column_search` evaluates it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyroaring import BitMap

from lance_spark.encoding.rows import RowNumbers, distinct
from lance_spark.errors import (
    CorruptError,
    CorruptFileError,
    InvalidInputError,
    LanceError,
    MissingFileError,
    UnsupportedEncodingError,
    UnsupportedFeatureError,
)
from lance_spark.file.json_columns import paged_json
from lance_spark.file.schema.field import Field
from lance_spark.indexes.files import INDEX_ERRORS, IndexFiles
from lance_spark.indexes.row_sets import MovedRows, RowSet
from lance_spark.indexes.search_task import SearchedVersion
from lance_spark.indexes.text.block_max import best_scored
from lance_spark.indexes.text.files import Documents, TextIndexPart, TokenPostings, open_index
from lance_spark.indexes.text.parameters import JSON, TextParameters, is_text
from lance_spark.indexes.text.queries import FullTextOperator, MatchQuery, PhraseQuery
from lance_spark.indexes.text.scoring import (
    FieldRows,
    Hits,
    Scores,
    Statistics,
    Terms,
    joined,
    scored,
)
from lance_spark.indexes.text.tokenizer import DocumentTokenizer, tokenizer_of, value_start
from lance_spark.indexes.text.wand import best_documents
from lance_spark.proto import table_pb2
from lance_spark.table.fragments.fragment import Fragment
from lance_spark.table.indexes import sections as indexes
from lance_spark.table.paths import TablePaths
from lance_spark.table.rows.addresses import FindRows
from lance_spark.table.rows.ids import UpdatedRows
from lance_spark.table.rows.u64_segments import UInt64Array

# --------------------------------------------------------------------------------------------------
# Words that are similar to a word.

#: Most bytes of a character in UTF-8.
_CHARACTER_BYTES = 4


def most_bytes(word: str, distance: int) -> int:
    """Return the greatest size of words within a distance of a word."""
    return _CHARACTER_BYTES * (len(word) + distance)


def within(words: Sequence[bytes], word: str, distance: int) -> RowNumbers:
    """Return the positions of the words within a Levenshtein distance of a word.

    - `words`: In UTF-8.
    - `distance`: Most changed, inserted and removed characters.
    """
    sizes = np.array([len(candidate.decode(errors="replace")) for candidate in words], np.int64)
    near = np.flatnonzero(np.abs(sizes - len(word)) <= distance)
    if not len(near):
        return near
    sizes = sizes[near]
    longest = int(sizes.max())
    texts = [words[position].decode(errors="replace").ljust(longest) for position in near.tolist()]
    encoded = "".join(texts).encode("utf-32-le", "surrogatepass")
    characters = np.frombuffer(encoded, np.uint32).reshape(len(near), longest).T
    # A row for each prefix of the candidates, a column for each candidate.
    costs: npt.NDArray[np.int64] = np.repeat(np.arange(longest + 1)[:, None], len(near), axis=1)
    for number, character in enumerate(word, 1):
        before, costs = costs, np.empty_like(costs)
        costs[0] = number
        changed = before[:-1] + (characters != ord(character))
        best = np.minimum(changed, before[1:] + 1)
        for length in range(1, longest + 1):
            costs[length] = np.minimum(best[length - 1], costs[length - 1] + 1)
    return near[costs[sizes, np.arange(len(near))] <= distance]


# --------------------------------------------------------------------------------------------------
# The terms of a query: the tokens that are looked for, and what a document must have of them.


def is_fuzzy(query: MatchQuery | PhraseQuery) -> bool:
    """Return whether a query is about similar words, too."""
    return isinstance(query, MatchQuery) and bool(query.fuzziness)


def terms_of(
    query: MatchQuery | PhraseQuery, words: list[str], positions: list[int], *, is_flat: bool
) -> Terms:
    """Return the terms of a query without similar words.

    Substrings have all the same position, and are alternatives. A token counts once at a position.
    Without an index, it counts each time, and a phrase needs all tokens.
    """
    tokens = list(dict.fromkeys(words))
    number = {token: place for place, token in enumerate(tokens)}
    pairs = list(zip(words, positions, strict=True))
    weights = [0] * len(tokens)
    groups: dict[int, list[int]] = {}
    for word, position in pairs if is_flat else dict.fromkeys(pairs):
        weights[number[word]] += 1
        groups.setdefault(position, []).append(number[word])
    terms = Terms(tuple(tokens), tuple(weights), is_flat=is_flat)
    alternatives = tuple(tuple(group) for group in groups.values())
    if isinstance(query, PhraseQuery):
        phrase = tuple(zip(alternatives, groups, strict=True))
        if is_flat:
            phrase = tuple(((number[word],), position) for word, position in pairs)
        return replace(terms, phrase=phrase, slop=query.slop)
    if query.operator is FullTextOperator.AND:
        return replace(terms, groups=alternatives)
    return terms


def expanded_terms(
    query: MatchQuery, words: Sequence[tuple[str, int]], parts: Sequence[TextIndexPart]
) -> Terms:
    """Return the terms of a query with the similar words of an index in place of each word.

    - `words` (sequence of (str, int)): The words, and how many characters at the beginning of each
      are the same in similar words.
    """
    assert query.fuzziness is not None
    numbers: dict[str, int] = {}
    weights: list[int] = []
    groups = []
    remaining = query.max_expansions
    for word, start in words:
        prefix = word[: start + query.prefix_length].encode()
        size = most_bytes(word, query.fuzziness)
        similar: set[bytes] = set()
        for part in parts:
            candidates, _ = part.tokens.starting_with(prefix, size)
            near = within(candidates, word, query.fuzziness)
            similar.update(candidates[place] for place in near.tolist())
        chosen = sorted(similar)[:remaining]
        remaining -= len(chosen)
        group = []
        for token in chosen:
            number = numbers.setdefault(token.decode(errors="replace"), len(weights))
            if number == len(weights):
                weights.append(0)
            weights[number] += 1
            group.append(number)
        groups.append(tuple(group))
    needs_all = query.operator is FullTextOperator.AND
    return Terms(tuple(numbers), tuple(weights), tuple(groups) if needs_all else None)


# --------------------------------------------------------------------------------------------------
# Text that no index covers: it is split into tokens, of which those of a query are kept.


class FlatPart:
    """Documents without an index, as a part of one.

    - `wanted`: Numbers of the tokens in the vocabulary of the tokenizer whose postings are kept.
    """

    def __init__(self, tokenizer: DocumentTokenizer, wanted: Collection[int]) -> None:
        self._tokenizer = tokenizer
        self._wanted = np.array(sorted(wanted), np.int64)
        # Of each batch: token, document and position of each kept token.
        self._kept: list[tuple[RowNumbers, RowNumbers, RowNumbers]] = []
        self._addresses: list[UInt64Array] = []
        self._lengths: list[RowNumbers] = []
        self.num_documents = 0

    def add(self, texts: pa.Array, addresses: UInt64Array) -> None:
        """Add rows with their addresses."""
        tokens = self._tokenizer.split(texts)
        lengths = np.bincount(tokens.rows, minlength=len(texts))
        # A row without tokens is not a document.
        is_document = lengths > 0
        numbers = np.cumsum(is_document) - 1 + self.num_documents
        kept = np.isin(tokens.ids, self._wanted)
        self._kept.append((tokens.ids[kept], numbers[tokens.rows[kept]], tokens.positions[kept]))
        self._addresses.append(addresses[is_document])
        self._lengths.append(lengths[is_document])
        self.num_documents += int(is_document.sum())

    @property
    def num_tokens(self) -> int:
        """Number of tokens of all documents."""
        return sum(int(lengths.sum()) for lengths in self._lengths)

    @property
    def documents(self) -> Documents:
        """The documents, with addresses in place of row ids."""
        lengths = np.concatenate([np.empty(0, np.int64), *self._lengths])
        addresses = np.concatenate([np.empty(0, np.uint64), *self._addresses])
        return Documents(addresses, lengths.astype(np.uint32))

    def score_lengths(self, documents: RowNumbers) -> npt.NDArray[np.uint32]:
        """Return the tokens of documents."""
        return self.documents.lengths[documents]

    def postings(self, tokens: Sequence[str], *, with_positions: bool = False) -> TokenPostings:
        """Return the documents of tokens, as `TextIndexPart.postings`."""
        empty = np.empty(0, np.int64)
        ids, documents, positions = (
            np.concatenate([empty, *(batch[column] for batch in self._kept)]) for column in range(3)
        )
        # Tokens that no text has are in no vocabulary.
        place = {token: number for number, token in enumerate(tokens)}
        ranks = np.array(
            [place.get(self._tokenizer.vocabulary[number], -1) for number in self._wanted.tolist()],
            np.int64,
        )
        rank = ranks[np.searchsorted(self._wanted, ids)] if len(ids) else empty
        order = np.argsort(rank, kind="stable")
        order = order[rank[order] >= 0]
        rank, documents, positions = rank[order], documents[order], positions[order]
        is_first = np.ones(len(rank), np.bool_)
        is_first[1:] = (np.diff(rank) != 0) | (np.diff(documents) != 0)
        starts = np.flatnonzero(is_first)
        return TokenPostings(
            bounds=np.searchsorted(rank[starts], np.arange(len(tokens) + 1)),
            documents=documents[starts],
            frequencies=np.diff(np.append(starts, len(rank))),
            positions=positions if with_positions else None,
        )


# --------------------------------------------------------------------------------------------------
# The search of one column, planned over the whole index; `column_search` evaluates it.

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

    - `stable_row_ids`: Whether the table has them.
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

    - `fragments`: The fragments that its rows had when it was built.
    - `parts`: The parts that are searched, and how many postings the query has there.
    """

    metadata: table_pb2.IndexMetadata
    fragments: BitMap
    parts: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class LeafPlan:
    """What the scores of a query of one column depend on.

    - `terms`: For rows of the index.
    - `statistics`: Of these tokens in the whole index.
    - `flat_terms`: For other rows.
    - `flat_statistics`: Of these tokens in the whole index.
    """

    terms: Terms
    statistics: Statistics
    flat_terms: Terms
    flat_statistics: Statistics


@dataclass(frozen=True, slots=True)
class ColumnPlan:
    """The search of one column.

    - `path`: The fields from the top-level field to the column.
    - `covered`: The fragments of the version that the index covers.
    - `uncovered`: Fragments with rows whose texts are read, and the number of these rows.
    - `overlaid`: Rows of covered fragments that the index has old texts of.
    - `has_index`: Whether there is an index, even if it is not searched.
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

    - `path`: The fields from the top-level field to the column.
    - `queries`: All queries of this column.
    - `use_index`: Whether the index is searched. Otherwise only its parameters are used.
    - `without_index`: How text is split if there is no index.

    Raises CorruptFileError, CorruptTableError, MissingFileError, StorageError. Raises
    InvalidInputError: the column is not of strings. Raises UnsupportedFeatureError: an index has
    another tokenizer or format.
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


# --------------------------------------------------------------------------------------------------
# The search of one column: evaluated over some parts of its index, as `columns` planned it.

#: How many documents more than rows are looked up to find the best rows if rows were deleted, and
#: by what factor their number grows if it is too small.
_MORE_DOCUMENTS, _GROWTH = 64, 8


class ColumnSearch:
    """Searches the rows of a plan.

    - `rows`: At least the rows of the plan.
    """

    def __init__(self, rows: TextRows, plan: ColumnPlan) -> None:
        self._rows = rows
        self._plan = plan
        self._segments: list[tuple[BitMap, list[TextIndexPart]]] = []
        for segment in plan.segments:
            if segment.parts:
                _, parts = open_index(IndexFiles(rows.paths, segment.metadata))
                own = [part for part in parts if part.number in segment.parts]
                self._segments.append((segment.fragments, own))

    def hits(self, query: Leaf, best: int | None = None) -> Hits:
        """Return the live rows that match a query of the plan.

        - `best`: If set, rows that `Hits.best` leaves out with this limit and `keeps_ties` can be
          missing.

        Raises CorruptFileError, CorruptTableError, MissingFileError, StorageError. Raises
        UnsupportedFeatureError: the index has no positions for a phrase.
        """
        plan = self._plan.leaves[query]
        with_positions = isinstance(query, PhraseQuery)
        boost = query.boost if isinstance(query, MatchQuery) else 1.0
        results = []
        has_deletions = bool(self._plan.overlaid) or any(
            fragment.deletion_file for fragment in self._rows.fragments
        )
        for fragments, part in self._parts:
            find = partial(_scored, part, plan.terms, plan.statistics, boost)
            repeated = self._repeated[:0] if is_fuzzy(query) else self._repeated
            live = partial(self._live, part.documents.row_ids, fragments, repeated)
            count = best
            if best is not None and has_deletions:
                count = 2 * best + _MORE_DOCUMENTS
            documents, scores = find(count)
            hits = live(documents, scores)
            while count is not None and best is not None and _num_rows(hits) < best:
                if len(documents) < count:
                    # The part has no more matching documents.
                    break
                count *= _GROWTH
                documents, scores = find(count)
                hits = live(documents, scores)
            results.append(hits)
        if self._flat is not None:
            # Their scores depend on the index, too.
            flat = self._flat
            postings = flat.postings(plan.flat_terms.tokens, with_positions=with_positions)
            statistics = plan.flat_statistics.with_part(flat, postings)
            documents, scores = scored(flat, postings, plan.flat_terms, statistics, boost, best)
            results.append(Hits(flat.documents.row_ids[documents], scores))
        return joined(results)

    def field_rows(self, query: MatchQuery) -> FieldRows:
        """Return all live rows with the lengths of their texts, and how often they have tokens.

        - `query`: Of the plan.

        Raises CorruptFileError, CorruptTableError, MissingFileError, StorageError.
        """
        plan = self._plan.leaves[query]
        field_rows = FieldRows(plan.statistics, [], [], [], [], [])
        for fragments, part in self._parts:
            addresses, is_live = self._live_rows(part.documents.row_ids, fragments)
            if len(self._repeated):
                is_live &= ~np.isin(addresses, self._repeated)
            field_rows.add(part, part.postings(plan.terms.tokens), addresses, is_live)
        if self._flat is None:
            return field_rows
        postings = self._flat.postings(plan.flat_terms.tokens)
        addresses = self._flat.documents.row_ids
        field_rows.add(self._flat, postings, addresses, np.ones(len(addresses), np.bool_))
        return replace(field_rows, statistics=plan.flat_statistics.with_part(self._flat, postings))

    @property
    def fragments(self) -> BitMap:
        """The fragments whose rows are searched."""
        return self._plan.covered | BitMap(self._plan.uncovered)

    @property
    def _parts(self) -> list[tuple[BitMap, TextIndexPart]]:
        return [(fragments, part) for fragments, parts in self._segments for part in parts]

    def _live(
        self,
        row_ids: UInt64Array,
        fragments: BitMap,
        repeated: UInt64Array,
        documents: RowNumbers,
        scores: Scores,
    ) -> Hits:
        """Return the live rows among documents of a part with some row ids, in any order."""
        addresses, kept = self._live_rows(row_ids[documents], fragments)
        if len(repeated):
            kept &= ~np.isin(addresses, repeated)
        if self._rows.stable_row_ids:
            kept &= ~np.isin(addresses, self._without_words(addresses[kept]))
        return Hits(addresses[kept], scores[kept])

    def _live_rows(
        self, row_ids: UInt64Array, fragments: BitMap
    ) -> tuple[UInt64Array, npt.NDArray[np.bool_]]:
        """Return addresses of rows of a segment, and which of them the segment covers.

        A row that an overlay covers has another text.
        """
        rows = self._rows
        addresses, is_live = rows.moved.live_addresses(
            rows.find_rows,
            row_ids,
            fragments,
            self._plan.covered,
            stable_row_ids=rows.stable_row_ids,
        )
        if self._plan.overlaid:
            is_live &= ~np.isin(addresses, RowSet(self._plan.overlaid).row_keys())
        return addresses, is_live

    @cached_property
    def _repeated(self) -> UInt64Array:
        """The live rows that have several documents in a segment, by their addresses.

        pylance merges segments of tables with stable row ids without a look at rows that were
        updated: they keep their ids, and have a document with the old text. So their texts are
        read.
        """
        live = [np.empty(0, np.uint64)]
        for fragments, parts in self._segments if self._rows.stable_row_ids else ():
            repeated = _repeated_ids([part.documents.row_ids for part in parts])
            if len(repeated):
                addresses, is_live = self._live_rows(repeated, fragments)
                live.append(addresses[is_live])
        return distinct(np.concatenate(live))

    def _without_words(self, addresses: UInt64Array) -> UInt64Array:
        """Return the addresses among some whose texts were updated, and have no words any more.

        After a merge by pylance, see `_repeated`, such a row has its old document only.
        """
        updated = self._updated.of(addresses)
        without_words = [updated[:0]]
        if len(updated):
            tokenizer = tokenizer_of(self._plan.parameters)
            for texts, own in self._rows.read_texts(self._plan.path, (), updated):
                words = np.bincount(tokenizer.split(texts).rows, minlength=len(texts))
                without_words.append(own[words == 0])
        return np.concatenate(without_words)

    @cached_property
    def _updated(self) -> UpdatedRows:
        return UpdatedRows(self._rows.paths, self._rows.fragments)

    @cached_property
    def _flat(self) -> FlatPart | None:
        overlaid = {
            number: rows
            for number, rows in self._plan.overlaid.items()
            if number in self._plan.uncovered
        }
        uncovered = [
            fragment
            for fragment in self._rows.fragments
            if fragment.id in self._plan.uncovered and fragment.id not in overlaid
        ]
        some = distinct(np.concatenate([self._repeated, RowSet(overlaid).row_keys()]))
        if not uncovered and not len(some):
            return None
        tokenizer = tokenizer_of(self._plan.parameters)
        wanted: set[int] = set()
        for query in self._plan.leaves:
            wanted.update(tokenizer.split_query(query.query).ids.tolist())
        flat = FlatPart(tokenizer, wanted)
        try:
            for texts, addresses in self._rows.read_texts(self._plan.path, uncovered, some):
                flat.add(texts, addresses)
        except (CorruptFileError, UnsupportedEncodingError) as error:
            column = ".".join(node.name for node in self._plan.path)
            raise type(error)(f"column {column!r}: {error}") from error
        return flat


def _scored(
    part: TextIndexPart, terms: Terms, statistics: Statistics, boost: float, best: int | None
) -> tuple[RowNumbers, Scores]:
    """Return the documents of a part that match, and their scores; see `scored`."""
    if best is not None and terms.phrase is None:
        best_hits = best_documents(part, terms, statistics, boost, best)
        return best_hits or best_scored(part, terms, statistics, boost, best)
    postings = part.postings(terms.tokens, with_positions=terms.phrase is not None)
    return scored(part, postings, terms, statistics, boost, best)


def _num_rows(hits: Hits) -> int:
    """Return the number of rows, each of which may be there several times."""
    return len(np.unique(hits.addresses))


def _repeated_ids(row_ids: Sequence[UInt64Array]) -> UInt64Array:
    """Return the ids that are there several times."""
    ids = np.concatenate([np.empty(0, np.uint64), *row_ids])
    if (ids[1:] > ids[:-1]).all():
        return ids[:0]
    ids = np.sort(ids)
    return np.unique(ids[1:][ids[1:] == ids[:-1]])
