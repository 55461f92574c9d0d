"""Plans of the shipped experiments: valid, with everything measured shown, and trials shared."""

from __future__ import annotations

import fnmatch
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from dynbatch.harness.planning.artifacts import (
    Choices,
    PlannedTrial,
    build_choices,
    merge_equal_trials,
    plan_artifact,
    plan_counts,
)
from dynbatch.harness.planning.claim_points import EQUALLY_LONG
from dynbatch.harness.planning.config import Composer
from dynbatch.harness.planning.durations import COUNT_S, DRAWN_S, STARTED_S, estimate_usual_s
from dynbatch.harness.planning.grid import SCALES, expand, list_experiment_names, read_experiment
from dynbatch.harness.planning.kinds import read_systems
from dynbatch.harness.planning.yaml_files import read_mapping
from dynbatch.harness.records.stats import INTERVAL_ROUNDS
from dynbatch.harness.values.paths import CONF_DIR
from dynbatch.plots.declaration import CEILING, read_declaration
from dynbatch.plots.published import read_published
from tests.support.experiments import plan_once
from tests.support.pipelines import write_conf
from tests.support.refusals import expect_refusal

SLOW = pytest.mark.slow
PAPERS = {"ACRoBat", "Cavs", "DyNet", "ED-Batch"}
VARIANTS = {"vertex_openblas", "vertex_shared"}  # of the engine, with rows of their own
STEPS = ("lazy_batching", "fusion", "hoisting")  # of Cavs's Fig. 10
COMPILED_S = 0.5  # compilation of one model with one set of engine options, once per machine


@pytest.fixture(scope="module")
def composer() -> Composer:
    return Composer()


def choices(scale: str) -> Choices:
    return build_choices({"scale": scale, "device": "cpu", "data_root": "none"}, {})


@pytest.mark.parametrize("scale", ["smoke", *(pytest.param(s, marks=SLOW) for s in SCALES[1:])])
@pytest.mark.parametrize("name", list_experiment_names())
def test_every_experiment_shows_all_it_measures(name: str, scale: str, composer: Composer) -> None:
    trials = plan_once(name, choices(scale), composer)
    measures = read_experiment(name)["scales"][scale] != "nothing"
    assert bool(trials or plan_counts(name, choices(scale))) == measures
    grid = expand(name, scale)
    if grid.settings:
        own = {point["system"] for point in grid.settings}
        assert {trial.spec.system for trial in trials} == own
    shown = read_declaration(name, CONF_DIR)
    axis = (shown.figure or {}).get("x")
    assert all(axis in trial.settings for trial in trials if axis)
    if not shown.compare:
        return
    measured = {trial.settings["system"] for trial in trials}
    if CEILING in (shown.table or {}).get("extra", ()):  # a separate row, not compared
        measured -= {one.name for one in read_systems(CONF_DIR) if one.kind == "upper_bound"}
    if not grid.trials_of:  # trials of other experiments may be omitted
        assert measured <= {system for group in shown.compare.values() for system in group}
    assert all(measured & set(group) for group in shown.compare.values())


def test_experiments_share_their_trials(composer: Composer) -> None:
    plans = [plan_once(name, choices("smoke"), composer) for name in list_experiment_names()]
    trials = merge_equal_trials(trial for plan in plans for trial in plan)
    assert len({trial.trial_id for trial in trials}) == len(trials)
    assert len(trials) < sum(map(len, plans)) / 2
    # The time limit of the pipeline on 2 cores allows about 9 processes per system, of 1 to 4
    # seconds each, with a longer first one for each model. Single cells take 1 second.
    small = [trial for trial in trials if trial.settings["model"] == "cell"]
    n_systems = len({t.settings["system"] for t in trials if t not in small})
    assert (sum(trial.rounds for trial in trials) - len(small)) / n_systems <= 120 / 13
    assert len(small) <= 20


def test_acrobat_has_each_of_its_points_once() -> None:
    """Strategy and baselines of all its experiments are trials of its Table 4, in both sizes."""
    shared = {"acrobat", "acrobat_ahead", "dynet", "dynet_plus", "torch_eager", "torch_levels"}
    points = expand("acrobat_table4", "paper").settings
    measured = {json.dumps(point, sort_keys=True) for point in points}
    for name in list_experiment_names():
        if name.startswith("acrobat_"):
            for point in expand(name, "paper").settings:
                if point["system"] in shared:
                    assert json.dumps(point, sort_keys=True) in measured, name
    published = read_published("acrobat_table4")[["model", "hidden_size", "batch_size"]]
    sizes = {(p["model"], p["hidden_size"], p["batch_size"]) for p in points}
    assert sizes == set(published.itertuples(index=False, name=None))
    layers = {(p["hidden_size"], p.get("model.options.layers"))
              for name in ("acrobat_table4", "acrobat_table7_waiting", "acrobat_fig5")
              for p in expand(name, "paper").settings if p["model"] == "berxit"}  # fmt: skip
    assert layers == {(768, None), (1024, 18)}
    berxit = read_mapping(CONF_DIR / "model" / "berxit.yaml", "options")["options"]
    assert berxit["layers"] == 12


