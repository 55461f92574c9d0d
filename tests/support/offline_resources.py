"""Compiles kernels of Tree-LSTM training for an H200; prints resources and PTX lint as JSON.

    python -m tests.support.offline_resources PRECISION:KERNEL...

It runs in a separate process, because Triton's first import selects compilation or interpretation.
The lint checks that each call of a kind begins with a barrier: all kinds of a kernel use the same
shared memory, and a call may follow any other.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import asdict

from scripts.kernel_resources import compile_module, measure_resources
from tests.support.walked_backend import modules_of

HIDDEN_SIZE = 256
_FUNCTION = re.compile(r"(?m)^(?=\.(?:func|visible|entry|weak)\b)")
_KIND = re.compile(r"kind_\d+")
_SHARED = re.compile(
    r"\b(?:cp\.async\.(?:c[ag]|bulk)|ld\.shared|st\.shared|ldmatrix|stmatrix|wgmma|atom\.shared)"
)
BARRIER = "bar.sync"


def main(*wanted: str) -> None:
    found = {}
    for text in wanted:
        precision, kernel = text.split(":")
        module = modules_of(HIDDEN_SIZE, precision)[kernel]
        resources = asdict(measure_resources(module, "sm_90"))
        ptx = compile_module(module, "sm_90").asm["ptx"]  # from the cache
        without = "\n".join(line for line in ptx.splitlines() if BARRIER not in line)
        lint = {"guarded": find_kinds(ptx), "guarded_without_barriers": find_kinds(without)}
        found[text] = resources | lint
    print(json.dumps(found))


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


if __name__ == "__main__":
    main(*sys.argv[1:])
