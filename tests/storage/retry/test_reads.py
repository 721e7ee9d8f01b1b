"""Reads by the scheduler through a bad line, by s3fs and by obstore: the rows are right, nothing
hangs, and no reader waits for the requests of another one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.errors import StorageError
from lance_spark.indexes.cache import CACHE
from lance_spark.storage.kept_ranges import KEPT
from tests.support.stores.aws import BUCKET, Aws
from tests.support.stores.proxy import ALL, TOO_MANY, Fault, FaultProxy

#: A request that takes far longer than others.
LATE = Fault(delay=0.4)
#: Each of them is as likely as each of `ALL`.
FAULTS = (*ALL, *3 * (LATE,))
FRAGMENTS, ROWS = 12, 6_000
_SECONDS = 60
READS: dict[str, Callable[[Any], Any]] = {
    "all": lambda d: d.to_table(),
    "filter": lambda d: d.to_table(["x", "s"], filter="r = 7"),
    "index": lambda d: d.to_table(["s"], filter="x between 11990 and 12010"),
    "take": lambda d: d.take([*range(5, FRAGMENTS * ROWS - 100, 500)], ["s"]),
}


@pytest.fixture(scope="module")
def uri(aws: Aws) -> str:
    uri, count = f"s3://{BUCKET}/reads", FRAGMENTS * ROWS
    rows = {
        "x": np.arange(count),
        "r": np.random.default_rng(0).integers(0, 1000, count),
        "s": [f"a row with the number {number * 7919 % 1000003:09d}" for number in range(count)],
    }
    options: Any = {"storage_options": aws.theirs, "max_rows_per_file": ROWS}
    dataset = lance.write_dataset(pa.table(rows), uri, **options)
    dataset.create_scalar_index("x", "BTREE")
    dataset.delete("x % 1000 = 3")
    return uri


@pytest.fixture(params=["fsspec", "obstore"])
def options(request: pytest.FixtureRequest, aws: Aws, proxy: FaultProxy) -> dict[str, Any]:
    if request.param == "obstore" and find_spec("obstore") is None:
        pytest.skip("obstore is not installed")
    KEPT.clear()
    CACHE.clear()
    own = {"aws_endpoint": proxy.endpoint, "file_system": request.param, "client_max_retries": 8}
    return {**aws.theirs, **own}


@pytest.mark.sample(2)
@pytest.mark.parametrize("seed", range(2))
def test_rows_are_right(
    aws: Aws, uri: str, options: dict[str, Any], proxy: FaultProxy, seed: int
) -> None:
    expected = lance.dataset(uri, storage_options=aws.theirs)
    proxy.schedule(seed, 0.2, FAULTS)
    begun = time.monotonic()

    def read(name: str) -> Any:
        return READS[name](lance_spark.open_dataset(uri, storage_options=options))

    # Threads share the scheduler, and the requests that are under way.
    with ThreadPoolExecutor(4) as pool:
        results = dict(zip(READS, pool.map(read, READS), strict=True))
    assert time.monotonic() - begun < _SECONDS
    proxy.clear()
    for name, result in results.items():
        assert result.equals(READS[name](expected)), name
    assert not [item for item in threading.enumerate() if item.name == "lance-read-ahead"]


def test_a_reader_that_stops_or_fails_leaves_no_requests(
    uri: str, options: dict[str, Any], proxy: FaultProxy
) -> None:
    dataset = lance_spark.open_dataset(uri, storage_options=options)
    batches = dataset.scanner().to_batches()
    proxy.delay(LATE.delay)
    next(iter(batches))
    batches.close()
    count = len(proxy.requests)
    time.sleep(2 * LATE.delay)
    assert len(proxy.requests) == count
    # A file that is refused for ever: the others are not requested again and again.
    KEPT.clear()
    proxy.clear()
    proxy.fail(r"^GET .*\.lance", *200 * (TOO_MANY,))
    begun = time.monotonic()
    with pytest.raises(StorageError, match=r"429|reads|TooMany"):
        lance_spark.open_dataset(uri, storage_options=options).to_table()
    assert time.monotonic() - begun < _SECONDS
    count = len(proxy.requests)
    time.sleep(0.2)
    assert len(proxy.requests) == count
