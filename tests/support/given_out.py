"""Memory that the C library has allocated, including that of compiled functions."""

from __future__ import annotations

import ctypes


class _GivenOut(ctypes.Structure):
    """The struct mallinfo2 of the GNU C library."""

    _fields_ = [(f"n{k}", ctypes.c_size_t) for k in range(10)]


def count_given_out() -> int:
    """Return the number of allocated bytes; 0 if the C library does not report it."""
    tell = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if tell is None:
        return 0
    tell.restype = _GivenOut
    found = tell()
    return int(found.n4 + found.n7)  # hblkhd (large blocks) and uordblks (others)
