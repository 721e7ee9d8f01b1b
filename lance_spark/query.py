"""Full-text queries, with the names and arguments that pylance gives them.

`Dataset.to_table` and `Dataset.to_batches` take them as ``full_text_query``. `tokenize` shows the
tokens of a text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from lance_spark.indexes.text.parameters import TextParameters
from lance_spark.indexes.text.queries import (
    BooleanQuery,
    BoostQuery,
    CombinedFieldsQuery,
    DocumentGranularity,
    FullTextOperator,
    FullTextQuery,
    MatchQuery,
    MultiMatchQuery,
    Occur,
    PhraseQuery,
)
from lance_spark.keywords import also_takes, shows_keywords

__all__ = [
    "BooleanQuery",
    "BoostQuery",
    "CombinedFieldsQuery",
    "DocumentGranularity",
    "FtsToken",
    "FullTextOperator",
    "FullTextQuery",
    "MatchQuery",
    "MultiMatchQuery",
    "Occur",
    "PhraseQuery",
    "tokenize",
]


@dataclass(frozen=True, slots=True)
class FtsToken:
    """A token of a text.

    Attributes
    ----------
    text : str
    position : int
        Number of words after the first token, with words that are left out.
    """

    text: str
    position: int


@shows_keywords
@also_takes(TextParameters.__init__, leaves_out=["with_position", "lance_tokenizer"])
def tokenize(query: str, **options: Any) -> list[FtsToken]:
    """Return the tokens of a text, as an ``INVERTED`` index with these options has them.

    Parameters
    ----------
    query : str
    **options
        Options of `Dataset.create_scalar_index` for the type ``INVERTED`` about tokens, such as
        ``base_tokenizer``, ``language``, ``stem`` or ``remove_stop_words``. An option that is None
        has its default, except ``max_token_length``.

    Raises
    ------
    InvalidOptionError
        An option is unknown, or has a wrong value.
    UnsupportedFeatureError
        Stems are needed, and the package PyStemmer is missing.

    Examples
    --------
    >>> [(token.text, token.position) for token in tokenize("the Cats and Dogs")]
    [('cat', 0), ('dog', 2)]
    """
    import pyarrow as pa

    from lance_spark.indexes.text.tokenizer import Tokenizer

    parameters = {
        name: value
        for name, value in options.items()
        if value is not None or name == "max_token_length"
    }
    tokenizer = Tokenizer(TextParameters.of_options(parameters))
    tokens = tokenizer.split(pa.array([query], pa.string()))
    positions = tokens.positions - tokens.positions[:1]
    words = [tokenizer.vocabulary[number] for number in tokens.ids.tolist()]
    return [FtsToken(*pair) for pair in zip(words, positions.tolist(), strict=True)]
