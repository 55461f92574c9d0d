"""A record that was edited by hand, or damaged, is refused in one line that says how it shows."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from harness.errors import RecordError
from harness.records.record import read_record
from tests.support.plain_records import plain_record

GOOD = json.loads(plain_record(0, {"marked_samples_s": (1.0, 2.0)}).model_dump_json())
EDITS: dict[str, tuple[dict[str, Any], str]] = {
    "a faster speed": (
        {"instances_per_s": 6.0},
        "instances_per_s is 6.0, and samples_s make it 5.3",
    ),
    "no speed": ({"instances_per_s": None}, "instances_per_s is None"),
    "a shorter sample": ({"samples_s": [0.5, 0.2]}, "samples_s make it 5.7"),
    "half a pass": ({"samples_s": [0.5, 0.25, 0.1]}, "3 samples are no whole passes of 2"),
    "no samples": ({"samples_s": []}, "status is ok, and samples_s is empty"),
    "a time before it began": ({"samples_s": [0.5, -0.25]}, "samples_s has -0.25"),
    "a marked one": ({"marked_samples_s": [-1.0]}, "marked_samples_s has -1.0"),
    "no mini-batches": ({"n_mini_batches": 0}, "2 samples are no whole passes of 0"),
    "more instances": ({"n_instances": 8}, "instances_per_s is 5.3"),
    "instances unknown": ({"n_instances": None}, "n_instances is not"),
    "another batch size": (
        {"trial": GOOD["trial"] | {"batch_size": 64}},
        "trial.batch_size is 64, and config.batch_size 2",
    ),
    "a check that failed": ({"check": {"status": "failed"}}, "status is ok, and check failed"),
}


def read(tmp_path: Path, content: dict[str, Any]) -> dict[str, Any]:
    """What a record of this content says once it was read."""
    path = tmp_path / "r0.json"
    path.write_text(json.dumps(content))
    said: dict[str, Any] = json.loads(read_record(path).model_dump_json())
    return said


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_is_told_in_one_line(tmp_path: Path, name: str) -> None:
    edit, words = EDITS[name]
    with pytest.raises(RecordError, match=re.escape(words)) as caught:
        read(tmp_path, GOOD | edit)
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith("; delete it and measure again")


@pytest.mark.parametrize(
    "edit",
    [
        {},
        {"status": "timeout", "samples_s": [], "instances_per_s": None},
        {"samples_s": [0.0, 0.0], "instances_per_s": None},  # too short for the clock
    ],
)
def test_what_a_worker_may_write_is_read_as_it_stands(tmp_path: Path, edit: dict[str, Any]) -> None:
    assert read(tmp_path, GOOD | edit) == GOOD | edit
