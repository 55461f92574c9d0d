"""docs/presets.md: every preset sets every switch and has a section; every system has a label."""

from __future__ import annotations

from dataclasses import fields

import pytest

from dynbatch.harness.contracts.system import load_adapter
from dynbatch.harness.engine.switches import Switches
from dynbatch.harness.planning.kinds import SystemFile, read_systems
from dynbatch.harness.planning.yaml_files import list_choices
from dynbatch.harness.values.paths import CONF_DIR
from scripts.write_pages import (
    DOCS,
    NO_PRESET,
    PRESETS,
    list_labels,
    read_presets,
    tabulate_presets,
)

PRESET_ADAPTERS = ("dynbatch.systems.on_core.vertex", "dynbatch.systems.on_core.acrobat")
ON_THE_ENGINE = [s for s in read_systems(CONF_DIR) if s.adapter in PRESET_ADAPTERS]


@pytest.mark.parametrize("system", ON_THE_ENGINE, ids=lambda system: system.name)
def test_every_preset_names_every_option_of_its_class(system: SystemFile) -> None:
    """No default decides in silence, and every switch can be overridden by name."""
    options = load_adapter(system.adapter).option_type
    assert set(system.options) == {item.name for item in fields(options)}


def test_the_table_has_a_row_for_every_switch_of_a_strategy() -> None:
    switches = {item.name for item in fields(Switches)} - set(NO_PRESET)
    rows = {line.split("`")[1] for line in tabulate_presets().splitlines() if "`" in line[:3]}
    assert rows == {"policy", *switches}


@pytest.mark.parametrize(
    "name", ["cavs", "cavs_dynet", "dynet_policy", "edbatch", "fold_policy", "unbatched"]
)
def test_only_acrobat_and_the_engine_fuse_gathers(name: str) -> None:
    """Section 3.3 of Cavs: a gather copies into a slice. DyNet, Fold and ED-Batch copy, too."""
    assert read_presets()[name]["gather_fusion"] is False
    assert read_presets()["acrobat"]["gather_fusion"] is True


def test_every_preset_has_a_section() -> None:
    lines = (DOCS / "presets.md").read_text(encoding="utf-8").splitlines()
    headings = [line for line in lines if line.startswith("## ")]
    for name in read_presets():
        assert any(f"`{name}`" in heading for heading in headings), name


@pytest.mark.parametrize("kind", PRESETS)
def test_only_model_rewrites_transform_the_model(kind: str) -> None:
    options = read_presets()
    for system in read_systems(CONF_DIR):
        if system.kind == kind:
            chosen = options[system.name]
            transforms = bool(chosen["deduplicate_inputs"] or chosen["fold_tables"])
            assert transforms == (kind == "model_rewrite"), system.name


def test_every_system_has_its_label() -> None:
    printed = {one.rpartition(" ")[2].strip("`.\n") for one in list_labels().split("; ")}
    assert printed == set(list_choices("system", CONF_DIR))
    assert "PyTorch, level batching `torch_levels`" in list_labels()
