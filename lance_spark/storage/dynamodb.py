"""The manifest store in DynamoDB that Lance clients share:
`s3+ddb://bucket/path?ddbTableName=name`.

| attribute | type | content |
| --- | --- | --- |
| base_uri | S, hash key | path of the table's folder within its bucket, without the bucket's name |
| version | N, range key | number of the version |
| path | S | path of the manifest, or of its staging file, within the bucket |
| committer | S | "lancedb" |
| size | N, optional | bytes of the manifest |
| e_tag | S, optional | its tag in S3 |

Reads are consistent. The name of the bucket is not part of the key, so tables at the same path of
two buckets need two tables of DynamoDB. Detached versions of other clients have entries as well,
with bit 63 set in their number. They are not versions of the history, and skipped.

Specification: table format, transactions, external manifest store.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

from lance_spark._forks import after_fork
from lance_spark.errors import CorruptTableError, InvalidOptionError, StorageError
from lance_spark.last_used import LastUsed
from lance_spark.storage.commit import ManifestEntry, ManifestStore
from lance_spark.storage.renewal import RenewedArguments
from lance_spark.storage.retry import MAX_RETRIES, Retries

#: Storage option and environment variable for an endpoint other than that of the region.
ENDPOINT_OPTION = "dynamodb_endpoint"
_ENDPOINT_VARIABLE = "DYNAMODB_ENDPOINT"
_KEYS = {"HASH": ("base_uri", "S"), "RANGE": ("version", "N")}
_COMMITTER = "lancedb"
_LAST_VERSION = 2**63 - 1
_LAST_DETACHED = 2**64 - 1
#: Default attempts of a request.
_ATTEMPTS = 5
_MOST_CONNECTIONS = 32
_CREDENTIALS = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
_TIMEOUTS = ("connect_timeout", "read_timeout")
#: Prefixes of error codes that mean: nothing was done, and repeating does not help.
_REFUSALS = (
    "AccessDenied",
    "ExpiredToken",
    "IncompleteSignature",
    "InvalidSignature",
    "MissingAuthenticationToken",
    "ResourceNotFound",
    "UnrecognizedClient",
    "Validation",
)


class DynamoDbManifestStore(ManifestStore):
    """Entries of manifests in a table of DynamoDB.

    - `table`: Its name.
    - `options`: Storage options, as s3fs takes them: `key`, `secret`, `token`, `profile`, `anon`,
      `client_kwargs` with `region_name`; and `dynamodb_endpoint`. What is missing comes from the
      environment, as for every AWS client.
    - `renewed`: Gives credentials that expire.
    """

    def __init__(
        self, table: str, options: Mapping[str, Any], renewed: RenewedArguments | None = None
    ) -> None:
        self._table = table
        self._options = options
        self._renewed = renewed
        self._opened = os.getpid(), _Connection.of(table, options, renewed)

    @property
    def _connection(self) -> _Connection:
        process, connection = self._opened
        if process != os.getpid():
            # Two processes with one socket would receive each other's answers.
            connection = _Connection.of(self._table, self._options, self._renewed)
            self._opened = os.getpid(), connection
        return connection

    def __repr__(self) -> str:
        return f"DynamoDbManifestStore({self._table!r})"

    def get(self, root: str, version: int) -> ManifestEntry | None:
        base = _base(root)
        with self._request("get_item") as get_item:
            answer = get_item(TableName=self._table, ConsistentRead=True, Key=_key(base, version))
        item = answer.get("Item")
        entry = self._parse(base, item) if item else None
        if entry is not None and entry.version != version:
            raise StorageError(
                f"DynamoDB table {self._table}: requested version {version} of {root}, received "
                f"{entry.version}"
            )
        return entry

    def latest(self, root: str) -> ManifestEntry | None:
        base = _base(root)
        items = self._query(base, 0, newest_first=True, limit=1)
        return next((self._parse(base, item) for item in items), None)

    def since(self, root: str, version: int) -> list[ManifestEntry]:
        base = _base(root)
        return [self._parse(base, item) for item in self._query(base, version)]

    def forget(self, root: str) -> None:
        base = _base(root)
        for item in list(self._query(base, 0, last=_LAST_DETACHED)):
            with self._request("delete_item") as delete_item:
                delete_item(
                    TableName=self._table,
                    Key={name: item[name] for name, _ in _KEYS.values()},
                )

    def put_if_absent(self, root: str, entry: ManifestEntry) -> bool:
        return self._put(
            root, entry, "attribute_not_exists(base_uri) AND attribute_not_exists(version)"
        )

    def put_final(self, root: str, entry: ManifestEntry) -> None:
        if not self._put(root, entry, "attribute_exists(base_uri) AND attribute_exists(version)"):
            raise StorageError(
                f"DynamoDB table {self._table}: the entry of version {entry.version} of {root} was "
                "removed"
            )

    def _put(self, root: str, entry: ManifestEntry, condition: str) -> bool:
        base = _base(root)
        item = {
            **_key(base, entry.version),
            "path": {"S": f"{base}/{entry.path}" if base else entry.path},
            "committer": {"S": _COMMITTER},
        }
        if entry.size is not None:
            item["size"] = {"N": str(entry.size)}
        if entry.e_tag is not None:
            item["e_tag"] = {"S": entry.e_tag}
        with self._request("put_item") as put_item:
            try:
                put_item(TableName=self._table, Item=item, ConditionExpression=condition)
            except self._connection.client.exceptions.ConditionalCheckFailedException:
                return False
        return True

    def _query(
        self,
        base: str,
        first: int,
        *,
        last: int = _LAST_VERSION,
        newest_first: bool = False,
        limit: int | None = None,
    ) -> Iterator[dict[str, Any]]:
        arguments: dict[str, Any] = {
            "TableName": self._table,
            "ConsistentRead": True,
            "KeyConditionExpression": "base_uri = :base AND version BETWEEN :first AND :last",
            "ExpressionAttributeValues": {
                ":base": {"S": base},
                ":first": {"N": str(first)},
                ":last": {"N": str(last)},
            },
            "ScanIndexForward": not newest_first,
        }
        if limit is not None:
            arguments["Limit"] = limit
        while True:
            with self._request("query") as query:
                answer = query(**arguments)
            yield from answer.get("Items", ())
            if limit is not None or not answer.get("LastEvaluatedKey"):
                return
            arguments["ExclusiveStartKey"] = answer["LastEvaluatedKey"]

    @contextmanager
    def _request(self, name: str) -> Iterator[Any]:
        """Check the table once, give the method of the client, and translate its errors."""
        from botocore.exceptions import ClientError

        try:
            self._connection.check_layout()
            yield getattr(self._connection.client, name)
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", ""))
            text = f"DynamoDB table {self._table}: {error}"
            if code.startswith("ResourceNotFound"):
                text = (
                    f"DynamoDB table {self._table} not found in region {self._connection.region}; "
                    "create it with the hash key "
                    "base_uri (S) and the range key version (N), or correct ddbTableName or the "
                    "region"
                )
            if code.startswith(_REFUSALS):
                # Without a cause: nothing was changed.
                raise StorageError(text) from None
            raise StorageError(text) from error

    def _parse(self, base: str, item: Mapping[str, Any]) -> ManifestEntry:
        version, path, size, e_tag = (
            item.get(name, {}) for name in ("version", "path", "size", "e_tag")
        )
        name = f"DynamoDB table {self._table}, base_uri {base!r}"
        if not _is_number(version.get("N")):
            raise CorruptTableError(f"{name}: an entry has the version {version!r}")
        full = path.get("S")
        prefix = f"{base}/" if base else ""
        if not isinstance(full, str) or not full.startswith(prefix):
            raise CorruptTableError(
                f"{name}: the path of version {version['N']} is {full!r}, not one below {base!r}; "
                "correct the entry"
            )
        return ManifestEntry(
            version=int(version["N"]),
            path=full[len(prefix) :],
            size=int(size["N"]) if _is_number(size.get("N")) else None,
            e_tag=e_tag.get("S"),
        )


class _Connection:
    """A client of DynamoDB for one table, shared by all stores of a process with equal settings."""

    # A key has the token of a session, so that a process that gets new ones has many.
    _by_settings: ClassVar[LastUsed[tuple[Any, ...], _Connection]] = LastUsed(_MOST_CONNECTIONS)

    def __init__(self, table: str, client: Any) -> None:
        self._table = table
        self._checked = False
        self.client = client

    @classmethod
    def of(
        cls, table: str, options: Mapping[str, Any], renewed: RenewedArguments | None
    ) -> _Connection:
        settings = _settings(options)
        if renewed is not None and renewed.credentials.is_renewable:
            shown = {name: text for name, text in settings.items() if name not in _CREDENTIALS}
            renewing: _Connection = renewed.credentials.client(
                ("dynamodb", table, *sorted(shown.items())),
                lambda: cls(table, _renewing(settings, renewed)),
            )
            return renewing
        key: tuple[Any, ...] = (os.getpid(), table, *sorted(settings.items()))
        return cls._by_settings.made(key, lambda: cls(table, _client(settings)))

    @property
    def region(self) -> str:
        return str(self.client.meta.region_name)

    def check_layout(self) -> None:
        """Refuse a table with a key schema that other clients cannot use. Raises StorageError."""
        if self._checked:
            return
        description = self.client.describe_table(TableName=self._table)["Table"]
        types = {
            a["AttributeName"]: a["AttributeType"] for a in description["AttributeDefinitions"]
        }
        keys = {
            key["KeyType"]: (key["AttributeName"], types.get(key["AttributeName"]))
            for key in description["KeySchema"]
        }
        if keys != _KEYS:
            raise StorageError(
                f"DynamoDB table {self._table}: its keys are {_text(keys)}, and manifests need "
                f"{_text(_KEYS)}; "
                "create another table"
            )
        self._checked = True


@after_fork
def _forget_connections() -> None:
    # The sockets are the parent's.
    _Connection._by_settings.clear()


def _client(settings: Mapping[str, Any]) -> Any:
    try:
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError
        from botocore.session import Session
    except ImportError:
        raise StorageError(
            "tables on s3+ddb:// need the packages s3fs and botocore: pip install "
            "'lance-spark[dynamodb]'"
        ) from None
    settings = dict(settings)
    try:
        session = Session(profile=settings.pop("profile", None))
        attempts = int(settings.pop("attempts", _ATTEMPTS))
        limits = {name: float(settings.pop(name)) for name in _TIMEOUTS if name in settings}
        config = Config(retries={"mode": "standard", "total_max_attempts": attempts}, **limits)
        return session.create_client("dynamodb", config=config, **settings)
    except (BotoCoreError, ValueError) as error:
        raise InvalidOptionError(
            f"no connection to DynamoDB: {error}; set the region, the credentials and "
            f"{ENDPOINT_OPTION} in the storage options "
            "or the environment"
        ) from None


def _renewing(settings: Mapping[str, Any], renewed: RenewedArguments) -> Any:
    """Return a client that signs each request with the newest credentials."""
    client = _client(settings)
    from botocore.credentials import Credentials

    class RenewedKeys(Credentials):  # type: ignore[misc]
        def get_frozen_credentials(self) -> Any:
            current = _settings(renewed())
            return Credentials(*map(current.get, _CREDENTIALS)).get_frozen_credentials()

    client._request_signer._credentials = RenewedKeys("", "")
    return client


def _settings(options: Mapping[str, Any]) -> dict[str, str]:
    client = options.get("client_kwargs") or {}
    limits = options.get("config_kwargs") or {}
    retries = options.get(MAX_RETRIES)
    settings = {
        **{name: limits.get(name) for name in _TIMEOUTS},
        "attempts": None if retries is None else Retries.of(options).max_retries + 1,
        "profile": options.get("profile"),
        "region_name": client.get("region_name"),
        "endpoint_url": options.get(ENDPOINT_OPTION) or os.environ.get(_ENDPOINT_VARIABLE),
        "aws_access_key_id": options.get("key") or client.get("aws_access_key_id"),
        "aws_secret_access_key": options.get("secret") or client.get("aws_secret_access_key"),
        "aws_session_token": options.get("token") or client.get("aws_session_token"),
    }
    return {name: str(value) for name, value in settings.items() if value}


def _base(root: str) -> str:
    """Return the path within the bucket of `s3://bucket/path`."""
    return root.partition("://")[2].partition("/")[2]


def _key(base: str, version: int) -> dict[str, Any]:
    return {"base_uri": {"S": base}, "version": {"N": str(version)}}


def _is_number(text: object) -> bool:
    return isinstance(text, str) and text.isascii() and text.isdigit() and len(text) <= 20


def _text(keys: Mapping[str, tuple[str, str | None]]) -> str:
    return ", ".join(
        f"{key_type} {name} ({key_dtype})" for key_type, (name, key_dtype) in sorted(keys.items())
    )
