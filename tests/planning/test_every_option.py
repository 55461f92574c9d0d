"""No option of the house takes a value of another type, or a word that it does not know."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_origin, get_type_hints

import pytest

from harness.contracts.corpus import check_loader_options, loader_options
from harness.contracts.model import model_class
from harness.contracts.options import LARGEST, check_options
from harness.contracts.policy import LearningSettings
from harness.contracts.system import RunSettings, System, load_adapter
from harness.engine.switches import Switches
from harness.errors import ConfigError
from harness.planning.yaml_files import choices_of, read_mapping
from harness.records.record import read_record
from harness.trials.spec import Limits, Timing
from harness.trials.workload import model_options
from harness.values.places import CONF_DIR

YAML_1_1 = ("no", "off", "yes", "on", "None", "~", "", "true")
STRUCTURES: tuple[Any, ...] = ([], {}, ["a"], {"a": 1})
# What is wrong for every option of a type.
WRONG: dict[Any, tuple[Any, ...]] = {
    bool: (0, 1, 0.0, *YAML_1_1),
    int: (True, False, 1.0, 0.5, float("nan"), "8", 2 * LARGEST, -2 * LARGEST, *YAML_1_1),
    float: (True, "0.5", float("nan"), float("inf"), *YAML_1_1),
    str: (True, False, 0, 1, 0.5),
}
WRONG_WORDS = ("nothing", "No", "OFF", "operatr", "stag", "pythn", "", " ")


def values_against(hint: Any) -> Iterator[Any]:
    """Values that a type does not allow."""
    kinds = get_args(hint) if get_origin(hint) is not None else (hint,)
    if hint in WRONG:
        yield from WRONG[hint]
    elif all(isinstance(kind, str) for kind in kinds):  # a Literal
        yield from (*WRONG[str], *(word for word in WRONG_WORDS if word not in kinds))
    else:
        yield from (5, True, "off", 0.5)
    yield from (one for one in STRUCTURES if not any(get_origin(kind) for kind in kinds))
    if NoneType not in kinds:
        yield None


def settings(**options: Any) -> RunSettings:
    return RunSettings("infer", "cpu", 1, 1, 0.1, 0, options=options)


def adapters() -> dict[type[Any], type[System]]:
    """An adapter of every type of options that a system of conf/ has."""
    modules = [
        read_mapping(CONF_DIR / "system" / f"{n}.yaml")["adapter"] for n in choices_of("system")
    ]
    found = [load_adapter(module) for module in dict.fromkeys(modules)]
    return {adapter.option_type: adapter for adapter in found}


@pytest.mark.slow  # all frameworks are imported
def test_no_system_takes_another_type_or_an_unknown_word() -> None:
    accepted, unclear = [], []
    for kind, adapter in adapters().items():
        hints = get_type_hints(kind)
        for name in (field.name for field in fields(kind)):
            words = WRONG_WORDS if hints[name] is str else ()
            for value in (*values_against(hints[name]), *words):
                try:
                    adapter.options_of(settings(**{name: value}))
                except ConfigError as error:
                    line = str(error)
                    unclear += [] if name in line and "\n" not in line else [(name, line)]
                else:
                    accepted.append((adapter.__module__, name, value))
    assert accepted == unclear == []


@pytest.mark.parametrize("model", choices_of("model"))
def test_no_model_takes_another_type(model: str) -> None:
    kind = model_class(read_mapping(CONF_DIR / "model" / f"{model}.yaml")["model"])
    for name, hint in model_options(kind).items():
        for value in values_against(hint):
            with pytest.raises(ConfigError, match=f"model.options.{name}="):
                check_options("model", model_options(kind), {name: value}, model)


@pytest.mark.parametrize("dataset", choices_of("dataset"))
def test_no_data_set_takes_another_type(dataset: str) -> None:
    content = read_mapping(CONF_DIR / "dataset" / f"{dataset}.yaml")
    check_loader_options(content["loader"], content.get("options") or {})
    for name, hint in loader_options(content["loader"]).items():
        for value in values_against(hint):
            with pytest.raises(ConfigError, match=f"dataset.options.{name}="):
                check_loader_options(content["loader"], {name: value})


@pytest.mark.parametrize("kind", [LearningSettings, Timing, Limits])
def test_no_setting_of_a_trial_takes_another_type(kind: type[Any]) -> None:
    hints = get_type_hints(kind)
    for name in (field.name for field in fields(kind) if hints[field.name] in (int, float)):
        for value in (True, False, "8", "no", None, float("nan"), float("inf"), -1, 10**30):
            with pytest.raises(ConfigError, match=f"{name}="):
                kind(**{name: value})
    for name in (field.name for field in fields(kind) if hints[field.name] is int):
        with pytest.raises(ConfigError, match=f"{name}=1.0 is not allowed; give a whole number"):
            kind(**{name: 1.0})


def test_every_word_of_a_switch_has_a_list() -> None:
    for name in (field.name for field in fields(Switches) if field.name != "backend"):
        for value in (*WRONG_WORDS, None, 5):
            with pytest.raises(ConfigError, match=name):
                Switches(**{name: value})


@pytest.mark.slow
@pytest.mark.parametrize("said", ["no", "false"])
def test_what_bench_records_is_what_was_in_force(said: str, tmp_path: Path) -> None:
    tiny = ["model=tree_fc", "dataset=complete_trees", "dataset.options.n_leaves=4", "batch_size=2"]
    timing = ["hidden_size=8", "timing.min_seconds=0", "timing.n_mini_batches=1"]
    system = ["system=vertex", "system.options.backend=stepwise"]
    typed = [*system, f"system.options.lazy_batching={said}", *tiny, *timing]
    command = [sys.executable, "-m", "harness.commands.bench", *typed, f"results_dir={tmp_path}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    records = [read_record(path) for path in tmp_path.rglob("r0.json")]
    if said == "no":
        assert (done.returncode, records) == (1, [])
        assert "lazy_batching=no is not allowed; give true or false" in done.stderr.splitlines()[-1]
        assert "Traceback" not in done.stderr
    else:
        (record,) = records
        assert record.in_force["lazy_batching"] == "false"
        assert record.config["system_options"]["lazy_batching"] is False
