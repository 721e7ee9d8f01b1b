"""Namespaces of the package lance-namespace: Glue, Hive, Unity, Polaris, and classes of the user.

The package is optional: `pip install lance-spark[namespaces]`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lance_spark.errors import InvalidOptionError, StorageError
from lance_spark.namespace.base import Identifier
from lance_spark.namespace.client import ClientNamespace, error_of


class _ClientOfPackage(ClientNamespace):
    """A namespace that an object of the package lance-namespace manages."""

    _client: Any
    _package: Any

    def _ask(
        self, operation: str, identifier: Identifier, fields: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        name = "".join(word.capitalize() for word in operation.split("_"))
        request = getattr(self._package, f"{name}Request")(id=list(identifier), **fields)
        try:
            answer = getattr(self._client, operation)(request)
        except NotImplementedError as error:
            raise error_of(0, f"{self._label}: {error or operation}") from error
        except Exception as error:
            code = getattr(error, "code", None)
            if not isinstance(code, int):
                raise StorageError(
                    f"{self._label}: {operation} failed: {type(error).__name__}: {error}"
                ) from error
            raise error_of(int(code), f"{self._label}: {error}") from error
        fields_of_answer: Mapping[str, Any] = {} if answer is None else answer.model_dump()
        return fields_of_answer


class ExternalNamespace(_ClientOfPackage):
    """A namespace that the package lance-namespace implements.

    - `impl`: Name of the implementation, or the full name of a class.
    - `properties`: Properties of the implementation. Errors and `repr` do not show them.
    - `storage_options`: Settings of the stores of the tables. Settings that the namespace returns
      for a table replace them.

    Raises InvalidOptionError: the package or the implementation was not found, or refuses the
    properties.
    """

    def __init__(
        self,
        impl: str,
        properties: Mapping[str, str],
        storage_options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(impl, impl, properties, storage_options or {})
        self._package = _package(f"namespaces of the kind {impl!r}")
        try:
            self._client = self._package.connect(impl, dict(properties))
        except Exception as error:
            raise InvalidOptionError(
                f"the namespace {impl!r} cannot be used: {type(error).__name__}: {error}"
            ) from error


class GivenNamespace(_ClientOfPackage):
    """A namespace of an object that the caller made. Credentials of its tables are not renewed.

    - `storage_options`: As for `ExternalNamespace`.

    Raises InvalidOptionError: the package was not found, or the object is not of its class.
    """

    def __init__(self, client: object, storage_options: Mapping[str, Any] | None = None) -> None:
        label = type(client).__name__
        super().__init__(label, None, {}, storage_options or {})
        self._package = _package("arguments `namespace_client`")
        if not isinstance(client, self._package.LanceNamespace):
            raise InvalidOptionError(
                f"namespace_client must be a LanceNamespace, or of lance_spark.namespace, not "
                f"{label}"
            )
        self._client = client


def _package(what: str) -> Any:
    try:
        import lance_namespace
    except ImportError:
        raise InvalidOptionError(
            f"{what} need the package lance-namespace; install it by "
            "pip install lance-spark[namespaces], on the driver and on executors"
        ) from None
    return lance_namespace
