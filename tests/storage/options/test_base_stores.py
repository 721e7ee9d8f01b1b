"""Base paths in other stores than the table: servers with other keys, other clouds. pylance reads
the same tables.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lance
import pytest
from lance import DatasetBasePath

from lance_spark.dataset.dataset import open_dataset
from lance_spark.dataset.write import write_dataset
from lance_spark.errors import InvalidOptionError, LanceError
from lance_spark.storage.errors import secret_values
from lance_spark.storage.options import options_of_base, with_base_params
from lance_spark.table.paths import BasePath
from tests.support.stores import keyed_s3
from tests.support.stores.azurite import CONTAINER, Azurite
from tests.support.stores.keyed_s3 import KeyedS3
from tests.support.tables.pylance_written import rows

Servers = tuple[KeyedS3, KeyedS3]


@pytest.fixture(scope="module")
def servers() -> Iterator[Servers]:
    """Two servers with a bucket each, and with different keys."""
    with keyed_s3.serving("AKIAONE", "one") as first, keyed_s3.serving("AKIATWO", "two") as second:
        yield first, second


def in_both_ways(
    table: dict[str, str], base: str, settings: dict[str, str]
) -> list[dict[str, Any]]:
    """Return the two ways to give a base path its settings."""
    scoped = {f"base_1.{name}": value for name, value in settings.items()}
    return [
        {"storage_options": table, "base_store_params": {base: settings}},
        {"storage_options": {**table, **scoped}},
    ]


def use(uri: str, base: str, ways: list[dict[str, Any]]) -> None:
    """Write, read, change, move and clean up a table with a base path by each way, beside
    pylance.
    """
    write_dataset(rows(0), uri, initial_bases=[BasePath(0, base, False, "b")], **ways[0])
    count = 3
    for way in ways:
        write_dataset(rows(count), uri, "append", target_bases=["b"], **way)
        lance.write_dataset(rows(count + 3), uri, mode="append", target_bases=["b"], **way)
        count += 6
        ours = open_dataset(uri, **way)
        table = ours.to_table()
        assert table == lance.dataset(uri, **way).to_table()
        assert table.sort_by("id") == rows(0, count)
        ours = ours.update({"word": "x"}, [("id", "==", count - 2)])
        assert ours.fragments[-1].files[0].base_id == 1
        ours = ours.update({"word": f"w{count - 2}"}, [("id", "==", count - 2)])
        ours, _ = ours.compact_files()
        assert sorted(
            file.base_id or 0 for fragment in ours.fragments for file in fragment.files
        ) == [0, 1]
        ours, _ = ours.move_fragments("b")
        ours, _ = ours.move_fragments(uri, [ours.fragments[0].id])
        ours.cleanup_old_versions(datetime.timedelta(), delete_unverified=True)
        theirs = lance.dataset(uri, **way)
        theirs.validate()
        assert theirs.to_table().sort_by("id") == rows(0, count)


def test_servers_with_different_keys(servers: Servers) -> None:
    first, second = servers
    uri, base = "s3://one/t", "s3://two/b"
    ways = in_both_ways(first.options, base, second.options)
    use(uri, base, ways)
    assert second.names("two", "b/")
    with pytest.raises(LanceError) as raised:
        open_dataset(uri, storage_options=first.options).to_table()
    assert "AKIATWO" not in str(raised.value)


def test_a_local_table(servers: Servers, tmp_path: Path) -> None:
    uri, base = str(tmp_path / "t"), "s3://two/of-local"
    use(uri, base, in_both_ways({}, base, servers[1].options))
    assert servers[1].names("two", "of-local/")


def test_s3_and_azure(servers: Servers, azurite: Azurite) -> None:
    uri, base = "s3://one/with-azure", f"az://{CONTAINER}/of-s3"
    use(uri, base, in_both_ways(servers[0].options, base, azurite.options))


def test_moving_to_another_server(servers: Servers) -> None:
    """A base path that leads elsewhere has the settings of the new path."""
    first, second = servers
    uri, old, new = "s3://one/moved", "s3://one/old", "s3://two/new"
    bases = [DatasetBasePath(old, "b", True)]
    lance.write_dataset(
        rows(0), uri, initial_bases=bases, target_bases=["b"], storage_options=first.options
    )
    options = {"storage_options": first.options, "base_store_params": {new: second.options}}
    with pytest.raises(LanceError, match="1 of the 1 files"):
        open_dataset(uri, **options).repoint_base("b", new)
    (name,) = first.names("one", "old/")
    body = first._client.get_object(Bucket="one", Key=name)["Body"].read()
    second._client.put_object(Bucket="two", Key=f"new{name.removeprefix('old')}", Body=body)
    moved = open_dataset(uri, **options).repoint_base("b", new)
    assert moved.to_table() == lance.dataset(uri, **options).to_table() == rows(0)


def test_settings_of_a_base_path() -> None:
    options = {"region": "a", "base_1.Region": "b", "base_12.region": "c", "key": "k"}
    assert options_of_base(options, 1, "s3://x/y", inherits=True) == {
        "region": "a",
        "key": "k",
        "Region": "b",
    }
    assert options_of_base(options, 12, "s3://x/y", inherits=False) == {"region": "c"}
    assert options_of_base(options, 2, "s3://x/y", inherits=True) == {"region": "a", "key": "k"}
    # An entry by path is complete, and has priority.
    options = with_base_params(options, {"s3://x/y/": {"secret": "s3cret"}})
    assert options_of_base(options, 1, "s3://x/y", inherits=True) == {"secret": "s3cret"}
    assert "s3cret" in secret_values(options)
    for wrong in ([], {"s3://x/y": "k"}, {1: {}}):
        with pytest.raises(InvalidOptionError, match="must be a mapping from the path") as raised:
            options_of_base({"base_store_params": wrong}, 1, "s3://x/y", inherits=True)
        assert "'k'" not in str(raised.value)
