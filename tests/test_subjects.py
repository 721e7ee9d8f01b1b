"""The core needs no subject: searches, types of indexes, JSON, geometries, MemWAL, loaders."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import lance_spark
from lance_spark import subjects
from lance_spark.indexes import registry
from lance_spark.indexes.registry import TYPES, IndexType
from lance_spark.table.indexes import sections

ROOT = Path(__file__).parent.parent
#: Packages that the core loads by name.
PACKAGES = (
    "lance_spark.loaders",
    "lance_spark.mem_wal",
    "lance_spark.spatial",
    "lance_spark.indexes.text",
    "lance_spark.indexes.vectors",
    "lance_spark.mem_wal.table",
)
#: The parts of a type, each with an attribute of its class, or none for a function.
PARTS = {
    "search": "ops",
    "zones": "read",
    "documents": "extracted",
    "bounds": None,
    "zone_statistics": None,
    "held_fragments": None,
    "remapping": None,
    "check": None,
    "described": None,
    "prewarm": None,
}


def named() -> frozenset[str]:
    """Return the modules that `subjects` and the registry name."""
    paths = [path for name, path in vars(subjects).items() if name.isupper()]
    for index_type in TYPES.values():
        paths += index_type.builders.values()
        paths += [path for part in PARTS if (path := getattr(index_type, part))]
    return frozenset(path.rpartition(".")[0] for path in paths)


NAMED = named()
ABSENT = f"""
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name in {set(NAMED)!r} or (name + ".").startswith({tuple(p + "." for p in PACKAGES)!r}):
            raise ModuleNotFoundError("absent: " + name, name=name)
        return None

sys.meta_path.insert(0, Absent())
"""
WORK = """
import pyarrow as pa
import lance_spark

path = sys.argv[1]
rows = pa.table({"id": range(100), "s": [f"s{n}" for n in range(100)], "v": [0.5] * 100})
dataset = lance_spark.write_dataset(rows, path, max_rows_per_file=20)
dataset = lance_spark.write_dataset(rows, path, mode="append")
assert dataset.count_rows("id < 50 AND s LIKE 's1%' OR v IS NULL") == 22
assert dataset.to_table(["id"], filter="id IN (3, 5)", limit=1).num_rows == 1
assert dataset.take([7, 150]).num_rows == 2
dataset.delete("id = 9")
dataset.update({"s": "'x'"}, "id = 8")
dataset.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(
    pa.table({"id": [500], "s": ["new"], "v": [1.0]})
)
dataset.add_columns({"w": "id + 1"})
dataset.drop_columns(["v"])
dataset.optimize.compact_files()
dataset.restore()
dataset = lance_spark.open_dataset(path, version=1)
dataset.restore()
lance_spark.write_dataset(rows, path, mode="overwrite")
assert lance_spark.open_dataset(path).count_rows() == 100
"""


def run(code: str, *args: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *args], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_plain_read_imports_no_subject(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    rows = pa.table({"id": range(10), "s": ["a"] * 10})
    lance_spark.write_dataset(rows, path)
    code = (
        "import sys, lance_spark\n"
        "dataset = lance_spark.open_dataset(sys.argv[1])\n"
        "assert dataset.to_table().num_rows == 10\n"
        "assert dataset.to_table(filter=\"id > 3 AND s = 'a'\").num_rows == 6\n"
        "print(*sys.modules)"
    )
    imported = frozenset(run(code, path).split())
    assert not imported & NAMED
    assert not [name for name in imported if name.startswith(PACKAGES)]


def test_rows_are_changed_in_sql_without_a_subject() -> None:
    """What the Python processes of Spark load for a read, a write, and a change of rows."""
    modules = (
        "catalog.row_changes",
        "catalog.tables",
        "pushdown.partition_keys",
        "read.driver_read",
        "read.planning",
        "read.reader",
        "write.planning",
        "write.row_changes",
    )
    code = "import sys, " + ", ".join(f"lance_spark.spark.{name}" for name in modules)
    imported = frozenset(run(code + "\nprint(*sys.modules)").split())
    assert not imported & NAMED
    assert not [name for name in imported if name.startswith(PACKAGES)]


def test_the_core_works_without_the_subjects(tmp_path: Path) -> None:
    run(ABSENT + WORK, str(tmp_path / "t"))


def test_the_subjects_are_where_the_core_looks() -> None:
    names = [name for name in vars(subjects) if name.isupper()]
    assert names
    for name in names:
        assert subjects.load(getattr(subjects, name))


@pytest.mark.parametrize("index_type", TYPES.values(), ids=TYPES)
def test_each_type_is_found(index_type: IndexType) -> None:
    assert registry.name_of(index_type.type_url) == index_type.name
    assert registry.name_of(index_type.type_url.upper()) == index_type.name
    for part, attribute in PARTS.items():
        found = registry.part_of(index_type.name, part)
        assert (found is None) == (getattr(index_type, part) is None)
        assert found is None or (hasattr(found, attribute) if attribute else True)
    for name in index_type.builders:
        builder = registry.builder_named(name)
        assert (builder.type_name, builder.type_url) == (name, index_type.type_url)
        assert registry.type_built_as(name) is index_type
    # A type that is read has versions, and what is built can be checked.
    assert bool(index_type.versions) == bool(index_type.builders)
    if index_type.builders and index_type.documents is None:
        assert index_type.check


def test_unknown_types() -> None:
    assert registry.name_of("/lance.table.NewIndexDetails") == "NewIndexDetails"
    assert registry.name_of("") == "UNKNOWN"
    assert registry.part_of("NewIndexDetails", "search") is None
    assert registry.builder_named("NEW") is None
    assert registry.builder_named("FTS") is registry.builder_named("INVERTED")


def test_a_table_with_an_index_of_each_type(tmp_path: Path) -> None:
    """Types are found by the details that the section of the manifest has."""
    path = str(tmp_path / "t")
    rows = pa.table(
        {
            "n": range(50),
            "s": [f"text {n}" for n in range(50)],
            "l": [[n % 3] for n in range(50)],
            "v": pa.array([[float(n), 1.0] for n in range(50)], pa.list_(pa.float32(), 2)),
        }
    )
    dataset = lance_spark.write_dataset(rows, path)
    columns = {
        "BTREE": "n",
        "BITMAP": "n",
        "ZONEMAP": "n",
        "BLOOMFILTER": "n",
        "NGRAM": "s",
        "INVERTED": "s",
        "LABEL_LIST": "l",
    }
    for index_type, column in columns.items():
        dataset = dataset.create_scalar_index(column, index_type, name=index_type)
    dataset = dataset.create_index("v", "IVF_FLAT", name="VECTOR", num_partitions=1)
    section = sections.read_section(dataset._table.manifest)
    found = {index.name: sections.type_of_index(index) for index in section.indices}
    assert found == {name: name for name in (*columns, "VECTOR")}
    for name in found:
        assert dataset.check_index(name).is_valid
        dataset.prewarm_index(name)