@pytest.mark.parametrize("scale", SCALES)
def test_batch_sizes_of_an_experiment_share_instances(scale: str, composer: Composer) -> None:
    n_shared = 0
    for name in list_experiment_names():
        found: dict[str, set[int]] = {}
        for trial in plan_once(name, choices(scale), composer):
            n_shared += trial.spec.timing.n_instances > 0
            others = {k: v for k, v in trial.settings.items() if not k.startswith("timing.")}
            others.pop("batch_size")
            if str(others["dataset"]).startswith(EQUALLY_LONG):
                continue
            n_instances = trial.spec.n_mini_batches * trial.spec.batch_size
            found.setdefault(json.dumps(others), set()).add(n_instances)
        unlike = {key: sizes for key, sizes in found.items() if len(sizes) > 1}
        assert unlike == {}, f"{name}: other batch sizes measure other instances"
    assert n_shared or scale != "paper"


@pytest.mark.parametrize(
    "name",
    [*fnmatch.filter(list_experiment_names(), "headline_*"), "dynet_table1", "edbatch_table2"],
)
def test_headlines_and_quick_claims_at_the_papers_scale_have_an_interval(name: str) -> None:
    assert read_experiment(name)["scales"]["paper"]["rounds"] >= INTERVAL_ROUNDS


@pytest.mark.parametrize("scale", SCALES)
def test_model_rewriting_systems_never_use_vocab_modulo(scale: str) -> None:
    """Word ids modulo a number make different leaves equal."""
    transformed = {one.name for one in read_systems(CONF_DIR) if one.kind == "model_rewrite"}
    found = 0
    for name in list_experiment_names():
        for settings in expand(name, scale).settings:
            if settings["system"] in transformed:
                found += 1
                assert settings.get("dataset.options.vocab_modulo", 0) == 0, name
    assert found


def list_own_systems(paper: str) -> dict[str, set[str]]:
    """Return the systems that are a paper's own, by comparison; empty for other experiments.

    The label of a preset is the name of its paper's system and "strategy"; that of the real system
    starts with the name.
    """
    name = re.split(r"[,(]", paper)[0].strip()
    presets = {s.name for s in read_systems(CONF_DIR) if s.label == f"{name} strategy"}
    real = {s.name for s in read_systems(CONF_DIR) if s.label.startswith(f"{name} (")}
    return {"strategies": presets, "systems": real or presets} if presets else {}


def test_a_comparison_starts_with_the_papers_own_system_else_with_the_engine() -> None:
    """The engine is one more row of a paper's comparison, after all others."""
    kinds = {system.name: system.kind for system in read_systems(CONF_DIR)}
    papers = set()
    for name in list_experiment_names():
        declared = read_declaration(name, CONF_DIR)
        own = list_own_systems(declared.paper)
        for group, systems in declared.compare.items():
            where = f"{name}, {group}"
            assert not (group == "strategies" and VARIANTS & {*systems}), where
            if not own:
                assert "vertex" not in systems[1:], where
            elif {kinds[s] for s in systems if s not in own[group]} - {"ablation"}:  # not its steps
                papers.add(re.split(r"[ ,]", declared.paper)[0])
                assert systems[0] in own[group], where
                engine = tuple(s for s in systems if s in ("vertex", "vertex_shared"))
                assert systems[len(systems) - len(engine) :] == engine, where
    assert papers == PAPERS


def test_the_comparisons_of_cavs_have_real_systems_and_the_engine() -> None:
    """Fig. 8 and 9 and both Tables 1: Cavs over DyNet and Fold."""
    names = [n for n in list_experiment_names() if re.match(r"cavs_(fig[89]|(short_)?table1)", n)]
    assert len(names) == 14
    for name in names:
        compare = read_declaration(name, CONF_DIR).compare
        assert {"cavs", "dynet", "fold", "vertex"} <= set(compare["systems"]), name
        assert {"cavs", "vertex"} <= set(compare["strategies"]), name
        for scale in SCALES:
            systems = {settings["system"] for settings in expand(name, scale).settings}
            assert {"cavs", "dynet", "vertex"} <= systems, f"{name}, {scale}"


