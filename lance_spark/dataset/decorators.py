"""Decorators of the public API: errors name the table, and arguments are checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from inspect import isfunction, isgeneratorfunction, signature, unwrap
from typing import Any, ParamSpec, TypeVar

from lance_spark.arguments import checks_arguments
from lance_spark.errors import error_context
from lance_spark.storage.uri import parse_uri

_T = TypeVar("_T")
_P = ParamSpec("_P")
_R = TypeVar("_R")


def prefixes_errors_by(name_of: Callable[[Any], str]) -> Callable[[type[_T]], type[_T]]:
    """Return a class decorator for public methods and properties that concern one table.

    Errors that they raise name the table (`lance_spark.errors.error_context`). Arguments of a wrong
    type are rejected first (`lance_spark.arguments`).

    - `name_of`: Returns the root of the table of an object, without secrets.
    """

    def decorate(cls: type[_T]) -> type[_T]:
        for name, member in list(vars(cls).items()):
            if name.startswith("_"):
                continue
            if isinstance(member, property) and member.fget is not None:
                setattr(cls, name, property(_named(member.fget, name_of), doc=member.__doc__))
            elif isfunction(member):
                setattr(cls, name, _named(checks_arguments(member), name_of))
        return cls

    return decorate


def prefixes_errors_at(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Make errors of a function name the table at its argument ``uri``; see `prefixes_errors_by`.

    Without a URI, the namespace of the table names it.
    """
    checked = checks_arguments(function)
    signature_of = signature(function)

    @wraps(checked)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        uri = signature_of.bind(*args, **kwargs).arguments.get("uri")
        if uri is None:
            return checked(*args, **kwargs)
        with error_context(parse_uri(uri).display):
            return checked(*args, **kwargs)

    return call


def _named(method: Callable[..., Any], name_of: Callable[[Any], str]) -> Callable[..., Any]:
    if isgeneratorfunction(unwrap(method)):

        @wraps(method)
        def generate(self: object, /, *args: Any, **kwargs: Any) -> Iterator[Any]:
            with error_context(name_of(self)):
                yield from method(self, *args, **kwargs)

        return generate

    @wraps(method)
    def call(self: object, /, *args: Any, **kwargs: Any) -> Any:
        with error_context(name_of(self)):
            return method(self, *args, **kwargs)

    return call


#: Decorator of classes whose objects have the open table as ``_table``.
prefixes_errors = prefixes_errors_by(lambda handle: handle._table.store.display)
