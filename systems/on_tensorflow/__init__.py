"""TensorFlow 2: sentences unrolled and in loops, Fold re-implemented, and one tree at a time."""

import os
import sys
from collections.abc import Sequence
from types import FrameType, ModuleType

IMPORTERS = ("tensorflow", "keras")


class WithoutJax:
    """Keep TensorFlow from loading JAX, which tf.lite and Keras do where it is installed.

    A trial of one framework loads no other: it would take memory and time that are not its own.
    """

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


os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # read once, when TensorFlow is imported
sys.meta_path.insert(0, WithoutJax)
