"""Reports of `python -m lance_spark inspect`, compared with pylance."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.file import LanceFileReader

from lance_spark.__main__ import main
from lance_spark.dataset.dataset import open_dataset
from lance_spark.errors import InvalidInputError, VersionNotFoundError
from lance_spark.inspect.collect import facts_of
from lance_spark.inspect.formatting import clean, share, size
from lance_spark.inspect.html import MAX_BARS, as_html
from lance_spark.inspect.pages import UNREADABLE, encoding_of
from lance_spark.inspect.report import ColumnTotal, FileFacts
from lance_spark.inspect.text import as_text

ROOT = Path(__file__).parents[2]
ROWS = 2_500


def encoded(name: str, values: pa.Array, **hints: str) -> tuple[pa.Field, pa.Array]:
    metadata = {f"lance-encoding:{key.replace('_', '-')}": value for key, value in hints.items()}
    return pa.field(name, values.type, metadata=metadata), values


def table_of(version: str) -> pa.Table:
    """A column for each codec that a release writes by default or on request."""
    rng = np.random.default_rng(6)
    numbers = np.arange(ROWS)
    floats = pa.array(np.cumsum(rng.random(ROWS)))
    texts = pa.array([f"a text that goes on, number {i % 900}, {i * 7919}" for i in numbers])
    columns = [
        encoded("packed_bits", pa.array(numbers % 31)),
        encoded("runs", pa.array(numbers // 300), rle_threshold="0.9"),
        encoded("constant", pa.array(np.full(ROWS, 5))),
        encoded("random", pa.array(rng.integers(-(2**62), 2**62, ROWS))),
        encoded("words", pa.array([f"word {i % 9}" for i in numbers])),
        encoded("texts", texts),
        encoded("raw_texts", texts, compression="none"),
        encoded("zstd_texts", texts, compression="zstd"),
        encoded("flags", pa.array(numbers % 3 == 0)),
        encoded("nullable", pa.array([i if i % 3 else None for i in numbers.tolist()], pa.int32())),
        encoded("vectors", fixed_lists(rng.random(ROWS * 16).astype("f4"), 16)),
        encoded("wide", fixed_lists(rng.random(ROWS * 256).astype("f4"), 256)),
        encoded("lists", pa.array([[i] * (i % 4) for i in numbers.tolist()])),
        encoded("dictionary", pa.array([f"d{i % 5}" for i in numbers]).dictionary_encode()),
        encoded("binary", pa.array([bytes([i % 256]) * 8 for i in numbers], pa.binary(8))),
        encoded("structs", pa.array([{"a": i, "b": f"{i}"} for i in numbers.tolist()])),
    ]
    packed = pa.array([{"x": i, "y": i / 2} for i in numbers.tolist()])
    field = pa.field("packed", packed.type, metadata={"packed": "true"})
    columns.append((field, packed))
    if version != "2.0":
        columns += [
            encoded("nulls", pa.nulls(ROWS, pa.int64())),
            encoded("split", floats, bss="on", compression="lz4"),
            encoded("zstd", pa.array(numbers // 7 * 1_000_003), compression="zstd"),
        ]
    return pa.table([values for _, values in columns], schema=pa.schema([f for f, _ in columns]))


def fixed_lists(values: np.ndarray, length: int) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(pa.array(values), length)


def encodings_in(debug: str) -> Counter[str]:
    """Return the encodings in pylance's text about a page."""
    debug = re.sub(r'b"(\\.|[^"\\])*"', "", debug)
    numbers = ("Some", "BitsPerValue", "BitsPerOffset")
    names = [name for name in re.findall(r"\b([A-Z]\w*)\(", debug) if name not in numbers]
    result = Counter(re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower() for name in names)
    # The text of Rust lacks the word of the message: its field is `no_values`.
    result["no_values"] = result.pop("none", 0)
    return +result


