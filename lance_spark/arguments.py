r"""Type checks of the arguments of public functions, derived from their annotations.

| annotation | accepted values |
| --- | --- |
| `int` | whole numbers, also of numpy, but not `bool` |
| `float` | numbers, but not `bool` |
| `str`, `bool` | values of that type |
| `str \| Column`, `str \| DataType`, `str \| os.PathLike[str]` | values of one of the types |
| `str \| datetime` | strings and datetimes |
| `DataFrame`, `StructType \| list[StructField]` | values of these types |
| `Mapping[str, str \| Column]` | mappings from strings to strings and Columns; a call must give |
| | one, even if `\| None` follows: Python wants a default after other defaults |
| `Mapping[...]` | mappings |
| `Sequence[str]` | iterables of strings, but not a string |
| `Sequence[...]`, `Collection[...]`, `Iterable[...]` | iterables, but not a string |

`| None` may follow. Arguments with any other annotation are not checked.

`pylance_keywords` adds keywords that only pylance has: another name, no effect, or a clear refusal.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime
from functools import wraps
from numbers import Integral, Real
from typing import Any, NamedTuple, ParamSpec, TypeVar, cast

from lance_spark.errors import ArgumentTypeError, InvalidInputError, UnsupportedFeatureError
from lance_spark.keywords import (
    Declared,
    declared_by,
    group_of,
    has_keywords,
    show_keywords,
    signature_of,
    takes_others,
)

_P = ParamSpec("_P")
_R = TypeVar("_R")
_Check = Callable[[Any], bool]


def _is_integer(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _is_list(value: object) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping)


def _is_list_of_strings(value: object) -> bool:
    # An iterator is not checked: reading its items would consume them.
    return _is_list(value) and not (
        isinstance(value, list | tuple) and any(not isinstance(item, str) for item in value)
    )


def _is_path(value: object) -> bool:
    return isinstance(value, str | os.PathLike)


def _is_of_spark(value: object, name: str) -> bool:
    """Return whether a value is of a class of pyspark, which this module does not import."""
    return any(
        owner.__name__ == name and owner.__module__.startswith("pyspark.")
        for owner in type(value).__mro__
    )


def _is_expression(value: object) -> bool:
    return isinstance(value, str) or _is_of_spark(value, "Column")


def _is_type(value: object) -> bool:
    return isinstance(value, str) or _is_of_spark(value, "DataType")


def _has_expressions(value: object) -> bool:
    return (
        isinstance(value, Mapping)
        and all(isinstance(name, str) for name in value)
        and all(map(_is_expression, value.values()))
    )


def _are_fields(value: object) -> bool:
    return _is_of_spark(value, "StructType") or (
        isinstance(value, list) and all(_is_of_spark(field, "StructField") for field in value)
    )


_EXPRESSIONS = "Mapping[str, str | Column]"
_CHECKS: dict[str, tuple[_Check, str]] = {
    "int": (_is_integer, "a whole number"),
    "float": (_is_number, "a number"),
    "str": (lambda value: isinstance(value, str), "a string"),
    "bool": (lambda value: isinstance(value, bool), "True or False"),
    "str | Column": (_is_expression, "a Spark SQL Column or a string"),
    "str | DataType": (_is_type, "a type or its text"),
    "str | os.PathLike[str]": (_is_path, "a path"),
    "str | datetime": (lambda value: isinstance(value, str | datetime), "a string or a datetime"),
    "DataFrame": (lambda value: _is_of_spark(value, "DataFrame"), "DataFrame"),
    "StructType | list[StructField]": (_are_fields, "a schema or a list of its fields"),
    _EXPRESSIONS: (_has_expressions, "a dict from names of columns to expressions"),
    "Mapping": (lambda value: isinstance(value, Mapping), "a mapping"),
    "Sequence[str]": (_is_list_of_strings, "a list of names"),
    "Sequence": (_is_list, "a list"),
    "Collection": (_is_list, "a list"),
    "Iterable": (_is_list, "a list"),
}
#: Minimum values of arguments that have the same meaning in every function.
_MINIMUMS = {"conflict_retries": 0, "max_retries": 0}
#: Errors show values of these types. Other values can be long or contain secrets.
_SHOWN_TYPES = (bool, int, float)
#: The attribute of a function with the keywords of `pylance_keywords`.
_KEYWORDS = "_keywords_of_pylance"


def checks_arguments(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Decorate a function so that it checks the types of its arguments.

    The module docstring lists the checks. The annotations must be strings, as
    ``from __future__ import annotations`` makes them.

    Raises
    ------
    ArgumentTypeError
        The decorated function was called with an argument of a wrong type.
    """
    checks: _Checks | None = None

    @wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        nonlocal checks
        if checks is None:
            checks = _checks_of(function)
        given = (*zip(checks.positional, args, strict=False), *kwargs.items())
        for name in checks.required:
            if dict(given).get(name) is None:
                raise ArgumentTypeError(
                    f"{name} cannot be None: it is a dict from names of columns to expressions"
                )
        for name, value in given:
            if checks.accepted is not None and name not in checks.accepted:
                raise TypeError(_unexpected(function.__name__, name, checks.accepted))
            if value is not None and name in checks.types:
                is_valid, expected = checks.types[name]
                if not is_valid(value):
                    raise ArgumentTypeError(_wrong_type(name, expected, value))
                if name in checks.declared:
                    checks.declared[name].check(value)
                elif name in _MINIMUMS:
                    check_least(name, cast(int, value), _MINIMUMS[name])
        return function(*args, **kwargs)

    show_keywords(call)
    return call


