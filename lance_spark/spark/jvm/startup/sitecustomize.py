"""What Python runs first in Spark's Python processes for this format, and in no others.

Spark puts `pyspark.zip` first on the path of each Python process. Python compiles the modules of an
archive in each process again, which takes three times as long as all else that the process does
before its first row. pyspark is mostly installed as a folder, too, with compiled modules. So where
Python would take a package from the archive, it takes the same release from the folder. All else is
as it would be: the path, the variables, and another module `sitecustomize`.

Each process of Spark for this format runs this, and executors may have other packages than the
driver: it imports nothing of this package, and leaves Python as it is where something is missing.
"""

from __future__ import annotations

import os
import sys
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import cache_from_source, module_from_spec, spec_from_file_location
from typing import Any
from zipimport import zipimporter

_FOLDER = os.path.dirname(os.path.abspath(__file__))
_PACKAGES = ("pyspark", "py4j")


class _Installed:
    """Finds packages of Spark's archives in the folders where they are installed."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return the package of the folder; None for what Python does not find in an archive."""
        if path is not None or name not in _PACKAGES:
            return None
        found = PathFinder.find_spec(name)
        if found is None or not isinstance(found.loader, zipimporter):
            return None
        folder = _folder(name, found.loader)
        if folder is None:
            return None
        init = os.path.join(folder, "__init__.py")
        return spec_from_file_location(name, init, submodule_search_locations=[folder])


def _folder(name: str, archive: zipimporter) -> str | None:
    """Return the folder of the release that an archive has; None without compiled modules."""
    # HOME/python/lib/pyspark.zip
    home = os.path.dirname(os.path.dirname(os.path.dirname(archive.archive)))
    # Installed by pip, the home is the package; a distribution of Spark has a folder.
    folders = [os.path.join(os.path.dirname(home), name), os.path.join(home, "python", name)]
    for folder in folders:
        try:
            with open(os.path.join(folder, "version.py"), "rb") as file:
                is_same = file.read() == archive.get_data(os.path.join(name, "version.py"))
        except (OSError, ValueError):
            continue
        if is_same and os.path.exists(cache_from_source(os.path.join(folder, "__init__.py"))):
            return folder
    return None


def _run_other() -> None:
    """Leave no trace on the path, and run the module that Python would have run."""
    sys.path[:] = [path for path in sys.path if os.path.abspath(path) != _FOLDER]
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in paths if path != _FOLDER)
    other = PathFinder.find_spec(__name__)
    if other is not None and other.loader is not None:
        module = sys.modules[__name__] = module_from_spec(other)
        other.loader.exec_module(module)


sys.meta_path.insert(0, _Installed)
_run_other()
