"""Drawing of records from another machine: the records determine all that is drawn."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import dynbatch.harness.planning.nodes
import dynbatch.plots.drawable
from dynbatch.harness.commands import draw
from dynbatch.harness.errors import RecordError
from dynbatch.harness.planning.artifacts import Choices, PlannedTrial, build_choices, plan_artifact
from dynbatch.harness.planning.config import Composer
from dynbatch.harness.records.count_row import AnyCount
from dynbatch.harness.records.record import Record, build_trial
from dynbatch.harness.records.store import RecordSet, write_packed
from dynbatch.plots.captions import build_title
from dynbatch.plots.draw import draw_experiment
from dynbatch.plots.drawable import Drawable, Elsewhere, select_drawable
from dynbatch.plots.experiment import load_experiment, load_held
from tests.support.experiments import FIGURE, TABLE, plan_once
from tests.support.made_up_counts import LEARNING
from tests.support.records import (
    conf_with_made_up_systems,
    made_up_record,
    plain_count,
    plain_record,
)
from tests.support.refusals import expect_refusal, read_refusal

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("without_pixels")]

Measure = Callable[..., list[Record]]
PlanOf = Callable[..., Drawable]
Output = pytest.CaptureFixture[str]
Patch = pytest.MonkeyPatch
GRAPH = "edbatch_fig1"
KEPT = (".csv", ".md")
OF_GRAPH = {"depth": None, "agenda": None, "fsm_sort": LEARNING, "critical_share": None}


@pytest.fixture(scope="module")
def conf_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a configuration of three experiments whose systems have only names."""
    folder = conf_with_made_up_systems(tmp_path_factory.mktemp("made_up"))
    for path in (folder / "experiment").iterdir():
        if path.stem not in (FIGURE, TABLE, GRAPH):
            path.unlink()
    return folder


@pytest.fixture(scope="module")
def composer(conf_dir: Path) -> Composer:
    return Composer(conf_dir)


@pytest.fixture(autouse=True)
def _blind(monkeypatch: Patch) -> None:
    """Make tests fail if they inspect this machine."""

    def look() -> bool:
        raise AssertionError("the machine that draws was looked at")

    monkeypatch.setattr(dynbatch.harness.planning.nodes, "has_cuda_device", look)
    monkeypatch.setattr(dynbatch.harness.planning.nodes, "count_usable_cpus", look)


@pytest.fixture
def measured(conf_dir: Path, composer: Composer, tmp_path: Path) -> Measure:
    """Return a function that makes up records of experiments, as if measured elsewhere."""

    def measure(*names: str, datasets: tuple[str, ...] = ("sst",), **printed: Any) -> list[Record]:
        config = {"scale": "smoke", "device": "cpu", "conf_dir": conf_dir} | printed
        choices = build_choices(config, {}, frozenset(datasets))
        trials = [t for name in names for t in plan_once(name, choices, composer)]
        return [as_measured(t, round_) for t in trials for round_ in range(t.rounds)]

    return measure


def as_measured(trial: PlannedTrial, round_: int) -> Record:
    """Return a made-up record with the full specification of its trial."""
    spec = trial.spec.replace_round(round_)
    printed = {"trial": build_trial(spec), "config": spec.to_dict()}
    return made_up_record(trial, round_).model_copy(update=printed)


@pytest.fixture
def plan_of(conf_dir: Path, composer: Composer, tmp_path: Path, monkeypatch: Patch) -> PlanOf:
    """Return a function that packs records, and selects what can be drawn from them."""
    monkeypatch.setattr(dynbatch.plots.drawable, "Composer", lambda *_: composer)  # with its cache

    def plan(
        records: list[Record], counts: list[AnyCount] | None = None, **printed: Any
    ) -> Drawable:
        place = tmp_path / "packed"
        write_packed(RecordSet(tuple(records), tuple(counts or ())), place)
        own = {"records": place, "conf_dir": conf_dir, "data_root": tmp_path / "none"}
        return select_drawable(own | {"results_dir": tmp_path / "drawn"} | printed, {})

    return plan


def read_drawn(choices: Choices) -> dict[str, bytes]:
    files = sorted(p for p in choices.results_dir.rglob("*") if p.suffix in KEPT)
    return {path.name: path.read_bytes() for path in files}


def draw_all(found: Drawable) -> dict[str, bytes]:
    """Draw all experiments, and return their files of numbers by name."""
    for name in found.drawn:
        draw.draw_held(name, found)
    return read_drawn(found.choices)


