"""Every YAML composes, and every wrong value becomes one line."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

import pytest
import yaml
from omegaconf import OmegaConf

from harness.contracts.policy import LearningSettings
from harness.errors import ConfigError
from harness.machine.source_code import module_file
from harness.planning.artefacts import choices_from
from harness.planning.compose import Composer, as_recorded, plain_of, quote_null
from harness.planning.grid import expand, experiment_names
from harness.planning.ordering import order_of_round
from harness.planning.requests import setting
from harness.planning.resolve import spec_of, specs_of
from harness.planning.yaml_files import choices_of
from harness.terminal.command_line import experiment_trials, parse, plan
from harness.trials.sources import source_sha256
from harness.trials.spec import Limits, Timing
from harness.values.places import CONF_DIR

NULL = "system=null"
SMOKE = choices_from({"scale": "smoke", "device": "cpu"}, {})


@pytest.fixture(scope="module")
def composer() -> Composer:
    return Composer()


@pytest.mark.parametrize("name", choices_of("system"))
def test_every_system_composes(composer: Composer, name: str) -> None:
    spec = spec_of(composer.compose([f"system={name}"]))
    assert spec.system == name
    assert module_file(spec.adapter) is not None
    assert len(source_sha256(spec)) == 64


@pytest.mark.parametrize("group", ["model", "dataset"])
def test_every_model_and_data_set_composes(composer: Composer, group: str) -> None:
    for name in choices_of(group):
        config = composer.compose([NULL, f"{group}={name}"])
        assert config[group].name == name
        assert module_file(config.model.model) is not None
        assert module_file(config.dataset.loader) is not None


@pytest.mark.slow
@pytest.mark.parametrize("name", experiment_names())
def test_every_experiment_expands(name: str) -> None:
    # The paper's scale is expanded in test_artefact_plans.
    grid = expand(name, "smoke")
    if grid.of_claims or grid.trials_of:  # other experiments' trials
        specs, _ = experiment_trials(name, SMOKE, None, ["device=cpu", "threads=1"])
        assert specs
        return
    if not grid.settings:  # counts, and times nothing
        with pytest.raises(ConfigError, match=f"snakemake draw_{name}"):
            experiment_trials(name, SMOKE, None, [])
        return
    specs, rounds = experiment_trials(name, SMOKE, None, ["device=cpu", "threads=1"])
    assert {spec.system for spec in specs} == {point["system"] for point in grid.settings}
    assert rounds == grid.rounds


def test_a_group_is_a_file_by_its_own_name() -> None:
    for group in ("system", "model", "dataset"):
        for path in (CONF_DIR / group).glob("*.yaml"):
            assert yaml.safe_load(path.read_text())["name"] == path.stem


@pytest.mark.parametrize(
    "overrides",
    [
        (NULL,),
        ("system=reference", "model=tree_fc", "dataset=complete_trees"),
        ("system=vertex", "batch_size=3", "timing.min_seconds=0.5", "policy=depth", "rounds=null"),
        (NULL, "model=tree_fc", "model.options.variant=cavs", "data_root=some/where"),
        (NULL, "dataset.options.sha256=null", "learning_rate=1e-2", "force=true"),
        (NULL, "++dataset.options.vocab_modulo=7"),
    ],
)
def test_composing_quickly_gives_what_hydra_gives(
    composer: Composer, overrides: Sequence[str]
) -> None:
    (job,) = parse(overrides)
    assert composer.compose(overrides) == job.config
    assert spec_of(composer.compose(overrides)) == spec_of(job.config)


def test_a_file_that_says_more_than_its_group_is_composed_as_hydra_does(tmp_path: Path) -> None:
    """Not below its own group only: here a model sets an option of whichever system it meets."""
    conf_dir = tmp_path / "conf"
    shutil.copytree(CONF_DIR, conf_dir)
    (conf_dir / "more.yaml").write_text("system: {options: {said_by: a model}}\n")
    path = conf_dir / "model" / "tree_gru.yaml"
    path.write_text("defaults: [/more@_global_, _self_]\n" + path.read_text())
    own = Composer(conf_dir)
    for system in (NULL, "system=reference"):
        for model in ("tree_lstm", "tree_gru"):
            overrides = [system, f"model={model}"]
            composed = own.compose(overrides)
            assert composed == Composer(conf_dir).compose(overrides)
            assert composed.system.name == system.removeprefix("system=")
            assert ("said_by" in (composed.system.options or {})) == (model == "tree_gru")


def test_every_file_stands_there_as_hydra_has_it() -> None:
    """Also those that are joined to another's composition without Hydra."""
    own = Composer()
    for group in ("system", "model", "dataset"):
        for name in choices_of(group):
            overrides = [NULL, "model=tree_lstm", "dataset=sst", "batch_size=3"]
            overrides = [text for text in overrides if not text.startswith(f"{group}=")]
            overrides.append(as_recorded(f"{group}={name}"))
            expected = plain_of(Composer().compose(overrides))
            assert plain_of(own.compose(overrides)) == own.plain(overrides) == expected


