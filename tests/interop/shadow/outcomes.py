"""Runs a case with both packages, and compares what it returned or raised.

| result | meaning |
| --- | --- |
| same | equal values |
| both refuse | both raised an error |
| refused | this package raised an error of its own, pylance did not |
| more | pylance raised, this package did not |
| different | other values; or this package raised an error that is not its own |
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from lance_spark.errors import LanceError
from tests.interop.shadow.client import OURS, PYLANCE, Client

SAME, BOTH, REFUSED = "same", "both refuse", "refused"
MORE, DIFFERENT = "more", "different"
#: Results that need no reason.
FINE = (SAME, BOTH)
Run = Callable[[Client, Path], Any]


@dataclass(frozen=True)
class Case:
    topic: str
    name: str
    run: Run

    def __str__(self) -> str:
        return f"{self.topic}: {self.name}"


@dataclass(frozen=True)
class Outcome:
    value: Any = None
    error: BaseException | None = None


def plain(value: Any) -> Any:
    """Return a value in a form that both packages can be equal in."""
    if isinstance(value, pa.Table | pa.RecordBatch):
        return [(field.name, str(field.type)) for field in value.schema], value.to_pylist()
    if isinstance(value, pa.Schema):
        return [(field.name, str(field.type), field.nullable) for field in value]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, float) and math.isnan(value):
        return "NaN"
    return value


def outcome(case: Case, client: Client, folder: Path) -> Outcome:
    path = folder / client.name.replace(" ", "_")
    path.mkdir(parents=True)
    try:
        return Outcome(plain(case.run(client, path / "t.lance")))
    except Exception as error:
        return Outcome(error=error)


def compare(case: Case, folder: Path) -> tuple[str, Outcome, Outcome]:
    theirs, own = outcome(case, PYLANCE, folder), outcome(case, OURS, folder)
    if own.error is not None and not isinstance(own.error, LanceError):
        result = DIFFERENT
    elif theirs.error is not None:
        result = BOTH if own.error is not None else MORE
    elif own.error is not None:
        result = REFUSED
    else:
        # NaN equals NaN in the text of a value.
        same = theirs.value == own.value or repr(theirs.value) == repr(own.value)
        result = SAME if same else DIFFERENT
    return result, theirs, own
