"""docs/presets.md: its table is what conf/system says, and every preset has a section."""

from __future__ import annotations

from dataclasses import fields

import pytest

from harness.engine.switches import Switches
from harness.planning.kinds import read_systems
from harness.values.places import CONF_DIR
from scripts.write_presets import KINDS, PAGE, presets, table


def test_the_table_of_switches_is_that_of_the_yaml_files() -> None:
    assert PAGE.written == table().strip(), "run python -m scripts.write_presets"


def test_every_preset_says_every_switch() -> None:
    """So that one word changes any of them, and that the table has no gap."""
    options = presets()
    wanted = set(options["vertex"])
    assert wanted <= {"policy", *(item.name for item in fields(Switches))}
    for name, said in options.items():
        assert wanted <= set(said), name


def test_every_preset_has_a_section() -> None:
    headings = [
        line
        for line in PAGE.path.read_text(encoding="utf-8").splitlines()
        if line.startswith("## ")
    ]
    for name in presets():
        assert any(f"`{name}`" in heading for heading in headings), name


@pytest.mark.parametrize("kind", KINDS)
def test_strategies_change_no_model_and_what_changes_one_is_no_strategy(kind: str) -> None:
    options = presets()
    for system in read_systems(CONF_DIR):
        if system.kind == kind:
            chosen = options[system.name]
            transforms = bool(chosen["share_equal_inputs"] or chosen["fold_tables"])
            assert transforms == (kind == "transformed"), system.name
