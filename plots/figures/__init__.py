"""Figures, one module per kind; experiments name the kind.

This imports matplotlib first, without MPLBACKEND: it may name a window system that does not exist.
"""

import os
from contextlib import suppress

from dynbatch.harness.errors import ConfigError

__all__ = ["mpl"]

_backend = os.environ.pop("MPLBACKEND", None)
try:
    import matplotlib as mpl
except UnicodeDecodeError as error:
    raise ConfigError(f"matplotlib cannot read its matplotlibrc ({error}); fix the file") from None
finally:
    if _backend is not None:
        os.environ["MPLBACKEND"] = _backend
if _backend is not None:
    with suppress(ValueError):
        mpl.rcParams["backend"] = _backend  # for others in this process, such as a notebook