#: Words in lines of this package that are no encodings: units, and the use of a part.
ASIDE = frozenset(
    [
        *("bits", "bytes", "per", "value", "offset", "length", "stored", "items", "start", "step"),
        *("base", "offsets", "run_lengths", "rep", "def", "indices", "zstd", "lz", "none", "level"),
        *("layers", "positions", "deltas", "counts", "non_empty_positions"),
    ]
)


def encodings_shown(line: str, version: str) -> Counter[str]:
    """Return the encodings in our text about a page."""
    words = re.findall(r"[a-z][a-z_]*", line)
    if version in ("2.1", "2.2"):
        words[0] += "_layout"
    # In version 2.0, this word names the place of the flags of nulls.
    aside = ASIDE | {"validity"} if version == "2.0" else ASIDE
    return Counter(word for word in words if word not in aside)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    result = {}
    for version in ("2.0", "2.1", "2.2", "2.3"):
        path = tmp_path_factory.mktemp("tables") / version
        lance.write_dataset(table_of(version), path, data_storage_version=version)
        result[version] = path
    return result


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2", "2.3"])
def test_pages_and_encodings_equal_those_of_pylance(tables: dict[str, Path], version: str) -> None:
    (file,) = facts_of(open_dataset(str(tables[version]))).files
    seen = LanceFileReader(str(tables[version] / "data" / file.path)).metadata()
    assert file.num_rows == seen.num_rows == ROWS
    assert len(file.columns) == len(seen.columns)
    for ours, theirs in zip(file.columns, seen.columns, strict=True):
        assert [list(page.buffers) for page in ours.pages] == [
            [buffer.size for buffer in page.buffers] for page in theirs.pages
        ], ours.path
        assert ours.own_bytes == sum(buffer.size for buffer in theirs.column_buffers)
        for page, their_page in zip(ours.pages, theirs.pages, strict=True):
            text = page.encoding
            # The dictionary of mini-blocks is a part of the page, and no encoding of its own.
            part = text.count("dictionary general") + text.count("dictionary variable")
            part += text.count("dictionary flat")
            shown_kinds = encodings_shown(text, version) - Counter({"dictionary": part})
            expected = encodings_in(their_page.encoding)
            assert shown_kinds == expected, f"{ours.path}: {text}\n{their_page.encoding}"


def test_columns_have_the_names_of_their_fields(tables: dict[str, Path]) -> None:
    names = {
        version: {column.path for column in facts_of(open_dataset(str(path))).columns}
        for version, path in tables.items()
    }
    assert {"structs.a", "structs.b", "lists.item", "packed", "wide"} <= names["2.1"]
    assert {"structs", "structs.a", "lists", "lists.item"} <= names["2.0"]
    assert "structs" not in names["2.1"]


def test_version_0_1_and_files_of_several_versions(tmp_path: Path) -> None:
    table = pa.table({"a": range(3_000), "t": ["some"] * 3_000})
    lance.write_dataset(table, tmp_path / "old", data_storage_version="legacy")
    facts = facts_of(open_dataset(str(tmp_path / "old")))
    assert [(column.path, column.num_pages) for column in facts.columns] == [("a", 3), ("t", 3)]
    assert [column.encodings[0][0] for column in facts.columns] == ["plain", "var_binary"]
    assert facts.columns[0].num_bytes == 24_000
    assert facts.version.file_versions == ("0.1 (1)",)
    for version in ("2.0", "2.1"):
        lance.write_dataset(table, tmp_path / "mixed", mode="append", data_storage_version=version)
    mixed = facts_of(open_dataset(str(tmp_path / "mixed")))
    assert sum(file.num_rows for file in mixed.files) == 6_000
    assert "file versions" in as_text(mixed)


