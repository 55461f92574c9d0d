"""The best of all peers: found by kind, named with its ratio, in tables and behind `bench`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from harness.planning.artefacts import Choices, PlannedTrial, plan_artefact
from harness.planning.compose import Composer
from harness.records.stats import Summary
from harness.values.places import CONF_DIR
from plots.numbers.best_peer import best_peer, peer_names, ratio_words
from plots.numbers.gather import gather
from plots.numbers.points import Measured, Point
from plots.numbers.table import TIMES
from plots.tables import peers
from plots.words.best_peers import lines_of
from tests.support.made_up_records import write_made_up_records
from tests.support.plain_records import plain_record

PEERS = {"slow", "quick"}


def point(system: str, *speeds: float, **changes: Any) -> Point:
    records = [
        plain_record(k, {"instances_per_s": speed, **changes}, system=system)
        for k, speed in enumerate(speeds)
    ]
    return Point({"system": system}, tuple(records))


def test_the_fastest_of_all_peers_is_named_with_the_ratio() -> None:
    points = [point("ours", 300, 310), point("slow", 100, 100), point("quick", 200, 200)]
    best = best_peer([*points, point("other strategy", 900)], "ours", PEERS)
    assert best is not None
    assert (best.system, best.n_peers, best.speed.median) == ("quick", 2, 200)
    assert best.ratio.summary is not None
    assert best.ratio.summary.median == pytest.approx(305 / 200, rel=0.01)


def test_a_peer_without_a_number_takes_no_part() -> None:
    wrong = point("quick", 900, status="wrong_result", reason="made up")
    best = best_peer([point("ours", 300), point("slow", 100), wrong], "ours", PEERS)
    assert best is not None
    assert (best.system, best.n_peers) == ("slow", 1)
    assert best_peer([point("ours", 300), wrong], "ours", PEERS) is None
    assert best_peer([point("slow", 300)], "ours", PEERS) is None


def test_a_peer_that_is_faster_is_told_as_such() -> None:
    best = best_peer([point("ours", 100), point("quick", 200)], "ours", PEERS)
    assert best is not None
    assert ratio_words(best.ratio) == "0.50"
    assert ratio_words(Measured("timeout")) == "timeout"


def test_the_ends_of_a_ratio_are_rounded_outwards() -> None:
    whole = Summary(median=1.029, low=0.995, high=1.0401, n_rounds=6)
    assert ratio_words(Measured("ok", whole)) == "1.03 [0.99-1.05]"
    assert ratio_words(Measured("ok", replace(whole, low=1.1, high=1.2))) == "1.03 [1.10-1.20]"


def test_a_number_with_warnings_has_its_dagger() -> None:
    doubtful = point("quick", 200, 200, warnings=["busy"])
    best = best_peer([point("ours", 300, 300), doubtful], "ours", PEERS)
    assert best is not None
    assert best.has_warnings
    assert ratio_words(best.ratio).endswith("]†")
    sound = best_peer([point("ours", 300), point("quick", 200)], "ours", PEERS)
    assert sound is not None
    assert not sound.has_warnings


def test_every_framework_is_a_peer_the_slow_ones_too() -> None:
    assert {"dynet", "dynet_off", "torch_levels", "torch_eager", "jax_scan"} <= peer_names(CONF_DIR)
    assert not {"vertex", "vertex_shared", "cavs", "null"} & peer_names(CONF_DIR)


def test_bench_says_it_for_every_workload() -> None:
    records = [
        plain_record(round_, {"instances_per_s": speed}, system=system, batch_size=size)
        for size, speeds in ((2, {"vertex": 300, "dynet": 200, "torch_levels": 100}), (4, {}))
        for system, speed in (speeds or {"vertex": 300, "cavs": 500}).items()
        for round_ in range(2)
    ]
    (line,) = lines_of(records, "vertex", CONF_DIR)
    assert line.startswith("tree_fc complete_trees bs=2 h=8 train: best of 2 peers DyNet")
    assert line.endswith("Vertex engine over it 1.50 [1.50-1.50]")


def test_bench_tells_workloads_apart_by_what_differs() -> None:
    records = [
        plain_record(system=system, dataset_options={"n_leaves": n, "seed": 0})
        for n in (4, 8)
        for system in ("vertex", "dynet")
    ]
    lines = list(lines_of(records, "vertex", CONF_DIR))
    assert [line.partition(":")[0].split()[-1] for line in lines] == ["n_leaves=4", "n_leaves=8"]
    assert all("the only peer" in line for line in lines)


@pytest.mark.slow
def test_a_headline_ends_with_the_best_peer_of_each_setting(
    choices: Choices, composer: Composer
) -> None:
    def change(trial: PlannedTrial, round_: int) -> dict[str, Any]:
        speeds = {"vertex": 300.0, "torch_levels": 150.0, "vertex_shared": 900.0}
        return {"instances_per_s": speeds.get(trial.settings["system"], 100.0)}

    trials = plan_artefact("headline_tree_lstm", choices, composer)
    write_made_up_records(trials, choices, change)
    artefact = gather("headline_tree_lstm", choices, trials)
    header, cells = peers.table_of(artefact, "systems").rows[-1]
    assert header == "best of all peers"
    assert [cell.text for cell in cells] == ["PyTorch levels: 150", "2.00", "", ""]
    assert peers.table_of(artefact, "strategies").rows[-1][0] != header
    (row,) = (r for r in peers.rows_of(artefact, "systems") if r["quantity"] == peers.OVER_BEST)
    assert (row["system"], row["value"]) == ("torch_levels", pytest.approx(2.0))


@pytest.mark.slow
def test_a_headline_tells_who_is_slower_on_what_it_has_not_seen(
    choices: Choices, composer: Composer
) -> None:
    def change(trial: PlannedTrial, round_: int) -> dict[str, Any]:
        return {"unseen_ratio": 1.5 if trial.settings["system"] == "dynet" else 1.01}

    trials = plan_artefact("headline_tree_lstm", choices, composer)
    write_made_up_records(trials, choices, change)
    artefact = gather("headline_tree_lstm", choices, trials)
    words = f"1.01 to 1.50 {TIMES} the time of the timed ones ({artefact.label('dynet')})"
    assert any(words in note for note in peers.table_of(artefact, "systems").notes)
    assert not any(words in note for note in peers.table_of(artefact, "strategies").notes)
    rows = [r for r in peers.rows_of(artefact, "systems") if r["quantity"] == "unseen_ratio"]
    assert {r["value"] for r in rows if r["system"] == "dynet"} == {1.5}
