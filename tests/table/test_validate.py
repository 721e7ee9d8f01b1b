"""`Dataset.validate` compared with pylance: sound tables of all releases, damaged tables."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import lance_spark
from lance_spark.errors import CorruptTableError, UnsupportedEncodingError
from lance_spark.proto import rowids_pb2, table_pb2
from tests.fixtures.tables import fixtures, unpack
from tests.support.tables.damaged import rewrite_manifest
from tests.support.tables.pylance_written import new_table, rows

#: Tables that this release reads and pylance 14 refuses: two file versions, early pages of 2.2.
_READ_HERE_ALONE = re.compile("must have the same version|require the u32 chunk grammar")


def test_tables_of_all_releases_validate_like_pylance(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    releases = cache(lambda release: unpack(release, tmp_path_factory.mktemp(release)))
    refused = set()
    for fixture in fixtures():
        path = fixture.path(releases)
        ours = _verdict(lambda path=path: lance_spark.open_dataset(path).validate())
        theirs = _verdict(lambda path=path: lance.dataset(path).validate())
        if ours:
            assert theirs, ours
            assert path in ours
            refused.add(str(fixture))
        else:
            assert not theirs or _READ_HERE_ALONE.search(theirs), fixture
    # Two releases counted row ids wrongly; one wrote pages of 2.1 under another name.
    assert refused == {"0.23.2-row_ids_2.0", "0.27.2-row_ids_2.0", "0.27.2-nested_2.1"}


def _verdict(validate: Callable[[], None]) -> str:
    try:
        validate()
    except (CorruptTableError, UnsupportedEncodingError, OSError, ValueError) as error:
        return str(error)
    return ""


def prepared(path: Path, stable: bool = False) -> str:
    """A table with two indexes and two fragments, each with a deleted row and two data files."""
    new_table(path, enable_stable_row_ids=stable)
    lance.dataset(str(path)).add_columns({"twice": "id * 2"})
    lance.dataset(str(path)).create_scalar_index("id", "BTREE")
    lance.dataset(str(path)).create_scalar_index("word", "BITMAP")
    lance.dataset(str(path)).delete("id in (1, 4)")
    return str(path)


Manifest = table_pb2.Manifest
Section = table_pb2.IndexSection


def same_fragment_id(manifest: Manifest) -> None:
    manifest.fragments[1].id = 0


def swapped_fragments(manifest: Manifest) -> None:
    first, second = (
        table_pb2.DataFragment.FromString(f.SerializeToString()) for f in manifest.fragments
    )
    manifest.fragments[0].CopyFrom(second)
    manifest.fragments[1].CopyFrom(first)


def too_many_rows(manifest: Manifest) -> None:
    manifest.fragments[1].physical_rows = 4


def missing_data_file(manifest: Manifest) -> None:
    manifest.fragments[1].files[1].path = "gone.lance"


def unknown_base(manifest: Manifest) -> None:
    manifest.fragments[1].files[0].base_id = 7


def field_in_two_files(manifest: Manifest) -> None:
    manifest.fragments[1].files[1].fields[:] = [1]


def no_field_of_the_schema(manifest: Manifest) -> None:
    manifest.fragments[1].files[1].fields[:] = [17]


def no_such_column(manifest: Manifest) -> None:
    manifest.fragments[1].files[1].column_indices[:] = [5]


def column_of_another_type(manifest: Manifest) -> None:
    # The columns of strings and of numbers have equally many rows; leaves are not compared.
    manifest.fragments[1].files[0].column_indices[:] = [0, -1]


def other_count_of_deletions(manifest: Manifest) -> None:
    manifest.fragments[1].deletion_file.num_deleted_rows = 2


def missing_deletion_file(manifest: Manifest) -> None:
    manifest.fragments[1].deletion_file.id = 5


def deletion_outside(manifest: Manifest) -> None:
    manifest.fragments[1].physical_rows = 1


def no_row_ids(manifest: Manifest) -> None:
    manifest.fragments[1].ClearField("inline_row_ids")


def row_ids_of_the_other(manifest: Manifest) -> None:
    manifest.fragments[1].inline_row_ids = manifest.fragments[0].inline_row_ids


def too_few_row_ids(manifest: Manifest) -> None:
    segment = rowids_pb2.U64Segment(range=rowids_pb2.U64Segment.Range(start=3, end=5))
    sequence = rowids_pb2.RowIdSequence(segments=[segment])
    manifest.fragments[1].inline_row_ids = sequence.SerializeToString()


def row_ids_to_come(manifest: Manifest) -> None:
    manifest.next_row_id = 5


def too_few_versions(manifest: Manifest) -> None:
    span = rowids_pb2.U64Segment(range=rowids_pb2.U64Segment.Range(start=0, end=2))
    run = rowids_pb2.RowDatasetVersionRun(span=span, version=1)
    sequence = rowids_pb2.RowDatasetVersionSequence(runs=[run])
    manifest.fragments[1].inline_created_at_versions = sequence.SerializeToString()


def unreadable_path(manifest: Manifest) -> None:
    manifest.fragments[1].files[0].path = "../../secret.lance"


#: The damage, whether it needs stable row ids, the expected error, and whether pylance detects it.
MANIFESTS: dict[Callable[[Manifest], None], tuple[bool, str, bool]] = {
    same_fragment_id: (False, "fragment id 0 occurs twice", True),
    swapped_fragments: (False, "fragment 0 comes after fragment 1", True),
    too_many_rows: (False, r"\.lance: the file has 3 rows, .* fragment 1 has 4", True),
    missing_data_file: (False, r"gone\.lance", True),
    unknown_base: (False, "base path 7, which the manifest does not have", True),
    field_in_two_files: (False, "fragment 1: field id 1 is in two data files", True),
    no_field_of_the_schema: (
        False,
        "fragment 1: data file .* has no column of the schema: .* 17",
        True,
    ),
    no_such_column: (False, r"\.lance.* column 5", False),
    column_of_another_type: (False, r"\.lance: the file has no column for field 'word'", False),
    other_count_of_deletions: (False, r"_deletions/1-.*: the file deletes 1 rows, .* says 2", True),
    missing_deletion_file: (False, r"_deletions/1-\d+-5\.arrow", True),
    deletion_outside: (False, "deletes row 1, but the fragment has 1 rows", True),
    no_row_ids: (True, "fragment 1 has no row ids", True),
    row_ids_of_the_other: (
        True,
        "row id 0 belongs to two live rows, of the fragments 0 and 1",
        True,
    ),
    too_few_row_ids: (True, "fragment 1: 2 row ids for 3 rows", True),
    row_ids_to_come: (True, "a row has the id 5, but 5 is the next id", False),
    too_few_versions: (True, "fragment 1.* 3 rows", False),
    unreadable_path: (False, r"fragment 1: data file '../../secret\.lance'", True),
}


@pytest.mark.parametrize("change", MANIFESTS, ids=lambda change: change.__name__)
def test_damaged_manifests(tmp_path: Path, change: Callable[[Manifest], None]) -> None:
    stable, message, seen_by_pylance = MANIFESTS[change]
    uri = prepared(tmp_path / "t", stable)
    lance_spark.open_dataset(uri).validate()
    rewrite_manifest(tmp_path / "t", change)
    with pytest.raises(CorruptTableError, match=message) as caught:
        lance_spark.open_dataset(uri).validate()
    assert uri in str(caught.value)
    if seen_by_pylance:
        with pytest.raises((OSError, ValueError)):
            lance.dataset(uri).validate()


def same_index_id(section: Section) -> None:
    section.indices[1].uuid.CopyFrom(section.indices[0].uuid)


def unknown_index_field(section: Section) -> None:
    section.indices[0].fields[:] = [9]


def segments_of_one_fragment(section: Section) -> None:
    new = section.indices.add()
    new.CopyFrom(section.indices[0])
    new.uuid.uuid = b"0123456789abcdef"


def missing_index_file(section: Section) -> None:
    section.indices[0].files[0].path = "gone.lance"


def missing_index_folder(section: Section) -> None:
    del section.indices[0].files[:]
    section.indices[0].uuid.uuid = b"0123456789abcdef"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (same_index_id, "index 'word_idx': two segments have the id "),
        (unknown_index_field, "index 'id_idx': the schema has no field with id 9"),
        (segments_of_one_fragment, "index 'id_idx': two segments cover fragment 0"),
        (missing_index_file, "index 'id_idx': file not found: .*_indices/.*/gone.lance"),
        (missing_index_folder, "index 'id_idx': no files found in .*_indices/30313233-"),
    ],
)
def test_damaged_indexes(tmp_path: Path, change: Callable[[Section], None], message: str) -> None:
    uri = prepared(tmp_path)
    rewrite_manifest(tmp_path, change_indexes=change)
    with pytest.raises(CorruptTableError, match=message):
        lance_spark.open_dataset(uri).validate()


@pytest.mark.parametrize("part", ["data", "_deletions"])
def test_damaged_files(tmp_path: Path, part: str) -> None:
    uri = prepared(tmp_path)
    file = next((tmp_path / part).iterdir())
    file.write_bytes(b"\0" * file.stat().st_size)
    with pytest.raises(CorruptTableError, match=re.escape(str(file))):
        lance_spark.open_dataset(uri).validate()


def test_all_problems_are_listed(tmp_path: Path) -> None:
    uri = prepared(tmp_path)

    def change(manifest: Manifest) -> None:
        same_fragment_id(manifest)
        for fragment in manifest.fragments:
            fragment.files[0].path = f"gone{fragment.files[0].path}"

    rewrite_manifest(tmp_path, change)
    with pytest.raises(CorruptTableError, match=r"has \d problems:") as caught:
        lance_spark.open_dataset(uri).validate()
    first, *problems = str(caught.value).splitlines()
    assert uri in first
    assert "fragment id 0 occurs twice" in problems[0]
    # The deletion file of fragment 0 is read by name: fragment 1 finds the file of the other
    # fragment, or none.
    assert sum("gone" in problem for problem in problems) == 2


def test_number_of_listed_problems_is_limited(tmp_path: Path) -> None:
    lance.write_dataset(rows(0, 12), str(tmp_path), max_rows_per_file=1)
    for file in (tmp_path / "data").iterdir():
        file.unlink()
    with pytest.raises(CorruptTableError, match="more than 10 problems") as caught:
        lance_spark.open_dataset(str(tmp_path)).validate()
    assert len(str(caught.value).splitlines()) == 11


@pytest.mark.parametrize("stable", [False, True])
def test_tables_after_changes_are_valid(tmp_path: Path, stable: bool) -> None:
    uri = prepared(tmp_path / "t", stable)
    changes: list[Callable[[lance_spark.Dataset], object]] = [
        lambda table: table.delete([("id", "==", 5)]),
        lambda table: table.update({"id": 7}, [("id", "==", 3)]),
        lambda table: table.add_columns({"new": 1}),
        lambda table: table.add_columns(pa.field("empty", pa.int32())),
        lambda table: table.update({"new": 2}, mode="columns"),
        lambda table: lance_spark.write_dataset(rows(6), table.uri, mode="append"),
        lambda table: table.drop_columns(["new"]),
        lambda table: table.compact_files(),
        lambda table: table.create_branch("trial").delete([("id", "<", 3)]),
        lambda table: table.shallow_clone(tmp_path / "clone"),
        lambda table: table.restore(),
    ]
    for change in changes:
        change(lance_spark.open_dataset(uri))
        lance_spark.open_dataset(uri).validate()
        lance.dataset(uri).validate()
    lance_spark.open_dataset(uri, branch="trial").validate()
    lance_spark.open_dataset(str(tmp_path / "clone")).validate()


def test_validate_command(tmp_path: Path) -> None:
    uri = prepared(tmp_path)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "lance_spark", "validate", uri, *arguments]
        return subprocess.run(command, check=False, capture_output=True, text=True)

    good = run()
    assert (good.returncode, good.stdout) == (0, f"{uri}: version 5 is valid\n")
    rewrite_manifest(tmp_path, same_fragment_id)
    bad = run()
    assert bad.returncode == 1
    assert "fragment id 0 occurs twice" in bad.stderr
    assert run("--version", "1").returncode == 0
    assert "--option must have the form KEY=VALUE, not 'secret'" in run("--option", "secret").stderr


def test_repeated_fragment_ids_are_read_correctly_or_refused(tmp_path: Path) -> None:
    uri = str(tmp_path)
    new_table(tmp_path)
    lance.dataset(uri).create_scalar_index("id", "ZONEMAP")
    rewrite_manifest(tmp_path, same_fragment_id)
    ours = lance_spark.open_dataset(uri)
    # The zone map of fragment 0 does not tell the two rows apart.
    assert ours.to_table(filters=[("id", ">", 3)]) == rows(4, 2)
    assert ours.to_table(filter="id = 1") == rows(1, 1)
    assert ours.take([4, 1])["id"].to_pylist() == [4, 1]
    # Row address 1 and the first row of fragment 0 are two rows each.
    refused: list[Callable[[], object]] = [
        ours.validate,
        lambda: ours.take_rows([1]),
        lambda: ours.to_table(["id", "_rowoffset"]),
        lambda: ours.take([0], ["_rowoffset"]),
    ]
    for call in refused:
        with pytest.raises(CorruptTableError, match="fragment id 0 occurs twice") as caught:
            call()
        assert uri in str(caught.value)
