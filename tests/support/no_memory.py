"""What has no room to be imported, as a library whose tables do not fit."""

from __future__ import annotations

import numpy as np

TABLE = np.ones(2**58)
