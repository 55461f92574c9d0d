"""numba's arrays, loaded without scipy's linear algebra, which they look for whoever needs it.

That takes 0.1 s of every process, for products that nothing here has numba compile: whoever does
has it loaded then, as ever.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

LINEAR_ALGEBRA = "scipy.linalg"
ARRAYS = "numba.np.arraymath"


def load_arrays() -> None:
    """Load them; where either is loaded already there is nothing to save."""
    loaded: dict[str, Any] = sys.modules
    if LINEAR_ALGEBRA in loaded or ARRAYS in loaded:
        return
    loaded[LINEAR_ALGEBRA] = None  # whoever imports it now is told that there is none
    try:
        arrays: Any = importlib.import_module(ARRAYS)
    finally:
        del loaded[LINEAR_ALGEBRA]
    arrays._HAVE_BLAS = "scipy" in loaded  # numba itself loads that much where it is installed
