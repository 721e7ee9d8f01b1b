"""Tokens of JSON documents, and of queries about them.

Each leaf of a document has tokens of the form ``path,type,value``:

| leaf | type | value |
| --- | --- | --- |
| string | ``str`` | a token of the string; one token for each |
| number, boolean, null | ``number``, ``bool``, ``null`` | the text that JSON writes |

The path has keys, joined by points. The items of an array have the path of the array.

A query has one or more parts of the same form, separated by ``;``, for example
``user.name,str,Ada Lovelace;age,number,36``. The value of a string is split as in documents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from lance_spark.encoding.jsonb_leaves import Leaves
from lance_spark.encoding.rows import RowNumbers
from lance_spark.errors import InvalidInputError
from lance_spark.scan.text.parameters import JSON, TextParameters
from lance_spark.scan.text.splitting import steps
from lance_spark.scan.text.tokenizer import STEP_BYTES, DocumentTokenizer, Tokenizer, Tokens

_STRING, _NUMBER = "str", "number"
_OTHERS = (_NUMBER, "bool", "null")
#: Types of the texts that are no numbers.
_TYPES = {"true": "bool", "false": "bool", "null": "null"}


class JsonTokenizer(DocumentTokenizer):
    """Splits JSON documents.

    Parameters
    ----------
    parameters : TextParameters
        How strings are split.

    Raises
    ------
    UnsupportedFeatureError
        Stems are needed, and the package PyStemmer is missing.
    """

    def __init__(self, parameters: TextParameters) -> None:
        super().__init__(parameters)
        self._strings = Tokenizer(parameters)

    def split(self, texts: pa.Array) -> Tokens:
        """Return the tokens of documents. Positions count the tokens of a document.

        Parameters
        ----------
        texts : pa.Array
            JSONB of type large_binary. Nulls have no tokens.

        Raises
        ------
        CorruptFileError, UnsupportedEncodingError
            A document is damaged.
        """
        leaves = Leaves.of(texts)
        words = self._strings.split(leaves.strings())
        vocabulary = self._strings.vocabulary
        word_ids = self._ids(
            leaves, words.rows, words.ids, lambda number: f"{_STRING},{vocabulary[number]}"
        )
        others = leaves.texts().dictionary_encode()
        other_rows = np.flatnonzero(others.is_valid().to_numpy(zero_copy_only=False))
        values = others.dictionary.to_pylist()
        other_ids = self._ids(
            leaves,
            other_rows,
            others.indices.drop_null().to_numpy(),
            lambda number: f"{_TYPES.get(values[number], _NUMBER)},{values[number]}",
        )
        of_leaves = np.concatenate([words.rows, other_rows])
        order = np.argsort(of_leaves, kind="stable")
        rows = leaves.rows[of_leaves[order]]
        starts = np.searchsorted(rows, np.arange(len(texts)))
        ids = np.concatenate([word_ids, other_ids])[order]
        return Tokens(rows, ids, np.arange(len(rows)) - starts[rows])

    def pieces(self, texts: pa.Array) -> Iterator[tuple[int, pa.Array]]:
        """Yield parts of documents; see `DocumentTokenizer.pieces`."""
        return steps(texts, STEP_BYTES)

    def split_query(self, text: str) -> Tokens:
        """Return the tokens of a query.

        Raises
        ------
        InvalidInputError
            A part of the query is not of the form ``path,type,value``.
        """
        tokens: list[str] = []
        for part in text.split(";"):
            path, *others = part.split(",", 2)
            if len(others) < 2 or others[0] not in (_STRING, *_OTHERS):
                raise InvalidInputError(
                    f"query {text!r}: a part for a JSON column must be path,type,value, where type "
                    f"is one of {', '.join((_STRING, *_OTHERS))}, not {part!r}"
                )
            type_name, value = others
            values = self._strings.words(value) if type_name == _STRING else [value]
            tokens += [f"{path},{type_name},{word}" for word in values]
        return Tokens(np.zeros(len(tokens), np.int64), self.add(tokens), np.arange(len(tokens)))

    def _ids(
        self,
        leaves: Leaves,
        rows: RowNumbers,
        values: RowNumbers,
        shown: Callable[[int], str],
    ) -> RowNumbers:
        """Return the number of the token of each leaf.

        Parameters
        ----------
        leaves : Leaves
        rows, values : int64 array
            The leaves, and the number of the value of each.
        shown : callable
            Returns the type and the text of a value.
        """
        count = int(values.max(initial=0)) + 1
        pairs = leaves.paths[rows] * count + values
        distinct, places = np.unique(pairs, return_inverse=True)
        paths, numbers = np.divmod(distinct, count)
        names = leaves.names
        tokens = [
            f"{names[path]},{shown(number)}"
            for path, number in zip(paths.tolist(), numbers.tolist(), strict=True)
        ]
        return self.add(tokens)[places]


def tokenizer_of(parameters: TextParameters) -> DocumentTokenizer:
    """Return the tokenizer of an index.

    Raises
    ------
    UnsupportedFeatureError
        Stems are needed, and the package PyStemmer is missing.
    """
    is_json = parameters.lance_tokenizer == JSON
    return JsonTokenizer(parameters) if is_json else Tokenizer(parameters)


def value_start(token: str, parameters: TextParameters) -> int:
    """Return where the value of a token begins: 0 for text."""
    if parameters.lance_tokenizer != JSON:
        return 0
    path, type_name, _ = token.split(",", 2)
    return len(path) + len(type_name) + 2
