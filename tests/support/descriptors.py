"""Descriptors of protobuf, which differ between its releases."""

from __future__ import annotations

from google.protobuf.descriptor import FieldDescriptor


def is_repeated(field: FieldDescriptor) -> bool:
    """Return whether a field is repeated.

    `is_repeated` is new in protobuf 6.31, and `label` is gone in protobuf 7.
    """
    known: bool | None = getattr(field, "is_repeated", None)
    return field.label == FieldDescriptor.LABEL_REPEATED if known is None else known
