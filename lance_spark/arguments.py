"""Checks the types of arguments of public calls against the signature.

| annotation | accepted values |
| --- | --- |
| `int` | whole numbers, also of numpy, but not `bool` |
| `float` | numbers |
| `str`, `bool` | exactly this type |
| `Mapping[...]` | mappings |
| `Sequence[str]` | several strings, but not a single string |
| `Sequence[...]`, `Collection[...]`, `Iterable[...]` | iterables other than strings |

`| None` may follow. Arguments with other annotations are not checked.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from numbers import Integral, Real
from typing import Any, ParamSpec, TypeVar, cast

from lance_spark.errors import InvalidInputError

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
    # An iterator is not checked, as that would consume it.
    return _is_list(value) and not (
        isinstance(value, list | tuple) and any(not isinstance(item, str) for item in value)
    )


_CHECKS: dict[str, tuple[_Check, str]] = {
    "int": (_is_integer, "a whole number"),
    "float": (_is_number, "a number"),
    "str": (lambda value: isinstance(value, str), "a string"),
    "bool": (lambda value: isinstance(value, bool), "True or False"),
    "Mapping": (lambda value: isinstance(value, Mapping), "a mapping"),
    "Sequence[str]": (_is_list_of_strings, "a list of names"),
    "Sequence": (_is_list, "a list"),
    "Collection": (_is_list, "a list"),
    "Iterable": (_is_list, "a list"),
}
#: Least values of arguments with one meaning in all calls.
_LEAST = {"conflict_retries": 0, "max_retries": 0}
#: Errors show values of these types. Others can be long, or contain secrets.
_SHOWN = (bool, int, float)


def checks_arguments(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Make a function check the types of its arguments; see the module.

    Annotations must be strings, as with ``from __future__ import annotations``.

    Raises
    ------
    InvalidInputError
        Raised by the decorated function; names the argument.
    """
    signature = inspect.signature(function)
    checks = {
        name: check
        for name, parameter in signature.parameters.items()
        if (check := _check_of(parameter)) is not None
    }
    # Further positional arguments belong to `*args`, which is not checked.
    places = tuple(
        name
        for name, parameter in signature.parameters.items()
        if parameter.kind
        in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    )

    @wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        for name, value in (*zip(places, args, strict=False), *kwargs.items()):
            if value is not None and name in checks:
                is_right, expected = checks[name]
                if not is_right(value):
                    raise InvalidInputError(f"{name} must be {expected}, not {_shown(value)}")
                if name in _LEAST:
                    check_least(name, cast(int, value), _LEAST[name])
        return function(*args, **kwargs)

    return call


def check_least(name: str, value: int, least: int) -> None:
    """Refuse a number that is too small.

    Raises
    ------
    InvalidInputError
    """
    if value < least:
        raise InvalidInputError(f"{name} must be at least {least}, not {value}")


def _check_of(parameter: inspect.Parameter) -> tuple[_Check, str] | None:
    if not isinstance(parameter.annotation, str) or parameter.kind in (
        inspect.Parameter.VAR_POSITIONAL,
        inspect.Parameter.VAR_KEYWORD,
    ):
        return None
    # The last part of "... | None"; other unions have no entry.
    name = parameter.annotation.removesuffix(" | None")
    if name in _CHECKS:
        return _CHECKS[name]
    head, bracket, _ = name.partition("[")
    return _CHECKS.get(head) if bracket and name.endswith("]") and " | " not in head else None


def _shown(value: object) -> str:
    if isinstance(value, list | tuple):
        # A list of names with something else in it.
        return f"a list with {', '.join(sorted({type(item).__name__ for item in value}))}"
    if isinstance(value, str):
        return f"the string {value!r}"
    return repr(value) if isinstance(value, _SHOWN) else type(value).__name__
