"""Pages agree with the code and records that they describe, and name files that exist."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import get_args

import pytest

from dynbatch.harness.engine.switches import CHOICES, Switches
from dynbatch.harness.records.record import Record, Status
from dynbatch.harness.values.paths import ROOT, SNAKEFILE
from scripts import write_results
from scripts.write_pages import (
    DOCS,
    END,
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

MAP = DOCS / "map.md"
PAGES = (ROOT / "README.md", *sorted(DOCS.glob("*.md")))
TOP = tuple(path.name for path in ROOT.iterdir() if path.is_dir() and path.name[0] != ".")
PRODUCED = ("results/", "build/", "logs/", "data/")  # created by runs
STEP = re.compile(r"^(?P<blanks> *)\d+\. `(?P<path>[^`]+)`:(?P<text>.*)$", re.MULTILINE)
ANCHOR = re.compile(r"\]\((?P<page>[\w./-]*)(?:#(?P<anchor>[\w-]+))?\)")


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
def test_every_file_that_a_page_names_is_there(page: Path) -> None:
    added = {name for section in SECTIONS for name in section.files}
    named = set(paths_in(page))
    paths = [p for p in named - added if "<" not in p and not list(ROOT.glob(p.rstrip("/")))]
    places = ("", *(f"{top}/**/" for top in TOP))  # of files that it names without a folder
    files = [n for n in files_in(page) if not any(any(ROOT.glob(p + n)) for p in places)]
    assert [*paths, *files] == []
    assert named, "it names no path: this test sees nothing"


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
    rules = {
        *re.findall(r"^ *rule (\w+):", text, re.MULTILINE),
        *(f"draw_{x}" for x in experiments),
    }
    known: dict[str, Iterable[str]] = {
        r"\b(bench-\w+)\b": project["scripts"],
        r"^make ([\w-]+)": targets,
        r"\bexperiment=(\w+)": {*experiments, "NAME"},
        r"\bsnakemake ([a-z]\w+)": {*rules, "draw_NAME"},
    }
    for span in spans_of(page):
        for pattern, names in known.items():
            assert set(re.findall(pattern, span)) <= set(names), f"{page.name}: {span}"
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


# --- facts on pages ---

MAX_WORDS, MAX_ROWS = 900, 8  # of README.md, and of its table


def read_first_cells(page: str) -> set[str]:
    """Return the names in backquotes in the first cells of a page's tables."""
    text = (DOCS / page).read_text(encoding="utf-8")
    rows = [line.split(" | ")[0] for line in text.splitlines() if line.startswith("| `")]
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


def test_every_field_of_a_record_is_explained() -> None:
    assert set(Record.model_fields) <= read_first_cells("records.md")


def test_every_switch_is_explained() -> None:
    assert read_first_cells("engine.md") == {"policy", *(item.name for item in fields(Switches))}


@pytest.mark.parametrize("name", CHOICES)
def test_every_value_of_a_switch_is_named(name: str) -> None:
    text = (DOCS / "engine.md").read_text(encoding="utf-8")
    (row,) = (line for line in text.splitlines() if line.startswith(f"| `{name}`"))
    assert set(re.findall(r"`([^`]+)`", row.split(" | ")[1])) == set(CHOICES[name])


def test_every_status_is_explained() -> None:
    assert set(get_args(Status)) - {"ok"} <= read_first_cells("measuring.md")


def test_every_test_of_the_campaign_is_promised() -> None:
    tests = {path.stem for path in (ROOT / "tests" / "campaign").glob("test_*.py")}
    assert read_first_cells("faults.md") == tests


@pytest.mark.slow
def test_results_on_pages_are_those_of_the_committed_records() -> None:
    for page, part in write_results.build_parts().items():
        assert page.written == part.strip(), "run python -m scripts.write_results"


def test_the_readme_is_short() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    tables = re.findall(r"^\|.*\n\|[ :|-]+\n((?:\|.*\n)+)", text, re.MULTILINE)
    assert len([word for word in text.split() if re.search(r"\w", word)]) <= MAX_WORDS
    assert not re.findall(r"^[A-Z]{4,}\d*$", text, re.MULTILINE), "a placeholder"
    assert len(tables) == 1
    assert tables[0].count("\n") <= MAX_ROWS


def test_a_part_is_written_between_its_marks(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    page, other = (MarkedPage(path, "write_it", part) for part in ("first", "second"))
    text = f"before\n{page.begin}\nold\n{END}between\n{other.begin}\nkept\n{END}after\n"
    path.write_text(text)
    page.write("new")
    assert (page.written, other.written) == ("new", "kept")
    assert path.read_text().startswith("before\n")
    assert path.read_text().endswith("after\n")
