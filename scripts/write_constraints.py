"""Pin what this environment has of the project's dependencies: python scripts/write_constraints.py

Local version suffixes are cut off (torch 2.13.0+cpu becomes 2.13.0) and packages for one kind of
hardware are left out, so that the same file resolves to the CUDA build where there is a GPU.
"""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = "dynamic-batching-benchmark"
LEFT_OUT = ("nvidia-c", "nvidia-n", "triton", "cuda-", "setuptools")
TARGET = Path(__file__).resolve().parents[1] / "constraints.txt"
HEADER = "# Written by scripts/write_constraints.py: the versions that the test suite ran with.\n"


def pinned() -> dict[str, str]:
    """Versions of everything that the project and its extras need, by name."""
    extras = importlib.metadata.metadata(PROJECT).get_all("Provides-Extra") or []
    waiting = [(PROJECT, frozenset(extras))]
    seen: dict[tuple[str, frozenset[str]], str] = {}
    while waiting:
        name, wanted = waiting.pop()
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # needed on another platform only
        if (name, wanted) in seen:
            continue
        seen[name, wanted] = distribution.version.partition("+")[0]
        for text in distribution.requires or ():
            requirement = Requirement(text)
            marker = requirement.marker
            if marker and not any(marker.evaluate({"extra": e}) for e in ("", *wanted)):
                continue
            waiting.append((canonicalize_name(requirement.name), frozenset(requirement.extras)))
    return {name: version for (name, _), version in seen.items() if name != PROJECT}


def main() -> None:
    """Write constraints.txt."""
    lines = [f"{n}=={v}\n" for n, v in sorted(pinned().items()) if not n.startswith(LEFT_OUT)]
    TARGET.write_text(HEADER + "".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
