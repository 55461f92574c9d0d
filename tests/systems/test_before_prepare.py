"""The clock times `prepare`, so that it synchronises a system that is not prepared yet."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from harness.contracts.system import RunSettings, load_adapter
from harness.measuring.clock import timed
from harness.values.places import CONF_DIR

OWN = ("systems.on_core.", "systems.null_system")  # others need a process of their own


@pytest.mark.parametrize("path", sorted((CONF_DIR / "system").glob("*.yaml")), ids=lambda p: p.stem)
def test_a_system_can_be_synchronised_before_it_is_prepared(path: Path) -> None:
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    if not content["adapter"].startswith(OWN):
        pytest.skip("a framework, which tests/systems/test_systems_agree.py runs by itself")
    options = content.get("options") or {}
    settings = RunSettings("train", "cpu", 1, 1, 0.1, 0, options=options)
    system = load_adapter(content["adapter"])(settings)
    found, seconds = timed(lambda: "prepared", system.synchronize)
    assert found == "prepared"
    assert seconds > 0
