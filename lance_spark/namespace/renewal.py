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
    EXPIRES_AT,
)
from lance_spark.storage.renewal import source_text

#: The function that requests new credentials from a namespace.
_FUNCTION = "lance_spark.namespace:storage_options_of"
#: Storage options that name code. A namespace must not choose what this process runs.
_OF_CODE = (COMMIT_LOCK, CREDENTIAL_SOURCE, "manifest_store")


def with_source(
    options: Mapping[str, str],
    impl: str | None,
    properties: Mapping[str, str],
    identifier: Identifier,
) -> dict[str, str]:
    """Return the storage options of an answer; if they expire, with their source.

    Parameters
    ----------
    impl, properties
        Arguments of `lance_spark.namespace.connect`; without `impl`, no source is added.

    Raises
    ------
    StorageError
        The answer has an option that names code.
    """
    lower = {name.lower() for name in options}
    for name in _OF_CODE:
        if name in lower:
            raise StorageError(
                f"the namespace gives the storage option {name} of table {display(identifier)}, "
                "which names code to run; set it in the options of the catalog or of the read"
            )
    if impl is None or EXPIRES_AT not in lower:
        return dict(options)
    request = {"impl": impl, "properties": dict(properties), "id": list(identifier)}
    source = source_text(_FUNCTION, request, options)
    return {**options, CREDENTIAL_SOURCE: source}
