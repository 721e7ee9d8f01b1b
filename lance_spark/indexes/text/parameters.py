"""Parameters of tokenizers, as INVERTED indexes record them.

| place | form |
| --- | --- |
| `metadata.lance` | JSON object in the schema metadata `params` |
| the manifest | message `InvertedIndexDetails`, without custom stop words |

Specification: table/index/scalar/fts.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pat

from lance_spark.errors import CorruptFileError, InvalidOptionError, UnsupportedFeatureError
from lance_spark.proto import index_old_pb2

# --------------------------------------------------------------------------------------------------
# Tables of characters, and the stop words of languages.
#
# | file | content |
# | --- | --- |
# | `characters.json` | ranges of alphanumeric characters; lower case and ASCII of characters |
# | `stop_words.json` | stop words by the name of their language |
#
# The tables are those of other Lance clients; NOTICE states their origin. Python's own depend on
# its release, and know fewer characters.

#: The number of code points.
_CODE_POINTS = 0x110000
_WHITE_SPACE = "\t\n\f\r "


@cache
def alphanumeric() -> npt.NDArray[np.bool_]:
    """Return for each code point whether it is a letter, a digit, or a mark of a letter."""
    flags = np.zeros(_CODE_POINTS, np.bool_)
    for start, stop in _characters()["alphanumeric"]:
        flags[start:stop] = True
    return flags


@cache
def identifier() -> npt.NDArray[np.bool_]:
    """Return for each code point whether it is part of the identifiers of programs."""
    flags = alphanumeric().copy()
    flags[ord("_")] = True
    return flags


@cache
def not_white_space() -> npt.NDArray[np.bool_]:
    """Return for each code point whether it is something else than white space of ASCII."""
    flags = np.ones(_CODE_POINTS, np.bool_)
    flags[[ord(character) for character in _WHITE_SPACE]] = False
    return flags


@cache
def lower_case() -> Mapping[int, str]:
    """Return the table of `str.translate` for lower case."""
    return str.maketrans(_characters()["lower"])


@cache
def ascii_folding() -> Mapping[int, str]:
    """Return the table of `str.translate` that replaces characters by similar ones of ASCII."""
    return str.maketrans(_characters()["ascii"])


@cache
def stop_words() -> Mapping[str, frozenset[str]]:
    """Return the stop words of each language."""
    return {language: frozenset(words) for language, words in _json("stop_words.json").items()}


@cache
def _characters() -> Mapping[str, Any]:
    return _json("characters.json")


def _json(name: str) -> dict[str, Any]:
    text = files("lance_spark.indexes.text").joinpath(name).read_text(encoding="utf-8")
    content: dict[str, Any] = json.loads(text)
    return content


# --------------------------------------------------------------------------------------------------
# Parameters of tokenizers, as INVERTED indexes record them.

#: Names of the supported tokenizers.
TOKENIZERS = ("simple", "whitespace", "raw", "ngram", "code")
CODE = "code"
#: Kinds of documents.
TEXT, JSON = "text", "json"
#: Documents of a posting block, by format version of the index.
BLOCK_SIZE = 128
_MAX_U32 = 2**32 - 1
_FLAGS = (
    "with_position",
    "lower_case",
    "stem",
    "remove_stop_words",
    "ascii_folding",
    "prefix_only",
    "split_on_numerics",
    "preserve_original",
)
#: Parameters of `code` of which other clients have other values.
_OTHERS = {"split_identifiers": False, "index_operators": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class TextParameters:
    """How text is split into tokens.

    A base tokenizer splits text. The tokens then pass these steps, in this order.

    - `base_tokenizer`: ``simple`` (runs of letters and digits), ``whitespace`` (runs without white
      space), ``raw`` (the whole text), ``ngram`` (substrings) or ``code`` (runs of letters, digits
      and ``_``).
    - `language`: Language of stems and stop words, for example ``English``.
    - `with_position`: Whether the index has the positions of tokens, which queries of phrases need.
    - `max_token_length`: Tokens of this number of bytes and more are left out.
    - `stem`: Whether words are replaced by their stems. Needs the package PyStemmer.
    - `remove_stop_words`: Whether frequent words of the language are left out.
    - `custom_stop_words`: Words to leave out instead of those of the language.
    - `ascii_folding`: Whether letters with accents are replaced by letters of ASCII.
    - `min_ngram_length`, `max_ngram_length`: Number of characters of the substrings of ``ngram``.
    - `prefix_only`: Whether ``ngram`` yields only substrings from the first character on.
    - `split_on_numerics`, `preserve_original`: Recorded for ``code``. They mean something for
      clients that split identifiers.
    - `lance_tokenizer`: Kind of the documents: ``text``, or ``json``, whose strings are split.
    """

    base_tokenizer: str = "simple"
    language: str = "English"
    with_position: bool = False
    max_token_length: int | None = 40
    lower_case: bool = True
    stem: bool = True
    remove_stop_words: bool = True
    custom_stop_words: tuple[str, ...] | None = None
    ascii_folding: bool = True
    min_ngram_length: int = 3
    max_ngram_length: int = 3
    prefix_only: bool = False
    split_on_numerics: bool = False
    preserve_original: bool = False
    lance_tokenizer: str = TEXT

    @classmethod
    def of_options(cls, options: Mapping[str, Any]) -> TextParameters:
        """Return the parameters that a caller chooses; other parameters have their defaults.

        Raises InvalidOptionError: an option is unknown or has a wrong value.
        """
        # The column decides the kind of its documents.
        known = {field.name for field in fields(cls)} - {"lance_tokenizer"}
        options = dict(options)
        analyzer = options.pop("analyzer", None)
        if analyzer not in (None, "text", CODE):
            raise InvalidOptionError(
                f"INVERTED index: analyzer must be one of text, code, not {analyzer!r}"
            )
        for name, expected in _OTHERS.items():
            if options.pop(name, None) not in (None, expected):
                raise InvalidOptionError(
                    f"INVERTED index: {name} must be {expected}: this release splits code into "
                    "identifiers only"
                )
        for name in options:
            if name not in known:
                raise InvalidOptionError(
                    f"INVERTED index: option {name!r} is unknown; the options are "
                    f"{', '.join(sorted(known))}"
                )
        # None stands for the default, but for the maximum length.
        values = {
            name: value
            for name, value in options.items()
            if value is not None or name in ("max_token_length", "custom_stop_words")
        }
        if analyzer == CODE:
            values = {"base_tokenizer": CODE, **values}
        if values.get("base_tokenizer") in ("ngram", CODE):
            values = {"stem": False, "remove_stop_words": False, **values}
        if values.get("base_tokenizer") == CODE:
            values = {"split_on_numerics": True, "preserve_original": True, **values}
        is_code = values.get("base_tokenizer") == CODE
        if analyzer is not None and (analyzer == CODE) != is_code:
            raise InvalidOptionError(
                f"INVERTED index: analyzer {analyzer!r} does not go with base_tokenizer "
                f"{values.get('base_tokenizer')!r}"
            )
        if isinstance(values.get("language"), str):
            values["language"] = values["language"].strip().capitalize()
        words = values.get("custom_stop_words")
        if words is not None and not isinstance(words, str):
            values["custom_stop_words"] = tuple(words)
        problem = _problem(values)
        if problem:
            raise InvalidOptionError(f"INVERTED index: {problem}")
        return cls(**values)

    @classmethod
    def of_json(cls, text: str | bytes, name: str) -> TextParameters:
        """Parse the parameters of an index.

        - `name`: Name of the file, for errors.

        Raises CorruptFileError: the text is not a JSON object, or a parameter has a wrong value.
        Raises UnsupportedFeatureError: the index has another tokenizer.
        """
        try:
            content = json.loads(text)
        except (ValueError, RecursionError):
            content = None
        if not isinstance(content, dict):
            raise CorruptFileError(f"{name}: params must be a JSON object; rebuild the index")
        known = {field.name for field in fields(cls)}
        values = {key: value for key, value in content.items() if key in known}
        tokenizer = values.get("base_tokenizer", "simple")
        documents = values["lance_tokenizer"] = content.get("lance_tokenizer") or TEXT
        if documents not in (TEXT, JSON) or tokenizer not in TOKENIZERS:
            shown = documents if documents not in (TEXT, JSON) else tokenizer
            raise UnsupportedFeatureError(
                f"{name}: the tokenizer {shown!r} is not supported; the tokenizers are "
                f"{', '.join(TOKENIZERS)}"
            )
        for key, expected in _OTHERS.items():
            if content.get(key) not in (None, expected):
                raise UnsupportedFeatureError(
                    f"{name}: an index of code with {key} is not supported; create the index with "
                    f"{key}={expected}"
                )
        if isinstance(values.get("custom_stop_words"), list):
            values["custom_stop_words"] = tuple(values["custom_stop_words"])
        problem = _problem(values)
        if problem:
            raise CorruptFileError(f"{name}: params: {problem}; rebuild the index")
        return cls(**values)

    def to_json(self) -> str:
        """Return the form in `metadata.lance`."""
        content = {
            **asdict(self),
            "block_size": BLOCK_SIZE,
            **_OTHERS,
        }
        return json.dumps(content, ensure_ascii=False, separators=(",", ":"))

    def details(self, format_version: int) -> bytes:
        """Return the message in the manifest."""
        message = index_old_pb2.InvertedIndexDetails(
            base_tokenizer=self.base_tokenizer,
            # The name is a JSON text.
            language=json.dumps(self.language),
            with_position=self.with_position,
            lower_case=self.lower_case,
            stem=self.stem,
            remove_stop_words=self.remove_stop_words,
            ascii_folding=self.ascii_folding,
            min_ngram_length=self.min_ngram_length,
            max_ngram_length=self.max_ngram_length,
            prefix_only=self.prefix_only,
            block_size=BLOCK_SIZE,
            posting_format_version=format_version,
        )
        if self.base_tokenizer == CODE:
            message.code_config.split_on_numerics = self.split_on_numerics
            message.code_config.preserve_original = self.preserve_original
        if self.max_token_length is not None:
            message.max_token_length = self.max_token_length
        return message.SerializeToString(deterministic=True)


def is_text(dtype: pa.DataType) -> bool:
    """Return whether values of a type are text: strings, or lists of strings."""
    is_list = pat.is_list(dtype) or pat.is_large_list(dtype)
    item = dtype.value_type if is_list else dtype
    return bool(pat.is_string(item) or pat.is_large_string(item))


def _problem(values: Mapping[str, Any]) -> str | None:
    """Return what is wrong with parameters; None if nothing is."""
    tokenizer = values.get("base_tokenizer", "simple")
    if tokenizer not in TOKENIZERS:
        return f"base_tokenizer must be one of {', '.join(TOKENIZERS)}, not {tokenizer!r}"
    language = values.get("language", "English")
    if not isinstance(language, str) or language not in stop_words():
        return f"language must be one of {', '.join(sorted(stop_words()))}, not {language!r}"
    for name in _FLAGS:
        if not isinstance(values.get(name, True), bool):
            return f"{name} must be True or False, not {values[name]!r}"
    length = values.get("max_token_length", 40)
    if length is not None and not _is_number(length, 0):
        return f"max_token_length must be None or an integer from 0 on, not {length!r}"
    words = values.get("custom_stop_words")
    if words is not None and not (
        isinstance(words, tuple) and all(isinstance(word, str) for word in words)
    ):
        return "custom_stop_words must be None or a list of strings"
    least, most = values.get("min_ngram_length", 3), values.get("max_ngram_length", 3)
    if not _is_number(least, 1) or not _is_number(most, 1) or least > most:
        return (
            "min_ngram_length and max_ngram_length must be positive integers in this order, not "
            f"{least!r} and {most!r}"
        )
    return None


def _is_number(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= _MAX_U32
