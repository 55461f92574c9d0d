"""Records of older configurations that still match a trial."""

from __future__ import annotations

from typing import Any

import pytest

from harness.records.record_lookup import agree

KNOWN = {"mode": "train", "options": {"fusion": True, "autobatch": "agenda", "file": None, "n": 1}}


@pytest.mark.parametrize(
    ("found", "is_same"),
    [
        ({}, True),
        ({"mode": "train", "came_since": 1}, True),
        ({"mode": "infer"}, False),
        ({"options": {}}, True),
        ({"options": {"gone_since": 2}}, True),
        ({"options": {"fusion": False}}, False),
        ({"options": {"autobatch": "depth"}}, False),
        ({"options": {"autobatch": 1}}, True),
        ({"options": {"autobatch": 2}}, False),
        ({"options": {"autobatch": None}}, False),
        ({"options": {"fusion": "on"}}, False),
        ({"options": {"file": "a"}}, False),
        ({"options": {"n": 1.0}}, True),
        ({"options": {"n": 2}}, False),
    ],
)
def test_what_both_know_must_be_equal(found: dict[str, Any], is_same: bool) -> None:
    assert agree(KNOWN, found) == is_same
    assert agree(found, KNOWN) == is_same
