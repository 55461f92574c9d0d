"""TensorFlow 2: sentences unrolled and in loops, a re-implementation of Fold, and single trees."""

import os
import sys
from collections.abc import Sequence
from types import FrameType, ModuleType

IMPORTERS = ("tensorflow", "keras")


class WithoutJax:
    """Import finder that hides JAX from TensorFlow; tf.lite and Keras import it if it is installed.

    A trial of one framework loads no other framework, whose memory and time would distort its
    numbers.
    """

    @classmethod
    def find_spec(
        cls, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> None:
        """Find no module, so that the next finder is used."""
        if name == "jax" and _find_importer(sys._getframe(1)) in IMPORTERS:
            raise ModuleNotFoundError("jax is hidden from TensorFlow", name=name)


def _find_importer(frame: FrameType | None) -> str:
    """Return the package that contains the import statement."""
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        if not name.startswith("importlib"):
            return name.partition(".")[0]
        frame = frame.f_back
    return ""


os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # read only when TensorFlow is imported
sys.meta_path.insert(0, WithoutJax)