class _Checks(NamedTuple):
    """What is checked of the arguments of a function.

    Attributes
    ----------
    positional : tuple of str
        Names of parameters that arguments can be given to by their places. Further arguments go to
        ``*args``, which is not checked.
    types : mapping of str to (check, str)
        The checks of types, with what was expected.
    accepted : set of str, optional
        The names that the function takes; None if it takes others.
    declared : mapping of str to Declared
        Keywords of its group.
    required : tuple of str
        Names of parameters that are mappings to expressions, and must be given.
    """

    positional: tuple[str, ...]
    types: Mapping[str, tuple[_Check, str]]
    accepted: Collection[str] | None
    declared: Mapping[str, Declared]
    required: tuple[str, ...]


def _checks_of(function: Callable[..., Any]) -> _Checks:
    """Return the checks of a function, which are made at its first call."""
    parameters = signature_of(function).parameters
    group = group_of(function)
    is_closed = has_keywords(function) and not takes_others(function)
    places = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    found = {name: _check_of(parameter) for name, parameter in parameters.items()}
    return _Checks(
        tuple(name for name, parameter in parameters.items() if parameter.kind in places),
        {name: check for name, check in found.items() if check is not None},
        {*parameters, *keywords_of(function).names} if is_closed else None,
        {} if group is None else declared_by(group),
        tuple(
            name
            for name, parameter in parameters.items()
            if parameter.annotation == f"{_EXPRESSIONS} | None"
        ),
    )


#: What calls may give besides None without an effect, and why other values are refused.
Refusals = Mapping[str, tuple[Collection[object], str]]


class Keywords(NamedTuple):
    """Keywords that a function takes besides its parameters; see `pylance_keywords`."""

    renamed: Mapping[str, str]
    unused: Collection[str]
    refused: Collection[str]

    @property
    def names(self) -> set[str]:
        """All of them."""
        return {*self.renamed, *self.unused, *self.refused}


