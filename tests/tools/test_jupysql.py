"""JupySQL: the magics `%sql` and `%%sql` of notebooks, on the session."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pytest
from IPython.core.interactiveshell import InteractiveShell

from tests.support.pages import blocks_of
from tests.tools.results import PAGE


class Notebook:
    """A shell of IPython with the session, as a kernel of Jupyter has."""

    def __init__(self, spark: Any):
        self.shell = InteractiveShell.instance()
        self.shell.user_ns["spark"] = spark
        self.shell.run_line_magic("load_ext", "sql")
        self.shell.run_line_magic("sql", "spark")

    def sql(self, statement: str, line: str = "") -> Any:
        """Run a cell `%%sql`; return its result."""
        return self.shell.run_cell_magic("sql", line, statement)

    def rows(self, statement: str, line: str = "") -> list[tuple[Any, ...]]:
        frame = self.sql(statement, line).DataFrame()
        return [tuple(row) for row in frame.itertuples(index=False)]


@pytest.fixture(scope="module")
def notebook(spark: Any) -> Notebook:
    spark.sql("CREATE NAMESPACE IF NOT EXISTS lance.air")
    notebook = Notebook(spark)
    values = "VALUES (1, 'UA', 62), (2, 'DL', -3), (3, 'UA', 4) AS t(id, carrier, delay)"
    notebook.sql(f"CREATE TABLE lance.air.delays AS SELECT * FROM {values}")
    notebook.sql("CREATE TABLE own USING lance AS SELECT * FROM lance.air.delays WHERE id < 3")
    return notebook


def test_page(spark: Any, notebook: Notebook) -> None:
    """The lines above, as cells of a notebook."""
    (block,) = [block for block in blocks_of(PAGE) if block.tool == "jupysql"]
    notebook.shell.run_cell(block.code).raise_error()
    assert spark.table("lance.air.flights").count() == 5


def test_queries(notebook: Notebook) -> None:
    """Queries of tables of both catalogs, of an older version, and with variables of the notebook."""
    query = "SELECT d.id FROM lance.air.delays AS d JOIN own USING (id) ORDER BY id"
    assert notebook.rows(query) == [(1,), (2,)]
    notebook.sql("INSERT INTO own VALUES (7, 'WN', 1)")
    assert notebook.rows("SELECT count(*) AS n FROM own VERSION AS OF 1") == [(2,)]
    notebook.shell.user_ns["least"] = 10
    assert notebook.rows("SELECT id FROM lance.air.delays WHERE delay > {{least}}") == [(1,)]


def test_saved_queries(notebook: Notebook) -> None:
    """Queries that are saved under a name (`--save`), and read by others."""
    notebook.sql("SELECT * FROM lance.air.delays WHERE delay > 0", "--save late")
    assert notebook.rows("SELECT count(*) AS n FROM late") == [(2,)]


def test_statements(folder: Path, notebook: Notebook) -> None:
    """Changes, procedures, and statements such as `OPTIMIZE`; each runs once."""
    notebook.sql("CREATE TABLE lance.air.changed AS SELECT * FROM lance.air.delays")
    notebook.sql("INSERT INTO lance.air.changed VALUES (4, 'WN', NULL)")
    notebook.sql("UPDATE lance.air.changed SET delay = 0 WHERE delay < 0")
    notebook.sql("DELETE FROM lance.air.changed WHERE id = 1")
    notebook.sql(
        "MERGE INTO lance.air.changed t USING lance.air.delays s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET delay = s.delay + 1 WHEN NOT MATCHED THEN INSERT *"
    )
    index = "'air.changed', 'ids', 'BTREE', array('id')"
    notebook.sql(f"CALL lance.system.create_index({index})")
    (path,) = (folder / "lake").glob("*_air$changed")
    dataset = lance.dataset(str(path))
    dataset.validate()
    assert dataset.version == 6
    assert sorted(zip(*dataset.to_table(["id", "delay"]).to_pydict().values(), strict=True)) == [
        (1, 62),
        (2, -2),
        (3, 5),
        (4, None),
    ]
    assert notebook.rows("SHOW INDEXES IN lance.air.changed")[0][0] == "ids"
    notebook.sql("OPTIMIZE lance.air.changed")
    assert notebook.rows("DESCRIBE HISTORY lance.air.changed")[0][2] == "OPTIMIZE"


def test_lists(notebook: Notebook) -> None:
    """`%sqlcmd tables` and `%sqlcmd columns`."""
    with pytest.raises(NotImplementedError, match="SQLAlchemy"):
        notebook.shell.run_line_magic("sqlcmd", "tables")
    pytest.xfail("JupySQL has them for SQLAlchemy alone: `%sql SHOW TABLES IN lance.air`")
