"""Figures, tables and the report: what is drawn is what the records say, or the status word."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from matplotlib.figure import Figure

from harness.commands import draw, report
from harness.errors import ConfigError, RecordError
from harness.planning.artefacts import (
    Choices,
    PlannedTrial,
    choices_from,
    plan_artefact,
    plan_counts,
)
from harness.planning.compose import Composer
from harness.planning.grid import experiment_names
from harness.values.places import CONF_DIR
from plots.numbers.gather import gather
from plots.numbers.points import Point, measure_of, speedup_of
from plots.numbers.presentation import read_presentation
from plots.tables.speedups import table_of
from plots.words.notes import title_of
from plots.writing.render import to_html, to_latex, to_markdown
from tests.support.made_up_counts import write_made_up_counts, write_real_counts
from tests.support.made_up_records import (
    MACHINE,
    Change,
    conf_with_made_up_systems,
    made_up_record,
    write_made_up_records,
)

KEYS = ("scale", "device", "data-root", "results-dir", "conf-dir")
FIGURE, TABLE = "cavs_fig8d", "cavs_table1_tree_lstm"


@pytest.fixture(scope="module")
def conf_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return conf_with_made_up_systems(tmp_path_factory.mktemp("made_up"))


@pytest.fixture
def choices(conf_dir: Path, tmp_path: Path) -> Choices:
    """Small sizes, no corpus, so that synthetic trees stand in."""
    config = {
        "scale": "smoke",
        "device": "cpu",
        "data_root": tmp_path / "no_data",
        "results_dir": tmp_path / "results",
        "conf_dir": conf_dir,
    }
    return choices_from(config, {})


@pytest.fixture(scope="module")
def composer(conf_dir: Path) -> Composer:
    return Composer(conf_dir)


def measured(
    name: str, choices: Choices, composer: Composer, change: Change | None = None
) -> tuple[PlannedTrial, ...]:
    """Plan an artefact and leave made-up records for it."""
    trials = plan_artefact(name, choices, composer)
    write_made_up_records(trials, choices, change)
    is_graph = read_presentation(name, choices.conf_dir).show.get("graph") == "plain"
    write_counts = write_real_counts if is_graph else write_made_up_counts
    write_counts(plan_counts(name, choices), choices.results_dir)
    return trials


def run_draw(name: str, choices: Choices) -> int:
    said = {key: getattr(choices, key.replace("-", "_")) for key in KEYS}
    return draw.main([name, *(f"--{key}={value}" for key, value in said.items())])


def lines_of(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def coarse_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pictures of few pixels, and empty PDFs: what they show is tested elsewhere."""
    save = Figure.savefig

    def savefig(figure: Figure, path: Path, **options: Any) -> None:
        if path.suffix == ".png":
            save(figure, path, dpi=30, **options)
        else:
            path.touch()

    monkeypatch.setattr(Figure, "savefig", savefig)


