"""What Spark and pyspark have to have for `lance_spark/spark/jvm/shims`.

A release of Spark that lacks something fails the test of it, which names the lines that use it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pyspark
import pytest

import lance_spark
from lance_spark.spark.jvm import classes
from lance_spark.spark.jvm.shims import pyspark_names
from lance_spark.spark.table.merge import join
from tests.support.spark import private_names
from tests.support.spark.versions import SPARK

JVM = Path(lance_spark.__file__).parent / "spark" / "jvm"
SHIMS = JVM / "shims"
FIELDS = dict(
    re.findall(
        r'SparkField (\w+) =\s+new SparkField\("(\w+)"\)', (SHIMS / "SparkField.java").read_text()
    )
)
CLASSES = {
    *re.findall(r'"(\w+)"', (SHIMS / "SparkClasses.java").read_text()),
    *(join._FIXED | join._CHEAP),
}
#: What only the shims may have.
PRIVATE = {
    ".java": r"java\.lang\.reflect\.(?:Constructor|Field)|getDeclared|setAccessible|getSimpleName"
    r"|productElement|\$\$",
    ".py": r"\._(?:jvm|gateway|jdf|jsc|jsparkSession|jconf|instantiatedSession|accumulatorServer)\b"
    r"|(?:import|from) py4j|pyspark\.(?:java_gateway|find_spark_home)|pyspark\.__version__",
}


def uses(text: str) -> str:
    """Return the places of a text in the Java sources."""
    places = [
        f"{path.name}:{number}"
        for path in sorted(JVM.rglob("*.java"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if text in line
    ]
    return f"Spark {pyspark.__version__} lacks what these lines need: {', '.join(places)}"


@pytest.fixture(scope="module")
def load(spark: Any) -> Any:
    """Return a class of Spark by its name; None if there is none."""
    jvm = pyspark_names.jvm_of(spark)
    loader = jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader()

    def load(name: str) -> Any:
        try:
            return jvm.java.lang.Class.forName(name, False, loader)
        except pyspark_names.java_error():
            return None

    return load


def declares(owner: Any, field: str) -> bool:
    while owner is not None:
        if any(candidate.getName() == field for candidate in owner.getDeclaredFields()):
            return True
        owner = owner.getSuperclass()
    return False


def test_each_private_name_is_in_the_table() -> None:
    assert set(FIELDS) == set(private_names.FIELDS)


def test_fields_of_case_classes(load: Any) -> None:
    for constant, owners in private_names.FIELDS.items():
        for entry in owners:
            since, owner = (
                (entry.release, entry.name)
                if isinstance(entry, private_names.Since)
                else (SPARK, entry)
            )
            if since <= SPARK:
                assert declares(load(owner), FIELDS[constant]), (
                    f"{owner}.{FIELDS[constant]}. {uses(f'SparkField.{constant}')}"
                )


def test_classes_that_are_told_apart_by_name(spark: Any) -> None:
    jvm = pyspark_names.jvm_of(spark)
    loader = jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader()

    def has_file(name: str) -> bool:
        return loader.getResource(f"{name}.class") is not None

    for name in sorted(CLASSES):
        if private_names.LATER_CLASSES.get(name, SPARK) <= SPARK:
            # An exception for each package without the class would take seconds.
            files = (f"{package}.{name}".replace(".", "/") for package in private_names.PACKAGES)
            assert any(map(has_file, files)), f"{name}. {uses(name)}"


def test_members_by_reflection(spark: Any, load: Any) -> None:
    for entry, name, parameters in private_names.MEMBERS:
        owner = entry.name if isinstance(entry, private_names.Since) else entry
        if isinstance(entry, private_names.Since) and entry.release > SPARK:
            continue
        if parameters is None:
            assert declares(load(owner), name), f"{owner}.{name}. {uses(name)}"
        else:
            signatures = [
                [parameter.getName() for parameter in method.getParameterTypes()]
                for method in load(owner).getMethods()
                if method.getName() == name
            ]
            assert list(parameters) in signatures, f"{owner}.{name}. {uses(name)}"
    analyzer = pyspark_names.java_session(spark).sessionState().analyzer().getClass()
    for name in private_names.ANALYZER:
        fields = [field.getName() for field in analyzer.getDeclaredFields()]
        assert name in fields, uses(name)


def test_each_release_has_a_class() -> None:
    releases = range(pyspark_names.FIRST[1], pyspark_names.LAST[1] + 1)
    assert {folder.name for folder in SHIMS.glob("4.*")} == {f"4.{minor}" for minor in releases}
    assert pyspark_names.is_supported(pyspark.__version__)
    for minor in releases:
        sources = classes.sources_of(f"4.{minor}.1")
        assert f'VERSION = "4.{minor}"' in sources["org/lancespark/SparkRelease.java"]
    assert not any(map(pyspark_names.is_supported, ("3.5.1", "4.4.0", "5.0.0", "4", "x.y")))
    # The package requires the same releases, and messages in Java name them.
    project = (Path(lance_spark.__file__).parent.parent / "pyproject.toml").read_text()
    required = re.findall(r'"pyspark\[\w+\]([^"]+)"', project)
    assert required == [pyspark_names.requirement()] * 2
    constants = classes.sources_of("4.0.1")["org/lancespark/Constants.java"]
    assert f'"{pyspark_names.SUPPORTED}"' in constants


def test_private_names_stand_in_the_shims_only() -> None:
    package = Path(lance_spark.__file__).parent
    found = [
        f"{path.relative_to(package)}:{number}: {line.strip()}"
        for path in sorted(package.rglob("*"))
        if path.suffix in PRIVATE and SHIMS not in path.parents
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.search(PRIVATE[path.suffix], line)
    ]
    # The names of the public classes of Spark's interface are the words of the protocol.
    assert [line for line in found if "TableChanges.java" not in line] == []


def test_names_of_pyspark(spark: Any) -> None:
    for name, variables in pyspark_names.DRIVER_VARIABLES.items():
        owner = pyspark_names._driver_classes()[name]
        for variable in variables:
            assert hasattr(owner, variable), f"{name}.{variable}"
    home = Path(pyspark.__file__).parent
    steps = home / Path(*pyspark_names.PLANNING_MODULES.rstrip(".").split(".")[1:])
    for step in ("create_data_source", "plan_data_source_read", "write_into_data_source"):
        assert "\ndef main(" in (steps / f"{step}.py").read_text(), step
    assert "\ndef main(" in (home / "worker.py").read_text()
    assert list(home.rglob(pyspark_names.STREAM_PROGRAM))
    hiding = [
        path for path in home.rglob("*.py") if pyspark_names.HIDE_TRACEBACK in path.read_text()
    ]
    assert hiding
    assert pyspark_names.gateway_of(spark).jvm is not None
    assert pyspark_names.java_conf(spark).getAppId()
    frame = pyspark_names.java_frame(spark.range(1))
    assert frame.queryExecution().analyzed() is not None
    server, folder = pyspark_names.resources_of(spark.sparkContext)
    assert callable(server.shutdown)
    assert callable(server.server_close)
    assert Path(folder).exists()


def test_a_jvm_of_its_own_ends_with_its_use() -> None:
    with pyspark_names.bare_jvm() as jvm:
        process = jvm.java.lang.ProcessHandle.current().pid()
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)
