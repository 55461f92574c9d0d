"""docs/presets.md: every preset sets every switch and has a section; every system has a label."""

from __future__ import annotations

from dataclasses import fields

import pytest

from harness.engine.switches import Switches
from harness.planning.kinds import read_systems
from harness.planning.yaml_files import list_choices
from harness.values.paths import CONF_DIR
from scripts.write_pages import DOCS, PRESETS, list_labels, read_presets


def test_every_preset_says_every_switch() -> None:
    """Every switch can then be overridden by name, and the table has no empty cell."""
    options = read_presets()
    wanted = set(options["vertex"])
    assert wanted <= {"policy", *(item.name for item in fields(Switches))}
    for name, said in options.items():
        assert wanted <= set(said), name


def test_every_preset_has_a_section() -> None:
    headings = [
        line
        for line in (DOCS / "presets.md").read_text(encoding="utf-8").splitlines()
        if line.startswith("## ")
    ]
    for name in read_presets():
        assert any(f"`{name}`" in heading for heading in headings), name


@pytest.mark.parametrize("kind", PRESETS)
def test_strategies_change_no_model_and_what_changes_one_is_no_strategy(kind: str) -> None:
    options = read_presets()
    for system in read_systems(CONF_DIR):
        if system.kind == kind:
            chosen = options[system.name]
            transforms = bool(chosen["deduplicate_inputs"] or chosen["fold_tables"])
            assert transforms == (kind == "model_rewrite"), system.name


def test_every_system_has_its_label() -> None:
    said = {one.rpartition(" ")[2].strip("`.\n") for one in list_labels().split("; ")}
    assert said == set(list_choices("system", CONF_DIR))
    assert "PyTorch, level batching `torch_levels`" in list_labels()
