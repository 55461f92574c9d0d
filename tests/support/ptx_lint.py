"""Lint of the PTX of generated kernels: each call of a kind begins with a barrier.

All kinds of a kernel use the same shared memory, and a call may follow any other.
"""

from __future__ import annotations

import re

_FUNCTION = re.compile(r"(?m)^(?=\.(?:func|visible|entry|weak)\b)")
_KIND = re.compile(r"kind_\d+")
_SHARED = re.compile(
    r"\b(?:cp\.async\.(?:c[ag]|bulk)|ld\.shared|st\.shared|ldmatrix|stmatrix|wgmma|atom\.shared)"
)
BARRIER = "bar.sync"


def find_kinds(ptx: str) -> dict[str, bool]:
    """Return, for each kind's function, whether no shared memory is used before a barrier."""
    found = {}
    for function in _FUNCTION.split(ptx):
        head, _, body = function.partition("{")
        name = _KIND.search(head)
        if name is None or not function.startswith(".func") or not body:
            continue
        accesses = [at.start() for at in _SHARED.finditer(body)]
        first = min(accesses, default=len(body))
        found[name[0]] = not accesses or BARRIER in body[:first]
    return found
