"""A folder that only processes of this machine see: what is locked there is locked for it alone.

A home, and with it the user's cache, is shared by all nodes of a cluster, and so is a folder of
results; a network's folders may know no locks.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from harness.errors import BenchError
from harness.machine.caches import NAME, OURS_ALONE, why_not_ours

MEMORY = Path("/dev/shm")  # which Linux keeps in memory: of no disk, and so of no network's


def local_folder() -> Path:
    """Where this user's locks of this machine lie, made where it is not there, with mode 0700.

    Raises BenchError where none can be written.
    """
    homes = [MEMORY, Path(tempfile.gettempdir())]
    faults = []
    for home in homes:
        folder = home / f"{NAME}-{os.geteuid()}"
        try:
            folder.mkdir(mode=OURS_ALONE, exist_ok=True)
            fault = why_not_ours(folder.stat())
        except OSError as error:
            fault = str(error.strerror)
        if fault is None:
            return folder
        faults.append(f"{folder}: {fault}")
    raise BenchError(
        f"no folder of this machine alone can be written ({'; '.join(faults)}), and so no turn be"
        " taken on it; mend one of them"
    )
