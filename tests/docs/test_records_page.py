"""docs/records.md as a user with two commits follows it: its commands run as printed."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from dynbatch.harness.records.tidy import frame
from dynbatch.harness.values.paths import ROOT
from tests.support.adding import run_typed

PAGE = (ROOT / "docs" / "records.md").read_text(encoding="utf-8")
NEEDED = ("conf", "datasets", "dynbatch", "harness", "plots", "src", "systems", "workflow")
ENGINE = "harness/engine/engine.py"


def git(folder: Path, *arguments: str) -> None:
    made = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *made, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a repository with two commits that differ in the measured code."""
    folder = tmp_path / "repository"
    for name in NEEDED:
        without = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, folder / name, symlinks=True, ignore=without)
    shutil.copy2(ROOT / "pyproject.toml", folder)
    git(folder, "init", "--quiet")
    for text in ("", "CHANGED = True\n"):
        with (folder / ENGINE).open("a", encoding="utf-8") as file:
            file.write(text)
        git(folder, "add", "--all")
        git(folder, "commit", "--quiet", "--message", "change")
    return folder


@pytest.mark.slow
def test_two_commits_are_compared_by_the_commands_of_the_page(repository: Path) -> None:
    (recipe,) = re.findall(r"^```bash\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    # Two short rounds show as much as the page's three.
    quick = recipe.replace("timing.min_seconds=0.5", "timing.min_seconds=0.05")
    quick = quick.replace("for n in 1 2 3;", "for n in 1 2;")
    assert len(quick) < len(recipe)
    printed = run_typed(quick, repository, PYTHONPATH=str(repository))
    assert "1 trials compared" in printed, printed
    sides = [frame(repository / f"results_{side}") for side in ("before", "after")]
    assert [sorted(side["round"]) for side in sides] == [[0, 1], [0, 1]]
    codes = [set(side.source_sha256) for side in sides]
    assert [len(code) for code in codes] == [1, 1]
    assert codes[0] != codes[1], "each side measures its own code"
    assert not (repository.parent / "before").exists()
