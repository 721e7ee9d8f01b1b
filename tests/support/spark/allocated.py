"""Counts the bytes that numpy and Arrow allocate for arrays, also if they are freed later.

numpy asks a handler for the memory of arrays (NEP 49), which is set by its C interface; each thread has its own.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pytest

# The name that numpy 1.26 and numpy 2 both have.
from numpy._core import _multiarray_umath

#: For tests that ask Arrow's pool for the bytes that it has allocated so far.
COUNTS_BYTES = pytest.mark.skipif(
    not hasattr(pa.MemoryPool, "total_bytes_allocated"), reason="this pyarrow does not count bytes"
)
_POINTER, _SIZE = ctypes.c_void_p, ctypes.c_size_t
_SET_HANDLER = 304
_NAME = b"mem_handler"


class _Functions(ctypes.Structure):
    _fields_ = [
        ("context", _POINTER),
        ("malloc", ctypes.CFUNCTYPE(_POINTER, _POINTER, _SIZE)),
        ("calloc", ctypes.CFUNCTYPE(_POINTER, _POINTER, _SIZE, _SIZE)),
        ("realloc", ctypes.CFUNCTYPE(_POINTER, _POINTER, _POINTER, _SIZE)),
        ("free", ctypes.CFUNCTYPE(None, _POINTER, _POINTER, _SIZE)),
    ]


class _Handler(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char * 127),
        ("version", ctypes.c_uint8),
        ("functions", _Functions),
    ]


class Allocated:
    """The bytes that were allocated so far.

    Attributes
    ----------
    numpy, arrow : int
        Bytes.
    """

    def __init__(self) -> None:
        self.numpy = 0
        self.arrow = 0

    @property
    def total(self) -> int:
        return self.numpy + self.arrow


def _library() -> ctypes.CDLL:
    library = ctypes.CDLL(None)
    for name, arguments in (
        ("malloc", [_SIZE]),
        ("calloc", [_SIZE, _SIZE]),
        ("realloc", [_POINTER, _SIZE]),
        ("free", [_POINTER]),
    ):
        function = getattr(library, name)
        function.argtypes = arguments
        function.restype = None if name == "free" else _POINTER
    return library


_count = Allocated()
_libc = _library()


def _take(size: int) -> int:
    _count.numpy += size
    return size


_types = dict(_Functions._fields_)
_HANDLER = _Handler(
    b"counting",
    1,
    _Functions(
        None,
        _types["malloc"](lambda _, size: _libc.malloc(_take(size))),
        _types["calloc"](lambda _, n, size: _libc.calloc(n, _take(n * size) // max(n, 1))),
        _types["realloc"](lambda _, address, size: _libc.realloc(address, _take(size))),
        _types["free"](lambda _, address, size: _libc.free(address)),
    ),
)


def _capsule() -> object:
    make = ctypes.pythonapi.PyCapsule_New
    make.restype, make.argtypes = ctypes.py_object, [_POINTER, ctypes.c_char_p, _POINTER]
    return make(ctypes.addressof(_HANDLER), _NAME, None)


def _set_handler(handler: object) -> object:
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype, pointer_of.argtypes = _POINTER, [ctypes.py_object, ctypes.c_char_p]
    table = ctypes.cast(pointer_of(_multiarray_umath._ARRAY_API, None), ctypes.POINTER(_POINTER))
    call = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.py_object)(table[_SET_HANDLER])
    return call(handler)


@contextmanager
def counting() -> Iterator[Allocated]:
    """Count what this thread allocates for arrays of numpy, and what the process allocates from
    Arrow's pool.

    The result is set when the block ends.
    """
    pool = pa.default_memory_pool()
    allocated = Allocated()
    before = _set_handler(_capsule())
    _count.numpy, allocated.arrow = 0, -pool.total_bytes_allocated()
    try:
        yield allocated
    finally:
        allocated.arrow += pool.total_bytes_allocated()
        allocated.numpy = _count.numpy
        _set_handler(before)
