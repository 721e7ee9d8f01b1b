"""Checks INVERTED indexes: the tokens of each row, how often it has them, and where.

The tokens of a row become one number: the sum of a hash of each token, and of its position if the
index has positions. The number from the text must be that from the postings. No document may have a
greater score than its block of postings says: readers skip blocks by these scores.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from hashlib import blake2b
from itertools import islice

import numpy as np
import numpy.typing as npt

from lance_spark.encoding.rows import RowNumbers
from lance_spark.errors import CorruptFileError, MissingFileError
from lance_spark.indexes.registry import TYPES
from lance_spark.mutations.indexes.checks.rows import ColumnCheck, CoveredRows, Findings
from lance_spark.scan.indexes.files import IndexFiles
from lance_spark.scan.text.files.index import TextIndexPart
from lance_spark.scan.text.files.segment import open_index
from lance_spark.scan.text.files.stored_parts import all_postings, all_words, token_ranges
from lance_spark.scan.text.files.token_blocks import TokenBlocks
from lance_spark.scan.text.json_documents import tokenizer_of
from lance_spark.scan.text.parameters import TextParameters
from lance_spark.scan.text.ranking.skipping import TOLERANCE, score_ratios
from lance_spark.scan.text.tokenizer import Tokenizer

Hashes = npt.NDArray[np.uint64]

#: Odd numbers that mix the bits of a hash.
_STEP, _FIRST, _SECOND = map(
    np.uint64, (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)


def check(files: IndexFiles, rows: CoveredRows, findings: Findings) -> None:
    """Compare a segment with its rows.

    Raises
    ------
    CorruptFileError, MissingFileError, UnsupportedFeatureError, StorageError
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
