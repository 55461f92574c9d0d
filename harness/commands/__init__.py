"""Command-line programs, one per file, on top of all other packages."""

from __future__ import annotations

import sys
from types import TracebackType


def _handle_exception(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Print one line if Ctrl-C interrupts the imports, which take a second."""
    if issubclass(kind, KeyboardInterrupt):
        print("interrupted before start; nothing was changed", file=sys.stderr)
    else:
        sys.__excepthook__(kind, error, trace)


sys.excepthook = _handle_exception
