"""Paths in JSON documents, and the texts that all matches of a pattern have."""

from __future__ import annotations

import json

import pytest

from lance_spark.json.paths import MISSING, Item, Key, Member, find, parse_path, same_steps
from lance_spark.predicates.comparison import like_regex, regex_parts, to_re2

PATHS = {
    "$": (),
    "": (),
    " $.a ": (Member("a"),),
    "a": (Member("a"),),
    ".a:b": (Member("a"), Member("b")),
    "a.0[0]": (Member("a"), Member("0"), Item(0)),
    '$["x y"]."z"[ 12 ]': (Member("x y"), Member("z"), Item(12)),
    "$.é_1": (Member("é_1"),),
    "$[00]": (Item(0),),
}
REFUSED = [
    *("$a", "$.", "$.a[*]", "$.*", "$.**", "$..a", "$.a[-1]", "$.a[last]", "$.a[0,1]", "$.a[]"),
    *("$.a[0 to 1]", "$['a']", "$.a-b", "a b", "$.a ? (@ == 1)", "$.a == 1", "true", "null"),
    *("exists($.a)", '$."a\\u0062"', "$[1234567890]", "strict $.a"),
]


@pytest.mark.parametrize("text", PATHS)
def test_paths(text: str) -> None:
    assert parse_path(text) == PATHS[text]


@pytest.mark.parametrize("text", REFUSED)
def test_refused_paths(text: str) -> None:
    with pytest.raises(ValueError, match="the path"):
        parse_path(text)


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ((), {"a": [1, {"b": None}], "0": 7}),
        ((Key("a"), Key("+1"), Key("b")), None),
        ((Member("a"), Item(1), Member("b")), None),
        ((Key("a"), Key("2")), MISSING),
        ((Member("a"), Member("0")), MISSING),
        ((Item(0),), MISSING),
        ((Key("0"),), 7),
        ((Key("a"), Key("-1")), MISSING),
        ((Key("a"), Key("9" * 50)), MISSING),
        ((Key("0"), Key("0")), MISSING),
    ],
)
def test_find(steps: tuple[Key | Member | Item, ...], expected: object) -> None:
    result = find(json.loads('{"a":[1,{"b":null}],"0":7}'), steps)
    assert result is expected if expected is MISSING else result == expected


def test_same_steps() -> None:
    assert same_steps((Key("a"), Key("b")), parse_path("$.a.b"))
    assert not same_steps((Key("a"),), parse_path("$.a.b"))
    # A key that is a number also finds an item.
    assert not same_steps((Key("0"),), parse_path("0"))
    assert not same_steps((Key("0"),), parse_path("$[0]"))


@pytest.mark.parametrize(
    ("pattern", "parts"),
    [
        ("abc.def", ["abc", "def"]),
        ("ab+c", ["ab", "c"]),
        ("abc?d", ["ab", "d"]),
        ("abc*", ["ab"]),
        ("abc{0,2}d", ["ab", "d"]),
        ("abc{2}d", ["abc", "d"]),
        ("(abc)+def", ["def"]),
        ("(abc)?def", ["def"]),
        ("abc|def", []),
        ("x[a\\]bc]y", ["x", "y"]),
        ("^hello$", ["hello"]),
        ("a\\.b\\dcd", ["a.b", "cd"]),
        ("(a|b)cc", []),
        ("\\n\\tab", ["ab"]),
        ("", []),
    ],
)
def test_parts_of_patterns(pattern: str, parts: list[str]) -> None:
    assert regex_parts(to_re2(pattern)) == parts


def test_parts_of_like() -> None:
    assert regex_parts(like_regex("%ab_c%d")[1]) == ["ab", "c", "d"]
    assert regex_parts("(?i)abc") == []
