"""Members of `LanceOperation` that are called as classes, and known to `isinstance`.

An operation is planned by its arguments, which have the names of pylance, and kept in the class of
`table.operations` that commits it.
"""

from __future__ import annotations

import inspect
import uuid
from collections.abc import Callable, Iterable
from typing import Any, ParamSpec, TypeVar, cast

from pyroaring import BitMap

from lance_spark.errors import InvalidInputError
from lance_spark.proto import table_pb2, transaction_pb2
from lance_spark.table.fragments.files import DataFile, Overlay
from lance_spark.table.indexes.updates import RewrittenIndex

_P = ParamSpec("_P")
_T = TypeVar("_T")
#: Overlays to add to a fragment.
OverlayGroup = transaction_pb2.Transaction.DataOverlayGroup


class _OperationAlias(type):
    """The class of a member: a call returns an object of the class `target`."""

    target: type
    make: Callable[..., Any]

    def __call__(cls, *arguments: Any, **named: Any) -> Any:
        return cls.make(*arguments, **named)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.target)


def operation_alias(target: type) -> Callable[[Callable[_P, _T]], Callable[_P, _T]]:
    """Make a function the class of the objects that it returns.

    Parameters
    ----------
    target : type
        The class of these objects.
    """

    def decorate(function: Callable[_P, _T]) -> Callable[_P, _T]:
        members = {
            "__doc__": function.__doc__,
            "__module__": function.__module__,
            "__qualname__": function.__qualname__,
            "__signature__": inspect.signature(function),
            "target": target,
            "make": function,
        }
        return cast("Callable[_P, _T]", _OperationAlias(function.__name__, (), members))

    return decorate


def overlay_file(
    data_file: DataFile,
    offsets: Iterable[int] | Iterable[Iterable[int]],
    committed_version: int | None,
) -> Overlay:
    """Return an overlay; see `LanceOperation.DataOverlayFile`."""
    sets: list[Any] = list(offsets)
    if not any(isinstance(item, Iterable) for item in sets):
        sets = [sets]
    elif len(sets) != len(data_file.fields):
        raise InvalidInputError(
            f"offsets: {len(sets)} sets of offsets for {len(data_file.fields)} fields of "
            f"{data_file.path!r}; give one for each field"
        )
    bitmaps = tuple(_bitmap(item, data_file.path) for item in sets)
    return Overlay(data_file, bitmaps, committed_version or 0)


def _bitmap(offsets: Iterable[int], path: str) -> bytes:
    """Return offsets as a Roaring bitmap."""
    try:
        numbers = list(offsets)
        rows = BitMap(numbers)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidInputError(
            f"offsets of overlay {path!r} must be numbers from 0 to 2**32 - 1: {error}"
        ) from None
    if len(rows) != len(numbers):
        raise InvalidInputError(
            f"offsets of overlay {path!r}: an offset occurs twice; the values of the file belong "
            "to distinct rows in increasing order"
        )
    data: bytes = rows.serialize()
    return data


def overlay_group(fragment_id: int, overlays: Iterable[Overlay]) -> OverlayGroup:
    """Return the overlays of a fragment; see `LanceOperation.DataOverlayGroup`."""
    return OverlayGroup(
        fragment_id=fragment_id, overlays=[overlay.to_proto() for overlay in overlays]
    )


def rewritten_index(
    old_id: str,
    new_id: str,
    new_details_type_url: str,
    new_details_value: bytes,
    new_index_version: int,
) -> RewrittenIndex:
    """Return a segment that was rewritten; see `LanceOperation.RewrittenIndex`."""
    try:
        ids = uuid.UUID(old_id).bytes, uuid.UUID(new_id).bytes
    except (ValueError, AttributeError, TypeError):
        raise InvalidInputError(
            f"old_id and new_id must be UUIDs, not {old_id!r} and {new_id!r}"
        ) from None
    details = table_pb2.IndexMetadata(index_version=new_index_version)
    details.index_details.type_url = new_details_type_url
    details.index_details.value = new_details_value
    return RewrittenIndex(*ids, details)
