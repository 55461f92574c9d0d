"""Composition of every YAML file, and one-line errors for invalid values and broken files."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from hydra.core.global_hydra import GlobalHydra
from hypothesis import example, given
from hypothesis import strategies as st
from omegaconf import OmegaConf

import dynbatch.harness.commands.data
from dynbatch.harness.errors import ConfigError
from dynbatch.harness.machine.source_code import find_module_file
from dynbatch.harness.planning.artifacts import Choices, build_choices, plan_artifact
from dynbatch.harness.planning.config import BenchConfig, Composer, compose_with_hydra, resolve_spec
from dynbatch.harness.planning.grid import list_experiment_names
from dynbatch.harness.planning.ordering import group_by_point
from dynbatch.harness.planning.overrides import format_override, read_settings
from dynbatch.harness.planning.yaml_files import list_choices, read_mapping
from dynbatch.harness.terminal.command_line import parse, plan, plan_experiment
from dynbatch.harness.trials.sources import hash_trial_source
from dynbatch.harness.values.checked import read
from dynbatch.harness.values.paths import CONF_DIR
from tests.support.pipelines import write_experiment
from tests.support.refusals import Output, expect_refusal, read_refusal

Patch = pytest.MonkeyPatch
NULL = "system=null"
SMOKE = build_choices({"scale": "smoke", "device": "cpu"}, {})


@pytest.fixture(scope="module")
def composer() -> Composer:
    return Composer()


@pytest.fixture
def conf_dir(tmp_path: Path) -> Path:
    shutil.copytree(CONF_DIR, tmp_path / "conf")
    return tmp_path / "conf"


@pytest.mark.parametrize("name", list_choices("system"))
def test_every_system_composes(composer: Composer, name: str) -> None:
    spec = composer.resolve_trial({"system": name})
    assert spec.system == name
    assert find_module_file(spec.adapter) is not None
    assert len(hash_trial_source(spec)) == 64


@pytest.mark.parametrize("group", ["model", "dataset"])
def test_every_model_and_data_set_composes(composer: Composer, group: str) -> None:
    for name in list_choices(group):
        config = composer.compose_config({"system": "null", group: name})
        assert getattr(config, group).name == name
        assert find_module_file(config.model.model) is not None
        assert find_module_file(config.dataset.loader) is not None


def test_an_experiment_without_trials_names_the_command_that_draws_it() -> None:
    with expect_refusal("snakemake draw_edbatch_fig9"):
        plan_experiment("edbatch_fig9", SMOKE, {})


@pytest.mark.parametrize(
    "overrides",
    [
        [],
        ["batch_size=3", "timing.min_seconds=0.5", "rounds=null"],
        ["dataset.options.sha256=null", "learning_rate=1e-2", "force=true", "dataset=sst"],
        ["++dataset.options.vocab_modulo=7", "data_root=some/where", "timing={min_passes: 4}"],
        ["hidden_size=32", "embedding_size=${hidden_size}"],
        ["system.name=mine"],
    ],
)
def test_settings_are_joined_as_hydra_joins_them(composer: Composer, overrides: list[str]) -> None:
    by_name = ["system='null'", *overrides]
    whole: Any = OmegaConf.create(compose_with_hydra(CONF_DIR, by_name))
    expected = read(BenchConfig, OmegaConf.to_container(whole, resolve=True))
    assert composer.compose_config(read_settings([NULL, *overrides])) == expected


def test_a_file_that_is_made_of_others_is_composed_by_hydra(conf_dir: Path) -> None:
    own = "defaults: [tree_lstm, _self_]\nname: mine\nlabel: Mine\n"
    (conf_dir / "model" / "mine.yaml").write_text(own)
    outer = GlobalHydra.instance().hydra
    model = Composer(conf_dir).compose_config({"system": "null", "model": "mine"}).model
    assert (model.name, model.model) == ("mine", "dynbatch.harness.models.tree_lstm")
    assert GlobalHydra.instance().hydra is outer


def test_a_value_that_refers_to_another_is_resolved_with_it(conf_dir: Path) -> None:
    bench = conf_dir / "bench.yaml"
    text = bench.read_text().replace("embedding_size: 0", "embedding_size: ${hidden_size}")
    bench.write_text(text)
    own = Composer(conf_dir)
    assert [own.compose_config({"hidden_size": n}).embedding_size for n in (3, 5)] == [3, 5]
    bench.write_text(text.replace("hidden_size: 256", "hidden_size: ???"))
    assert Composer(conf_dir).compose_config({"hidden_size": 3}).embedding_size == 3
    with pytest.raises(ConfigError, match="hidden_size"):
        Composer(conf_dir).compose_config({})


def test_values_do_not_leak_from_one_composition_to_the_next(composer: Composer) -> None:
    dict(composer.compose_config({"batch_size": 3}).system.options)
    composer.compose_config({"batch_size": 3, "+system.options.more": 1})
    assert composer.compose_config({}).batch_size != 3
    assert "more" not in composer.compose_config({}).system.options


@given(st.text(alphabet=st.characters(exclude_categories=["Cs", "Cc", "Z"]), min_size=1))
@example("a b\\'\"c\\")
@example("null")
@example("plain/path-1.0_x")
@example("a #b: c")
def test_a_text_is_read_as_it_is_written(text: str) -> None:
    assert read_settings([format_override("data_root", text)]) == {"data_root": text}


def test_hydra_cfg_option_prints_config_and_plans_nothing(capsys: Output) -> None:
    assert parse([NULL, "--cfg", "job"]) == []
    assert "batch_size:" in capsys.readouterr().out
    assert parse(["--cfg", "job", "batch_size=3", NULL]) == []
    assert "batch_size: 3" in capsys.readouterr().out


def test_rounds_are_outermost(tmp_path: Path) -> None:
    arguments = ["-m", "system=null,reference", "round=1,0", f"results_dir={tmp_path}"]
    planned = plan(parse(arguments), arguments)
    assert [one.spec.round for one in planned] == [0, 0, 1, 1]
    for round_ in (0, 1):
        specs = [one.spec for one in planned if one.spec.round == round_]
        (members,) = group_by_point(specs, round_, lambda spec: spec).values()
        assert specs == members
        assert {spec.system for spec in specs} == {"null", "reference"}
    rounds = plan(parse([NULL, "rounds=3", f"results_dir={tmp_path}"]), [])
    assert [one.spec.round for one in rounds] == [0, 1, 2]


def test_the_command_is_kept_as_it_was_typed(tmp_path: Path) -> None:
    arguments = [NULL, f"results_dir={tmp_path}", "data_root=with a blank"]
    (one,) = plan(parse(arguments), arguments)
    assert one.spec.command == f"bench system=null results_dir={tmp_path} 'data_root=with a blank'"


def test_out_names_the_record(tmp_path: Path) -> None:
    typed = [NULL, f"results_dir={tmp_path}", f"out={tmp_path}/here/mine.json"]
    (one,) = plan(parse(typed), typed)
    assert one.path == tmp_path / "here" / "mine.json"
    with pytest.raises(ConfigError, match="one file for several records"):
        plan(parse([*typed, "rounds=2"]), typed)


@pytest.mark.slow
def test_an_experiment_takes_overrides(tmp_path: Path) -> None:
    name = list_experiment_names()[0]
    typed = [f"experiment={name}", "scale=smoke", "device=cpu", "seed=7", "rounds=2"]
    planned = plan(parse([*typed, f"results_dir={tmp_path}"]), typed)
    trials = plan_experiment(name, SMOKE, {"device": "cpu"})
    assert {one.spec.seed for one in planned} == {7}
    assert [one.spec.round for one in planned] == [0] * len(trials) + [1] * len(trials)


def test_a_trial_of_an_experiment_has_the_rounds_of_its_block(
    conf_dir: Path, tmp_path: Path
) -> None:
    """As in the pipeline."""
    base = {"system": "null", "model": "tree_lstm", "dataset": "sst_synthetic", "hidden_size": 8}
    blocks = [{"batch_size": 1}, {"batch_size": 2, "rounds": 3}]
    scale = {"rounds": 2, "base": base, "blocks": blocks}
    write_experiment(tmp_path, "own", {"title": "T", "paper": "P", "scales": {"smoke": scale}})
    typed = [f"--config-path={conf_dir}", "experiment=own", "scale=smoke", "device=cpu"]
    planned = plan(parse([*typed, f"results_dir={tmp_path}/results"]), typed)
    found = [(one.spec.round, one.spec.batch_size) for one in planned]
    assert found == [(0, 1), (0, 2), (1, 1), (1, 2), (2, 2)]


@pytest.mark.parametrize(
    "typed", ["system.options.autobatch=depth", "system.options.build='wheel'"]
)
def test_a_sweep_over_systems_may_set_their_options(typed: str) -> None:
    """Hydra itself checks the option against the default system, not the swept ones."""
    jobs = parse(["-m", "system=dynet,dynet_off", "model=tree_lstm,tree_gru", typed])
    key, _, value = typed.partition("=")
    option = key.rpartition(".")[2]
    assert [job.config.system.options[option] for job in jobs] == [value.strip("'")] * 4
    assert [job.config.system.name for job in jobs] == ["dynet", "dynet", "dynet_off", "dynet_off"]


def test_swept_options_may_be_null_and_leave_no_folder(tmp_path: Path, monkeypatch: Patch) -> None:
    """Hydra accepts null in a list of values, but not in `choice(null)`."""
    monkeypatch.chdir(tmp_path)
    arguments = ["dataset.options.sha256=null", "dataset=sst", "model=tree_lstm"]
    jobs = parse(["--multi", "system=null,reference", "seed=0,1", *arguments])
    assert list(tmp_path.iterdir()) == []
    found = [(job.config.system.name, job.config.seed) for job in jobs]
    assert found == [("null", 0), ("null", 1), ("reference", 0), ("reference", 1)]
    assert {job.config.dataset.options["sha256"] for job in jobs} == {None}
    jobs = parse(["-m", "system=dynet,dynet_off", "system.options.autobatch=depth,agenda"])
    assert [job.config.system.options["autobatch"] for job in jobs] == ["depth", "agenda"] * 2


@pytest.mark.parametrize(
    "text",
    ["++hydra.mode='MULTIRUN'", "hydra/launcher=joblib", "+hydra.sweeper.params.batch_size=2"],
)
@pytest.mark.parametrize("flags", [[], ["-m"]])
def test_hydra_s_own_settings_are_refused(text: str, flags: list[str]) -> None:
    """A launcher or sweeper would measure nothing, or on another machine."""
    with expect_refusal(text.partition("=")[0], " sets how Hydra runs trials"):
        parse([*flags, text, "system=null"])


def test_a_copy_of_the_configuration_is_read_everywhere(conf_dir: Path, tmp_path: Path) -> None:
    experiment = conf_dir / "experiment" / "first_look.yaml"
    experiment.rename(experiment.with_name("own.yaml"))
    typed = [f"--config-path={conf_dir}", "experiment=own", "scale=smoke", "device=cpu"]
    planned = plan(parse([*typed, f"results_dir={tmp_path}/results"]), typed)
    assert len({one.spec.trial_id for one in planned}) == 3


def test_a_policy_has_one_name_however_it_is_typed(composer: Composer) -> None:
    (job,) = parse(["system=cavs", "system.options.policy=depth"])
    assert resolve_spec(job.config) == composer.resolve_trial({"system": "cavs", "policy": "depth"})
    assert resolve_spec(job.config).policy == "depth"
    swept = parse(["-m", "system=cavs,vertex", "system.options.policy=depth,agenda"])
    assert [job.config.policy for job in swept] == ["depth", "agenda"] * 2


def test_a_place_in_quotes_is_looked_into(tmp_path: Path) -> None:
    """The dataset in the directory is measured, not its fallback."""
    place = tmp_path / "it's (a) $(touch x) ; place"
    (place / "sst").mkdir(parents=True)
    choices = ["experiment=headline_tree_lstm", "scale=smoke", "device=cpu", "rounds=1"]
    choices += [format_override("data_root", place)]
    choices += [format_override("results_dir", tmp_path / "its #results")]
    specs = [one.spec for one in plan(parse(choices), choices)]
    assert {(spec.dataset, spec.data_root) for spec in specs} == {("sst", str(place))}
    assert {Path(spec.cache_dir).parent for spec in specs} == {tmp_path / "its #results"}


# --- broken files ---

BRACKET = (b"name: [a\n", ":2: invalid YAML: expected ',' or ']'")
TAB = (b"\tname: x\n", ":1: invalid YAML: found character '\\t' that cannot start any token")
TAG = (b"name: !!python/object:os.x {}\n", ":1: invalid YAML: could not determine a constr")
BYTES = (b"name: \xff\n", "'utf-8' codec can't decode byte 0xff")
SETTINGS = {"system": "null", "model": "tree_fc", "dataset": "complete_trees"}


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("bench.yaml", *BRACKET),
        *(("system/null.yaml", *one) for one in (BRACKET, TAB, TAG, BYTES)),
    ],
)
def test_broken_file_is_named(conf_dir: Path, file: str, content: bytes, words: str) -> None:
    (conf_dir / file).write_bytes(content)
    names_file = [str(conf_dir / file)] if (content, words) != BYTES else []
    with expect_refusal(words, "; fix the file", *names_file):
        Composer(conf_dir).compose_config(SETTINGS)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        BRACKET,
        (b"- a\n", ": expected keys and values, got a list"),
        (b"", ": expected keys and values, got nothing"),
        (b"name: sst\n", " has no loader; add it"),
    ],
)
def test_broken_file_read_without_hydra_is_named_in_error(
    conf_dir: Path, tmp_path: Path, content: bytes, words: str, monkeypatch: Patch, capsys: Output
) -> None:
    path = conf_dir / "dataset" / "sst.yaml"
    path.write_bytes(content)
    monkeypatch.setattr(dynbatch.harness.commands.data, "CONF_DIR", conf_dir)
    assert dynbatch.harness.commands.data.main(["list"]) == 1
    read_refusal(capsys, f"bench-data: {path}", words)
    choices = Choices("smoke", "cpu", 1, tmp_path, tmp_path, conf_dir)
    with pytest.raises(ConfigError, match=r"sst\.yaml"):
        plan_artifact("cavs_fig8d", choices, Composer(conf_dir))


@pytest.mark.parametrize("kind", ["FIFO", "directory"])
@pytest.mark.parametrize("file", ["bench.yaml", "system/null.yaml"])
def test_irregular_file_is_refused_without_waiting(conf_dir: Path, file: str, kind: str) -> None:
    path = conf_dir / file
    path.unlink()
    os.mkfifo(path) if kind == "FIFO" else path.mkdir()
    with expect_refusal(f"{path} cannot be read: it is a {kind}"):
        Composer(conf_dir).compose_config(SETTINGS)


@pytest.mark.parametrize("group", ["system", "experiment"])
def test_duplicate_key_is_reported(conf_dir: Path, group: str) -> None:
    path = min((conf_dir / group).glob("*.yaml"))
    path.write_text(path.read_text(encoding="utf-8") + "\nname: a\nname: b\n")
    with pytest.raises(ConfigError, match=f"{path.name}:.* found duplicate key name"):
        read_mapping(path)
