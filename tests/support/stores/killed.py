"""A writer that is killed between the steps of a commit to DynamoDB. Nothing here imports pylance:
it runs in a fork.
"""

from __future__ import annotations

import os
import signal
from typing import Any

import pyarrow as pa

import lance_spark
from lance_spark.storage.dynamodb import DynamoDbManifestStore
from lance_spark.storage.store import ObjectStore

#: The step before which a writer is killed.
STEPS = {
    "commit": (DynamoDbManifestStore, "put_if_absent"),
    "copy": (ObjectStore, "copy"),
    "entry": (DynamoDbManifestStore, "put_final"),
}


def rows(*values: int) -> pa.Table:
    return pa.table({"x": pa.array(values, pa.int64())})


def append_until(step: str, uri: str, options: dict[str, Any]) -> None:
    def die(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    owner, name = STEPS[step]
    setattr(owner, name, die)
    lance_spark.write_dataset(rows(2), uri, "append", storage_options=options)
