"""The first module of a child process: bound to its parent before anything that takes time.

    python -m harness.measuring.begin PARENT_PID MODULE ARGUMENT...

MODULE is imported then, and its `main` gets the arguments and gives the exit code. Importing the
worker takes half a second, in which its parent may be killed.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence

from harness.measuring.lifeline import die_with_parent


def main(arguments: Sequence[str]) -> int:
    """Become the module that is named, as a child of the process that is named."""
    parent_pid, module, *others = arguments
    die_with_parent(int(parent_pid))
    return int(importlib.import_module(module).main(others))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
