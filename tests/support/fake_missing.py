"""An adapter whose framework is not installed."""

import a_framework_that_is_not_installed  # type: ignore[import-not-found]  # noqa: F401

from systems.null_system import Adapter  # noqa: F401
