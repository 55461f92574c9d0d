"""Committed files below results/reference: small, packed, and consistent with their records."""

from __future__ import annotations

import csv
import lzma
import os
import re
from collections import Counter
from pathlib import Path

import pytest

from dynbatch.harness.commands.draw import draw_held
from dynbatch.harness.planning.config import Composer
from dynbatch.harness.planning.grid import NOTHING, SCALES, list_experiment_names, read_experiment
from dynbatch.harness.records.numbers import NOT_MEASURED, NOT_PLANNED
from dynbatch.harness.records.store import COUNTS, TRIALS, read_packed
from dynbatch.harness.values.paths import CONF_DIR, ROOT
from dynbatch.plots import drawable
from dynbatch.plots.declaration import read_declaration

REFERENCE = ROOT / "results" / "reference"
FOLDERS = sorted({p.parent for kind in (TRIALS, COUNTS) for p in REFERENCE.rglob(kind.packed)})
DRAWN = [folder for folder in FOLDERS if (folder / "tables").exists()]  # others have only records
MAX_BYTES = 6_000_000
ALLOWED = re.compile(
    r"[^/]+\.png"
    r"|[^/]+/README\.md"
    r"|[^/]+/profiles/[^/]+\.csv"
    r"|[^/]+/[^/]+/(README\.md|records\.jsonl\.xz|counts\.jsonl\.xz)"
    r"|[^/]+/[^/]+/tables/[^/]+\.(md|csv|csv\.xz)"
    r"|[^/]+/[^/]+/figures/[^/]+\.(png|csv|csv\.xz)"
)


def test_reference_size_is_within_the_limit() -> None:
    everything = [REFERENCE, *REFERENCE.rglob("*")]
    assert sum(path.lstat().st_size for path in everything) <= MAX_BYTES


def test_reference_holds_only_allowed_files() -> None:
    files = [path for path in REFERENCE.rglob("*") if path.is_file()]
    names = [path.relative_to(REFERENCE).as_posix() for path in files]
    assert [name for name in names if not ALLOWED.fullmatch(name)] == []
    for folder in FOLDERS:
        assert (folder / "README.md").is_file()
        assert (folder.parent / "README.md").is_file()


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_records_name_no_place_of_the_machine_that_measured(folder: Path) -> None:
    lines = read_packed(folder / TRIALS.packed) if (folder / TRIALS.packed).exists() else []
    assert not [line for line in lines if re.search(rb"(?<![\w.])/(work|home|root|tmp)/", line)]


def test_every_link_leads_to_a_file() -> None:
    for page in [ROOT / "README.md", *REFERENCE.rglob("README.md")]:
        for link in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            assert "://" in link or (page.parent / link).exists(), f"{page}: {link}"


def lines_of(text: str) -> Counter[tuple[str, ...]]:
    """Return the lines of a table without order, and without trials added after its records."""
    header, *lines = csv.reader(text.splitlines())
    named = [dict(zip(header, line, strict=True)) for line in lines]
    return Counter(
        tuple(f"{key}={rounded(value)}" for key, value in sorted(line.items()))
        for line in named
        if line.get("status") not in (NOT_MEASURED, NOT_PLANNED)
    )


def unpacked_name(path: Path, folder: Path) -> str:
    """Return the path of a table in a results directory."""
    return path.relative_to(folder).as_posix().removesuffix(".xz")


def rounded(text: str) -> str:
    """Round a number, because processors differ in the last digits; return other text as is."""
    try:
        return f"{float(text):.9e}"
    except ValueError:
        return text


def assert_equal(committed: str, drawn: str, name: str) -> None:
    """Assert that two tables have the same numbers."""
    ours, theirs = lines_of(committed), lines_of(drawn)
    unlike = [*(ours - theirs), *(theirs - ours)]
    assert not unlike, (
        f"{name} is not what its records say, see scripts/keep_reference.py: {unlike}"
    )


def test_comparison_detects_different_numbers() -> None:
    table = "system,value,status\na,0.1,ok\n"
    assert_equal(table, "system,value,status\na,0.10000000000000001,ok\nb,,not measured\n", "this")
    for other in ("a,0.1001,ok", "b,0.1,ok", "a,0.1,oom", "a,,ok", "a,0.1,ok\nb,1,ok"):
        with pytest.raises(AssertionError, match=r"not what its records say"):
            assert_equal(table, f"system,value,status\n{other}\n", "this")


def has_records(experiment: str) -> bool:
    """Return whether an experiment measures or counts anything, at any scale."""
    return any(content != NOTHING for content in read_experiment(experiment)["scales"].values())


def test_only_source_code_and_learned_machines_are_not_drawn_again() -> None:
    names = {name for name in list_experiment_names() if not has_records(name)}
    assert names == {"acrobat_table2", "cavs_lines_of_code", "edbatch_fig10"}


@pytest.fixture(scope="module")
def composer() -> Composer:
    """Return one Composer for all directories, which caches the files of conf/."""
    return Composer(CONF_DIR)


@pytest.mark.slow
@pytest.mark.parametrize("folder", DRAWN, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_the_committed_numbers_are_drawn_again_from_the_packed_records(
    folder: Path, tmp_path: Path, composer: Composer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dynbatch.plots.write.save_figure", lambda *_: None)
    for function in ("to_markdown", "to_latex", "to_html"):
        monkeypatch.setattr(f"dynbatch.plots.write.{function}", lambda _: "")
    monkeypatch.setattr(drawable, "Composer", lambda _: composer)
    declared = [read_declaration(name, CONF_DIR) for name in list_experiment_names()]
    experiments = {f"{stem}.csv": shown for shown in declared for stem in shown.stems}
    committed = sorted(p for kind in ("tables", "figures") for p in folder.glob(f"{kind}/*.csv*"))
    of_file = {path: experiments[unpacked_name(path, folder)] for path in committed}
    # A figure of a mini-batch needs its dataset. A table of source code has no record: it shows the
    # code of the day on which it was drawn.
    wanted = {
        path: shown.name
        for path, shown in of_file.items()
        if not shown.draws_mini_batch and has_records(shown.name)
    }
    names = sorted(set(wanted.values()))
    # The directory's name may be the scale; otherwise it is the scale with most records.
    printed = {"records": folder, "results_dir": tmp_path}
    printed |= {"scale": folder.name} if folder.name in SCALES else {}
    held = drawable.select_drawable(printed, os.environ, names)
    for name in names:
        draw_held(name, held)
    for path in wanted:
        drawn = tmp_path / unpacked_name(path, folder)
        content = path.read_bytes()
        kept = (lzma.decompress(content) if path.suffix == ".xz" else content).decode()
        assert_equal(kept, drawn.read_text(), str(path.relative_to(ROOT)))
