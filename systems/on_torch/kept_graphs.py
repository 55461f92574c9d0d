"""Graphs that torch.compile compiled, kept between processes.

torch's own cache lies in a folder of a name that all users know, and loads what is in it as it is:
an empty library ends every later run. So each process gives it a folder of its own, and fills that
with what was kept.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from harness.machine.caches import cache_folder, forget_the_oldest
from harness.machine.facts import cpu_fingerprint
from harness.machine.folders import folder_of_process
from harness.machine.kept_folder import keep_packed, unpack_kept

FOLDER = "inductor"
MOST_ENTRIES = 200  # of some 200 KB


@contextmanager
def graphs_kept(what: str) -> Iterator[None]:
    """Have torch.compile find, within, what it compiled for the same purpose in another process.

    what: that purpose; torch itself compares what it finds with what it is to compile, but not for
    which CPU: it compiles with -march=native.
    """
    own = folder_of_process(FOLDER)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(own)
    folder = cache_folder(FOLDER)
    if folder is None:
        yield
        return
    facts = (torch.__version__, torch.backends.cpu.get_cpu_capability(), cpu_fingerprint(), what)
    entry = folder / hashlib.sha256(repr(facts).encode()).hexdigest()
    unpack_kept(entry, own)
    found = {path for path in own.rglob("*") if path.is_file()}
    yield
    if {path for path in own.rglob("*") if path.is_file() and path.stat().st_size} - found:
        keep_packed(own, entry)
        forget_the_oldest(folder, MOST_ENTRIES)
