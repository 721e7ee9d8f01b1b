"""A catalog for the tests of a module, and reads of its tables by pylance."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lance

import lance_spark


@dataclass(frozen=True)
class TestCatalog:
    """A catalog of a session, whose tables are in a folder."""

    __test__ = False

    spark: Any
    name: str
    root: Path

    @classmethod
    def of(cls, spark: Any, name: str, root: Path, **options: str) -> TestCatalog:
        """Enable a catalog without tables.

        Spark reads the options of a name once for each session. A worker of xdist that sets up a
        module again therefore gets the folder of the first time.
        """
        known = spark.conf.get(f"spark.sql.catalog.{name}.root", None)
        if known is not None:
            root = Path(known)
            shutil.rmtree(root)
            root.mkdir()
        lance_spark.enable(spark, name, root=str(root), **options)
        return cls(spark, name, root)

    def sql(self, statement: str) -> list[Any]:
        """Run a statement, in which `CAT` is the catalog, and return its rows."""
        rows: list[Any] = self.spark.sql(statement.replace("CAT.", f"{self.name}.")).collect()
        return rows

    def run(self, statements: Sequence[str]) -> list[Any]:
        """Run statements, and return the rows of the last one."""
        rows: list[Any] = []
        for statement in statements:
            rows = self.sql(statement)
        return rows

    def refusal(self, statement: str) -> str:
        """Return the first line of the error of a statement that fails while it is analysed."""
        from pyspark.errors import AnalysisException

        try:
            self.sql(statement)
        except AnalysisException as error:
            text = str(error)
            assert "Traceback" not in text
            assert ".py" not in text
            return text.partition("\n")[0]
        raise AssertionError(f"{statement} did not fail")

    def pylance(self, table: str) -> Any:
        """Open a table of the root namespace by pylance."""
        return lance.dataset(str(self.root / f"{table}.lance"))

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Return the rows of a table as pylance reads them."""
        rows: list[dict[str, Any]] = self.pylance(table).to_table().to_pylist()
        return rows
