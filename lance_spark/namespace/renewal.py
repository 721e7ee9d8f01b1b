"""Credentials of a table from a namespace, which returns new credentials before they expire.

The answer to `describe_table` has storage options. If `expires_at_millis` is among them, the option
`credential_source` is added. It says how to request new credentials from the namespace. It travels
with the other storage options to tasks, so every process of a job can request them. It contains the
properties of the namespace, some of which are secret, such as headers.
"""

from __future__ import annotations

from collections.abc import Mapping

from lance_spark.errors import StorageError
from lance_spark.namespace.identifiers import Identifier, display
from lance_spark.storage.options.fsspec_options import (
    COMMIT_LOCK,
    CREDENTIAL_SOURCE,
    DISK_CACHE,
    DISK_CACHE_BYTES,
    DISK_CACHE_DATA,
    EXPIRES_AT,
)
from lance_spark.storage.renewal import source_text

#: The function that requests new credentials from a namespace.
_FUNCTION = "lance_spark.namespace:storage_options_of"
_CODE, _DISK = "names code to run", "is about the disk of this machine"
#: Storage options that a namespace must not choose, and why.
_OF_USERS = {
    COMMIT_LOCK: _CODE,
    CREDENTIAL_SOURCE: _CODE,
    "manifest_store": _CODE,
    DISK_CACHE: _DISK,
    DISK_CACHE_BYTES: _DISK,
    DISK_CACHE_DATA: _DISK,
}


def with_source(
    options: Mapping[str, str],
    impl: str | None,
    properties: Mapping[str, str],
    identifier: Identifier,
) -> dict[str, str]:
    """Return the storage options of an answer; if they expire, with their source.

    - `impl`, `properties`: Arguments of `lance_spark.namespace.connect`; without `impl`, no source
      is added.

    Raises StorageError: the answer has an option that only users may set.
    """
    lower = {name.lower() for name in options}
    for name, reason in _OF_USERS.items():
        if name in lower:
            raise StorageError(
                f"the namespace gives the storage option {name} of table {display(identifier)}, "
                f"which {reason}; set it in the options of the catalog or of the read"
            )
    if impl is None or EXPIRES_AT not in lower:
        return dict(options)
    request = {"impl": impl, "properties": dict(properties), "id": list(identifier)}
    source = source_text(_FUNCTION, request, options)
    return {**options, CREDENTIAL_SOURCE: source}
