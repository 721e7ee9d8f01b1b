"""Compares the parameters of functions and classes that have the same name in both packages.

| difference | on the page |
| --- | --- |
| this package lacks a parameter | "without" |
| a call may have it, and it changes nothing | "no effect" |
| a call may have it, if its value changes nothing | "refused" |
| it has another position, or is given by name only | "by name" |
| it is given by place only | "by place" |
| another default | the default here |
| a parameter that pylance does not have must be given | "needs" |
"""

from __future__ import annotations

import enum
import inspect
from collections.abc import Iterator, Sequence
from typing import Any

from lance_spark.arguments import keywords_of
from tests.support.pylance_names.names import Name

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
_VARIABLE = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
#: Classes whose objects methods of this package make.
MADE = ("lance.LanceDataset", "lance.LanceScanner")
#: Parameters with which pylance's methods make objects of its classes.
_INNER = {"_raw", "dataset", "delta", "query", "builder", "inner", "inner_builder", "plan"}


def differences(name: Name, value: Any) -> Iterator[str]:
    """Yield the differences between a function or class of pylance and its namesake here.

    Parameters
    ----------
    name : Name
        The name in pylance.
    value : object
        What has the name here.
    """
    own = getattr(value, "__func__", value)
    if not callable(name.value) or not callable(own):
        return
    if name.path in MADE:
        return
    theirs, ours = _parameters(name.value), _parameters(own)
    if not theirs or ours is None or (inspect.isclass(own) and theirs[0].name in _INNER):
        return
    keywords = keywords_of(own.__init__ if inspect.isclass(own) else own)
    renamed = keywords.renamed
    own_names = {parameter.name: parameter for parameter in ours}
    takes_others = any(parameter.kind is parameter.VAR_KEYWORD for parameter in ours)
    places = [parameter.name for parameter in ours if parameter.kind in _POSITIONAL]
    missing, unused, refused, by_name, by_place, defaults = [], [], [], [], [], []
    for place, parameter in enumerate(theirs):
        if parameter.kind in _VARIABLE or parameter.name.startswith("_"):
            continue
        own_name = renamed.get(parameter.name, parameter.name)
        if ours[place:] and ours[place].kind is inspect.Parameter.POSITIONAL_ONLY:
            if parameter.kind is not inspect.Parameter.POSITIONAL_ONLY:
                by_place.append(parameter.name)
            continue
        own_signature = own_names.get(own_name)
        if own_signature is None:
            if own_name in keywords.unused:
                unused.append(parameter.name)
            elif own_name in keywords.refused:
                refused.append(parameter.name)
            elif not takes_others:
                missing.append(parameter.name)
            elif parameter.kind in _POSITIONAL:
                by_name.append(parameter.name)
            continue
        if parameter.kind in _POSITIONAL and places[place : place + 1] != [own_name]:
            by_name.append(own_name)
        if not _same_default(parameter.default, own_signature.default):
            needed = own_signature.default is own_signature.empty
            defaults.append(
                f"`{own_name}` is needed"
                if needed
                else f"`{own_name}` is `{own_signature.default!r}`"
            )
    known = {renamed.get(parameter.name, parameter.name) for parameter in theirs}
    needed = [
        parameter.name
        for parameter in ours
        if parameter.default is parameter.empty
        and parameter.kind not in (*_VARIABLE, inspect.Parameter.POSITIONAL_ONLY)
        and parameter.name not in known
    ]
    for label, found_names in (
        ("without", missing),
        ("no effect:", unused),
        ("refused:", refused),
        ("by name:", by_name),
        ("by place:", by_place),
        ("needs", needed),
    ):
        if found_names:
            yield f"{label} {', '.join(f'`{found_name}`' for found_name in found_names)}"
    if defaults:
        yield f"by default {', '.join(defaults)}"


def _parameters(function: Any) -> Sequence[inspect.Parameter] | None:
    """Return the parameters; None if they are not known."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    return [parameter for parameter in parameters if parameter.name not in ("self", "cls")]


def _same_default(theirs: Any, ours: Any) -> bool:
    """Return whether a caller that leaves the parameter out gets the same, or need not give it."""
    if isinstance(theirs, enum.Enum):
        theirs = theirs.value
    if isinstance(ours, enum.Enum):
        ours = ours.value
    # A default that a dataclass makes is an empty collection, or a new id.
    is_made = type(theirs).__name__ == type(ours).__name__ == "_HAS_DEFAULT_FACTORY_CLASS"
    if theirs is inspect.Parameter.empty:
        return True
    is_empty = type(theirs).__name__ == "_HAS_DEFAULT_FACTORY_CLASS" and ours in ((), None)
    return bool(theirs == ours) or is_made or is_empty
