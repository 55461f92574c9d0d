"""Tables of committed runs: which numbers are taken, and how ratios are made of them."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from harness.records.record import Record
from scripts.kept_runs import programs, run
from scripts.kept_runs.run import Workload
from tests.support.plain_records import plain_record


def rounds(*speeds: float, **changes: object) -> Mapping[int, Record]:
    return {
        k: plain_record(k, {"instances_per_s": speed, **changes}) for k, speed in enumerate(speeds)
    }


def test_a_gain_is_taken_within_rounds() -> None:
    quick, slow = rounds(200, 100, 300), rounds(100, 50, 100)
    assert run.gain(quick, slow) == 2
    assert run.gain_words(quick, slow) == "2.00 [2.00-3.00]"
    assert run.speed_words(quick) == "200 [100-300]"


def test_only_rounds_that_both_have_are_compared() -> None:
    assert run.gain({0: rounds(100)[0]}, rounds(50, 1)) == 2


def test_phases_are_added_up_and_none_is_guessed() -> None:
    told = {"construct": 1e-3, "schedule": 2e-3, "forward": None, "backward": None, "update": None}
    one = rounds(100, phases_s=told)
    assert run.phase_words(one, ("construct", "schedule")) == "3.00"
    assert run.phase_words(one, ("construct", "forward")) == "\N{EN DASH}"


def test_the_best_of_all_modes_is_the_peer() -> None:
    systems = {
        "acrobat": rounds(300, 300),
        "acrobat_ahead": rounds(150, 150),
        "dynet": rounds(100, 100),
        "dynet_plus_depth": rounds(200, 200),
    }
    assert programs.best_mode(systems)[0] == "dynet_plus_depth"
    text = programs.tables({Workload("drnn", "infer", 256, 8): systems})
    assert "| drnn, 8 | 300 [300-300] | 200 [200-200] (dynet_plus_depth) | **1.50" in text
    assert "geometric mean 1.50 over 1 rows, least 1.50" in text
    assert "Over the best of DyNet and PyTorch: geometric mean 1.50" in text
    assert "| drnn, 8 | 2.00 [2.00-2.00] |  |  |" in text, "what has no record is blank"


def test_the_best_of_all_peers_may_be_pytorch() -> None:
    systems = {
        "acrobat": rounds(300, 300),
        "dynet": rounds(100, 100),
        "torch_levels": rounds(400, 400),
        "products": rounds(600, 600),
    }
    assert programs.best_peer(systems)[0] == "torch_levels"
    text = programs.tables({Workload("drnn", "infer", 256, 8): systems})
    assert "Over the best DyNet: geometric mean 3.00" in text
    assert "Over the best of DyNet and PyTorch: geometric mean 0.75 over 1 rows, least 0.75" in text
    assert "| drnn, 8 |  |  | 0.50 [0.50-0.50] |" in text, "a share of the products alone"


def test_large_sizes_have_a_table_of_their_own() -> None:
    systems = {"acrobat": rounds(2), "dynet": rounds(1)}
    sizes = [("drnn", 512, 8), ("berxit", 768, 8), ("drnn", 256, 8), ("mv_rnn", 64, 64)]
    run_of = {Workload(model, "infer", size, batch): systems for model, size, batch in sizes}
    found = {
        size: [(one.model, one.hidden_size) for one, _ in rows]
        for size, rows in programs.by_size(run_of).items()
    }
    assert found == {
        "small": [("drnn", 256), ("berxit", 768), ("mv_rnn", 64)],
        "large": [("drnn", 512)],
    }


def test_rows_are_those_of_the_paper_small_mini_batches_first() -> None:
    systems = {"acrobat": rounds(2), "dynet": rounds(1)}
    found = [("stack_rnn", 8), ("drnn", 64), ("tree_lstm", 64), ("tree_lstm", 8)]
    shown = programs.rows_of({Workload(model, "infer", 8, size): systems for model, size in found})
    order = [(one.model, one.batch_size) for one, _ in shown]
    assert order == [("tree_lstm", 8), ("stack_rnn", 8), ("tree_lstm", 64), ("drnn", 64)]


def test_a_record_without_a_number_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    good = plain_record(0, {"instances_per_s": 2.0}, system="vertex")
    bad = plain_record(1, {"status": "timeout", "reason": "made up", "samples_s": ()})
    held = type("Held", (), {"records": (good, bad)})
    monkeypatch.setattr(run, "held_in", lambda _: held)
    ((_, systems),) = run.read_run("anywhere").items()  # type: ignore[arg-type]
    assert {name: list(found) for name, found in systems.items()} == {"vertex": [0]}
