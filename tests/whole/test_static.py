"""Style and types of the whole repository, so that one command checks everything."""

from __future__ import annotations

import re

import pytest

from dynbatch.harness.values.paths import ROOT
from tests.support.processes import end_python

TEXTS = (
    *("dynbatch", "conf", "datasets", "docs", "harness", "plots", "scripts", "systems", "tests"),
    "workflow",
)
# References to private notes, which readers do not have, in place of papers and released files.
NOTES = re.compile(
    r"\bspec(ification)?([\s#]+[0-9]|,[\s#]+[0-9]+\.[0-9])|\bthe[\s#]+specification\b",
    re.IGNORECASE,
)


@pytest.mark.parametrize(
    "command", ["ruff check .", "ruff format --check .", "mypy"], ids=["lint", "format", "types"]
)
def test_static(command: str) -> None:
    done = end_python("-m", *command.split())
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_citation_is_public() -> None:
    """Papers and released files are cited (docs/sources.md), not sections of private notes."""
    assert all(NOTES.search(f"({word} 1.7)") for word in ("spec", "Spec", "specification,"))
    files = [path for path in ROOT.iterdir() if path.is_file()]
    files += [path for folder in TEXTS for path in (ROOT / folder).rglob("*") if path.is_file()]
    citing = [
        f"{path.relative_to(ROOT)}: {found.group()}"
        for path in files
        if path.parent.name != "__pycache__"
        for found in NOTES.finditer(path.read_text(encoding="utf-8", errors="ignore"))
    ]
    assert citing == []