def test_the_same_is_drawn_as_where_it_was_measured(
    measured: Measure, plan_of: PlanOf, composer: Composer, tmp_path: Path
) -> None:
    records = measured(FIGURE, TABLE)
    found = plan_of(records)
    assert set(found.drawn) == {FIGURE, TABLE}
    assert len(found.lines) == 1, "nothing is missing, unused or left out"
    elsewhere = draw_all(found)

    here = replace(found.choices, results_dir=tmp_path / "here")
    for record in records:
        path = here.results_dir / f"raw/{record.trial_id}/r{record.trial.round}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(record.model_dump_json())
    for name in (FIGURE, TABLE):
        experiment = load_experiment(name, here, plan_artifact(name, here, composer))
        draw_experiment(experiment, here.results_dir)
    assert read_drawn(here) == elsewhere
    assert b"not measured" not in b"".join(elsewhere.values())


def test_scale_device_and_threads_are_those_of_the_records(
    measured: Measure, plan_of: PlanOf
) -> None:
    gpu = measured(TABLE, scale="medium", device="cuda", threads=64)
    found = plan_of(gpu)
    choices = found.choices
    assert (choices.scale, choices.device, choices.threads) == ("medium", "cuda", 64)
    assert found.drawn[TABLE].n_missing == 0

    cpu = measured(TABLE)[:3]
    found = plan_of([*gpu, *cpu])
    assert found.choices.device == "cuda"
    assert any("may use them): 3 of device=cpu threads=1" in line for line in found.lines)
    found = plan_of([*gpu, *cpu], scale="smoke", device="cpu")
    assert (found.choices.device, found.choices.threads) == ("cpu", 1)
    assert found.drawn[TABLE].seen == {(r.trial_id, r.trial.round) for r in cpu}


def test_a_stand_in_is_drawn_where_it_was_measured(
    measured: Measure, plan_of: PlanOf, tmp_path: Path
) -> None:
    """The datasets of the drawing machine do not matter."""
    (tmp_path / "data" / "sst").mkdir(parents=True)
    for datasets, data_root in (("sst_synthetic", "data"), ("sst", "none")):
        found = plan_of(measured(TABLE, datasets=(datasets,)), data_root=tmp_path / data_root)
        part = found.drawn[TABLE]
        source = Elsewhere(found.held)
        experiment = load_experiment(TABLE, found.choices, part.trials, (), source)
        assert ("synthetic" in build_title(experiment)) == (datasets == "sst_synthetic")
        assert part.n_missing == 0


def older(record: Record, **config: Any) -> Record:
    """Return the record as of older code, in which modules and trial had other names."""
    moved = {"adapter": "before", "model_module": "before", "loader": "before"} | config
    changes = {"trial_id": record.trial_id + "-before", "source_sha256": "f" * 64}
    return record.model_copy(update=changes | {"config": record.config | moved})


def test_records_of_older_code_are_drawn(measured: Measure, plan_of: PlanOf) -> None:
    new = measured(FIGURE)
    expected = draw_all(plan_of(new))
    for options in ({}, {"gone_since": 1}):
        old = [older(r, system_options=r.config["system_options"] | options) for r in new]
        assert draw_all(plan_of(old)) == expected
    assert not plan_of(new + [older(r) for r in new]).drawn[FIGURE].n_missing


@pytest.mark.parametrize("config", [{"learning_rate": 0.5}, {"split": "dev"}, {"timing": {}}])
def test_records_of_another_configuration_are_not_used(
    config: dict[str, Any], measured: Measure, plan_of: PlanOf
) -> None:
    """Keys that only one of both configurations has are ignored."""
    first, *rest = measured(TABLE)
    n_missing = sum(record.trial_id == first.trial_id for record in rest)
    others = [record for record in rest if record.trial_id != first.trial_id]
    found = plan_of([older(first, **config), *others])
    assert found.drawn[TABLE].n_missing == n_missing + (config != {"timing": {}})


def test_ambiguous_older_trials_are_not_used(measured: Measure, plan_of: PlanOf) -> None:
    """Neither of two older trials is used if they differ in a key that no longer exists."""
    first, *rest = measured(TABLE)
    twins = [older(first, before=1), older(first, before=2)]
    twins[1] = twins[1].model_copy(update={"trial_id": "another-name"})
    others = [r for r in rest if r.trial_id != first.trial_id]
    alone, both = plan_of([twins[0], *others]), plan_of([*twins, *others])
    assert both.drawn[TABLE].n_missing == alone.drawn[TABLE].n_missing + 1
    assert any("may use them): 2 of device=cpu" in line for line in both.lines)


