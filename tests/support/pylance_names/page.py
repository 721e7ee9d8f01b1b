"""The tables of docs/reference/pylance.md: a row for each public name of pylance."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import lance

from tests.support.pylance_names.decisions import COUNTERPARTS, DECISIONS, REMARKS
from tests.support.pylance_names.names import INTERNAL, Name, public_names
from tests.support.pylance_names.signatures import differences

SAME, OTHER, ABSENT = "same name", "another name", "not here"
_PLACES = re.compile(r"`(lance_spark(?:\.\w+)+)`")


@dataclass(frozen=True, slots=True)
class Row:
    """What the page says about a name.

    Attributes
    ----------
    state : str
        `SAME`, `OTHER` or `ABSENT`.
    inherited : str
        The class or module whose decision it is; empty for a decision of its own.
    """

    name: Name
    state: str
    here: str
    remark: str
    inherited: str = ""


def rows() -> tuple[list[Row], list[str]]:
    """Return a row for each name, and the names without a decision."""
    names: list[Row] = []
    undecided = []
    for name in public_names():
        row = _row(name)
        if row is None:
            undecided.append(name.path)
        else:
            names.append(row)
    return names, undecided


def stale_decisions() -> list[str]:
    """Return decisions and remarks for names that do not exist, or that need none."""
    names = {name.path: name for name in public_names()}
    owners = {name.owner for name in names.values()}
    known = names.keys() | owners
    stale = [f"{path}: not in pylance" for path in DECISIONS.keys() | REMARKS if path not in known]
    stale += [f"{path}: not in pylance" for path in COUNTERPARTS if path not in known]
    stale += [
        f"{path}: the same name is here"
        for path in DECISIONS
        if path in names and _own(names[path])
    ]
    stale += [
        f"{path}: the name is not here"
        for path in REMARKS
        if path in names and path not in COUNTERPARTS and not _own(names[path])
    ]
    return sorted(stale)


def missing_places() -> list[str]:
    """Return names of this package that decisions name and that do not exist."""
    texts = [text for here, remark in DECISIONS.values() for text in (here or "", remark)]
    places = {place for text in texts for place in _PLACES.findall(text)}
    return sorted(
        place for place in places | set(COUNTERPARTS.values()) if _named_object(place) is None
    )


def page() -> str:
    """Return the tables, as Markdown."""
    result, undecided = rows()
    assert undecided == []
    by_owner: dict[str, list[Row]] = {}
    for row in result:
        by_owner.setdefault(row.name.owner, []).append(row)
    lines = [f"The release of pylance is {lance.__version__}.", "", *_summary(result), ""]
    for owner, group in by_owner.items():
        shown = [row for row in group if not _is_covered(row, by_owner)]
        if not shown:
            continue
        lines += [f"## {owner}", "", "| pylance | here | remark |", "|---|---|---|"]
        lines += _table(shown, by_owner)
        lines.append("")
    lines += [
        "## Modules for pylance itself",
        "",
        "Helpers of pylance's installation, imports and tests are not listed:",
        f"{', '.join(f'`{module}`' for module in INTERNAL)}.",
    ]
    return "\n".join(lines) + "\n"


def _summary(rows: list[Row]) -> Iterator[str]:
    counts: dict[str, Counter[str]] = {}
    for row in rows:
        module = next(part for part in (row.name.owner, row.name.path) if part.startswith("lance"))
        head = _module_of(module)
        counts.setdefault(head, Counter())[row.state] += 1
    yield "| names of | same name | another name | not here |"
    yield "|---|---|---|---|"
    for module, states in [*counts.items(), ("**all**", sum(counts.values(), Counter()))]:
        yield f"| {module} | {states[SAME]} | {states[OTHER]} | {states[ABSENT]} |"


def _module_of(path: str) -> str:
    parts = path.split(".")
    if parts[:2] == ["lance", "LanceDataset"]:
        return "`LanceDataset`"
    return f"`{'.'.join(parts[:2])}`" if len(parts) > 1 and parts[1].islower() else "`lance`"


def _table(group: list[Row], by_owner: dict[str, list[Row]]) -> Iterator[str]:
    together: dict[str, list[Row]] = {}
    for row in group:
        if row.inherited:
            together.setdefault(row.inherited, []).append(row)
    for row in group:
        if not row.inherited:
            members = [
                inner.name.name
                for inner in by_owner.get(row.name.path, [])
                if _is_covered(inner, by_owner)
            ]
            yield _line(row, [row.name.name], members)
    for inherited in together.values():
        names = [row.name.name for row in inherited]
        members = [
            f"{row.name.name}.{inner.name.name}"
            for row in inherited
            for inner in by_owner.get(row.name.path, [])
            if _is_covered(inner, by_owner)
        ]
        yield _line(inherited[0], names, members)


def _line(row: Row, names: list[str], members: list[str]) -> str:
    text = ", ".join(f"`{name}`" for name in names)
    if members:
        text += ": " + ", ".join(f"`{member}`" for member in members)
    return f"| {text} | {row.here} | {row.remark} |"


def _is_covered(row: Row, by_owner: dict[str, list[Row]]) -> bool:
    """Return whether the row of the class says the same of all its members."""
    return (
        bool(row.inherited)
        and all(other.inherited == row.inherited for other in by_owner[row.name.owner])
        and row.name.owner.rpartition(".")[0] in by_owner
    )


def _row(name: Name) -> Row | None:
    value = _own(name)
    if value is not None:
        return Row(name, SAME, "same", "; ".join(_remarks(name, value)))
    if name.path in DECISIONS:
        here, remark = DECISIONS[name.path]
        place = _PLACES.fullmatch(here or "")
        # Methods of pylance's namespaces have one argument, a request.
        is_request = name.path.startswith("lance.namespace.")
        is_same = place and place[1].endswith(f".{name.name}") and not is_request
        if place and (is_same or name.path == "lance.dataset"):
            found = differences(name, _named_object(place[1]))
            remark = "; ".join(filter(None, [remark, *found]))
        return _decided(name, here, remark)
    if name.path in COUNTERPARTS:
        place = COUNTERPARTS[name.path]
        same = place.rpartition(".")[2] == name.name
        remarks = "; ".join(_remarks(name, _named_object(place)))
        return Row(name, SAME if same else OTHER, f"`{place}`", remarks)
    owner = name.owner
    while owner:
        if owner in DECISIONS:
            return _decided(name, *DECISIONS[owner], inherited=owner)
        owner = owner.rpartition(".")[0]
    return None


def _decided(name: Name, here: str | None, remark: str, inherited: str = "") -> Row:
    state = ABSENT if here is None else OTHER
    return Row(name, state, here or "no", remark, inherited)


def _own(name: Name) -> Any:
    """Return what has the same name here; None if nothing has."""
    place = COUNTERPARTS.get(name.owner)
    if place is None:
        return _argument(name)
    if name.path in COUNTERPARTS and _named_object(COUNTERPARTS[name.path]) is not None:
        return None
    counterpart = _named_object(place)
    if inspect.ismodule(counterpart):
        return getattr(counterpart, name.name) if name.name in counterpart.__all__ else None
    value = inspect.getattr_static(counterpart, name.name, None)
    if value is None and name.name in getattr(counterpart, "__annotations__", ()):
        return name
    return value


def _argument(name: Name) -> Any:
    """Return the parameter of that name of a class of an operation, which has it as an attribute.

    `LanceOperation` has such classes: a call returns an object of another class.
    """
    above, _, class_name = name.owner.rpartition(".")
    place = COUNTERPARTS.get(above)
    alias = None if place is None else getattr(_named_object(place), class_name, None)
    target = getattr(alias, "target", None)
    if target is None or not (
        hasattr(target, name.name)
        or name.name in getattr(target, "__dataclass_fields__", ())
        or name.name in getattr(target, "_fields", ())
        or name.name in getattr(getattr(target, "DESCRIPTOR", None), "fields_by_name", ())
    ):
        return None
    return inspect.signature(alias).parameters.get(name.name)


def _named_object(place: str) -> Any:
    try:
        return import_module(place)
    except ModuleNotFoundError:
        module, _, name = place.rpartition(".")
        return getattr(_named_object(module), name, None) if module else None


def _remarks(name: Name, value: Any) -> Iterator[str]:
    if name.path in REMARKS:
        yield REMARKS[name.path]
    yield from differences(name, value)
