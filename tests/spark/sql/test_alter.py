"""ALTER TABLE: pylance reads the changed table, and the number of versions of a statement."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException

from tests.spark.sql.catalogs import TestCatalog
from tests.support.spark.versions import SPARK

NAME = "altered"

#: Columns of the table that each case changes, and its rows.
COLUMNS = "id BIGINT, name STRING COMMENT 'a name', s STRUCT<x: INT, y: STRING>, l ARRAY<STRUCT<p: INT, q: INT>>"
VALUES = "(1, 'a', named_struct('x', 1, 'y', 'p'), array(named_struct('p', 1, 'q', 2))), (2, NULL, NULL, NULL)"
ROWS = [
    {"id": 1, "name": "a", "s": {"x": 1, "y": "p"}, "l": [{"p": 1, "q": 2}]},
    {"id": 2, "name": None, "s": None, "l": None},
]
UTC = datetime.UTC


def with_columns(**columns: Any) -> list[dict[str, Any]]:
    return [{**row, **columns} for row in ROWS]


#: The change, the rows afterwards in the order of their columns, and the number of versions.
CHANGES = {
    "add": ("ADD COLUMNS (a INT, b STRUCT<c: INT>)", with_columns(a=None, b=None), 1),
    "add first": ("ADD COLUMN a INT FIRST", [{"a": None, **row} for row in ROWS], 2),
    "add after": (
        "ADD COLUMNS (a INT AFTER ID, b INT AFTER a)",
        [{"id": row["id"], "a": None, "b": None, **row} for row in ROWS],
        2,
    ),
    "add with defaults": (
        "ADD COLUMNS (a INT DEFAULT 5, b STRING DEFAULT 'x\\'y', c DECIMAL(5, 2) DEFAULT 1.5, d INT, "
        "e DATE DEFAULT DATE '2020-02-03', f DOUBLE DEFAULT 1e300, g BOOLEAN DEFAULT true, "
        "h TIMESTAMP_NTZ DEFAULT TIMESTAMP_NTZ '2020-02-03 04:05:06.000007', "
        "i BINARY DEFAULT X'00FF', j TINYINT DEFAULT -1, k INT DEFAULT 1 + 1)",
        with_columns(
            a=5,
            b="x'y",
            c=Decimal("1.50"),
            d=None,
            e=datetime.date(2020, 2, 3),
            f=1e300,
            g=True,
            h=datetime.datetime(2020, 2, 3, 4, 5, 6, 7),
            i=b"\x00\xff",
            j=-1,
            k=2,
        ),
        1,
    ),
    "add required with default": ("ADD COLUMN a INT NOT NULL DEFAULT 5", with_columns(a=5), 1),
    "add child": (
        "ADD COLUMNS (s.z INT, S.w STRUCT<v: INT>)",
        [{**ROWS[0], "s": {"x": 1, "y": "p", "z": None, "w": None}}, ROWS[1]],
        1,
    ),
    "rename": (
        "RENAME COLUMN NAME TO Title",
        [{"id": r["id"], "Title": r["name"], "s": r["s"], "l": r["l"]} for r in ROWS],
        1,
    ),
    "rename child": (
        "RENAME COLUMN s.X TO xx",
        [{**ROWS[0], "s": {"xx": 1, "y": "p"}}, ROWS[1]],
        1,
    ),
    "rename in array": (
        "RENAME COLUMN l.element.p TO pp",
        [{**ROWS[0], "l": [{"pp": 1, "q": 2}]}, ROWS[1]],
        1,
    ),
    "drop": ("DROP COLUMNS (id, S)", [{"name": r["name"], "l": r["l"]} for r in ROWS], 1),
    "drop child": ("DROP COLUMN s.y", [{**ROWS[0], "s": {"x": 1}}, ROWS[1]], 1),
    "drop in array": ("DROP COLUMN l.element.p", [{**ROWS[0], "l": [{"q": 2}]}, ROWS[1]], 1),
    "drop absent": ("DROP COLUMN IF EXISTS nope", ROWS, 0),
    "first": ("ALTER COLUMN s FIRST", [{"s": row["s"], **row} for row in ROWS], 1),
    "after": (
        "ALTER COLUMN s AFTER ID",
        [{"id": row["id"], "s": row["s"], **row} for row in ROWS],
        1,
    ),
    "after itself": ("ALTER COLUMN name AFTER id", ROWS, 0),
}


@pytest.fixture
def table(catalog: TestCatalog) -> TestCatalog:
    """The catalog with a new table `t`."""
    catalog.run(
        [f"CREATE OR REPLACE TABLE CAT.t ({COLUMNS})", f"INSERT INTO CAT.t VALUES {VALUES}"]
    )
    return catalog


@pytest.mark.sample(5)
@pytest.mark.parametrize("case", CHANGES, ids=str)
def test_changes_of_columns(table: TestCatalog, case: str) -> None:
    change, expected, versions = CHANGES[case]
    before = table.pylance("t").version
    table.sql(f"ALTER TABLE CAT.t {change}")

    rows = table.rows("t")
    assert rows == expected
    assert list(rows[0]) == list(expected[0])
    assert table.pylance("t").version - before == versions
    table.pylance("t").validate()
    assert [row.asDict(recursive=True) for row in table.sql("SELECT * FROM CAT.t")] == expected


def test_types(catalog: TestCatalog) -> None:
    catalog.run(
        [
            "CREATE OR REPLACE TABLE CAT.n (i INT, f FLOAT, d DECIMAL(5, 2), s STRUCT<x: INT>, "
            "l ARRAY<INT>, day DATE, v ARRAY<FLOAT>) TBLPROPERTIES ('v.arrow.fixed-size-list.size' = '2')",
            "INSERT INTO CAT.n VALUES (1, 1.5, 2.25, named_struct('x', 1), array(1, NULL), "
            "DATE '2020-02-03', array(1, 2))",
        ]
    )
    before = catalog.pylance("n").version
    for column, dtype in {
        "i": "BIGINT",
        "f": "DOUBLE",
        "d": "DECIMAL(10, 2)",
        "s.x": "BIGINT",
        "l.element": "BIGINT",
        "day": "TIMESTAMP_NTZ",
        "v.element": "DOUBLE",
    }.items():
        catalog.sql(f"ALTER TABLE CAT.n ALTER COLUMN {column} TYPE {dtype}")
    changed = catalog.pylance("n")
    assert changed.version - before == 7
    types = {field.name: field.type for field in changed.schema}
    assert types == {
        "i": pa.int64(),
        "f": pa.float64(),
        "d": pa.decimal128(10, 2),
        "s": pa.struct([("x", pa.int64())]),
        "l": pa.list_(pa.int64()),
        "day": pa.timestamp("us"),
        "v": pa.list_(pa.float64(), 2),
    }
    assert catalog.rows("n") == [
        {
            "i": 1,
            "f": 1.5,
            "d": Decimal("2.25"),
            "s": {"x": 1},
            "l": [1, None],
            "day": datetime.datetime(2020, 2, 3),
            "v": [1.0, 2.0],
        }
    ]


def test_an_array_becomes_a_vector_by_a_property(table: TestCatalog) -> None:
    table.run(
        [
            "ALTER TABLE CAT.t ADD COLUMN e ARRAY<FLOAT>",
            "ALTER TABLE CAT.t SET TBLPROPERTIES ('E.arrow.fixed-size-list.size' = '3')",
            "INSERT INTO CAT.t VALUES (3, NULL, NULL, NULL, array(1, 2, 3))",
        ]
    )
    assert table.pylance("t").schema.field("e").type == pa.list_(pa.float32(), 3)
    assert [row["e"] for row in table.rows("t")] == [None, None, [1.0, 2.0, 3.0]]


def test_comments_and_defaults(table: TestCatalog) -> None:
    table.run(
        [
            "ALTER TABLE CAT.t ADD COLUMNS (a INT COMMENT 'an a' DEFAULT 5)",
            "ALTER TABLE CAT.t ADD COLUMN s.z STRUCT<v: INT COMMENT 'a v'> COMMENT 'a z'",
            "ALTER TABLE CAT.t ALTER COLUMN s.x COMMENT 'an x'",
            "ALTER TABLE CAT.t ALTER COLUMN name COMMENT 'the name'",
            "ALTER TABLE CAT.t ALTER COLUMN name SET DEFAULT upper('n')",
        ]
    )
    described = {row.col_name: row.comment for row in table.sql("DESCRIBE CAT.t")}
    assert described == {"id": None, "name": "the name", "s": None, "l": None, "a": "an a"}
    (s,) = (field for field in table.spark.table(f"{table.name}.t").schema if field.name == "s")
    assert [child.metadata.get("comment") for child in s.dataType] == ["an x", None, "a z"]
    assert s.dataType["z"].dataType["v"].metadata["comment"] == "a v"
    field = table.pylance("t").schema.field("a")
    assert field.metadata == {b"comment": b"an a", b"spark.sql.default": b"5"}

    table.run(
        [
            "INSERT INTO CAT.t VALUES (3, DEFAULT, NULL, NULL, DEFAULT)",
            "ALTER TABLE CAT.t ALTER COLUMN a DROP DEFAULT",
            "INSERT INTO CAT.t VALUES (4, 'd', NULL, NULL, DEFAULT)",
        ]
    )
    added = [(row["id"], row["name"], row["a"]) for row in table.rows("t")]
    assert added == [(1, "a", 5), (2, None, 5), (3, "N", 5), (4, "d", None)]


def test_nullability(catalog: TestCatalog) -> None:
    catalog.run(
        [
            "CREATE OR REPLACE TABLE CAT.r (id INT NOT NULL)",
            "ALTER TABLE CAT.r ALTER COLUMN id DROP NOT NULL",
            "INSERT INTO CAT.r VALUES (NULL)",
        ]
    )
    assert catalog.rows("r") == [{"id": None}]
    # Spark refuses this itself: it does not check whether the table has nulls.
    assert "nullable" in catalog.refusal("ALTER TABLE CAT.r ALTER COLUMN id SET NOT NULL")


def test_properties(table: TestCatalog) -> None:
    before = table.pylance("t").version
    table.sql(
        "ALTER TABLE CAT.t SET TBLPROPERTIES ('a' = '1', 'b' = '2', 'lance.auto_cleanup.interval' = '9')"
    )
    table.sql("ALTER TABLE CAT.t UNSET TBLPROPERTIES IF EXISTS ('a', 'nope')")
    table.sql("COMMENT ON TABLE CAT.t IS 'a table'")
    shown = dict(table.sql("SHOW TBLPROPERTIES CAT.t"))
    assert shown["b"] == "2"
    assert shown["lance.auto_cleanup.interval"] == "9"
    assert "a" not in shown
    extended = dict(row[:2] for row in table.sql("DESCRIBE EXTENDED CAT.t"))
    assert extended["Comment"] == "a table"
    dataset = table.pylance("t")
    assert dataset.version - before == 3
    assert dataset.config()["lance.auto_cleanup.interval"] == "9"
    assert dataset.metadata == {"b": "2", "comment": "a table"}


def test_properties_of_columns_that_are_added_later(catalog: TestCatalog) -> None:
    """pylance reads blobs and vectors, in columns and in fields of structs and arrays."""
    nested = "s STRUCT<v: ARRAY<FLOAT>, b: BINARY>, a ARRAY<STRUCT<v: ARRAY<FLOAT>, b: BINARY>>"
    new = "b.lance.encoding' = 'blob', 'v.arrow.fixed-size-list.size' = '2"
    catalog.run(
        [
            f"CREATE TABLE CAT.later (id INT, {nested}) TBLPROPERTIES "
            "('s.v.arrow.fixed-size-list.size' = '2', 'S.b.lance.encoding' = 'blob', "
            "'a.element.v.arrow.fixed-size-list.size' = '2', 'a.element.b.lance.encoding' = 'blob')",
            "INSERT INTO CAT.later SELECT 1, s, array(s) FROM "
            "(SELECT named_struct('v', array(1f, 2f), 'b', X'01') AS s)",
            f"ALTER TABLE CAT.later SET TBLPROPERTIES ('{new}', 'c.lance.encoding' = 'blob')",
            "CREATE OR REPLACE TEMP VIEW added AS "
            "SELECT _rowaddr, X'02' AS b, array(3f, 4f) AS v FROM CAT.later",
            "ALTER TABLE CAT.later ADD COLUMNS b, v FROM added",
            "ALTER TABLE CAT.later SET TBLPROPERTIES ('b.lance.encoding' = 'blob')",
            "ALTER TABLE CAT.later ADD COLUMNS (c BINARY)",
            "ALTER TABLE CAT.later UNSET TBLPROPERTIES ('gone.lance.encoding')",
        ]
    )
    dataset = catalog.pylance("later")
    item = {"v": [1.0, 2.0], "b": b"\x01"}
    row = {"id": 1, "s": item, "a": [item], "b": b"\x02", "v": [3.0, 4.0], "c": None}
    assert dataset.to_table(blob_handling="all_binary").to_pylist() == [row]
    schema, vector = dataset.schema, pa.list_(pa.float32(), 2)
    for parent in (schema, schema.field("s").type, schema.field("a").type.value_type):
        assert parent.field("v").type == vector
        assert "blob" in str(parent.field("b").type)
    assert "blob" in str(schema.field("c").type)
    if SPARK >= (4, 2):
        catalog.run(
            [
                "ALTER TABLE CAT.later SET TBLPROPERTIES ('d.lance.encoding' = 'blob')",
                "CREATE TABLE CAT.alike LIKE CAT.later",
            ]
        )
        assert catalog.pylance("alike").schema.types == schema.types
    for column, problem in {
        "s.w": "s.w, which is not a field of s",
        "i.v": "has no fields",
    }.items():
        refusal = catalog.refusal(
            "CREATE TABLE CAT.wrong (i INT, s STRUCT<v: INT>) "
            f"TBLPROPERTIES ('{column}.lance.encoding' = 'blob')"
        )
        assert problem in refusal


REFUSED = {
    "SET TBLPROPERTIES ('data_storage_version' = '2.0')": "property data_storage_version cannot be changed",
    "SET TBLPROPERTIES ('name.lance.encoding' = 'blob')": "options of the column name cannot be changed",
    "SET TBLPROPERTIES ('nope.lance.encoding' = 'zip')": "nope.lance.encoding must be blob",
    "SET TBLPROPERTIES ('s.nope.arrow.float16' = 'true')": "column s.nope was not found",
    "ADD COLUMN l.element.z INT": "structs inside arrays and maps cannot get new fields",
    "ADD COLUMN s.z INT FIRST": "FIRST and AFTER apply to columns",
    "ADD COLUMN a INT NOT NULL": "column 'a' must not be null",
    "ADD COLUMN a ARRAY<INT> DEFAULT array(1)": "the new column a cannot have a default of type array<int>",
    "ADD COLUMN `a.b` INT": "the statement has a column 'a.b'",
    "ADD COLUMN NAME INT": "[FIELD_ALREADY_EXISTS]",
    "ALTER COLUMN name AFTER name": "column name cannot be moved behind itself",
    "ALTER COLUMN id TYPE STRING": "column 'id' cannot be cast from int64 to string",
    "REPLACE COLUMNS (a INT)": "values of all columns would be lost by REPLACE COLUMNS",
    "DROP COLUMNS (id, name, s, l)": "cannot drop all columns",
    "DROP COLUMN nope": "[UNRESOLVED_COLUMN.WITH_SUGGESTION]",
}


def test_refusals_change_nothing(table: TestCatalog) -> None:
    before = table.pylance("t").version
    for change, message in REFUSED.items():
        assert message in table.refusal(f"ALTER TABLE CAT.t {change}")
    assert table.pylance("t").version == before


def test_properties_of_creation_can_be_set_to_their_values(catalog: TestCatalog) -> None:
    """Pipelines of Spark before 4.3 set the provider of their tables in each run."""
    catalog.sql("CREATE TABLE CAT.again (id INT) TBLPROPERTIES ('data_storage_version' = '2.1')")
    before = catalog.pylance("again").version
    catalog.sql("ALTER TABLE CAT.again SET TBLPROPERTIES ('data_storage_version' = '2.1')")
    spark = catalog.spark
    interfaces = spark._jvm.org.apache.spark.sql.connector.catalog
    gateway = spark.sparkContext._gateway
    table = interfaces.Identifier.of(gateway.new_array(gateway.jvm.String, 0), "again")
    manager = spark._jsparkSession.sessionState().catalogManager()

    def set_provider(provider: str) -> None:
        changes = gateway.new_array(interfaces.TableChange, 1)
        changes[0] = interfaces.TableChange.setProperty("provider", provider)
        manager.catalog(catalog.name).alterTable(table, changes)

    set_provider("lance")
    with pytest.raises(AnalysisException, match="property provider cannot be changed"):
        set_provider("parquet")
    assert catalog.pylance("again").version == before


def test_dates_do_not_become_points_in_time(catalog: TestCatalog) -> None:
    catalog.sql("CREATE OR REPLACE TABLE CAT.d (day DATE, at TIMESTAMP_NTZ)")
    for column in "day", "at":
        refusal = catalog.refusal(f"ALTER TABLE CAT.d ALTER COLUMN {column} TYPE TIMESTAMP")
        assert "depend on a time zone" in refusal
