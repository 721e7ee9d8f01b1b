"""The package never unpickles, compiles, imports or runs the content of a table."""

from __future__ import annotations

import ast
from pathlib import Path

import lance_spark

PACKAGE = Path(lance_spark.__file__).parent
ROOTS = (PACKAGE, PACKAGE.parent / "pyspark_lance")
#: Calls, by the last part of their name.
CALLS = {
    "eval",
    "exec",
    "compile",
    "__import__",
    "import_module",
    "run_path",
    "run_module",
    "system",
    "popen",
    "Popen",
    "check_output",
    "CDLL",
    "Unpickler",
}
#: Modules that make objects, or programs, from bytes.
MODULES = {
    "pickle",
    "cPickle",
    "_pickle",
    "dill",
    "cloudpickle",
    "joblib",
    "marshal",
    "shelve",
    "yaml",
    "subprocess",
    "runpy",
    "code",
}
#: Functions of numpy and pandas that can unpickle.
PICKLING = {"load", "read_pickle", "allow_pickle"}

#: The file, and the name that it uses; the reason why the use is no danger.
ALLOWED = {
    ("_lazy.py", "import_module"): "names are those of the public API, given by the package",
    ("keywords.py", "eval"): "annotations of functions of this package, from its source",
    ("subjects.py", "import_module"): "names are those in the file and in the registry of indexes",
    ("worker.py", "import_module"): "modules of pyspark for steps of planning, named by the driver",
    ("encoding/v2_0/page.py", "import_module"): "names are those of a set in the file",
    ("encoding/v2_1/codec.py", "import_module"): "names are those of a dictionary in the file",
    ("spark/catalog/calls.py", "import_module"): "names are those of a dictionary in the file",
    (
        "spark/catalog/row_changes.py",
        "pickle",
    ): "results of the tasks of one statement, on their way to its commit",
    (
        "spark/job.py",
        "pickle",
    ): "tasks and results of one job: of its driver and its executors",
    ("spark/job.py", "cloudpickle"): "tasks of a job, on their way to its executors",
    (
        "spark/jvm/classes.py",
        "compile",
    ): "the Java compiler of Spark, on files of the package",
    (
        "spark/jvm/enable.py",
        "subprocess",
    ): "the Python that Spark is set to run its workers with",
    (
        "spark/types/recorded.py",
        "import_module",
    ): "classes of user-defined types, of Spark ML and of packages that the user names",
    (
        "storage/options.py",
        "import_module",
    ): "options that the user gives, never a table",
    ("storage/commit.py", "CDLL"): "the process itself, for a system call",
}


def used(path: Path) -> set[str]:
    """Return the names of these modules and functions that a module uses."""
    result = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            result |= {name.name.partition(".")[0] for name in node.names} & MODULES
        elif isinstance(node, ast.ImportFrom):
            names = {*(node.module or "").split("."), *(name.name for name in node.names)}
            # Modules call `re.compile` and similar functions.
            result |= names & (MODULES | {"import_module", "__import__"})
        elif isinstance(node, ast.Call):
            name = _called(node.func)
            if name in CALLS | {"allow_pickle"}:
                result.add(name)
            if any(item.arg in PICKLING for item in node.keywords):
                result.add("allow_pickle")
    return result


def _called(function: ast.expr) -> str:
    if isinstance(function, ast.Name):
        return function.id
    if isinstance(function, ast.Attribute):
        of = function.value
        if isinstance(of, ast.Name) and of.id in ("re", "pc") and function.attr == "compile":
            return ""
        if isinstance(of, ast.Name) and of.id == "np" and function.attr in PICKLING:
            return "allow_pickle"
        return function.attr
    return ""


def test_nothing_of_a_table_is_run() -> None:
    result = {
        (path.relative_to(root).as_posix(), name)
        for root in ROOTS
        for path in root.rglob("*.py")
        if "proto" not in path.parts
        for name in used(path)
    }
    assert result - set(ALLOWED) == set()
    assert len(result) > 3


def test_the_search_reports_calls_that_evaluate(tmp_path: Path) -> None:
    path = tmp_path / "m.py"
    for text, name in (
        ("import pickle", "pickle"),
        ("from pyspark import cloudpickle", "cloudpickle"),
        ("import yaml.loader", "yaml"),
        ("eval(text)", "eval"),
        ("builtins.exec(text)", "exec"),
        ("import numpy as np\nnp.load(path)", "allow_pickle"),
        ("numpy.lib.format.read_array(f, allow_pickle=True)", "allow_pickle"),
        ("os.system(text)", "system"),
    ):
        path.write_text(text)
        assert used(path) == {name}, text
    path.write_text("import re\nre.compile(text)")
    assert used(path) == set()