def test_history_deletions_branches_tags_indexes(tmp_path: Path) -> None:
    path = tmp_path / "t"
    data = lance.write_dataset(
        pa.table({"a": range(100), "b": ["x"] * 100}), path, max_rows_per_file=25
    )
    data.delete("a % 5 = 0 and a < 50")
    data.create_scalar_index("a", "BTREE")
    data.tags.create("first", 1)
    data.create_branch("dev/x", 1)
    open_dataset(str(path)).delete([("a", ">", 1000)], commit_message="why\x1b[2J")
    dataset = open_dataset(str(path))
    facts = facts_of(dataset)
    assert [version.version for version in facts.versions] == [4, 3, 2, 1]
    assert facts.versions[0].message == "why\x1b[2J"
    assert [version.num_rows for version in facts.versions] == [90, 90, 90, 100]
    assert [version.num_deleted_rows for version in facts.versions] == [10, 10, 10, 0]
    assert facts.versions[2].operation == "delete"
    assert facts.num_versions == 4
    assert [
        (fragment.num_rows, fragment.num_deleted_rows) for fragment in facts.version.fragments
    ] == [
        (25, 5),
        (25, 5),
        (25, 0),
        (25, 0),
    ]
    assert [fragment.deletion_file for fragment in facts.version.fragments] == [
        "arrow",
        "arrow",
        "",
        "",
    ]
    assert facts.tags == {"first": "version 1"}
    assert facts.branches == {"dev/x": "version 1"}
    assert [(index.name, index.kind, index.columns) for index in facts.indexes] == [
        ("a_idx", "BTree", ("a",))
    ]
    assert facts.version.num_bytes == sum(f.stat().st_size for f in (path / "data").iterdir())
    text = as_text(facts)
    assert "why\\x1b[2J" in text
    assert "\x1b" not in text
    assert facts_of(open_dataset(str(path), branch="dev/x")).version.branch == "dev/x"
    assert len(facts_of(dataset, versions=2).versions) == 2
    assert "(2 older ones)" in as_text(facts_of(dataset, versions=2))


def test_a_table_without_rows_and_with_one_version(tmp_path: Path) -> None:
    lance.write_dataset(pa.table({"a": pa.array([], pa.int64())}), tmp_path / "t")
    facts = facts_of(open_dataset(str(tmp_path / "t")))
    assert facts.version.num_rows == 0
    assert facts.files == ()
    assert "a  int64" in as_text(facts)
    Page.check(as_html(facts))


def test_a_sample_of_files_or_named_fragments_are_read(tmp_path: Path) -> None:
    table = pa.table({"a": range(300), "b": range(300)})
    lance.write_dataset(table, tmp_path / "t", max_rows_per_file=1, max_rows_per_group=1)
    dataset = open_dataset(str(tmp_path / "t"))
    facts = facts_of(dataset, files=10)
    chosen = [file.fragment_id for file in facts.files]
    assert len(chosen) == 10
    assert (chosen[0], chosen[-1]) == (0, 299)
    assert "columns, in 10 of 300 data files" in as_text(facts)
    page = as_html(facts)
    Page.check(page)
    assert page.count('class="hit"') == 2 * MAX_BARS
    fragment_facts = facts_of(dataset, fragments=[7], columns=["b"])
    assert [file.fragment_id for file in fragment_facts.files] == [7]
    assert [column.path for column in fragment_facts.columns] == ["b"]
    with pytest.raises(InvalidInputError, match="fragment 300 not found"):
        facts_of(dataset, fragments=[300])
    with pytest.raises(InvalidInputError, match="nope"):
        facts_of(dataset, columns=["nope"])


def test_dropped_columns_and_missing_files_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "t"
    data = lance.write_dataset(
        pa.table({"a": range(50), "gone": range(50)}), path, max_rows_per_file=25
    )
    data.drop_columns(["gone"])
    facts = facts_of(open_dataset(str(path)))
    assert [column.path for column in facts.columns] == ["a", "gone (dropped)"]
    next((path / "data").iterdir()).unlink()
    facts = facts_of(open_dataset(str(path)))
    assert len(facts.problems) == 1
    assert sum(file.num_rows for file in facts.files) == 25
    assert "could not be read" in as_text(facts)
    Page.check(as_html(facts))


