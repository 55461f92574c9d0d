"""No option of our systems accepts a value of another type, or an unknown word."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import pytest
import yaml

from dynbatch.harness.contracts.corpus import check_loader_options, list_loader_options
from dynbatch.harness.contracts.model import find_model_class
from dynbatch.harness.contracts.options import LARGEST, check_options, read_options
from dynbatch.harness.contracts.policy import LearningSettings
from dynbatch.harness.contracts.system import RunSettings, System, load_adapter
from dynbatch.harness.errors import ConfigError
from dynbatch.harness.planning.yaml_files import list_choices, read_mapping
from dynbatch.harness.trials.spec import Limits, Timing
from dynbatch.harness.trials.workload import list_model_options
from dynbatch.harness.values.checked import OneOf
from dynbatch.harness.values.paths import CONF_DIR
from tests.support.measured import MakeSpec, measure
from tests.support.refusals import expect_refusal

YAML_1_1 = ("no", "off", "yes", "on", "None", "~", "", "true")
STRUCTURES: tuple[Any, ...] = ([], {}, ["a"], {"a": 1})
# Invalid values for every option of a type.
WRONG: dict[Any, tuple[Any, ...]] = {
    bool: (0, 1, 0.0, *YAML_1_1),
    int: (True, False, 1.0, 0.5, float("nan"), "8", 2 * LARGEST, -2 * LARGEST, *YAML_1_1),
    float: (True, "0.5", float("nan"), float("inf"), *YAML_1_1),
    str: (True, False, 0, 1, 0.5),
}
WRONG_WORDS = ("nothing", "No", "OFF", "operatr", "stag", "pythn", "", " ")


def values_against(hint: Any) -> Iterator[Any]:
    """Yield values that a type does not allow."""
    if get_origin(hint) is Annotated:
        plain, mark, *most = get_args(hint)
        texts = mark.texts if isinstance(mark, OneOf) else ()
        others = values_against(Literal[texts] if texts else plain)
        # A limit of its own replaces that of all options.
        yield from (value for value in others if not (most and value == 2 * LARGEST))
        yield from (one.le + 1 for one in most)
        if hasattr(mark, "gt"):
            yield mark.gt
        elif hasattr(mark, "ge"):
            yield mark.ge - 1
        return
    kinds = get_args(hint) if get_origin(hint) is not None else (hint,)
    if hint in WRONG:
        yield from WRONG[hint]
    elif all(isinstance(kind, str) for kind in kinds):  # a Literal
        yield from (*WRONG[str], *(word for word in WRONG_WORDS if word not in kinds))
    else:
        wrong = {str: "off", bool: True}
        yield from (5, 0.5, *(value for kind, value in wrong.items() if kind not in kinds))
    yield from (one for one in STRUCTURES if not any(get_origin(kind) for kind in kinds))
    if NoneType not in kinds:
        yield None


def settings(**options: Any) -> RunSettings:
    return RunSettings("infer", "cpu", 1, 1, 0.1, 0, options=options)


def adapters() -> dict[type[Any], type[System]]:
    """Return an adapter for every type of options of the systems of conf/."""
    modules = [
        read_mapping(CONF_DIR / "system" / f"{n}.yaml")["adapter"] for n in list_choices("system")
    ]
    found = [load_adapter(module) for module in dict.fromkeys(modules)]
    return {adapter.option_type: adapter for adapter in found}


@pytest.mark.slow  # all frameworks are imported
def test_no_system_takes_another_type_or_an_unknown_word() -> None:
    accepted, unclear = [], []
    for kind, adapter in adapters().items():
        hints = get_type_hints(kind, include_extras=True)
        for name in (field.name for field in fields(kind)):
            assert hints[name] not in (int, float), f"{name} of {adapter.__module__} has no limit"
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


def test_no_model_and_no_data_set_takes_another_type() -> None:
    for model in list_choices("model"):
        kind = find_model_class(read_mapping(CONF_DIR / "model" / f"{model}.yaml")["model"])
        for name, hint in list_model_options(kind).items():
            for value in values_against(hint):
                with pytest.raises(ConfigError, match=f"model.options.{name}="):
                    check_options("model", list_model_options(kind), {name: value}, model)
    for dataset in list_choices("dataset"):
        content = read_mapping(CONF_DIR / "dataset" / f"{dataset}.yaml")
        check_loader_options(content["loader"], content.get("options") or {})
        for name, hint in list_loader_options(content["loader"]).items():
            assert hint not in (int, str) or name in ("seed", "n_leaves", "path"), "has no limit"
            for value in values_against(hint):
                with pytest.raises(ConfigError, match=rf"dataset.options.{name}(=| is empty)"):
                    check_loader_options(content["loader"], {name: value})


@pytest.mark.parametrize("kind", [LearningSettings, Timing, Limits])
def test_no_setting_of_a_trial_takes_another_type(kind: type[Any]) -> None:
    for name, hint in get_type_hints(kind, include_extras=True).items():
        assert hint not in (int, float), f"{name} has no limit"
        for value in () if NoneType in get_args(hint) else values_against(hint):
            with pytest.raises(ConfigError, match=rf"{name}(=| is empty)"):
                kind(**{name: value})


def test_record_has_the_effective_options(make_spec: MakeSpec, tmp_path: Path) -> None:
    options = {"policy": "agenda", "backend": "stepwise", "lazy_batching": False}
    spec = make_spec(adapter="dynbatch.systems.on_core.vertex", system_options=options)
    record = measure(spec, tmp_path)
    assert record.effective_options["lazy_batching"] == "false"
    assert record.config["system_options"]["lazy_batching"] is False


@dataclass(frozen=True, slots=True)
class Sample:
    mode: Literal["off", "depth"] = "depth"
    fast: bool = True
    n: int = 3
    share: float = 0.5
    file: str | None = None


def test_unset_options_have_defaults() -> None:
    assert read_options(Sample, {}, "here") == Sample()
    printed = {"mode": "off", "fast": False, "n": 4, "share": 1, "file": "f"}
    assert read_options(Sample, printed, "here") == Sample("off", False, 4, 1, "f")
    assert read_options(Sample, {"file": None}, "here").file is None


@pytest.mark.parametrize(
    ("printed", "words"),
    [
        ({"mod": "off"}, "option system.options.mod for here; valid options: mode, fast"),
        ({"mode": "deep"}, "system.options.mode=deep is not allowed; choose one of off, depth"),
        ({"mode": False}, "mode=false is not allowed; choose one of off, depth (in quotes: YAML"),
        ({"fast": 1}, "fast=1 is not allowed: expected true or false"),
        ({"fast": "false"}, "fast=false is not allowed: expected true or false"),
        ({"n": True}, "n=true is not allowed: expected a whole number"),
        ({"n": 1.0}, "n=1.0 is not allowed: expected a whole number"),
        ({"share": "half"}, "share=half is not allowed: expected a number"),
        ({"file": 3}, "file=3 is not allowed: expected a string or null"),
    ],
)
def test_invalid_option_value_gives_one_line(printed: dict[str, Any], words: str) -> None:
    with expect_refusal(words):
        read_options(Sample, printed, "here")


@pytest.mark.parametrize("file", sorted((CONF_DIR / "system").glob("*.yaml")), ids=lambda f: f.stem)
def test_every_system_takes_the_options_of_its_file_and_no_other(file: Path) -> None:
    content = yaml.safe_load(file.read_text(encoding="utf-8"))
    options = content.get("options") or {}
    adapter = load_adapter(content["adapter"])
    read = adapter.options_of(settings(**options))
    assert {name: getattr(read, name) for name in options} == options
    with pytest.raises(ConfigError, match=f"nonsense for {content['adapter']}"):
        adapter.options_of(settings(**options, nonsense=1))
