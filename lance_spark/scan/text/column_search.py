"""The search of one column: evaluated over some parts of its index, as `columns` planned it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, partial

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap

from lance_spark.encoding.rows import RowNumbers, distinct
from lance_spark.errors import CorruptFileError, UnsupportedEncodingError
from lance_spark.scan.indexes.files import IndexFiles
from lance_spark.scan.indexes.row_sets import RowSet
from lance_spark.scan.text.columns import ColumnPlan, Leaf, TextRows
from lance_spark.scan.text.files.index import TextIndexPart
from lance_spark.scan.text.files.segment import open_index
from lance_spark.scan.text.flat import FlatPart
from lance_spark.scan.text.json_documents import tokenizer_of
from lance_spark.scan.text.queries import MatchQuery, PhraseQuery
from lance_spark.scan.text.ranking.combined_fields import FieldRows
from lance_spark.scan.text.ranking.hits import Hits, Scores, joined
from lance_spark.scan.text.ranking.peaks import best_scored
from lance_spark.scan.text.ranking.scoring import Statistics, Terms, scored
from lance_spark.scan.text.ranking.skipping import best_documents
from lance_spark.scan.text.terms import is_fuzzy
from lance_spark.table.rows.u64_segments import UInt64Array
from lance_spark.table.rows.updated import UpdatedRows

#: How many documents more than rows are looked up to find the best rows if rows were deleted, and
#: by what factor their number grows if it is too small.
_MORE_DOCUMENTS, _GROWTH = 64, 8


class ColumnSearch:
    """Searches the rows of a plan.

    Parameters
    ----------
    rows : TextRows
        At least the rows of the plan.
    plan : ColumnPlan
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

        Parameters
        ----------
        query : Leaf
        best : int, optional
            If set, rows that `Hits.best` leaves out with this limit and `keeps_ties` can be
            missing.

        Raises
        ------
        UnsupportedFeatureError
            The index has no positions for a phrase.
        CorruptFileError, CorruptTableError, MissingFileError, StorageError
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

        Parameters
        ----------
        query : MatchQuery
            Of the plan.

        Raises
        ------
        CorruptFileError, CorruptTableError, MissingFileError, StorageError
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
