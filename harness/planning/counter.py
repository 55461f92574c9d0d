"""By which code batches are counted: hashes of the counter and what it imports.

The counter itself must not import this: it names modules that are none of its own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from harness.trials.sources import SourceHashes

COUNTER = "harness.counts.worker"


def counting_sha256(
    modules: Iterable[str], said: Collection[str], hashes: SourceHashes | None = None
) -> str:
    """Hash the counter and the `modules` of what it counts: models and loaders.

    said: names of modules, such as policies, that count as imported; see imported_files. hashes:
    which knows what others have read.
    """
    return (hashes or SourceHashes()).of_modules(sorted({COUNTER, *modules}), said)
