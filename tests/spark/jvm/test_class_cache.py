"""Compiled classes are taken from a folder only if this user alone can have written them."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lance_spark.spark.jvm import classes
from lance_spark.spark.jvm import classes as class_cache

NAME = f"key{class_cache._SUFFIX}"
JAR = b"classes" * 1000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "cache" / "classes"
    class_cache.store(folder, NAME, JAR)
    assert class_cache.load(folder, NAME) == JAR
    assert folder.stat().st_mode & 0o777 == 0o700
    assert [path.name for path in folder.iterdir()] == [NAME]
    return folder


def damage(folder: Path) -> None:
    data = bytearray((folder / NAME).read_bytes())
    data[-1] ^= 1
    (folder / NAME).write_bytes(data)


def truncate(folder: Path) -> None:
    os.truncate(folder / NAME, 100)


def forge(folder: Path) -> None:
    """Another key's file under this name."""
    class_cache.store(folder, f"other{class_cache._SUFFIX}", JAR)
    os.replace(folder / f"other{class_cache._SUFFIX}", folder / NAME)


def link(folder: Path) -> None:
    os.rename(folder / NAME, folder / "elsewhere")
    os.symlink(folder / "elsewhere", folder / NAME)


def link_folder(folder: Path) -> None:
    os.rename(folder, folder.with_name("elsewhere"))
    os.symlink(folder.with_name("elsewhere"), folder)


def make_pipe(folder: Path) -> None:
    os.remove(folder / NAME)
    os.mkfifo(folder / NAME)


DOUBTS: list[Callable[[Path], Any]] = [
    damage,
    truncate,
    forge,
    link,
    link_folder,
    make_pipe,
    lambda folder: (folder / NAME).chmod(0o620),
    lambda folder: (folder / NAME).chmod(0o602),
    lambda folder: folder.chmod(0o770),
    lambda folder: folder.chmod(0o707),
    lambda folder: (folder / NAME).unlink(),
]


@pytest.mark.parametrize("change", DOUBTS)
def test_a_doubtful_file_does_not_count(folder: Path, change: Callable[[Path], Any]) -> None:
    change(folder)
    assert class_cache.load(folder, NAME) is None


def test_files_of_another_user_do_not_count(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert class_cache.load(folder, NAME) is None
    class_cache.store(folder, "other", JAR)
    assert not (folder / "other").exists()


def test_what_cannot_be_written_is_left_out(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class_cache.store(Path("/dev/null/folder"), NAME, JAR)
    folder.chmod(0o770)
    class_cache.store(folder, "other", JAR)
    folder.chmod(0o700)

    def fail(*_: object) -> None:
        raise OSError(28, "no space left on device")

    monkeypatch.setattr(os, "replace", fail)
    class_cache.store(folder, "other", JAR)
    assert [path.name for path in folder.iterdir()] == [NAME]


def test_old_files_are_deleted(folder: Path) -> None:
    (folder / f".left{class_cache._SUFFIX}").touch()
    for path in folder.iterdir():
        os.utime(path, (1, 1))
    (folder / f".written-now{class_cache._SUFFIX}").touch()
    names = [f"{key}{class_cache._SUFFIX}" for key in range(class_cache._KEPT)]
    for name in names:
        class_cache.store(folder, name, JAR)
    left = sorted(path.name for path in folder.iterdir())
    assert left == sorted([*names, f".written-now{class_cache._SUFFIX}"])


def test_the_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(class_cache.VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/caches")
    assert class_cache.folder() == Path("/caches/lance_spark/classes")
    for relative in ("", "caches"):
        monkeypatch.setenv("XDG_CACHE_HOME", relative)
        assert class_cache.folder() == Path.home() / ".cache/lance_spark/classes"
    monkeypatch.setenv(class_cache.VARIABLE, "/other")
    assert class_cache.folder() == Path("/other")
    assert class_cache.folder("/of/session") == Path("/of/session")
    for off in ("off", "OFF", "", "relative"):
        assert class_cache.folder(off) is None
        monkeypatch.setenv(class_cache.VARIABLE, off)
        assert class_cache.folder() is None


def test_classes_are_compiled_once(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jvm, loader = spark._jvm, classes._spark_loader(spark)
    compiled: list[int] = []
    compile_sources = classes._compile

    def count(*arguments: Any) -> bytes:
        compiled.append(1)
        return compile_sources(*arguments)

    monkeypatch.setattr(classes, "_compile", count)

    def jar(cache: Path | None, *files: str) -> bytes:
        return classes.class_jar(jvm, loader, cache, files or ("Log.java",))

    first = jar(tmp_path)
    assert jar(tmp_path) == first
    assert len(compiled) == 1
    # The cache is off; other sources; another release; a loader that may find other classes.
    assert jar(None) == first
    assert "org/lancespark/Answer.class" in classes._unzip(jar(tmp_path, "Answer.java"))
    monkeypatch.setattr(class_cache, "__version__", "other")
    assert jar(tmp_path) == first
    assert len(compiled) == 4
    urls = spark.sparkContext._gateway.new_array(jvm.java.net.URL, 0)
    other = jvm.java.net.URLClassLoader(urls, loader)
    assert classes.class_jar(jvm, other, tmp_path, ("Log.java",)) == first
    assert len(compiled) == 5
