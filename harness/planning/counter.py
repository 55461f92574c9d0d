"""By which code batches are counted: hashes of the counter and what it imports.

The counter itself must not import this: it names modules that are none of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from harness.trials.sources import hash_files, imported_files

COUNTER = "harness.counts.worker"


def counting_sha256(modules: Iterable[str], said: Collection[str]) -> str:
    """Hash the counter and the `modules` of what it counts: models and loaders.

    said: names of modules, such as policies, that count as imported; see imported_files.
    """
    return hash_files(imported_files(sorted({COUNTER, *modules}), said))