@pytest.mark.parametrize(
    "overrides",
    [
        ["timing={min_seconds: 1.5}", "timing.min_passes=4"],  # a mapping
        ["model.options.variant=cavs", "model=tree_fc"],
        ["hidden_size=32", "embedding_size=${hidden_size}"],  # a reference
        ["+dataset.options.n_instances=7"],  # Hydra's grammar
        ["batch_size=8", "batch_size=4"],  # the later one
        ["learning_rate=1", "policy=null", "data_root=1"],  # as the types have it
        ["model=tree_fc", "model.options.variant.of=mine"],  # below what was no mapping
    ],
)
def test_plain_values_are_those_of_the_composition(
    composer: Composer, overrides: list[str]
) -> None:
    whole = [NULL, *overrides]
    assert composer.plain(whole) == plain_of(composer.compose(whole))


def test_plain_values_belong_to_who_asked(composer: Composer) -> None:
    composer.plain([NULL, "batch_size=2"])["system"]["options"]["more"] = 1
    assert "more" not in composer.plain([NULL, "batch_size=2"])["system"]["options"]


def test_a_value_that_refers_to_another_is_resolved_with_it(tmp_path: Path) -> None:
    shutil.copytree(CONF_DIR, tmp_path / "conf")
    bench = tmp_path / "conf" / "bench.yaml"
    text = bench.read_text().replace("embedding_size: 0", "embedding_size: ${hidden_size}")
    bench.write_text(text)
    own = Composer(tmp_path / "conf")
    assert [own.plain([NULL, f"hidden_size={n}"])["embedding_size"] for n in (3, 5)] == [3, 5]
    bench.write_text(text.replace("hidden_size: 256", "hidden_size: ???"))
    sizes = ["batch_size=2", "hidden_size=3"]
    assert Composer(tmp_path / "conf").plain([NULL, *sizes])["embedding_size"] == 3
    with pytest.raises(ConfigError, match="hidden_size"):
        Composer(tmp_path / "conf").plain([NULL, "batch_size=2"])


def test_a_wrong_value_is_told_of_plain_values_too(composer: Composer) -> None:
    for wrong in ("batch_size=many", "no_such_key=1", "timing.no_such_key=1"):
        with pytest.raises(ConfigError) as told:
            composer.compose([NULL, wrong])
        with pytest.raises(ConfigError) as told_too:
            composer.plain([NULL, wrong])
        assert str(told.value) == str(told_too.value)


def test_systems_models_and_data_sets_are_joined_as_hydra_joins_them() -> None:
    own = Composer()
    with pytest.raises(ConfigError, match="system=nothing is unknown"):
        own.compose(["system=nothing", "model=tree_lstm", "dataset=sst"])
    for system, model, dataset in (
        (NULL, "tree_lstm", "sst"),
        ("system=vertex", "tree_lstm", "sst"),
        ("system=jax_scan", "var_lstm", "ptb"),
        (NULL, "tree_fc", "complete_trees"),
        ("system=vertex", "tree_lstm", "sst"),
    ):
        overrides = [system, f"model={model}", f"dataset={dataset}", "batch_size=3"]
        assert own.compose(overrides) == Composer().compose(overrides)
        assert own.compose(overrides) == parse(overrides)[0].config


def test_checked_classes_are_what_the_configuration_is_typed_with(composer: Composer) -> None:
    config = composer.compose([NULL, "timing.min_passes=7", "limits.time_s=5"])
    for key, kind in (("timing", Timing), ("limits", Limits), ("learning", LearningSettings)):
        assert OmegaConf.get_type(config, key) is kind
        assert list(config[key]) == [item.name for item in fields(kind)]
    spec = spec_of(config)
    assert (spec.timing.min_passes, spec.limits.time_s) == (7, 5.0)


def test_values_do_not_leak_from_one_composition_to_the_next(composer: Composer) -> None:
    composer.compose([NULL, "batch_size=3"])
    assert composer.compose([NULL]).batch_size != 3


def test_the_null_system_can_be_named() -> None:
    assert quote_null("system=null") == "system='null'"
    assert quote_null("system=dynet,null") == "system=dynet,'null'"
    assert quote_null("policy=null") == "policy=null"
    assert [job.config.system.name for job in parse(["-m", "system=reference,null"])] == [
        "reference",
        "null",
    ]


def test_equal_points_are_one_trial() -> None:
    lists = [(NULL, "batch_size=8"), (NULL, "batch_size=8", "seed=0"), (NULL, "batch_size=9")]
    assert len(specs_of(lists)) == 2
    assert len(specs_of(lists, ["batch_size=1"])) == 1


def test_what_hydra_answers_itself_plans_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert parse([NULL, "--cfg", "job"]) == []
    assert "batch_size:" in capsys.readouterr().out


