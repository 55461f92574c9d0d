"""The doctor says what the engine multiplies with, and what to install where something lacks."""

from __future__ import annotations

import json

from harness.commands.doctor import Answer, to_json, to_text
from harness.machine.facts import describe_machine
from harness.machine.quiet import Finding

ANSWERS = [Answer("null", "cpu", None)]
LACKING = Finding("products", "OpenBLAS 0.3 of NumPy's wheel", "pip install scipy-openblas64")


def test_a_library_that_lacks_is_told_but_is_no_disturbance() -> None:
    machine = describe_machine()
    text = to_text(machine, ANSWERS, [Finding("swap used", "0 MiB")], LACKING)
    assert "OpenBLAS 0.3 of NumPy's wheel  <- pip install scipy-openblas64" in text
    assert text.endswith("  yes")
    told = json.loads(to_json(machine, ANSWERS, [], LACKING))
    assert told["products"]["advice"] == "pip install scipy-openblas64"
    assert told["quiet"]
