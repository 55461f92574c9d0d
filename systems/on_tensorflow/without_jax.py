"""Keeps TensorFlow from loading JAX, which tf.lite and Keras do where it is installed.

A trial of one framework loads no other: it would take memory and time that are not its own.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import FrameType, ModuleType

IMPORTERS = ("tensorflow", "keras")


class WithoutJax:
    """Stands first in sys.meta_path: to these importers alone, there is no jax."""

    @classmethod
    def find_spec(
        cls, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> None:
        """Raises ModuleNotFoundError for jax where one of them asks; else the next finder looks."""
        if name == "jax" and _importer(sys._getframe(1)) in IMPORTERS:
            raise ModuleNotFoundError("jax is kept from TensorFlow", name=name)


def _importer(frame: FrameType | None) -> str:
    """The package whose code the import statement stands in."""
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if not name.startswith("importlib"):
            return name.partition(".")[0]
        frame = frame.f_back
    return ""
