"""CREATE TABLE, with and without a query, and what is shown of the new table."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, ParseException

from lance_spark import write_dataset
from lance_spark.errors import TableExistsError, TableNotFoundError
from lance_spark.namespace import TableEntry
from lance_spark.namespace.directory import DirectoryNamespace
from lance_spark.spark.catalog.create import stage_table
from tests.spark.sql.catalogs import TestCatalog

NAME = "created"


def test_a_table_is_created_as_it_is_shown(catalog: TestCatalog) -> None:
    catalog.run(
        [
            "CREATE NAMESPACE CAT.db".replace("CAT.db", "created.db"),
            "CREATE TABLE CAT.db.t (id INT NOT NULL COMMENT 'an id', v STRING DEFAULT 'x', e ARRAY<FLOAT>) "
            "COMMENT 'it\\'s a table' TBLPROPERTIES ('k' = 'v', 'enable_stable_row_ids' = 'true', "
            "'e.arrow.fixed-size-list.size' = '2', 'lance.auto_cleanup.interval' = '20')",
        ]
    )
    ((shown,),) = catalog.sql("SHOW CREATE TABLE CAT.db.t")
    schema = catalog.spark.table("created.db.t").schema
    catalog.sql("DROP TABLE CAT.db.t")
    catalog.spark.sql(shown)
    assert catalog.sql("SHOW CREATE TABLE CAT.db.t") == [(shown,)]
    assert catalog.spark.table("created.db.t").schema.json() == schema.json()


def test_pylance_reads_a_created_table(catalog: TestCatalog) -> None:
    catalog.sql(
        "CREATE TABLE CAT.t (id INT NOT NULL COMMENT 'an id', e ARRAY<FLOAT>) COMMENT 'a table' "
        "TBLPROPERTIES ('k' = 'v', 'e.arrow.fixed-size-list.size' = '2', "
        "'lance.auto_cleanup.interval' = '20')"
    )
    dataset = catalog.pylance("t")
    assert dataset.version == 1
    assert dataset.schema.field("id") == pa.field("id", pa.int32(), nullable=False)
    assert dataset.schema.field("id").metadata == {b"comment": b"an id"}
    assert dataset.schema.field("e").type == pa.list_(pa.float32(), 2)
    assert dataset.metadata == {"k": "v", "comment": "a table"}
    assert dataset.config()["lance.auto_cleanup.interval"] == "20"
    assert catalog.rows("t") == []


def test_a_query_makes_one_version(catalog: TestCatalog) -> None:
    catalog.sql("CREATE TABLE CAT.q AS SELECT 1 AS id")
    assert catalog.pylance("q").version == 1
    catalog.sql("REPLACE TABLE CAT.q AS SELECT 2 AS id, 'x' AS v")
    catalog.sql("CREATE OR REPLACE TABLE CAT.q TBLPROPERTIES ('a' = 'b') AS SELECT 3 AS other")
    dataset = catalog.pylance("q")
    assert dataset.version == 3
    assert dataset.metadata == {"a": "b"}
    assert catalog.rows("q") == [{"other": 3}]
    assert catalog.sql("SELECT * FROM CAT.q VERSION AS OF 2") == [(2, "x")]
    catalog.sql("CREATE TABLE IF NOT EXISTS CAT.q AS SELECT 4 AS id")
    assert catalog.pylance("q").version == 3
    catalog.sql("CREATE OR REPLACE TABLE CAT.q (a INT DEFAULT 5)")
    assert catalog.rows("q") == []
    dataset = catalog.pylance("q")
    assert dataset.schema.field("a").metadata == {b"spark.sql.default": b"5"}
    # Properties that the statement does not name stay, as by an overwrite.
    assert dataset.metadata == {"a": "b"}


def test_a_table_of_a_query_has_the_metadata_of_its_columns(catalog: TestCatalog) -> None:
    """As over Parquet: comments and defaults are copied, and columns may be null."""
    columns = (
        "(a INT DEFAULT 5 COMMENT 'x', b STRING, m MAP<STRING, STRUCT<q: INT COMMENT 'mq'>>, "
        "l ARRAY<STRUCT<c: ARRAY<STRUCT<d: INT COMMENT 'deep'>>>>)"
    )
    shown = []
    for prefix, form in (("spark_catalog.default.", "parquet"), ("CAT.", "lance")):
        source, copy, again = (f"{prefix}{name}_of_meta" for name in ("source", "copy", "again"))
        catalog.run(
            [
                f"CREATE TABLE {source} {columns} USING {form}",
                f"CREATE TABLE {copy} USING {form} AS SELECT * FROM {source}",
                f"INSERT INTO {copy} (b) VALUES ('y')",
            ]
        )
        frame = catalog.spark.table(copy.replace("CAT", catalog.name))
        frame.write.format(form).saveAsTable(again.replace("CAT", catalog.name))
        ((text,),) = catalog.sql(f"SHOW CREATE TABLE {again}")
        shown.append((text.partition("(")[2].partition("\nUSING")[0], frame.first()[:2]))
        catalog.run([f"DROP TABLE {name}" for name in (source, copy, again)])
    assert shown[1] == shown[0]
    assert shown[0][1] == (5, "y")


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("CREATE TABLE CAT.r (id INT)", "[TABLE_OR_VIEW_ALREADY_EXISTS]"),
        ("CREATE TABLE CAT.r AS SELECT 1 AS id", "[TABLE_OR_VIEW_ALREADY_EXISTS]"),
        ("REPLACE TABLE CAT.nope AS SELECT 1 AS id", "[TABLE_OR_VIEW_NOT_FOUND]"),
        ("CREATE TABLE CAT.nope.r (id INT)", "[SCHEMA_NOT_FOUND]"),
        ("CREATE TABLE CAT.x (id INT) PARTITIONED BY (id)", "Lance tables have no partitions"),
        ("CREATE TABLE CAT.x (id INT) USING orc", "the statement asks for orc"),
        ("CREATE TABLE CAT.x (`a.b` INT)", "the statement has a column 'a.b'"),
        ("CREATE TABLE CAT.x (a INT DEFAULT 'x')", "[INVALID_DEFAULT_VALUE.DATA_TYPE]"),
        ("CREATE TABLE CAT.x (a INT, b INT GENERATED ALWAYS AS (a))", "[UNSUPPORTED_FEATURE"),
        ("CREATE TABLE CAT.`a$b` (a INT)", "is not a name of a table"),
    ],
)
def test_refusals(catalog: TestCatalog, statement: str, message: str) -> None:
    catalog.sql("CREATE TABLE IF NOT EXISTS CAT.r (id INT)")
    refusal = catalog.refusal(statement)
    assert message in refusal


def test_a_table_like_another_one(catalog: TestCatalog) -> None:
    catalog.sql(
        "CREATE TABLE CAT.like0 (id INT NOT NULL DEFAULT 3 COMMENT 'an id', e ARRAY<FLOAT>) "
        "TBLPROPERTIES ('k' = 'v', 'e.arrow.fixed-size-list.size' = '2', 'enable_stable_row_ids' = 'true')"
    )
    catalog.sql("INSERT INTO CAT.like0 VALUES (1, array(1f, 2f))")
    statement = "CREATE TABLE CAT.like1 LIKE CAT.like0 TBLPROPERTIES ('own' = 'p')"
    if catalog.spark.version < "4.2":
        with pytest.raises(
            ParseException, match=r"CREATE TABLE LIKE in this catalog needs Spark 4\.2"
        ):
            catalog.sql(statement)
        assert not catalog.spark.catalog.tableExists("created.like1")
        return
    catalog.sql(statement)
    catalog.sql("CREATE TABLE IF NOT EXISTS CAT.like1 LIKE CAT.like0")
    old, new = catalog.pylance("like0"), catalog.pylance("like1")
    assert new.count_rows() == 0
    assert new.schema == old.schema
    assert new.schema.field("e").type == pa.list_(pa.float32(), 2)
    assert new.has_stable_row_ids
    assert new.metadata == {"own": "p"}
    catalog.sql("INSERT INTO CAT.like1 (e) VALUES (array(3f, 4f))")
    assert catalog.rows("like1") == [{"id": 3, "e": [3.0, 4.0]}]
    assert "[TABLE_OR_VIEW_ALREADY_EXISTS]" in catalog.refusal(
        "CREATE TABLE CAT.like1 LIKE CAT.like0"
    )
    catalog.spark.range(1).createOrReplaceTempView("like_view")
    catalog.sql("CREATE TABLE CAT.like2 LIKE like_view")
    assert catalog.pylance("like2").schema.names == ["id"]
    assert "the statement asks for orc" in catalog.refusal(
        "CREATE TABLE CAT.l LIKE CAT.like0 USING orc"
    )


def test_a_table_is_not_replaced_in_part_by_save_as_table(catalog: TestCatalog) -> None:
    catalog.sql("CREATE TABLE CAT.whole AS SELECT id FROM range(3)")
    frame = catalog.spark.range(1, 3).write.option("replaceWhere", "id = 1").mode("overwrite")
    with pytest.raises(AnalysisException, match=r"saveAsTable .* replace the whole table"):
        frame.format("lance").saveAsTable("created.whole")
    with pytest.raises(AnalysisException) as raised:
        frame.insertInto("created.whole")
    text = str(raised.value)
    assert "option replaceWhere: a row of the DataFrame does not meet 'id = 1': id is 2" in text
    assert "Traceback" not in text
    assert "\n" not in text
    assert catalog.pylance("whole").version == 1


@pytest.mark.parametrize("table", ["made.raced", "made.space.raced"])
def test_one_of_several_statements_creates_a_table(catalog: TestCatalog, table: str) -> None:
    """The others get Spark's error, or that of a conflict if they say OR REPLACE, or succeed if they
    say IF NOT EXISTS.
    """
    table = table.replace("made", NAME)
    catalog.sql("CREATE NAMESPACE IF NOT EXISTS CAT.space")
    statements = {
        "CREATE TABLE {}": "(id BIGINT)",
        "CREATE TABLE {}s": "AS SELECT id FROM range(3)",
        "CREATE TABLE IF NOT EXISTS {}i": "AS SELECT id FROM range(3)",
        "CREATE OR REPLACE TABLE {}r": "AS SELECT id FROM range(3)",
    }

    def run(statement: str) -> str | None:
        try:
            catalog.spark.sql(statement)
        except AnalysisException as error:
            return str(error.getCondition())
        return None

    for create, rest in statements.items():
        with ThreadPoolExecutor(3) as threads:
            conditions = list(threads.map(run, [f"{create.format(table)} {rest}"] * 3))
        name = create.format(table).split()[-1]
        assert catalog.spark.table(name).count() == (0 if "BIGINT" in rest else 3)
        if "NOT EXISTS" in create:
            assert conditions == [None] * 3
        elif "REPLACE" in create:
            assert None in conditions
            assert {*conditions} <= {None, "LANCE_COMMIT_CONFLICT"}
        else:
            assert sorted(conditions, key=str) == [None, *["TABLE_OR_VIEW_ALREADY_EXISTS"] * 2]


@pytest.mark.parametrize("name", ["overtaken", "space.overtaken"])
@pytest.mark.parametrize("mode", ["create", "create_or_replace"])
def test_another_client_creates_the_table_before_its_name_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, mode: str
) -> None:
    """CREATE OR REPLACE TABLE replaces that table; CREATE TABLE gets the error of a table."""
    *namespace, table = name.split(".")
    if namespace:
        DirectoryNamespace(str(tmp_path)).create_namespace(tuple(namespace))
    arguments = {
        "catalog": {"root": str(tmp_path)},
        "warehouse": str(tmp_path),
        "default_provider": "lance",
        "namespace": namespace,
        "name": table,
        "properties": {},
        "partitions": [],
        "constraints": [],
        "mode": mode,
    }
    looked_for: list[tuple[str, ...]] = []
    describe = DirectoryNamespace.describe_table

    def overtaken(self: DirectoryNamespace, identifier: tuple[str, ...]) -> TableEntry:
        looked_for.append(identifier)
        if len(looked_for) > 1:
            return describe(self, identifier)
        with pytest.raises(TableNotFoundError) as error:
            describe(self, identifier)
        entry = self.new_table(identifier)
        write_dataset(pa.table({"id": [1]}), entry.location)
        self.register_table(identifier, entry)
        raise error.value

    monkeypatch.setattr(DirectoryNamespace, "describe_table", overtaken)
    if mode == "create":
        with pytest.raises(TableExistsError, match="overtaken exists already"):
            stage_table(arguments)
    else:
        staged = stage_table(arguments)
        assert staged["state"]["exists"]
        monkeypatch.undo()
        entry = DirectoryNamespace(str(tmp_path)).describe_table((*namespace, table))
        assert staged["state"]["location"] == entry.location


def test_columns_of_empty_arrays_and_maps(catalog: TestCatalog) -> None:
    """Spark's types of `array()` and `map()` are void, and must not be null."""
    spark, path = catalog.spark, str(catalog.root / "empty_path.lance")
    frame = spark.range(2).selectExpr(
        "id", "array() AS a", "map() AS m", "named_struct('a', array(array()), 'm', map()) AS s"
    )
    frame.write.format("lance").save(path)
    frame.writeTo(f"{NAME}.empty_name").create()
    catalog.sql("CREATE TABLE CAT.empty_typed (id BIGINT, a ARRAY<STRING>, m MAP<INT, STRING>)")
    frame.select("id", "a", "m").writeTo(f"{NAME}.empty_typed").append()
    empty = {"a": [], "m": [], "s": {"a": [[]], "m": []}}
    for name in ("empty_path", "empty_name"):
        assert [row | {"id": 0} for row in catalog.rows(name)] == [{"id": 0, **empty}] * 2
        assert [row.m for row in spark.table(f"{NAME}.{name}").collect()] == [{}, {}]
    assert [row["m"] for row in catalog.rows("empty_typed")] == [[], []]
    described = spark.read.format("lance").load(path).drop("s").schema.simpleString()
    assert described == "struct<id:bigint,a:array<void>,m:map<string,void>>"
