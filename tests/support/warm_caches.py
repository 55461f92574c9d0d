"""A cache of a test's own that need not compile again what the user's holds."""

from __future__ import annotations

from pathlib import Path

from harness.compiler.object_code import FOLDER as OBJECT_CODE
from harness.machine.caches import FOLDER as SOURCE
from harness.machine.caches import NAME, cache_folder


def with_own_cache(home: Path) -> Path:
    """Make `home` an XDG_CACHE_HOME of its own, with the user's compiled code."""
    (home / NAME).mkdir(mode=0o700, parents=True)
    for name in (SOURCE, OBJECT_CODE):
        of_user = cache_folder(name)
        if of_user is not None:
            (home / NAME / name).symlink_to(of_user)
    return home
