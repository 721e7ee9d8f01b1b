"""Tags, branches and clones on an object store, with and without an external manifest store."""

from __future__ import annotations

from urllib.parse import unquote

import lance
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.errors import UnsupportedError
from tests.support.stores.aws import BUCKET, Aws, numbers


@pytest.mark.parametrize(
    "form", [f"s3://{BUCKET}/{{}}", f"s3+ddb://{BUCKET}/{{}}?ddbTableName=lock"]
)
def test_tags_branches_and_clones_on_s3(aws: Aws, form: str) -> None:
    uri = form.format("refs" + form[2])
    mine, theirs = {"storage_options": aws.ours}, {"storage_options": aws.theirs}
    lance.write_dataset(numbers(0), uri, **theirs)
    lance_spark.write_dataset(numbers(3), uri, "append", **mine)
    ours, their_dataset = lance_spark.open_dataset(uri, **mine), lance.dataset(uri, **theirs)
    ours.tags.create("mine", 1)
    their_dataset.tags.create("theirs", 1)
    assert ours.tags.list() == their_dataset.tags.list()
    made = ours.create_branch("feat/x")
    their_dataset.create_branch("feat/y")
    assert ours.branches.list() == their_dataset.branches.list()
    lance_spark.write_dataset(numbers(10), uri, "append", branch="feat/y", **mine)
    branch = their_dataset.checkout_version(("feat/x", None))
    assert branch.to_table() == made.to_table()
    lance.write_dataset(numbers(20), branch, mode="append")
    for name, start in (("feat/x", 20), ("feat/y", 10)):
        expected = pa.concat_tables([numbers(0), numbers(3), numbers(start)])
        opened = lance_spark.open_dataset(uri, branch=name, **mine)
        assert (opened.version, opened.branch, opened.to_table()) == (3, name, expected)
        assert their_dataset.checkout_version((name, None)).to_table() == expected
        assert lance_spark.open_dataset(opened.uri, **mine).branch == name
    nested = lance_spark.open_dataset(uri, branch="feat/x", **mine).create_branch("feat/x/z")
    assert (
        nested.count_rows() == their_dataset.checkout_version(("feat/x/z", None)).count_rows() == 9
    )
    clone = nested.shallow_clone(form.format("clone" + form[2]))
    assert lance.dataset(clone.uri, **theirs).to_table() == nested.to_table()
    copy = nested.deep_clone(form.format("copy" + form[2]))
    expected = nested.to_table()
    ours.branches.delete("feat/x/z")
    ours.branches.delete("feat/x")
    assert list(ours.branches.list()) == list(their_dataset.branches.list()) == ["feat/y"]
    assert not aws.names(uri.partition("://")[2].partition("?")[0].split("/")[1] + "/tree/feat/x")
    assert lance.dataset(copy.uri, **theirs).to_table() == expected
    # No file is left that could disturb a branch of the same name.
    their_dataset.create_branch("feat/x", 1)
    assert lance_spark.open_dataset(uri, branch="feat/x", **mine).to_table() == numbers(0)
    ours.branches.delete("feat/x")
    assert ours.create_branch("feat/x").count_rows() == 6
    assert lance.dataset(uri, **theirs).count_rows() == 6


def test_external_manifest_stores_refuse_a_migration_of_names(aws: Aws) -> None:
    uri = f"s3+ddb://{BUCKET}/named?ddbTableName=lock"
    made = lance_spark.write_dataset(numbers(0), uri, storage_options=aws.ours)
    with pytest.raises(UnsupportedError, match="manifests cannot be renamed"):
        made.migrate_manifest_paths_v2()


def test_base_paths_on_s3(aws: Aws) -> None:
    uri = f"s3://{BUCKET}/based"
    base = lance.DatasetBasePath(f"s3://{BUCKET}/base", name="b")
    made = lance_spark.write_dataset(
        numbers(0), uri, initial_bases=[base], target_bases=["b"], storage_options=aws.ours
    )
    assert len(aws.names("base/")) == 1
    theirs = lance.dataset(uri, storage_options=aws.theirs)
    assert theirs.to_table() == made.to_table() == numbers(0)
    assert [value.path for value in theirs.base_paths().values()] == [base.path]


@pytest.mark.parametrize("folder", ["a%20b", "p%2541q", "%C3%BC", "n%23m"])
def test_escapes_in_paths_on_s3(aws: Aws, folder: str) -> None:
    """`%20` is a space, for both clients and in base paths, and `%25` a percent sign."""
    mine, theirs = {"storage_options": aws.ours}, {"storage_options": aws.theirs}
    uri = f"s3://{BUCKET}/{folder}/t"
    lance.write_dataset(numbers(0), uri, **theirs).create_branch("theirs")
    made = lance_spark.write_dataset(numbers(3), uri, "append", **mine)
    made.create_branch("ours")
    lance.dataset(uri, **theirs).shallow_clone(f"{uri}-theirs", 2, aws.theirs)
    made.shallow_clone(f"{uri}-ours")
    made.deep_clone(f"{uri}-copy")
    expected = pa.concat_tables([numbers(0), numbers(3)])
    for place in (uri, f"{uri}-theirs", f"{uri}-ours", f"{uri}-copy"):
        ours = lance_spark.open_dataset(place, **mine)
        assert lance_spark.open_dataset(ours.uri, **mine).to_table() == expected
        assert lance.dataset(place, **theirs).to_table() == expected
    for branch, rows in (("theirs", numbers(0)), ("ours", expected)):
        result = lance_spark.open_dataset(uri, branch=branch, **mine)
        assert result.to_table() == rows
        assert lance_spark.open_dataset(result.uri, **mine).branch == branch
        their_branch = lance.dataset(uri, **theirs).checkout_version((branch, None))
        assert their_branch.to_table() == rows
    keys = {key.split("/")[0] for key in aws.names("")}
    assert unquote(folder) in keys
    assert folder not in keys
