"""Paths in comments and docstrings must exist, because text is easily forgotten in a move."""

from __future__ import annotations

import re

from dynbatch.harness.values.paths import ROOT

FOLDERS = ("harness", "systems", "datasets", "plots", "conf", "workflow", "scripts")
SUFFIXES = (".py", ".yaml", ".smk", ".html")
FILES = sorted(
    path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in SUFFIXES
)
# harness/values/paths.py, tests/engine, systems/on_torch/models; no pattern such as conf/<name>.
_FIRST = "|".join((*FOLDERS, "tests", "docs"))
_PATH = re.compile(rf"(?<![\w./-])(?:{_FIRST})(?:/[\w.-]*\w)+(?![\w/]*[<{{*])")
# A file name without a directory: urgency.py.
_FILE = re.compile(r"(?<![\w./{}<>*-])\w+\.(?:py|smk)\b")


def places_named_in(text: str) -> tuple[set[str], set[str]]:
    """Return the paths from the root, and the file names, that a text mentions."""
    return set(_PATH.findall(text)), set(_FILE.findall(text))


def test_places_are_found_in_words() -> None:
    text = """see harness/values/paths.py, the files of systems/torch_models, and _urgency.py;
    not conf/system/<name>.yaml, {folder}/x.py or https://example.org/docs/of/it.html"""
    paths = {"harness/values/paths.py", "systems/torch_models"}
    assert places_named_in(text) == (paths, {"_urgency.py"})


def test_places_that_a_text_names_are_there() -> None:
    known = {file.name for file in FILES}
    missing = []
    for file in FILES:
        paths, names = places_named_in(file.read_text(encoding="utf-8"))
        gone = {place for place in paths if not (ROOT / place).exists()} | (names - known)
        missing += [f"{file.relative_to(ROOT)} names {place}" for place in sorted(gone)]
    assert missing == []
