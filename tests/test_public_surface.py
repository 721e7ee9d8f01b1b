"""The public API is declared, and tests/public_surface.txt shows all of it, so that reviews see
changes.
"""

from __future__ import annotations

import ast
from importlib import import_module
from pathlib import Path

import pytest

from tests.support import public_surface


def test_the_file_shows_the_public_api() -> None:
    written = public_surface.PATH.read_text()
    assert written == public_surface.surface(), "the public API changed: run `make pages`"


#: Modules that the packages import themselves.
_IMPORTED_AT_ONCE = ("lance_spark._lazy", "lance_spark._version")


@pytest.mark.parametrize("name", public_surface.MODULES)
def test_public_names_exist_and_others_do_not(name: str) -> None:
    module = import_module(name)
    for public in module.__all__:
        assert getattr(module, public) is not None
    with pytest.raises(AttributeError, match="nonsense"):
        _ = module.nonsense


@pytest.mark.parametrize("name", ["lance_spark", "lance_spark.dataset", "lance_spark.inspect"])
def test_types_and_lazy_imports_agree(name: str) -> None:
    """Users get the same names that type checkers import."""
    module = import_module(name)
    assert module.__file__ is not None
    imported = {}
    for node in ast.walk(ast.parse(Path(module.__file__).read_text())):
        if isinstance(node, ast.ImportFrom) and node.module not in _IMPORTED_AT_ONCE:
            imported.update({alias.name: node.module for alias in node.names})
    imported.pop("annotations")
    imported.pop("TYPE_CHECKING")
    assert set(imported) == set(module.__all__) - {"__version__"}
    for public, source in imported.items():
        assert getattr(module, public) is getattr(import_module(str(source)), public)
