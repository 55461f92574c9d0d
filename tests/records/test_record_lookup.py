"""Records and counts of older configurations that still match a trial or a planned sweep."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from dynbatch.harness.planning.config import Composer
from dynbatch.harness.planning.sweep import parse_sweep
from dynbatch.harness.records.count_row import parse_count
from dynbatch.harness.records.record import Record
from dynbatch.harness.trials.spec import TrialSpec
from dynbatch.plots.drawable import Answers, CountAnswers, agree
from tests.support.made_up_counts import made_up_rows
from tests.support.records import record_of

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
        ({"options": {"autobatch": None}}, False),
        ({"options": {"fusion": "on"}}, False),
        ({"options": {"file": "a"}}, False),
        ({"options": {"n": 1.0}}, True),
        ({"options": {"n": 2}}, False),
    ],
)
def test_settings_known_to_both_must_be_equal(found: dict[str, Any], is_same: bool) -> None:
    assert agree(KNOWN, found) == is_same
    assert agree(found, KNOWN) == is_same


def spec_of(**options: Any) -> TrialSpec:
    """Return a trial of the Cavs strategy with these options beyond those of older records."""
    settings = {f"system.options.{name}": value for name, value in options.items()}
    return Composer().resolve_trial({"system": "cavs", "hidden_size": 16, **settings})


def older_record(spec: TrialSpec, **effective: str) -> Record:
    """Return the record of a trial whose configuration omits the switches in effect."""
    record = record_of(spec, {})
    named = {k: v for k, v in spec.system_options.items() if k not in effective}
    config = {**record.config, "system_options": named}
    trial_id = f"{record.trial_id}-of-an-older-configuration"
    changes = {"config": config, "effective_options": effective, "trial_id": trial_id}
    return record.model_copy(update=changes)


@pytest.mark.parametrize(
    ("options", "in_effect", "is_found"),
    [
        ({"gather_fusion": False}, "true", False),
        ({"gather_fusion": False}, "false", True),
        ({"gather_fusion": True}, "true", True),
        ({"gather_fusion": True}, "false", False),
        ({"gather_fusion": True, "fusion": False}, "false", True),  # ignored without fusion
    ],
)
def test_a_switch_that_the_record_omits_must_have_been_in_effect(
    options: dict[str, Any], in_effect: str, is_found: bool
) -> None:
    spec = spec_of(**options)
    record = older_record(spec, gather_fusion=in_effect)
    assert bool(Answers([record]).find_rounds([spec])[0]) == is_found


def test_default_omitted_from_trial_id_distinguishes_records() -> None:
    """Trials of both orders are found after options were added, which changes their ids."""
    specs = [spec_of(), replace(spec_of(), order="length")]
    records = [older_record(spec, profile="false") for spec in specs]
    found = Answers(records).find_rounds(specs[:1])
    assert [rounds[0].config["order"] for rounds in found] == ["shuffled"]


TREES = {"model": "tree_lstm_2type", "dataset": "sst", "batch_size": 8, "policy": "agenda"}


@pytest.mark.parametrize(
    ("stored", "asked", "answers"),
    [
        ({"type_seed": 0}, {}, True),
        ({"type_seed": 0}, {"model.options.type_seed": 1}, False),
        ({"type_seed": 1}, {"model.options.type_seed": 1}, True),
        ({"type_seed": 1}, {}, False),
        (None, {}, False),  # an old record, which does not have them
        (None, {"model.options.type_seed": 1}, False),
    ],
)
def test_count_lookup_compares_model_options(
    stored: dict[str, Any] | None, asked: dict[str, Any], answers: bool
) -> None:
    (row,) = made_up_rows(parse_sweep("test", TREES))
    count = parse_count(json.dumps(row).encode())
    older = replace(count, count_id="count-of-another-version", model_options=stored)
    (found,) = CountAnswers([older]).find_all(parse_sweep("test", TREES | asked))
    assert found == (older if answers else None)