def test_rounds_are_outermost(tmp_path: Path) -> None:
    arguments = ["-m", "system=null,reference", "round=1,0", f"results_dir={tmp_path}"]
    planned = plan(parse(arguments), arguments)
    assert [one.spec.round for one in planned] == [0, 0, 1, 1]
    for round_ in (0, 1):
        specs = [one.spec for one in planned if one.spec.round == round_]
        assert specs == order_of_round(specs, round_, lambda spec: spec)
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
    name = experiment_names()[0]
    typed = [f"experiment={name}", "scale=smoke", "device=cpu", "seed=7", "rounds=2"]
    planned = plan(parse([*typed, f"results_dir={tmp_path}"]), typed)
    specs, _ = experiment_trials(name, SMOKE, None, ["device=cpu"])
    assert len(planned) == 2 * len(specs)
    assert {one.spec.seed for one in planned} == {7}
    assert [one.spec.round for one in planned] == [0] * len(specs) + [1] * len(specs)


@pytest.mark.parametrize(
    "typed", ["system.options.autobatch=depth", "system.options.build='wheel'"]
)
def test_a_sweep_over_systems_may_set_their_options(typed: str) -> None:
    """Hydra by itself looks for the option in the system that is there without the sweep."""
    jobs = parse(["-m", "system=dynet,dynet_off", "model=tree_lstm,tree_gru", typed])
    key, _, value = typed.partition("=")
    option = key.rpartition(".")[2]
    assert [job.config.system.options[option] for job in jobs] == [value.strip("'")] * 4
    assert [job.config.system.name for job in jobs] == ["dynet", "dynet", "dynet_off", "dynet_off"]


def test_options_may_be_swept() -> None:
    jobs = parse(["-m", "system=dynet,dynet_off", "system.options.autobatch=depth,agenda"])
    assert [job.config.system.options.autobatch for job in jobs] == ["depth", "agenda"] * 2


@pytest.mark.parametrize(
    ("option", "typed", "value"),
    [("sha256", "null", None), ("sha256", "NULL", None), ("vocab_modulo", "null", None)],
)
def test_an_option_may_be_null_in_a_sweep(option: str, typed: str, value: object) -> None:
    """Which Hydra takes in a list of values, and not in `choice(null)`."""
    arguments = [f"dataset.options.{option}={typed}", "dataset=sst", "model=tree_lstm"]
    jobs = parse(["-m", "system=null,reference", "seed=0,1", *arguments])
    assert [(job.config.system.name, job.config.seed) for job in jobs] == [
        *(("null", 0), ("null", 1), ("reference", 0), ("reference", 1)),
    ]
    assert {job.config.dataset.options[option] for job in jobs} == {value}


def test_an_option_of_a_sweep_is_refused_as_it_was_typed() -> None:
    arguments = ["-m", "system=null,reference", "dataset=sst"]
    with pytest.raises(ConfigError) as caught:
        plan(parse([*arguments, "dataset.options.vocab_modulo="]), arguments)
    assert "choice(" not in str(caught.value)


@pytest.mark.parametrize("typed", ["hydra.mode=MULTIRUN", "++hydra.mode='MULTIRUN'", "--multi"])
def test_a_sweep_in_other_words_leaves_no_folder(
    typed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hydra by itself leaves multirun/ where one works."""
    monkeypatch.chdir(tmp_path)
    arguments = [typed, "system=null,reference"]
    if typed.startswith("--"):  # which argparse takes for --multirun
        assert [job.config.system.name for job in parse(arguments)] == ["null", "reference"]
    else:
        with pytest.raises(ConfigError, match=r"hydra\.mode=.*MULTIRUN.* -m "):
            parse(arguments)
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_key_is_not_answered_by_advice_that_fails() -> None:
    with pytest.raises(ConfigError, match=r"timing\.rounds is not in the configuration") as caught:
        parse([NULL, "timing.rounds=3"])
    assert "append" not in str(caught.value)


def test_options_that_a_file_does_not_say_are_advised_to_be_added() -> None:
    with pytest.raises(ConfigError, match=r"\+dataset\.options\.n_instances=7"):
        parse([NULL, "dataset.options.n_instances=7"])


def test_a_policy_has_one_name_however_it_is_typed(composer: Composer) -> None:
    typed = ("system=cavs", "system.options.policy=depth")
    (job,) = parse(typed)
    for config in (job.config, composer.compose(typed)):
        assert spec_of(config) == spec_of(composer.compose(["system=cavs", "policy=depth"]))
        assert spec_of(config).policy == "depth"
    swept = parse(["-m", "system=cavs,vertex", "system.options.policy=depth,agenda"])
    assert [job.config.policy for job in swept] == ["depth", "agenda"] * 2


def test_a_place_in_quotes_is_looked_into(tmp_path: Path) -> None:
    """As everywhere: what lies there is measured, and no stand-in for it."""
    place = tmp_path / "it's (a) $(touch x) ; place"
    (place / "sst").mkdir(parents=True)
    typed = ["experiment=headline_tree_lstm", "scale=smoke", "device=cpu", "rounds=1"]
    typed += [setting("data_root", place), setting("results_dir", tmp_path / "its #results")]
    specs = [one.spec for one in plan(parse(typed), typed)]
    assert {(spec.dataset, spec.data_root) for spec in specs} == {("sst", str(place))}
    assert {Path(spec.cache_dir).parent for spec in specs} == {tmp_path / "its #results"}