def test_totals_are_sums_over_files(tables: dict[str, Path]) -> None:
    facts = facts_of(open_dataset(str(tables["2.1"])))
    for total in facts.columns:
        assert sum(size for _, _, size in total.encodings) == total.num_bytes, total.path
        assert sum(pages for _, pages, _ in total.encodings) == total.num_pages
    inside = sum(total.num_bytes for total in facts.columns)
    assert 0.9 < inside / facts.version.num_bytes <= 1


class Page(HTMLParser):
    """Checks that elements are closed, and that the page has no external resources."""

    VOID = frozenset({"meta", "br", "line", "rect"})

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.text: list[str] = []

    @classmethod
    def check(cls, page: str) -> str:
        parser = cls()
        parser.feed(page)
        parser.close()
        assert parser.open == []
        for plot in re.findall(r"<svg.*?</svg>", page, re.DOTALL):
            ElementTree.fromstring(plot)
        assert "url(" not in page
        assert "@import" not in page
        return "".join(parser.text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in ("script", "link", "img", "iframe", "object", "a"), tag
        for name, _ in attrs:
            assert name not in ("src", "href", "srcset", "onclick"), name
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def test_names_from_the_table_are_escaped(tmp_path: Path) -> None:
    name = "<script>alert('&')</script>"
    lance.write_dataset(pa.table({name: range(10)}), tmp_path / "t")
    shown_text = Page.check(as_html(facts_of(open_dataset(str(tmp_path / "t")))))
    assert shown_text.count(name) >= 2


def test_the_inspect_command(tables: dict[str, Path], tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    path = str(tables["2.1"])
    command = [sys.executable, "-m", "lance_spark", "inspect", path]
    shown = subprocess.run(
        [*command, "--fragment", "0", "--columns", "texts,structs.b"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert re.search(r"^  structs\.b +0 +2,500 ", shown, re.MULTILINE)
    assert "structs.a" not in shown
    assert main(["inspect", path, "--html", str(page)]) == 0
    Page.check(page.read_text(encoding="utf-8"))


def test_invalid_arguments_of_the_command(
    tables: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    path = str(tables["2.1"])
    for arguments, why in [
        ([path, "--version", "9"], "9"),
        ([path, "--option", "region"], "KEY=VALUE"),
        ([path, "--columns", "texts,nothing"], "nothing"),
        ([f"{path}.nowhere"], "not a Lance table"),
    ]:
        assert main(["inspect", *arguments]) == 1
        assert why in capsys.readouterr().err
    with pytest.raises(VersionNotFoundError):
        open_dataset(path, version=9)


def test_unknown_encodings() -> None:
    assert encoding_of(b"\xff\xff\xff", (2, 1)) == UNREADABLE
    assert encoding_of(b"", (2, 1)) == "unknown"
    assert encoding_of(b"", (2, 3)) == "unknown + unknown"
    assert encoding_of(b"", (9, 9)) == UNREADABLE


def test_formatting() -> None:
    sizes = ["0 bytes", "999 bytes", "1.00 KiB", "1.50 KiB", "10.0 KiB", "118 MiB"]
    assert [size(n) for n in (0, 999, 1_023, 1_536, 10_240, 123_456_789)] == sizes
    shares = ["0%", "0.1%", "5.5%", "100%", "100%"]
    assert [share(n, 1_000) for n in (0, 1, 55, 999, 1_000)] == shares
    assert share(1, 10**9) == "<0.1%"
    assert clean("a\x1b[31m\nb") == "a\\x1b[31m\\nb"
    assert clean("größe 表") == "größe 表"


def test_facts_can_be_compared() -> None:
    file = FileFacts(0, "a.lance", None, "2.1", 1, 2, ())
    assert file == FileFacts(0, "a.lance", None, "2.1", 1, 2, ())
    assert ColumnTotal("a", "int64", 1, 1, 1, ()).encodings == ()
