"""Options of the writer of a shard, and their form in the details of the MemWAL.

| option | default | meaning here |
| --- | --- | --- |
| durable_write | True | a put returns when its WAL entry is stored |
| max_wal_buffer_size | 10 MiB | rows that are not in the log yet |
| max_wal_flush_interval_ms | 100 | how long rows without `durable_write` wait for the log |
| max_memtable_size | 256 MiB | size of the rows in memory that makes an SSTable of them |
| max_memtable_rows | 100,000 | number of rows that does |
| max_memtable_batches | 8,000 | number of batches that does |
| max_wal_persist_retries | 3 | how often a failed request for a WAL entry is repeated, up to 100 |
| wal_persist_retry_base_delay_ms | 50 | the first delay; the next are longer, up to a minute |

The options `max_unflushed_memtable_bytes`, `manifest_scan_batch_size`, `enable_memtable`,
`backpressure_log_interval_ms`, `stats_log_interval_ms` and `hnsw_params` are stored for pylance.
The writer here flushes before a put returns, so that no backlog exists.

The details have the options as text: all of them if one of them was given, else none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from lance_spark.errors import InvalidOptionError

_HNSW = "hnsw"
#: Parameters of a vector index, with the defaults of pylance.
_HNSW_DEFAULTS = {"num_edges": 20, "ef_construction": 150, "max_level": 7}
_MAX_U64 = 2**64 - 1


@dataclass(frozen=True)
class WriterOptions:
    """Options of the writer of a shard, by pylance's names; see the module."""

    durable_write: bool = True
    max_wal_buffer_size: int = 10 * 1024 * 1024
    max_wal_flush_interval_ms: int = 100
    max_memtable_size: int = 256 * 1024 * 1024
    max_memtable_rows: int = 100_000
    max_memtable_batches: int = 8_000
    max_unflushed_memtable_bytes: int = 1024 * 1024 * 1024
    manifest_scan_batch_size: int = 2
    backpressure_log_interval_ms: int = 30_000
    stats_log_interval_ms: int = 60_000
    enable_memtable: bool = True
    max_wal_persist_retries: int = 3
    wal_persist_retry_base_delay_ms: int = 50
    hnsw_params: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def changed(self, changes: Mapping[str, Any]) -> WriterOptions:
        """Return the options with others in place of some; None keeps an option.

        Raises InvalidOptionError: an option is unknown, or its value is invalid.
        """
        options = self
        for name, change in changes.items():
            if change is None:
                continue
            if name == "hnsw_params":
                options = replace(options, hnsw_params=_checked_hnsw(change))
                continue
            default = _DEFAULTS.get(name)
            if default is None:
                raise InvalidOptionError(
                    f"option {name!r} of a MemWAL is unknown; the options are "
                    f"{', '.join(_DEFAULTS)} and hnsw_params"
                )
            # Options of SQL are text.
            value = _parsed(change, default) if isinstance(change, str) else change
            if type(value) is not type(default) or not 0 <= value <= _MAX_U64:
                expected = "True or False" if type(default) is bool else "a whole number, 0 or more"
                raise InvalidOptionError(f"{name} must be {expected}, not {value!r}")
            options = replace(options, **{name: value})
        return options

    def to_text(self) -> dict[str, str]:
        """Return the options as the details of a MemWAL have them."""
        text = {name: _as_text(getattr(self, name)) for name in _DEFAULTS}
        for index, parameters in self.hnsw_params.items():
            for name, value in {**_HNSW_DEFAULTS, **parameters}.items():
                text[f"{_HNSW}.{index}.{name}"] = str(value)
        return text

    @classmethod
    def from_text(cls, text: Mapping[str, str]) -> WriterOptions:
        """Return the options that the details of a MemWAL have. Unknown names are ignored.

        Raises InvalidOptionError: a value is invalid.
        """
        values: dict[str, Any] = {}
        hnsw: dict[str, dict[str, int]] = {}
        for name, value in text.items():
            index, dot, parameter = name.removeprefix(f"{_HNSW}.").rpartition(".")
            if name.startswith(f"{_HNSW}.") and dot and parameter in _HNSW_DEFAULTS:
                hnsw.setdefault(index, {})[parameter] = _number(name, value)
            elif name in _DEFAULTS:
                is_flag = type(_DEFAULTS[name]) is bool
                values[name] = _flag(name, value) if is_flag else _number(name, value)
        return cls(**values, hnsw_params=hnsw)


_DEFAULTS: dict[str, Any] = {
    option.name: option.default for option in fields(WriterOptions) if option.name != "hnsw_params"
}


def _as_text(value: bool | int) -> str:
    return str(value).lower()


def _parsed(text: str, default: bool | int) -> Any:
    if type(default) is bool:
        return {"true": True, "false": False}.get(text.lower(), text)
    return int(text) if text.isascii() and text.isdigit() else text


def _number(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 20 and int(text) <= _MAX_U64):
        raise InvalidOptionError(
            f"the MemWAL of the table has the default {name}={text[:50]!r}, which is not a number "
            "of 64 bits; disable the MemWAL, and initialize it again"
        )
    return int(text)


def _flag(name: str, text: str) -> bool:
    if text not in ("true", "false"):
        raise InvalidOptionError(
            f"the MemWAL of the table has the default {name}={text[:50]!r}, which is neither true "
            "nor false; disable the MemWAL, and initialize it again"
        )
    return text == "true"


def _checked_hnsw(value: Any) -> dict[str, dict[str, int]]:
    if not isinstance(value, Mapping):
        raise InvalidOptionError(
            f"hnsw_params must map names of indexes to mappings, not {value!r}"
        )
    checked: dict[str, dict[str, int]] = {}
    for index, parameters in value.items():
        wrong = [
            name
            for name, number in dict(parameters).items()
            if name not in _HNSW_DEFAULTS or type(number) is not int or number < 1
        ]
        if wrong:
            raise InvalidOptionError(
                f"hnsw_params of index {index!r}: {wrong[0]} must be one of "
                f"{', '.join(_HNSW_DEFAULTS)}, with a positive whole number"
            )
        checked[str(index)] = dict(parameters)
    return checked
