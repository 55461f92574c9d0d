"""Counts that answer a planned sweep: by their id, or by all settings that they have."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from dynbatch.harness.planning.sweep import parse_sweep
from dynbatch.harness.records.count_row import parse_count
from dynbatch.plots.drawable import CountAnswers
from tests.support.made_up_counts import made_up_rows

TREES = {"model": "tree_lstm_2type", "dataset": "sst", "batch_size": 8, "policy": "agenda"}


def count_of(options: dict[str, Any] | None) -> Any:
    """Return a count whose id is that of another version of the code."""
    (row,) = made_up_rows(parse_sweep("test", TREES))
    count = parse_count(json.dumps(row).encode())
    return replace(count, count_id="count-of-another-version", model_options=options)


@pytest.mark.parametrize(
    ("stored", "asked", "answers"),
    [
        ({"type_seed": 0}, {}, True),
        ({"type_seed": 0}, {"model.options.type_seed": 1}, False),
        ({"type_seed": 1}, {"model.options.type_seed": 1}, True),
        ({"type_seed": 1}, {}, False),
        (None, {}, True),  # an old record, which does not have them
        (None, {"model.options.type_seed": 1}, False),
    ],
)
def test_count_lookup_compares_model_options(
    stored: dict[str, Any] | None, asked: dict[str, Any], answers: bool
) -> None:
    found = CountAnswers([count_of(stored)]).to(parse_sweep("test", TREES | asked))
    assert len(found) == answers
