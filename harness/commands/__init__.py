"""What is typed: one command a file, which calls what lies below."""

from __future__ import annotations

import sys
from types import TracebackType


def _in_one_line(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Importing a command takes a second, in which nothing can say yet what is kept."""
    if issubclass(kind, KeyboardInterrupt):
        print("interrupted before it began; nothing was changed", file=sys.stderr)
    else:
        sys.__excepthook__(kind, error, trace)


sys.excepthook = _in_one_line