def pylance_keywords(
    renamed: Mapping[str, str] | None = None,
    unused: Collection[str] = (),
    refused: Refusals | None = None,
) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]:
    """Return a decorator of functions and classes for keywords that pylance has in addition.

    They are not in the signature, which stays as it is. `keywords_of` returns their names.

    Parameters
    ----------
    renamed : mapping of str to str
        Names here, by the names in pylance.
    unused : collection of str
        Keywords that only choose how pylance works. They have no effect.
    refused : mapping of str to (values, reason)
        Keywords of which None and some other values change nothing. Other values are an error.

    Raises
    ------
    InvalidInputError
        The decorated function was called with both names of a parameter.
    UnsupportedFeatureError
        The decorated function was called with a refused value.
    """
    renamed, refused = renamed or {}, refused or {}

    def resolved(given: dict[str, Any]) -> dict[str, Any]:
        if renamed.keys().isdisjoint(given) and keywords.isdisjoint(given):
            return given
        result = {}
        for name, value in given.items():
            if name in renamed:
                own_name = renamed[name]
                if own_name in given:
                    raise InvalidInputError(
                        f"give {own_name}, and not {name}, its name in pylance, too"
                    )
                result[own_name] = value
            elif name in refused:
                harmless, reason = refused[name]
                if value is not None and not any(value is item for item in harmless):
                    raise UnsupportedFeatureError(f"{name} is not supported; {reason}")
            elif name not in unused:
                result[name] = value
        return result

    keywords = frozenset({*unused, *refused})

    def decorate(function: Callable[_P, _R]) -> Callable[_P, _R]:
        is_class = inspect.isclass(function)
        wrapped: Callable[..., Any] = function.__init__ if is_class else function

        @wraps(wrapped)
        def call(*args: Any, **kwargs: Any) -> Any:
            return wrapped(*args, **resolved(kwargs))

        setattr(call, _KEYWORDS, Keywords(renamed, unused, refused.keys()))
        if is_class:
            setattr(function, "__init__", call)  # noqa: B010 - mypy refuses the assignment
            return function
        return call

    return decorate


def keywords_of(function: Any) -> Keywords:
    """Return the keywords that `pylance_keywords` gave a function."""
    while function is not None:
        keywords: Keywords | None = getattr(function, "__dict__", {}).get(_KEYWORDS)
        if keywords is not None:
            return keywords
        function = getattr(function, "__wrapped__", None)
    return Keywords({}, (), ())


def instances(values: Iterable[Any], dtype: type[_R], argument: str, name: str) -> tuple[_R, ...]:
    """Return the values of an argument, all of a type, which has a name for users.

    Raises
    ------
    ArgumentTypeError
        A value has another type.
    """
    members = tuple(values)
    for member in members:
        if not isinstance(member, dtype):
            raise ArgumentTypeError(f"{argument} must be {name}, not {type(member).__name__}")
    return members


def check_least(name: str, value: int, minimum: int) -> None:
    """Check that a number is not below its minimum.

    Raises
    ------
    InvalidInputError
        The message names the argument.
    """
    if value < minimum:
        raise InvalidInputError(f"{name} must be at least {minimum}, not {value}")


def _check_of(parameter: inspect.Parameter) -> tuple[_Check, str] | None:
    if not isinstance(parameter.annotation, str) or parameter.kind in (
        inspect.Parameter.VAR_POSITIONAL,
        inspect.Parameter.VAR_KEYWORD,
    ):
        return None
    name = parameter.annotation.removesuffix(" | None")
    if name in _CHECKS:
        return _CHECKS[name]
    head, bracket, _ = name.partition("[")
    return _CHECKS.get(head) if bracket and name.endswith("]") and " | " not in head else None


def _unexpected(function: str, name: str, accepted: Collection[str]) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, accepted, 1)
    hint = f". Did you mean {near[0]!r}?" if near else ""
    return f"{function}() got an unexpected keyword argument {name!r}{hint}"


def _wrong_type(name: str, expected: str, value: object) -> str:
    if isinstance(value, Mapping) and expected == _CHECKS[_EXPRESSIONS][1]:
        keys = [key for key in value if not isinstance(key, str)]
        if keys:
            return (
                f"Keys of dict in {name} must contain only names of columns, not "
                f"{_describe(keys[0])}"
            )
        (wrong, *_) = [item for item in value.values() if not _is_expression(item)]
        constant = wrong if isinstance(wrong, Real) else "..."
        return (
            f"Values of dict in {name} must contain only Columns or strings, not "
            f"{_describe(wrong)}; write a constant as F.lit({constant})"
        )
    return f"{name} must be {expected}, not {_describe(value)}"


def _describe(value: object) -> str:
    if isinstance(value, list | tuple):
        # The list contains an item that is not a string.
        return f"a list with {', '.join(sorted({type(item).__name__ for item in value}))}"
    if isinstance(value, str):
        return f"the string {value!r}"
    return repr(value) if isinstance(value, _SHOWN_TYPES) else type(value).__name__
