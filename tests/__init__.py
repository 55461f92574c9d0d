"""Tests. The workers that they start find systems and models in `tests.support`, too."""

import os
from pathlib import Path

_ROOT = str(Path(__file__).parents[1])
_PLACES = os.environ.get("PYTHONPATH", "").split(os.pathsep)
if _ROOT not in _PLACES:
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [_ROOT, *_PLACES]))
