"""Lattice files written by tests: two good lattices, and one line of them replaced."""

from __future__ import annotations

from pathlib import Path

GOOD = """2
4
0 3 1 2
0
1 0 5
2 1 6 0 30
3 2 7 0 31 1 32

2
0 3
0
1 0 8

"""


def changed(line: int, text: str) -> str:
    """Replace one line (from 1) of the good file."""
    lines = GOOD.split("\n")
    lines[line - 1] = text
    return "\n".join(lines)


def write_lattices(root: Path, train: str = GOOD, dev: str = GOOD) -> None:
    """Write two splits below the data root."""
    (root / "lattice").mkdir()
    for split, text in (("train", train), ("dev", dev)):
        (root / "lattice" / f"{split}.txt").write_bytes(text.encode())