@pytest.mark.parametrize("name", [n for n in list_experiment_names() if "headline_" in n])
def test_every_point_of_a_headline_has_the_engine_with_openblas(name: str) -> None:
    assert "vertex_openblas" in read_declaration(name, CONF_DIR).compare["systems"]
    points: dict[str, list[str]] = {}
    for settings in expand(name, "paper").settings:
        rest = {key: value for key, value in settings.items() if key != "system"}
        points.setdefault(str(settings["system"]), []).append(json.dumps(rest, sort_keys=True))
    assert points["vertex"] == points["vertex_openblas"]


@pytest.mark.parametrize("scale", SCALES)
def test_cavs_serial_baseline_varies_only_policy_and_batch_size(scale: str) -> None:
    settings = expand("cavs_serial", scale).settings
    keys = {key for one in settings for key in one if not key.startswith("timing.")}
    varied = {key for key in keys if len({one.get(key) for one in settings}) > 1}
    assert varied == {"policy", "batch_size"}
    policies = {(one["system"], one.get("policy")) for one in settings}
    assert policies == {("cavs", None), ("cavs", "unbatched")}


@pytest.mark.parametrize("scale", ["medium", "paper"])
def test_verdicts_have_three_rounds(scale: str) -> None:
    for name in list_experiment_names():
        grid = expand(name, scale)
        assert all(point.get("rounds", grid.rounds) >= 3 for point in grid.settings), name


def plan_blocks(folder: Path, *blocks: dict[str, object]) -> tuple[PlannedTrial, ...]:
    base = {"system": "null", "model": "tree_lstm", "dataset": "sst_synthetic", "hidden_size": 8}
    scales = {"smoke": {"rounds": 2, "base": base, "blocks": blocks}}
    write_conf(folder, one={"title": "T", "paper": "P", "scales": scales})
    chosen = replace(choices("smoke"), conf_dir=folder / "conf")
    return plan_artifact("one", chosen, Composer(chosen.conf_dir))


def test_streaming_is_planned_on_a_gpu_only(composer: Composer) -> None:
    """On both devices it is next to the same trials without it."""
    found = {}
    for device in ("cpu", "cuda"):
        trials = plan_artifact("cavs_fig10a", replace(choices("paper"), device=device), composer)
        found[device] = [
            (trial.spec.hidden_size, *map(trial.spec.system_options.get, STEPS)) for trial in trials
        ]
    streamed = [point for point in found["cuda"] if point not in found["cpu"]]
    sizes = sorted({size for size, *_ in found["cpu"]})
    assert streamed == [(size, on, on, "stream") for on in (False, True) for size in sizes]


def test_a_block_may_have_rounds_of_its_own(tmp_path: Path) -> None:
    blocks: list[dict[str, object]] = [
        {"batch_size": [1, 2]},
        {"batch_size": [2, 4], "rounds": 5},
        {"batch_size": 8, "rounds": None},
    ]
    trials = plan_blocks(tmp_path, *blocks)
    found = [(trial.spec.batch_size, trial.rounds) for trial in trials]
    assert found == [(1, 2), (2, 5), (4, 5), (8, 2)]
    assert all("rounds" not in {*trial.settings, *trial.all_settings} for trial in trials)


@pytest.mark.parametrize("rounds", [0, "many"])
def test_wrong_rounds_of_a_block_are_refused(tmp_path: Path, rounds: object) -> None:
    with expect_refusal("rounds="):
        plan_blocks(tmp_path, {"batch_size": 1, "rounds": rounds})


def test_medium_is_over_in_a_hundred_minutes(composer: Composer) -> None:
    """The rule is from rounds of headlines, which take longer than others."""
    names, medium = list_experiment_names(), choices("medium")
    trials = merge_equal_trials(t for name in names for t in plan_once(name, medium, composer))
    specs = [trial.spec for trial in trials for _ in range(trial.rounds)]
    measuring_s = sum(estimate_usual_s(s.adapter, s.timing.min_seconds) + STARTED_S for s in specs)
    compiled = {
        (spec.system, spec.model, spec.mode, str(spec.system_options))
        for spec in specs
        if spec.adapter.startswith("dynbatch.systems.on_core") and spec.model != "cell"
    }
    counted = {sweep.sweep_id for name in names for sweep in plan_counts(name, medium)}
    shown_s = COUNT_S * len(counted) + DRAWN_S * len(names)
    assert (measuring_s + COMPILED_S * len(compiled) + shown_s) / 60 < 105
