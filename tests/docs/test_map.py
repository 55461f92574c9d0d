"""Generated parts of pages are current, and files and paths in pages exist."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from dynbatch.harness.values.paths import ROOT, SNAKEFILE
from scripts.write_pages import (
    PARTS,
    MarkedPage,
    draw_map,
    find_box,
    find_imports,
    list_folders,
    reduce_edges,
)
from tests.support.adding import SECTIONS
from tests.support.layers import MODULES, imported_by, layer_of, reachable

MAP = ROOT / "docs" / "map.md"
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
TOP = tuple(path.name for path in ROOT.iterdir() if path.is_dir() and path.name[0] != ".")
PRODUCED = ("results/", "build/", "logs/", "data/")  # created by runs
STEP = re.compile(r"^(?P<blanks> *)\d+\. `(?P<path>[^`]+)`:(?P<text>.*)$", re.MULTILINE)
ANCHOR = re.compile(r"\]\((?P<page>[\w./]*)(?:#(?P<anchor>[\w-]+))?\)")


def spans_of(page: Path) -> list[str]:
    """Return all code spans of a page, and every line of its consoles."""
    text = page.read_text(encoding="utf-8")
    fences = re.findall(r"^```(?:console)?\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    lines = [line.removeprefix("$ ").partition(" #")[0] for f in fences for line in f.splitlines()]
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    return [*re.findall(r"`([^`]+)`", text), *lines]


def alternatives(path: str) -> list[str]:
    """Expand braces, as in `a/{b,c}.py`."""
    found = re.search(r"\{([^{}]*)\}", path)
    if found is None:
        return [path]
    names = found.group(1).split(",")
    return [a for n in names for a in alternatives(path[: found.start()] + n + path[found.end() :])]


def paths_in(page: Path) -> Iterator[str]:
    """Yield the paths of this repository that a page names."""
    for span in spans_of(page):
        for word in span.split():
            word = word.partition(":")[0]
            if re.match(rf"({'|'.join(TOP)})/", word) and not word.startswith(PRODUCED):
                yield from alternatives(word)


def files_in(page: Path) -> set[str]:
    """Return the files that a page names without their directory."""
    words = (word for span in spans_of(page) for word in span.split())
    return {word for word in words if re.fullmatch(r"\w+\.(py|smk|md)", word)}


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_every_file_that_a_page_names_without_a_folder_is_there(page: Path) -> None:
    places = ("", *(f"{top}/**/" for top in TOP))
    missing = [n for n in files_in(page) if not any(any(ROOT.glob(p + n)) for p in places)]
    assert not missing, f"{page.name} names {', '.join(sorted(missing))}"


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_every_path_that_a_page_names_is_there(page: Path) -> None:
    added = {name for section in SECTIONS for name in section.files}
    named = set(paths_in(page))
    missing = [
        path
        for path in sorted(named - added)
        if "<" not in path and not list(ROOT.glob(path.rstrip("/")))
    ]
    assert not missing, f"{page.name} names {', '.join(missing)}"
    assert named, f"{page.name} names no path: this test sees nothing"


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_every_link_within_the_repository_leads_somewhere(page: Path) -> None:
    for link in ANCHOR.finditer(page.read_text(encoding="utf-8")):
        target = (page.parent / link["page"]) if link["page"] else page
        assert target.exists(), f"{page.name} links {link['page']}"
        if link["anchor"]:
            headings = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            anchors = {re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings}
            assert link["anchor"] in anchors, f"{page.name} links #{link['anchor']}"


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_every_command_that_a_page_names_is_there(page: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    added = {Path(name).stem for section in SECTIONS for name in section.files}
    experiments = {path.stem for path in (ROOT / "conf" / "experiment").glob("*.yaml")} | added
    workflow = [SNAKEFILE, *(ROOT / "workflow" / "rules").glob("*.smk")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in workflow)
    rules = {*re.findall(r"^rule (\w+):", text, re.MULTILINE), *(f"draw_{x}" for x in experiments)}
    for span in spans_of(page):
        for name in re.findall(r"\b(bench-\w+)\b", span):
            assert name in project["scripts"], f"{page.name}: {span}"
        for name in re.findall(r"^make ([\w-]+)", span):
            assert name in targets, f"{page.name}: {span}"
        for name in re.findall(r"\bexperiment=(\w+)", span):
            assert name in {*experiments, "NAME"}, f"{page.name}: {span}"
        for name in re.findall(r"\bsnakemake ([a-z]\w+)", span):
            assert name in {*rules, "draw_NAME"}, f"{page.name}: {span}"
        for name in re.findall(r"python -m ((?:scripts|dynbatch)[\w.]+)", span):
            assert (ROOT / f"{name.replace('.', '/')}.py").exists(), f"{page.name}: {span}"


@pytest.mark.parametrize("page", PARTS, ids=[f"{one.path.stem} {one.part}" for one in PARTS])
def test_parts_of_pages_are_those_of_the_code(page: MarkedPage) -> None:
    assert page.written == PARTS[page]().strip(), "run python -m scripts.write_pages"


def test_diagram_keeps_reachability_without_redundant_edges() -> None:
    edges = find_imports()
    kept = reduce_edges(edges)
    assert set(edges) == {find_box(module) for module in MODULES} - {None}
    assert {n: reachable(kept, n) for n in edges} == {n: reachable(edges, n) for n in edges}
    assert sum(map(len, kept.values())) < sum(map(len, edges.values()))
    assert draw_map().count(" --> ") == sum(map(len, kept.values()))


def test_every_folder_has_a_one_line_description() -> None:
    for line in list_folders().splitlines()[2:]:
        folder, words = line.strip("| ").split(" | ")
        assert len(words) > 10, f"{folder} has no docstring in its __init__.py"


def test_page_mentions_every_top_level_folder() -> None:
    text = MAP.read_text(encoding="utf-8")
    kept = [name for name in TOP if list((ROOT / name).glob("**/*.*")) and name != "__pycache__"]
    tracked = [name for name in kept if not name.endswith(".egg-info")]  # of an installation
    ours = [name for name in tracked if not f"{name}/".startswith(PRODUCED[1:])]
    assert [name for name in ours if f"`{name}/" not in text] == []


def steps() -> list[tuple[str, str, str]]:
    """Return path, parent step's path and text of all steps of docs/map.md."""
    found = []
    above: list[tuple[int, str]] = []
    for step in STEP.finditer(MAP.read_text(encoding="utf-8")):
        depth = len(step["blanks"])
        above = [(d, path) for d, path in above if d < depth]
        found.append((step["path"], above[-1][1] if above else "", step["text"]))
        above.append((depth, step["path"]))
    return found


def test_step_is_imported_by_its_parent_and_in_no_higher_layer() -> None:
    module_at = {str(path.relative_to(ROOT)): module for module, path in MODULES.items()}
    n_checked = 0
    for path, caller, text in steps():
        if path not in module_at or caller not in module_at:
            continue
        n_checked += 1
        module, above = module_at[path], module_at[caller]
        assert "by name" in text or module in imported_by(above), f"{caller} imports no {path}"
        assert layer_of(module) <= layer_of(above), f"{path} lies above {caller}"
    assert n_checked > 30
