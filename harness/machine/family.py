"""This process and all below it: what a trial's worker starts is no stranger to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import psutil

T = TypeVar("T")


def of_family(read: Callable[[psutil.Process], T]) -> list[T]:
    """Read something of every process; those that end meanwhile are left out."""
    own = psutil.Process()
    found = [read(own)]
    for process in own.children(recursive=True):
        try:
            found.append(read(process))
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return found