@pytest.mark.usefixtures("coarse_pictures")
def test_every_artefact_draws_exactly_the_files_it_announces(
    choices: Choices, composer: Composer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(draw, "Composer", lambda conf_dir: composer)  # which remembers
    names = experiment_names(choices.conf_dir)
    announced = set()
    for name in names:
        measured(name, choices, composer)
        assert run_draw(name, choices) == 0
        announced |= set(read_presentation(name, choices.conf_dir).files)
    measured_ones = {choices.results_dir / name for name in ("raw", "counts")}
    files = [path for path in choices.results_dir.rglob("*") if path.is_file()]
    drawn = [path for path in files if not measured_ones.intersection(path.parents)]
    assert {str(path.relative_to(choices.results_dir)) for path in drawn} == announced
    assert len(names) >= 10


def test_equal_records_draw_equal_files(choices: Choices, composer: Composer) -> None:
    measured(FIGURE, choices, composer)
    files = [choices.results_dir / f for f in read_presentation(FIGURE, choices.conf_dir).files]
    run_draw(FIGURE, choices)
    first = [path.read_bytes() for path in files]
    run_draw(FIGURE, choices)
    assert first == [path.read_bytes() for path in files]


def test_figure_data_are_the_numbers_of_the_records(choices: Choices, composer: Composer) -> None:
    trials = measured(FIGURE, choices, composer)
    run_draw(FIGURE, choices)
    rows = lines_of(choices.results_dir / f"figures/{FIGURE}.csv")
    trial = trials[0]
    rounds = [made_up_record(trial, r).instances_per_s for r in range(trial.rounds)]
    expected = sum(8544 / value for value in rounds if value) / len(rounds)  # median of two
    row = next(
        r
        for r in rows
        if r["system"] == trial.settings["system"]
        and float(r["x"]) == trial.settings["batch_size"]
        and r["source"] == "measured"
    )
    assert float(row["value"]) == pytest.approx(expected)
    assert float(row["low"]) < float(row["value"]) < float(row["high"])
    assert (row["unit"], row["n_rounds"]) == ("s/epoch", "2")


def test_published_numbers_are_marked_as_the_papers(choices: Choices, composer: Composer) -> None:
    measured(TABLE, choices, composer)
    run_draw(TABLE, choices)
    rows = lines_of(choices.results_dir / f"tables/{TABLE}_strategies.csv")
    row = next(
        r
        for r in rows
        if r["comparison"] == "published" and r["system"] == "fold" and float(r["x"]) == 64
    )
    assert (row["quantity"], float(row["value"])) == ("computation_s", 29.0)
    assert "Table 1" in row["source"]
    assert "Titan X" in row["source"]
    markdown = (choices.results_dir / f"tables/{TABLE}_strategies.md").read_text()
    assert "paper, Titan X" in markdown


def test_strategies_and_systems_never_share_a_table(choices: Choices, composer: Composer) -> None:
    measured(TABLE, choices, composer)
    run_draw(TABLE, choices)
    for comparison, system in (("strategies", "dynet"), ("systems", "dynet_policy")):
        rows = lines_of(choices.results_dir / f"tables/{TABLE}_{comparison}.csv")
        ours = {row["system"] for row in rows if row["source"] == "measured"}
        assert ours
        assert system not in ours


@pytest.mark.parametrize("status", ["oom", "timeout", "crash", "unsupported", "wrong_result"])
def test_a_missing_number_prints_its_status(
    status: str, choices: Choices, composer: Composer
) -> None:
    def change(trial: PlannedTrial, round_: int) -> dict[str, Any]:
        fails = trial.settings["system"] == "fold_policy" and trial.settings["batch_size"] == 16
        # The time that a wrong result has in its record must not be shown.
        return {"status": status, "reason": "made up"} if fails and round_ == 1 else {}

    trials = measured(TABLE, choices, composer, change)
    table = table_of(gather(TABLE, choices, trials), "strategies")
    row = dict(table.rows)["16"]
    column = [c.label for c in table.columns].index("Fold's policy")
    assert row[column].text == status
    assert any(f"Fold's policy: {status}: made up" in note for note in table.notes)
    for text in (to_markdown(table), to_latex(table), to_html(table)):
        assert status.replace("_", r"\_") in text or status in text


def test_a_record_that_is_not_there_is_called_missing(choices: Choices, composer: Composer) -> None:
    trials = measured(TABLE, choices, composer, lambda trial, round_: None)
    table = table_of(gather(TABLE, choices, trials), "systems")
    assert {cell.text for cell in dict(table.rows)["16"][:3]} == {"missing"}
    assert run_draw(TABLE, choices) == 0


def test_a_phase_that_a_system_cannot_tell_is_said_so(choices: Choices, composer: Composer) -> None:
    trials = measured(TABLE, choices, composer, lambda trial, round_: {"phases_s": {}})
    table = table_of(gather(TABLE, choices, trials), "systems")
    assert dict(table.rows)["16"][0].text == "not told"


def test_warnings_leave_a_dagger_and_a_footnote(choices: Choices, composer: Composer) -> None:
    def change(trial: PlannedTrial, round_: int) -> dict[str, Any]:
        return {"warnings": ("busy",)} if trial.settings["system"] == "cavs" else {}

    trials = measured(TABLE, choices, composer, change)
    table = table_of(gather(TABLE, choices, trials), "strategies")
    cavs, fold, *_, ratio = dict(table.rows)["16"][:4]
    assert (cavs.warned, fold.warned, ratio.warned) == (True, False, True)
    assert any("busy (3)" in note for note in table.notes)


@pytest.mark.parametrize(("build", "is_marked"), [("wheel 2.2", True), ("source 2.1.2", False)])
def test_ratios_against_the_wheel_of_dynet_are_marked(
    build: str, is_marked: bool, choices: Choices, composer: Composer
) -> None:
    def change(trial: PlannedTrial, round_: int) -> dict[str, Any]:
        more = {"dynet_build": build} if trial.settings["system"] in real else {}
        return {"versions": {"made_up": "1.0", **more}}

    name, real = "headline_tree_lstm", ("dynet", "dynet_depth")
    artefact = gather(name, choices, measured(name, choices, composer, change))
    table = table_of(artefact, "systems")
    (cells,) = (cells for _, cells in table.rows)
    warned = {
        (column.label, "speed-up" in column.group)
        for column, cell in zip(table.columns, cells, strict=True)
        if cell.warned
    }
    marked = {(column.label, True) for column in table.columns if "DyNet" in column.label}
    assert len(marked) == 2
    assert warned == (marked if is_marked else set()), "ratios only, and only those"
    assert any("dynet_wheel (2)" in note for note in table.notes) == is_marked
    assert not any("dynet_wheel (" in note for note in table_of(artefact, "strategies").notes)
    assert run_draw(name, choices) == 0
    lines = lines_of(choices.results_dir / f"tables/{name}_systems.csv")
    named = {line["quantity"] for line in lines if "dynet_wheel" in line["warnings"]}
    assert named == ({"overall_speedup"} if is_marked else set())


def test_synthetic_data_say_so_in_every_title(
    choices: Choices, composer: Composer, tmp_path: Path
) -> None:
    for name in (FIGURE, TABLE, "cavs_fig8c"):
        artefact = gather(name, choices, plan_artefact(name, choices, composer))
        assert ("synthetic" in title_of(artefact)) == (name != "cavs_fig8c")
    (tmp_path / "data" / "sst").mkdir(parents=True)
    real = choices_from(
        {"scale": "smoke", "data_root": tmp_path / "data", "conf_dir": choices.conf_dir}, {}
    )
    artefact = gather(FIGURE, real, plan_artefact(FIGURE, real, composer))
    assert "synthetic" not in title_of(artefact)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("machine", {**MACHINE, "cpu": "another CPU"}),
        ("machine", {**MACHINE, "memory_bytes": 1 << 30}),
        ("versions", {"made_up": "2.0"}),
        ("source_sha256", "1" * 64),
    ],
)
def test_unlike_records_are_refused(
    field: str, value: object, choices: Choices, composer: Composer
) -> None:
    trials = measured(
        FIGURE, choices, composer, lambda trial, round_: {field: value} if round_ else {}
    )
    with pytest.raises(RecordError, match=r"unlike|differ"):
        gather(FIGURE, choices, trials)
    assert run_draw(FIGURE, choices) == 1


