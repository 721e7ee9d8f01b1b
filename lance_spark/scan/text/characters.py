"""Tables of characters, and the stop words of languages.

| file | content |
| --- | --- |
| `characters.json` | ranges of alphanumeric characters; lower case and ASCII of characters |
| `stop_words.json` | stop words by the name of their language |

The tables are those of other Lance clients; NOTICE states their origin. Python's own depend on its
release, and know fewer characters.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
import numpy.typing as npt

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
    text = files("lance_spark.scan.text").joinpath(name).read_text(encoding="utf-8")
    content: dict[str, Any] = json.loads(text)
    return content
