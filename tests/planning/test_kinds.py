"""Systems by kind: their files, selections by lists, and one-line errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from dynbatch.harness.planning.grid import expand
from dynbatch.harness.planning.kinds import KINDS, read_selection, read_systems
from dynbatch.harness.planning.yaml_files import list_choices
from dynbatch.harness.values.paths import CONF_DIR
from dynbatch.plots.declaration import read_declaration
from tests.support.processes import run_python
from tests.support.refusals import expect_refusal

SYSTEMS: dict[str, dict[str, Any]] = {
    "core": {"kind": "strategy"},
    "other": {"kind": "strategy"},
    "snail": {"kind": "strategy", "selected_by": "slow"},
    "peer": {"kind": "framework", "models": ["tree_fc", "tree_lstm"]},
    "some": {"kind": "framework", "models": ["dynbatch.systems.on_torch.torchfold:FOLDED"]},
    "crawl": {"kind": "framework", "selected_by": "slow"},
    "more": {"kind": "framework", "selected_by": "extra", "models": ["tree_fc"]},
}


def write_system(folder: Path, stem: str, **content: object) -> None:
    (folder / "system").mkdir(exist_ok=True)
    file = {"name": stem, "label": stem.title(), "adapter": "dynbatch.systems.null_system"}
    (folder / "system" / f"{stem}.yaml").write_text(yaml.safe_dump(file | content))


def write_experiment(folder: Path, **content: object) -> None:
    (folder / "experiment").mkdir(exist_ok=True)
    file = {"title": "T", "paper": "P", **content}
    (folder / "experiment" / "one.yaml").write_text(yaml.safe_dump(file))


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    for name, content in SYSTEMS.items():
        write_system(tmp_path, name, **content)
    return tmp_path


def trials(conf: Path, *blocks: object, base: object = None) -> list[tuple[str, str]]:
    write_experiment(conf, scales={"smoke": {"base": base or {}, "blocks": list(blocks)}})
    points = expand("one", "smoke", conf).settings
    return [(point["system"], point["model"]) for point in points]


@pytest.mark.parametrize(
    ("printed", "names"),
    [
        ("kind:strategy", ("core", "other")),
        ("slow:strategy", ("snail",)),
        (["other", "kind:strategy"], ("other", "core")),
        (["snail", "kind:framework"], ("snail", "peer", "some")),
        (["kind:framework", "slow:framework"], ("peer", "some", "crawl")),
        (["extra:framework", "not:peer", "kind:framework"], ("more", "some")),
        (["kind:framework", "not:peer", "core"], ("some", "core")),
        (["not:core", "kind:strategy"], ("other",)),
        (["peer", "other"], ("peer", "other")),
        (None, ("null",)),
    ],
)
def test_lists_select_names_and_kinds(conf: Path, printed: object, names: tuple[str, ...]) -> None:
    assert read_selection("here", printed, conf).list_names() == names


def test_kind_expands_to_systems_that_run_the_model(conf: Path) -> None:
    block = {"system": ["core", "kind:framework"], "model": ["tree_fc", "tree_lstm", "mv_rnn"]}
    fitting = trials(conf, {**block, "model": "tree_fc"})
    assert fitting == [(name, "tree_fc") for name in ("core", "peer", "some")]
    assert set(trials(conf, block)) == {
        *(("core", model) for model in block["model"]),
        *((name, model) for name in ("peer", "some") for model in ("tree_fc", "tree_lstm")),
    }


def test_a_system_that_is_named_is_not_filtered(conf: Path) -> None:
    block = {"system": ["peer", "kind:strategy"], "model": "mv_rnn"}
    assert trials(conf, block) == [(name, "mv_rnn") for name in ("peer", "core", "other")]


def test_the_base_gives_the_model_and_the_systems_too(conf: Path) -> None:
    base = {"model": "tree_fc", "system": "kind:framework"}
    assert trials(conf, {"batch_size": 1}, base=base) == [("peer", "tree_fc"), ("some", "tree_fc")]


@pytest.mark.parametrize(
    ("printed", "words"),
    [
        ("kind:frameworks", "choose one of strategy, ablation, framework, subgraph"),
        ("slow:quick", "selects slow:quick; choose one of strategy"),
        ("sort:framework", "expected NAME, kind:KIND, extra:KIND, slow:KIND or not:NAME"),
        ([{"kind": "framework"}], "remove the space"),
        (["kind:framework", "not:dinet"], "not:dinet, an unknown system; choose one of core"),
        ("kind:subgraph", "kind:subgraph, but no system in conf/system has this kind and runs"),
        ("slow:upper_bound", "slow:upper_bound, but no system in conf/system"),
        ({"system": "kind:framework", "model": ["cell"]}, "and runs model=cell; add one, or"),
        ({"system": "kind:framework"}, "selects systems by kind, but has no model"),
    ],
)
def test_invalid_selection_gives_one_line(conf: Path, printed: object, words: str) -> None:
    block = printed if isinstance(printed, dict) else {"system": printed, "model": "tree_fc"}
    with expect_refusal("experiment/one.yaml, scale smoke", words):
        trials(conf, block)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({}, " has no kind; add it"),
        ({"kind": "frame"}, "kind=frame is not allowed; choose one of strategy, ablation"),
        ({"kind": "framework", "colour": "red"}, "colour is unknown in system/fresh.yaml"),
        ({"kind": "framework", "name": "older"}, "has name=older; set name: fresh"),
        ({"kind": "framework", "models": ["some.no:LEVELS"]}, "models=some.no:LEVELS is not"),
        ({"kind": "framework", "models": ["some.module"]}, "expected PACKAGE:DICTIONARY"),
        ({"kind": "framework", "selected_by": "fast"}, "selected_by=fast is not allowed"),
        ({"kind": "framework", "variant_of": "pear"}, "variant_of=pear: expected a framework"),
        ({"kind": "framework", "variant_of": "fresh"}, "variant_of=fresh: expected a framework"),
        ({"kind": "framework", "variant_of": "core"}, "variant_of=core: expected a framework"),
    ],
)
def test_invalid_system_gives_one_line(conf: Path, content: dict[str, object], words: str) -> None:
    write_system(conf, "fresh", **content)
    with expect_refusal("system/fresh.yaml", words):
        trials(conf, {"system": "kind:framework", "model": "mv_rnn"})


def test_a_variant_is_of_a_system_that_is_none(conf: Path) -> None:
    write_system(conf, "peer_fast", kind="framework", models=["tree_fc"], variant_of="peer")
    variants = {s.name: s.variant_of for s in read_systems(conf) if s.variant_of}
    assert variants == {"peer_fast": "peer"}


@pytest.mark.parametrize(
    ("compare", "words"),
    [
        (["kind:framework"], "compare.systems: expected the base system first"),
        ([], "compare.systems: expected the base system first"),
        (["core", "kind:fast"], "selects kind:fast; choose one of strategy"),
        (["core", "kind:subgraph"], "kind:subgraph, but no system in conf/system has this kind;"),
        (["core", "dinet"], "unknown system in compare.systems 'dinet'; choose from core, crawl"),
    ],
)
def test_invalid_comparison_gives_one_line(conf: Path, compare: list[str], words: str) -> None:
    table = {"rows": ["batch_size"], "values": {"throughput": "trees/s"}}
    write_experiment(conf, table=table, scales={"smoke": {}}, compare={"systems": compare})
    with expect_refusal("experiment/one.yaml", words):
        read_declaration("one", conf)


def test_shipped_systems_name_models_that_there_are() -> None:
    systems = read_systems(CONF_DIR)
    assert {system.kind for system in systems} == set(KINDS)
    for system in systems:
        assert any(system.can_run(model) for model in list_choices("model")), system.name


def test_planning_by_kind_imports_no_framework() -> None:
    program = """
import sys
from dynbatch.harness.planning.artifacts import build_choices, plan_artifact
from dynbatch.harness.planning.config import Composer
choices = build_choices({"scale": "smoke", "device": "cpu", "data_root": "none"}, {})
trials = plan_artifact("headline_tree_lstm", choices, Composer())
assert {"dynet", "torch_levels"} <= {trial.spec.system for trial in trials}
print([name for name in ("torch", "dynet", "tensorflow") if name in sys.modules])
"""
    assert run_python("-c", program) == "[]\n"


def test_systems_of_one_package_are_of_one_framework() -> None:
    of = {system.name: system.framework for system in read_systems(CONF_DIR)}
    assert of["torch_levels"] == of["torch_rnn"] == of["torchfold"] == "dynbatch.systems.on_torch"
    assert of["fold"] == of["tf_static"] != of["torch_levels"]


def test_a_system_of_ones_own_is_a_framework_of_its_own(tmp_path: Path) -> None:
    write_system(tmp_path, "alone", kind="framework", adapter="alone")
    write_system(tmp_path, "beside", kind="framework", adapter="dynbatch.systems.beside")
    found = [system.framework for system in read_systems(tmp_path)]
    assert found == ["alone", "dynbatch.systems.beside"]
