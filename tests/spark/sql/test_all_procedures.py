"""Every procedure is called once on a table, and pylance reads the result."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, NamedTuple

import lance
import pyarrow as pa
import pytest
from pyspark import InheritableThread
from pyspark.errors import AnalysisException, NumberFormatException
from pyspark.sql.types import StructType

from docs import generated
from lance_spark.spark.catalog.procedures.call import PROCEDURES
from tests.spark.sql.catalogs import TestCatalog


class Case(NamedTuple):
    """A call.

    Attributes
    ----------
    arguments : str
        SQL, in which `ROOT` is the folder of the tables.
    expected : object
        Rows of the result; a function of the only row; a part of the message of an error.
    seen : callable, optional
        Function of pylance's dataset.
    value : object
        What `seen` returns.
    """

    procedure: str
    arguments: str
    expected: Any
    seen: Callable[[Any], Any] | None = None
    value: Any = None


def column(dataset: Any, name: str) -> Any:
    """Return the values of a column in the order of the ids."""
    return dataset.to_table().sort_by("id")[name].to_pylist()


CASES = [
    Case("register_table", "'walk', 'ROOT/other.lance'", [("ROOT/other.lance",)]),
    Case("validate", "table => 'walk'", [(1,)]),
    Case("detail", "'walk'", lambda row: (row.num_rows, row.num_fragments) == (30, 3)),
    Case(
        *("create_tag", "table => 'walk', name => 'one', version => 1", [("one",)]),
        *(lambda t: t.tags.list()["one"]["version"], 1),
    ),
    Case("create_tag", "'walk', name => 'one', if_not_exists => true", [("one",)]),
    # Columns
    Case(
        *("add_columns", "'walk', map('twice', 'id * 2')", [(2,)]),
        *(lambda t: column(t, "twice"), [2 * n for n in range(30)]),
    ),
    Case(
        *("add_columns_from", "'walk', source => 'thrice', key => array('id')", [(3,)]),
        *(lambda t: column(t, "thrice")[8:12], [24, 27, None, None]),
    ),
    Case(
        "update_columns_from",
        "'walk', 'letters', array('_rowaddr'), commit_message => 'letters'",
        [(4, 0, 10, 0)],
        *(lambda t: column(t, "s"), ["b"] * 10 + ["a"] * 20),
    ),
    Case(
        *("rename_column", "'walk', 'twice', new_name => 'double'", [(5,)]),
        *(lambda t: t.schema.names, ["id", "s", "double", "thrice"]),
    ),
    Case(
        *("alter_column", "table => 'walk', name => 'double', data_type => 'int'", [(6,)]),
        *(lambda t: t.schema.field("double").type, pa.int32()),
    ),
    Case(
        *("reorder_columns", "'walk', array('s', 'id', 'double', 'thrice')", [(7,)]),
        *(lambda t: t.schema.names, ["s", "id", "double", "thrice"]),
    ),
    Case(
        *("drop_columns", "'walk', names => array('double')", [(8,)]),
        *(lambda t: t.schema.names, ["s", "id", "thrice"]),
    ),
    # Rows
    Case(
        *("update", "'walk', map('s', 'upper(s)'), 'id < 3'", [(9, 0, 3, 0)]),
        *(lambda t: column(t, "s")[:4], ["B", "B", "B", "b"]),
    ),
    Case(
        *("update_columns", "'walk', map('s', 'lower(s)')", [(10, 0, 30, 0)]),
        *(lambda t: column(t, "s")[:4], ["b"] * 4),
    ),
    Case(
        *("delete", "'walk', 'id >= 25'", [(11, 0, 0, 5)]),
        *(lambda t: column(t, "id"), list(range(25))),
    ),
    Case(
        *("set_unenforced_primary_key", "'walk', array('id')", [("OK", "id")]),
        lambda t: t.schema.field("id").metadata[b"lance-schema:unenforced-primary-key"],
        b"true",
    ),
    Case(
        *("upsert", "'walk', 'moved'", [(13, 5, 5, 0)]),
        *(lambda t: column(t, "id"), list(range(30))),
    ),
    Case(
        *("replace_where", "'walk', 'few', condition => 'id >= 20'", [(14, 2, 0, 10)]),
        *(lambda t: column(t, "id"), [*range(20), 20, 21]),
    ),
    Case("history", "'walk', limit => 1", lambda row: (row.version, row.num_rows) == (14, 22)),
    Case(
        "optimize",
        "'walk', target_rows_per_fragment => 100, z_order_by => array('id', 's')",
        lambda row: row.fragments_added == 1,
        *(lambda t: (len(t.get_fragments()), t.count_rows()), (1, 22)),
    ),
    # References
    Case(
        *("create_branch", "'walk', 'side', tag => 'one'", [("side",)]),
        *(lambda t: t.branches.list()["side"]["parent_version"], 1),
    ),
    Case("branches", "'walk'", lambda row: (row.name, row.parent_version) == ("side", 1)),
    Case("history", "table => 'walk', branch => 'side'", lambda row: row.num_rows == 30),
    Case("delete_branch", "'walk', 'side'", [("side",)], lambda t: t.branches.list(), {}),
    Case("delete_branch", "'walk', 'side', if_exists => true", [("side",)]),
    Case(
        *("create_tag", "'walk', 'two', version => 3, or_replace => true", [("two",)]),
        *(lambda t: t.tags.list()["two"]["version"], 3),
    ),
    Case(
        *("create_tag", "'walk', 'two', version => 4, or_replace => true", [("two",)]),
        *(lambda t: t.tags.list()["two"]["version"], 4),
    ),
    Case("delete_tag", "'walk', 'two'", [("two",)]),
    Case("restore_to_tag", "'walk', 'one'", [(17,)], lambda t: t.count_rows(), 30),
    Case(
        *("restore_to_timestamp", "'walk', current_timestamp() - INTERVAL '0' SECOND", [(18,)]),
        *(lambda t: t.count_rows(), 30),
    ),
    Case("restore_to_version", "'walk', 14L", [(19,)], lambda t: t.count_rows(), 22),
    Case(
        *("update_tag", "'walk', 'one', version => 12", [("one",)]),
        *(lambda t: t.tags.list()["one"]["version"], 12),
    ),
    Case("tags", "'walk'", lambda row: (row.name, row.version) == ("one", 12)),
    Case(
        *("clone", "'walk', 'ROOT/copy.lance', is_shallow => false", [("ROOT/copy.lance",)]),
        *(lambda t: lance.dataset(t.uri.replace("other", "copy")).count_rows(), 22),
    ),
    # Indexes
    Case("describe_indices", "'walk'", lambda row: (row.name, row.num_indexed_rows) == ("i", 22)),
    Case(
        *("create_index", "'walk', 'j', 'btree', array('id')", lambda row: row.index_name == "j"),
        *(lambda t: t.count_rows("id = 3"), 1),
    ),
    Case(
        *("create_index", "'walk', 'j', 'zonemap', array('id'), if_not_exists => true"),
        *(
            lambda row: row.index_name == "j",
            lambda t: {i["name"] for i in t.list_indices()},
            {"i", "j"},
        ),
    ),
    Case(
        *("optimize_index", "'walk', 'j', map('retrain', 'true')"),
        lambda row: row.index_name == "j",
    ),
    Case("refresh_index", "'walk', 'j'", lambda row: row.index_name == "j"),
    Case(
        *("check_index", "table => 'walk', name => 'j'"),
        lambda *rows: all(row.is_valid for row in rows) and sum(row.num_rows for row in rows) == 22,
    ),
    Case("optimize_indices", "'walk', array('i')", lambda row: row.version > 0),
    Case("drop_index", "'walk', 'j'", [("j", "dropped")]),
    Case("drop_index", "'walk', 'j', if_exists => true", [("j", "not found")]),
    Case("drop_index", "'walk', 'i'", [("i", "dropped")], lambda t: t.list_indices(), []),
    # Base paths
    Case("add_bases", "'walk', bases => map('cold', 'ROOT/cold')", [(25,)]),
    Case(
        *("move_fragments", "'walk', 'cold', 'id < 5'", lambda row: row.files_added == 2),
        *(lambda t: t.count_rows(), 22),
    ),
    Case("bases", "'walk'", lambda *rows: [row.name for row in rows] == [None, "cold"]),
    Case(
        *("repoint_base", "'walk', 'cold', 'ROOT/colder'", [(28,)]),
        *(lambda t: t.count_rows(), 22),
    ),
    Case("repair_branches", "'walk'", []),
    # Maintenance
    Case("delete_tag", "'walk', 'one'", [("one",)], lambda t: t.tags.list(), {}),
    Case(
        *("vacuum", "'walk', before_version => 27", lambda row: row.old_versions == 26),
        *(lambda t: [v["version"] for v in t.versions()], [27, 28]),
    ),
    Case(
        "cleanup",
        "table => 'walk', older_than => INTERVAL '0 00:00:00' DAY TO SECOND",
        [(100, 1)],
        *(lambda t: t.count_rows(), 22),
    ),
    # MemWAL
    Case("initialize_mem_wal", "'walk', unsharded => true", [(29,)]),
    Case("mem_wal_shards", "'walk'", []),
    Case("compact_mem_wal", "'walk', flush => true", [(29, 0, 0, 0)]),
    Case("clean_mem_wal", "table => 'walk'", [(0, 0, 0)]),
    Case(
        *("disable_mem_wal", "'walk', compact => false", [(30,)]),
        *(lambda t: t.mem_wal_index_details(), None),
    ),
    Case("deregister_table", "'walk'", [("ROOT/other.lance",)], lambda t: t.count_rows(), 22),
    Case("validate", "'walk'", "was not found"),
]


@pytest.fixture(scope="module")
def catalog(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestCatalog]:
    """A catalog, and views over its table `walk` that a test registers."""
    root = tmp_path_factory.mktemp("all_procedures")
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("s", pa.string())])
    rows = pa.table({"id": range(30), "s": ["a"] * 30}, schema)
    lance.write_dataset(rows, str(root / "other.lance"), max_rows_per_file=10)
    yield TestCatalog.of(spark, "all_procedures", root)
    for name in ("thrice", "letters", "moved", "few", "slow"):
        spark.catalog.dropTempView(name)


def before(catalog: TestCatalog, case: Case) -> None:
    """Run the preparation of a case."""
    views = {
        "add_columns_from": "thrice AS SELECT id, id * 3 AS thrice FROM CAT.walk WHERE id < 10",
        "update_columns_from": "letters AS SELECT _rowaddr, 'b' AS s FROM CAT.walk WHERE id < 10",
        "upsert": "moved AS SELECT id + 5 AS id, s FROM CAT.walk WHERE id >= 15",
        "replace_where": "few AS SELECT id, s, thrice FROM CAT.walk WHERE id IN (20, 21)",
    }
    if case.procedure in views:
        catalog.sql(f"CREATE TEMP VIEW {views[case.procedure]}")
    if case.procedure == "describe_indices":
        lance.dataset(str(catalog.root / "other.lance")).create_scalar_index(
            "id", "BTREE", name="i"
        )
    if case.procedure == "cleanup":
        (catalog.root / "other.lance/data/of-a-failed-job.lance").write_bytes(bytes(100))
    if case.procedure == "repoint_base":
        shutil.copytree(catalog.root / "cold", catalog.root / "colder")


def test_each_procedure(catalog: TestCatalog) -> None:
    root = str(catalog.root)
    for case in CASES:
        before(catalog, case)
        call = f"CALL CAT.system.{case.procedure}({case.arguments})".replace("ROOT", root)
        if isinstance(case.expected, str):
            assert case.expected in catalog.refusal(call), call
            continue
        rows = catalog.sql(call)
        if callable(case.expected):
            assert case.expected(*rows), (call, rows)
        else:
            expected = [
                tuple(v.replace("ROOT", root) if isinstance(v, str) else v for v in row)
                for row in case.expected
            ]
            assert rows == expected, (call, rows)
        names = StructType.fromDDL(PROCEDURES[case.procedure].result).names
        assert all(row.__fields__ == names for row in rows), call
        if case.seen is not None:
            dataset = lance.dataset(f"{root}/other.lance")
            assert case.seen(dataset) == case.value, call


def test_each_procedure_has_a_case() -> None:
    assert {case.procedure for case in CASES} == set(PROCEDURES)


def test_the_page_has_all_procedures() -> None:
    section = re.compile(r"^## (\w+)\n\n[A-Z].+\n\n\| parameter", re.MULTILINE)
    assert section.findall(generated.procedures()) == list(PROCEDURES)


@pytest.mark.parametrize("way", ["job group", "all jobs", "session"])
def test_cancelling_a_statement_cancels_its_jobs(catalog: TestCatalog, way: str) -> None:
    spark = catalog.spark
    path = catalog.root / "cancelled.lance"
    if not path.exists():
        lance.write_dataset(pa.table({"id": range(2)}), str(path))
        # Each row takes a minute.
        catalog.sql(
            "CREATE TEMP VIEW slow AS "
            "SELECT id, java_method('java.lang.Thread', 'sleep', 60000L) AS x FROM range(2)"
        )
    context = spark.sparkContext
    errors = []

    def call() -> None:
        context.setJobGroup("slow call", "", interruptOnCancel=True)
        try:
            catalog.sql("CALL CAT.system.add_columns_from('cancelled', 'slow', array('id'))")
        except Exception as error:
            errors.append(str(error))

    thread = InheritableThread(target=call)
    thread.start()
    tracker = context.statusTracker()
    while thread.is_alive() and not tracker.getJobIdsForGroup("slow call"):
        time.sleep(0.05)
    while thread.is_alive() and not tracker.getActiveJobsIds():
        time.sleep(0.05)
    if way == "job group":
        context.cancelJobGroup("slow call")
    elif way == "all jobs":
        context.cancelAllJobs()
    else:
        spark.interruptAll()
    thread.join(30)
    assert not thread.is_alive()
    assert errors[0].startswith("procedure add_columns_from: [SPARK_JOB_CANCELLED] Job ")
    assert "\n" not in errors[0]
    assert not tracker.getActiveJobsIds()
    dataset = lance.dataset(str(path))
    assert (dataset.version, dataset.schema.names) == (1, ["id"])
    # The files of the cancelled tasks are gone.
    assert len(list((path / "data").iterdir())) == 1


def test_times_do_not_depend_on_settings(catalog: TestCatalog) -> None:
    catalog.sql("CREATE TABLE CAT.times (id BIGINT)")
    catalog.spark.conf.set("spark.sql.timestampType", "TIMESTAMP_NTZ")
    try:
        (row,) = catalog.sql("CALL CAT.system.history('times')")
        moment = f"TIMESTAMP_LTZ '{row.timestamp.isoformat()}'"
        assert catalog.sql(f"CALL CAT.system.restore_to_timestamp('times', {moment})") == [(2,)]
    finally:
        catalog.spark.conf.unset("spark.sql.timestampType")
    versions = catalog.pylance("times").versions()
    # pylance computes with floats.
    assert abs(row.timestamp - versions[0]["timestamp"]) <= timedelta(microseconds=1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("history('wrong', nope => 1)", "UNRECOGNIZED_PARAMETER_NAME.*`nope`"),
        ("restore_to_version('wrong')", "REQUIRED_PARAMETER_NOT_FOUND.*`version`"),
        (
            "create_tag('wrong', 'a', 1, 'b', true, false, 'c', map(), 1)",
            "WRONG_NUM_ARGS|TOO_MANY|params",
        ),
        ("restore_to_version('wrong', array(1))", "(?i)type|cast"),
        ("restore_to_version('wrong', NULL)", "parameter version must not be null"),
        ("delete('wrong', NULL)", "parameter condition must not be null"),
        ("delete('wrong', 'id = ' || CAST(NULL AS STRING))", "condition must not be null"),
        ("update('wrong', map('id', '1'), condition => NULL)", "condition must not be null"),
        ("optimize('wrong', where => NULL)", "parameter where must not be null"),
        ("restore_to_version('wrong', 99)", "99"),
        ("create_tag('wrong', 'a', version => 1, tag => 'b')", "set one of them"),
        ("create_tag('wrong', '')", "name"),
        ("update('wrong', map('nope', '1'))", "nope"),
        ("delete('wrong', 'nope = 1')", "nope"),
        ("add_columns_from('wrong', 'nope', array('id'))", "source => 'nope'.*NOT_FOUND"),
        ("update_columns_from('wrong', 'CAT.wrong')", "has no key of table"),
        ("upsert('wrong', 'CAT.wrong')", "primary key"),
        ("optimize('wrong', z_order_by => array('nope'))", "nope"),
        ("vacuum('wrong', retention_hours => -1)", "must not be negative"),
        ("history('wrong', branch => 'nope')", "nope"),
        ("delete('wrong', table_options => map('Path', '/other'))", "table_options has a path"),
        ("history('a b.c`')", "must be the name of a table"),
        ("validate(1)", "was not found"),
    ],
)
def test_wrong_arguments(catalog: TestCatalog, call: str, message: str) -> None:
    if not (catalog.root / "wrong.lance").exists():
        catalog.sql("CREATE TABLE CAT.wrong (id BIGINT)")
    text = call.replace("CAT.", f"{catalog.name}.")
    with pytest.raises(AnalysisException, match=message) as caught:
        catalog.sql(f"CALL CAT.system.{text}")
    assert "Traceback" not in str(caught.value)
    assert ".py" not in str(caught.value)


def test_a_text_that_is_no_number(catalog: TestCatalog) -> None:
    with pytest.raises(NumberFormatException):
        catalog.sql("CALL CAT.system.restore_to_version('wrong', 'x')")