def test_a_speedup_is_a_ratio_of_medians_with_an_interval(
    choices: Choices, composer: Composer
) -> None:
    base, other = plan_artefact(TABLE, choices, composer)[:2]

    def point(trial: PlannedTrial, seconds: tuple[float, ...]) -> Point:
        records = [made_up_record(trial, r, instances_per_s=100 / s) for r, s in enumerate(seconds)]
        return Point(trial.settings, tuple(records))

    fast, slow = point(base, (1.0, 1.0, 1.0)), point(other, (2.0, 3.0, 4.0))
    ratio = speedup_of(slow, fast, "epoch_s", 100)
    assert ratio.summary is not None
    assert ratio.summary.median == pytest.approx(3.0)
    assert (ratio.summary.low, ratio.summary.high) == (pytest.approx(2.0), pytest.approx(4.0))
    assert speedup_of(None, fast, "epoch_s", 100).status == "not run"


def test_construction_and_computation_add_up_to_the_epoch(
    choices: Choices, composer: Composer
) -> None:
    trial = plan_artefact(TABLE, choices, composer)[0]
    point = Point(trial.settings, (made_up_record(trial, 0),))
    parts = [measure_of(point, name, 8544).summary for name in ("construction_s", "computation_s")]
    whole = measure_of(point, "epoch_s", 8544).summary
    assert whole is not None
    assert sum(p.median for p in parts if p) == pytest.approx(whole.median)


def test_the_report_needs_no_other_file(choices: Choices, composer: Composer) -> None:
    for name in (FIGURE, TABLE):
        measured(name, choices, composer)
        run_draw(name, choices)
    out = choices.results_dir / "report.html"
    sheets = [str(choices.results_dir / f"artefacts/{name}.json") for name in (FIGURE, TABLE)]
    assert report.main([str(out), *sheets, f"--results-dir={choices.results_dir}"]) == 0
    page = out.read_text(encoding="utf-8")
    assert page.count("data:image/png;base64,") == 1
    assert page.count("<table>") == 2
    assert "http" not in page.replace("https://www.w3.org", "")
    assert "synthetic" in page
    for words in ("Made-up CPU", "made_up 1.0", "snakemake all", "Titan X"):
        assert words in page


def test_the_sheet_counts_statuses_and_warnings(choices: Choices, composer: Composer) -> None:
    measured(FIGURE, choices, composer, lambda trial, round_: {"warnings": ("drift",)})
    run_draw(FIGURE, choices)
    sheet = json.loads((choices.results_dir / f"artefacts/{FIGURE}.json").read_text())
    assert sheet["statuses"] == {"ok": sheet["n_records"]}
    assert sheet["warnings"] == {"drift": sheet["n_records"]}


@pytest.mark.parametrize("key", ["draw", "quantities", "axis", "epoch", "compare"])
def test_an_experiment_without_a_key_says_which(key: str, tmp_path: Path) -> None:
    content = yaml.safe_load((CONF_DIR / f"experiment/{FIGURE}.yaml").read_text())
    del content[key]
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment/broken.yaml").write_text(yaml.safe_dump(content))
    with pytest.raises(ConfigError, match=key):
        read_presentation("broken", tmp_path)


def test_draw_tells_of_an_unknown_artefact_in_one_line(
    choices: Choices, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_draw("nothing", choices) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert FIGURE in error
