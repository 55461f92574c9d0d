"""An adapter that takes away the place of its own record while it is measured."""

from __future__ import annotations

import resource
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from systems.on_core.reference import Adapter as Reference

FEW_BYTES = 512  # a record has more


@dataclass(frozen=True, slots=True)
class VanishingOptions:
    """What happens, and to which folder: delete, replace (by a file), or full (no room is left)."""

    what: str = "delete"
    folder: str = ""


class Adapter(Reference):
    """The oracle."""

    option_type = VanishingOptions
    options: VanishingOptions

    def load(self, instances: Sequence[Any]) -> None:
        folder = Path(self.options.folder)
        if self.options.what == "full":
            _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
            resource.setrlimit(resource.RLIMIT_FSIZE, (FEW_BYTES, most))
        elif folder.is_dir():
            shutil.rmtree(folder)
            if self.options.what == "replace":
                folder.touch()
        super().load(instances)
