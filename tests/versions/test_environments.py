"""What `make test-versions` names exists."""

from __future__ import annotations

from tests.release.__main__ import ROOT
from tests.tools.__main__ import name_of
from tests.versions.__main__ import NEWER, PROJECT, SPARK


def test_modules_and_packages_exist() -> None:
    assert all((ROOT / module).is_file() for module in SPARK)
    assert set(map(name_of, PROJECT["optional-dependencies"]["test"])) >= NEWER