def test_a_mini_batch_is_drawn_where_its_data_are(
    measured: Measure, plan_of: PlanOf, tmp_path: Path
) -> None:
    rows = [
        plain_count(f"count-{policy}", policy=policy, batch_size=1, offset=4867, learning=learning)
        for policy, learning in OF_GRAPH.items()
    ]
    found = plan_of(measured(TABLE), rows)
    assert set(found.drawn) == {FIGURE, TABLE}  # both share trials
    assert [line for line in found.lines if "dataset sst is not in data_root" in line]
    shutil.rmtree(tmp_path / "packed")
    with expect_refusal("dataset sst is not in", kind=RecordError):
        plan_of([], rows)
    (tmp_path / "data" / "sst").mkdir(parents=True)
    assert set(plan_of([], rows, data_root=tmp_path / "data").drawn) == {GRAPH}
    with pytest.raises(RecordError, match="1 of its counts have no record"):
        plan_of([], rows[1:], data_root=tmp_path / "data")
    rows[0] = plain_count("count-depth", policy="depth", batch_size=1, offset=3)
    with pytest.raises(RecordError, match="1 of its counts have no record"):
        plan_of([], rows, data_root=tmp_path / "data")


def test_nothing_to_draw_is_one_line(plan_of: PlanOf, conf_dir: Path, tmp_path: Path) -> None:
    with expect_refusal("cannot draw any experiment", kind=RecordError):
        plan_of([plain_record()])
    (tmp_path / "empty").mkdir()
    above_packed = "."  # records of each machine are drawn by themselves
    no_records = dict.fromkeys(("empty", above_packed), "has no records")
    for place, words in (*no_records.items(), ("nowhere", "does not exist")):
        with pytest.raises(RecordError, match=words):
            select_drawable({"records": tmp_path / place, "conf_dir": conf_dir}, {})


def test_the_command_draws_named_experiments(
    measured: Measure, plan_of: PlanOf, conf_dir: Path, tmp_path: Path, capsys: Output
) -> None:
    tables = draw_all(plan_of(measured(TABLE)))
    expected = {name: text for name, text in tables.items() if name.startswith(TABLE)}
    assert len(expected) == 4
    printed = [f"--records={tmp_path / 'packed'}", f"--conf-dir={conf_dir}"]
    drawn = tmp_path / "by_command"
    assert draw.main([TABLE, *printed, f"--results-dir={drawn}"]) == 0
    assert {p.name: p.read_bytes() for p in drawn.rglob("*") if p.suffix in KEPT} == expected
    for names in ([GRAPH], [TABLE, GRAPH]):
        assert draw.main([*names, *printed]) == 1
        read_refusal(capsys, f"cannot draw {GRAPH} from")


def test_the_command_of_a_drawing_is_for_a_shell(measured: Measure, plan_of: PlanOf) -> None:
    found = replace(plan_of(measured(TABLE)), records_path=Path("my records"))
    assert load_held(TABLE, found).command.endswith(f"draw_{TABLE} --config 'records=my records'")


def test_rounds_follow_records_and_gaps_are_missing(conf_dir: Path, composer: Composer) -> None:
    config = {"scale": "smoke", "device": "cpu", "conf_dir": conf_dir}
    planned = plan_artifact(FIGURE, build_choices(config, {}, frozenset({"sst"})), composer)[:3]

    def rounds(n_planned: int, *held: Sequence[int]) -> list[list[int | None]]:
        """Return the round of each record that is drawn, and None for missing ones."""
        trials = [replace(trial, rounds=n_planned) for trial in planned]
        pairs = zip(trials, held, strict=True)
        records = tuple(made_up_record(t, r) for t, numbers in pairs for r in numbers)
        return [
            [record and record.trial.round for record in found]
            for found in Elsewhere(RecordSet(records)).find_rounds(trials)
        ]

    nothing: list[int] = []
    assert rounds(6, range(3), [0], nothing) == [[0, 1, 2], [0, None, None], [None] * 3]
    assert rounds(6, nothing, nothing, nothing) == [[None]] * 3
    beyond = rounds(2, range(4), [0, 3], [3])
    assert beyond == [[0, 1, 2, 3], [0, 3], [3, None]], "more than planned, and gaps"
