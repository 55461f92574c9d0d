"""Numbers of a frame against a plain Python version, with random missing rounds and phases."""

from __future__ import annotations

import json
import math
import random
from typing import Any

import pandas as pd
import pytest

from dynbatch.harness.errors import RecordError
from dynbatch.harness.records.numbers import (
    NOT_MEASURED,
    NOT_PLANNED,
    NOT_SEPARABLE,
    merge_seeds,
    numbers,
    ratios,
    select_fastest,
)
from dynbatch.harness.records.stats import Summary, name_interval, summarize_rounds
from dynbatch.harness.records.tidy import build_frame_from_rows

N_POINTS = 3000
QUANTITIES = ("throughput", "construction_s", "execution_ms", "over_bound", "peak_memory_mib")
Round = dict[str, Any]


def draw_round(rng: random.Random, trial: str, round_: int) -> Round:
    """Return a round that may have failed, have warnings, or miss a phase or its record."""
    status = rng.choices(["ok", "oom", "timeout", NOT_MEASURED], [0.94, 0.02, 0.02, 0.02])[0]
    row: Round = {
        "trial_id": None if status == NOT_MEASURED else trial,
        "round": round_,
        "status": status,
        "warnings": rng.choices(["", "drift", "background_load drift"], [0.8, 0.1, 0.1])[0],
        "weak_build": rng.choices(["", "dynet_without_blas", "other_kernels"], [0.8, 0.1, 0.1])[0],
        "device": rng.choice(["cpu", "cuda"]),
        "n_instances": 64,
        "n_mini_batches": 4,
        "instances_per_s": rng.uniform(10, 1000),
        "n_batches": rng.randint(1, 90),
        "lower_bound": rng.choice([0, 7, 30]),
        "peak_memory_bytes": rng.randint(2**28, 2**30),
        "baseline_memory_bytes": rng.choice([None, 2**27]),
    }
    for phase in ("construct", "schedule", "forward", "backward", "update"):
        row[f"{phase}_s"] = None if rng.random() < 0.02 else rng.uniform(0.001, 0.1)
    if status == NOT_MEASURED:
        row = {key: row[key] for key in ("trial_id", "round", "status")}
        row |= {"warnings": "", "weak_build": ""}
    return row


def draw_trial(rng: random.Random, name: str) -> list[Round]:
    first = rng.choice([0, 0, 0, 1])
    return [draw_round(rng, name, first + k) for k in range(rng.randint(1, 8))]


def quantity_of(row: Round, quantity: str) -> float | None:
    """Return a quantity by its definition; None if an input is unknown."""
    if row["status"] != "ok":
        return None
    speed, per_mini_batch = row["instances_per_s"], row["n_instances"] / row["n_mini_batches"]
    construct, schedule = row["construct_s"], row["schedule_s"]
    if quantity == "throughput":
        return float(speed)
    if quantity == "construction_s":
        return None if construct is None else (construct + (schedule or 0)) / per_mini_batch
    if quantity == "execution_ms":
        whole = 1e3 * per_mini_batch / speed
        return float(max(0.0, whole - 1e3 * ((construct or 0) + (schedule or 0))))
    if quantity == "over_bound":
        return row["n_batches"] / row["lower_bound"] if row["lower_bound"] else None
    assert quantity == "peak_memory_mib"
    before = 0 if row["device"] == "cuda" else row["baseline_memory_bytes"]
    return None if before is None else (row["peak_memory_bytes"] - before) / 2**20


def measure(trial: list[Round], quantity: str) -> tuple[str, dict[int, float]]:
    """Return the status of a trial, and the quantity by round if all measured rounds have it."""
    trial = [row for row in trial if row["status"] != NOT_MEASURED] or trial
    failed = [row["status"] for row in trial if row["status"] != "ok"]
    if failed:
        return failed[0], {}
    values = {row["round"]: quantity_of(row, quantity) for row in trial}
    if any(value is None for value in values.values()):
        return NOT_SEPARABLE, {}
    return "ok", {round_: value for round_, value in values.items() if value is not None}


def compare(
    own: list[Round], base: list[Round], quantity: str
) -> tuple[str, Summary | None, set[str]]:
    """Return status, summary and warnings of a ratio."""
    sides = [measure(base, quantity), measure(own, quantity)]
    for status, _ in sides:
        if status != "ok":
            return status, None, set()
    below, above = (values for _, values in sides)
    shared = sorted(above.keys() & below.keys())
    if not shared:
        return NOT_MEASURED, None, set()
    if any(below[round_] <= 0 for round_ in shared):
        return NOT_SEPARABLE, None, set()
    rows = [row for row in (*own, *base) if row["round"] in shared]
    warnings = {word for row in rows for word in row["warnings"].split()}
    builds = [{row["weak_build"] for row in rows if row["round"] == round_} for round_ in shared]
    for both in builds:  # two sides on the same other kernels compare like with like
        warnings |= set() if both == {"other_kernels"} else both - {""}
    return "ok", summarize_rounds([above[r] / below[r] for r in shared]), warnings


def check(
    number: pd.Series, rounds: list[Round], status: str, summary: Summary | None, warnings: set[str]
) -> None:
    """Check a number of rounds, which for a ratio are those of both sides."""
    is_partial = any(row["status"] == NOT_MEASURED for row in rounds)
    assert bool(number.is_partial) == (is_partial and status == "ok")
    assert number.status == status
    wide = {"wide_interval"} if summary is not None and summary.is_wide else set()
    assert set(number.warnings.split()) == warnings | wide
    if summary is None:
        assert math.isnan(number.value)
        assert math.isnan(number.low)
        return
    assert number.value == pytest.approx(summary.median, rel=1e-12)
    assert (number.n_rounds, number.interval) == (summary.n_rounds, name_interval(summary.n_rounds))
    for end, expected in ((number.low, summary.low), (number.high, summary.high)):
        assert math.isnan(end) if expected is None else end == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("quantity", QUANTITIES)
def test_numbers_and_ratios_agree_with_plain_python(quantity: str) -> None:
    rng = random.Random(quantity)
    n_points = N_POINTS // len(QUANTITIES)
    trials = [(draw_trial(rng, f"own-{k}"), draw_trial(rng, f"base-{k}")) for k in range(n_points)]
    frames = [
        build_frame_from_rows(
            {**row, "k": k} for k, pair in enumerate(trials) for row in pair[side]
        )
        for side in (0, 1)
    ]
    found = numbers(frames[0], ["k"], quantity).set_index("k")
    compared = numbers(ratios(*frames, ["k"], quantity), ["k"], "ratio").set_index("k")
    for k, (own, base) in enumerate(trials):
        status, values = measure(own, quantity)
        warnings = {word for row in own for word in row["warnings"].split()}
        summary = summarize_rounds(list(values.values())) if values else None
        check(found.loc[k], own, status, summary, warnings if values else set())
        check(compared.loc[k], [*own, *base], *compare(own, base, quantity))
    assert set(compared.status) >= {"ok", "oom", "timeout", NOT_MEASURED}, "all cases occurred"


def build_rows(system: str, speeds: list[float], **more: Any) -> list[Round]:
    return [
        {"system": system, "trial_id": f"{system}-{more}", "round": round_, "status": "ok",
         "warnings": "", "weak_build": "", "instances_per_s": speed, **more}
        for round_, speed in enumerate(speeds)
    ]  # fmt: skip


def frame_of(*trials: list[Round]) -> pd.DataFrame:
    return build_frame_from_rows(row for trial in trials for row in trial)


def test_a_workload_without_a_base_is_not_planned() -> None:
    rows = frame_of(build_rows("a", [1], batch_size=8), build_rows("a", [1], batch_size=9))
    compared = ratios(rows, rows[rows.batch_size == 8], ["batch_size"])
    assert list(numbers(compared, ["batch_size"], "ratio").status) == ["ok", NOT_PLANNED]


def test_keys_that_leave_two_trials_in_one_point_are_refused() -> None:
    rows = frame_of(build_rows("a", [1], batch_size=8), build_rows("a", [2], batch_size=9))
    expected = (
        r"ambiguous numbers: .* do not differ in system; .*batch_size.*select\(rows, batch_size=8\)"
    )
    with pytest.raises(RecordError, match=expected):
        numbers(rows, ["system"])
    assert list(numbers(rows, ["system", "batch_size"]).value) == [1, 2]
    with pytest.raises(RecordError, match="ambiguous"):
        ratios(rows, rows, [])  # a base with two trials


@pytest.mark.parametrize(
    ("by", "quantity", "message"),
    [
        (["sytem"], "throughput", "unknown column 'sytem', did you mean system"),
        (["system"], "troughput", "unknown quantity 'troughput', did you mean throughput"),
        (["system"], "status", "unknown quantity 'status'"),
        (["system"], "rond", "unknown quantity 'rond'; choose from"),  # "round" is not one
    ],
)
def test_unknown_names_suggest_close_ones(by: list[str], quantity: str, message: str) -> None:
    with pytest.raises(RecordError, match=message):
        numbers(frame_of(build_rows("a", [1])), by, quantity)


def test_the_fastest_trial_of_each_workload_is_selected() -> None:
    rows = frame_of(
        build_rows("slow", [1, 1], batch_size=8),
        build_rows("fast", [2, 2], batch_size=8),
        build_rows("slow", [9], batch_size=9),
        build_rows("fast", [1], batch_size=9, status="oom"),
        build_rows("fast", [1], batch_size=10, status="oom"),
    )
    fastest = select_fastest(rows, ["batch_size"]).drop_duplicates("batch_size")
    chosen = dict(zip(fastest.batch_size, fastest.system, strict=True))
    assert chosen == {8: "fast", 9: "slow", 10: "fast"}


def test_fastest_trial_has_the_best_paired_ratio() -> None:
    """In shared rounds "other" is always faster; alone, a quiet round makes "lucky" look faster."""
    speeds = {"base": [2, 4, 8], "other": [3, 6, 12], "lucky": [1, 2, 4, 99, 99, 99, 99]}
    rows = frame_of(*(build_rows(name, speeds[name]) for name in speeds))
    base = rows[rows.system == "base"]
    assert set(select_fastest(rows, []).system) == {"lucky"}
    assert set(select_fastest(rows, [], base).system) == {"other"}
    assert set(select_fastest(rows[rows.system == "lucky"], [], base).system) == {"lucky"}
    failed = frame_of(build_rows("base", [2], status="crash"))
    assert set(select_fastest(rows, [], failed).system) == {"lucky"}, "no ratio: by throughput"


def build_seeds(*speeds: list[float]) -> pd.DataFrame:
    """Build a trial for each seed, with a speed for each round."""
    trials = (
        build_rows("a", of_rounds, **{"learning.seed": seed})
        for seed, of_rounds in enumerate(speeds)
    )
    return frame_of(*trials)


def merge(rows: pd.DataFrame) -> Any:
    (merged,) = merge_seeds(numbers(rows, ["system", "learning.seed"])).itertuples()
    return merged


def test_seeds_merge_to_their_median_and_range() -> None:
    rows = build_seeds([1.0], [9.0], [2.0])
    merged = merge(rows)
    assert (merged.value, merged.low, merged.high) == (2, 1, 9), "the mean is 4"
    assert merged.n_seeds == 3
    rows.loc[rows["learning.seed"] == 1, "status"] = "timeout"
    failed = merge(rows)
    assert failed.status == "timeout"
    assert math.isnan(failed.value)


@pytest.mark.parametrize("is_partial", [True, False])
def test_merged_seeds_remain_partial(is_partial: bool) -> None:
    rows = build_seeds([1.0, 1.0], [2.0, 2.0])
    rows.loc[rows["round"] == 1, "status"] = "not measured" if is_partial else "ok"
    assert merge(rows).is_partial is is_partial


def test_two_trials_without_a_value_of_a_key_are_both_named() -> None:
    trials = (build_rows("a", [1], policy=None, trial_id=name) for name in ("first", "second"))
    with pytest.raises(RecordError, match="first and second do not differ in system and policy"):
        numbers(frame_of(*trials), ["system", "policy"])


def build_group(name: str, cpu: str) -> Round:
    facts = {"cpu": cpu, "memory_gib": 8}
    return {"group": name, "group_facts": json.dumps(facts)}


UNLIKE = r"are not comparable: different cpu old and new; select"


def test_rounds_of_two_groups_in_a_point_are_refused() -> None:
    first, second = build_rows("a", [1, 2])
    alike = [first | build_group("1", "old"), second | build_group("1", "old")]
    assert list(numbers(frame_of(alike), ["system"]).value) == [1.5]
    unlike = [first | build_group("1", "new"), second | build_group("2", "old")]
    with pytest.raises(RecordError, match=UNLIKE):
        numbers(frame_of(unlike), ["system"])


def test_ratios_over_a_base_of_another_group_are_refused() -> None:
    own = frame_of(build_rows("a", [1, 2], **build_group("1", "old")))
    alike = frame_of(build_rows("b", [2, 4], **build_group("1", "old")))
    assert list(ratios(own, alike, []).ratio) == pytest.approx([2, 2])
    unlike = frame_of(build_rows("b", [2, 4], **build_group("2", "new")))
    with pytest.raises(RecordError, match=UNLIKE):
        ratios(own, unlike, [])


@pytest.mark.parametrize("quantity", ["instance_s", "mini_batch_ms"])
def test_ratios_of_a_block_are_within_its_cycles(quantity: str) -> None:
    """The machine halves its speed for one cycle in three, of which each side has its own share."""
    fast = {0: (1.0, False), 2: (2.0, False), 3: (1.0, False)}
    slow = {0: (3.0, False), 2: (6.2, False), 3: (3.3, False), 4: (9.0, False)}
    shared = {"block": "b", "cpu_share": 1.0, "device": "cpu", "threads": 1}
    rows = frame_of(
        build_rows("fast", [1.0], turns=fast, **shared),
        build_rows("slow", [1 / 4.65], turns=slow, **shared),
    )
    rows["mini_batch_ms"] = 16e3 * rows.instance_s
    pairs = ratios(rows, "fast", [], quantity)
    found = numbers(pairs, ["system"], "ratio").set_index("system")
    assert found.loc["slow"].value == pytest.approx(3.1)
    assert found.loc["slow"].warnings == ""


@pytest.mark.parametrize(
    ("own", "base", "words"),
    [
        ({}, {}, ""),
        ({"block": "c"}, {}, "separate_blocks"),
        ({"block": ""}, {}, "separate_blocks"),
        ({"block": ""}, {"block": ""}, ""),  # both from before blocks
        ({"turns": {k: (1.0, False) for k in range(9, 12)}}, {}, "separate_blocks"),  # other parts
        ({"cpu_share": 0.99}, {}, ""),
        ({"cpu_share": 0.9}, {}, "cpu_time_disagrees"),
        ({"cpu_share": 0.9, "threads": 2}, {"threads": 2}, ""),
        ({"cpu_share": 0.9, "device": "cuda"}, {"device": "cuda"}, ""),
        ({"cpu_share": None}, {}, ""),
    ],
)
def test_pairs_have_warnings(own: dict[str, Any], base: dict[str, Any], words: str) -> None:
    shared: dict[str, Any] = {"block": "b", "cpu_share": 1.0, "device": "cpu", "threads": 1}
    shared["turns"] = {k: (1.0, False) for k in range(3)}
    fast = build_rows("fast", [2.0], **{**shared, **base})
    slow = build_rows("slow", [1.0], **{**shared, **own})
    found = ratios(frame_of(fast, slow), "fast", []).set_index("system")
    if words != "" or own.get("block") == "":
        assert found.loc["slow"].ratio in (pytest.approx(2.0), pytest.approx(1.0))
    assert found.loc["slow"].warnings == words


def test_rounds_apart_count_only_if_none_was_side_by_side() -> None:
    speeds = {"fast": [9.0, 2.0, 3.0], "slow": [1.0, 1.0, 1.0]}
    blocks = {"fast": ["a", "c", "d"], "slow": ["b", "c", "d"]}
    rows = frame_of(*(build_rows(name, speeds[name]) for name in speeds))
    rows["turns"] = [{turn: (1 / row.instances_per_s, False) for turn in range(3)}
                     for row in rows.itertuples()]  # fmt: skip
    rows["cpu_share"] = 1.0
    rows["block"] = [blocks[row.system][row.round] for row in rows.itertuples()]
    ratio = numbers(ratios(rows, "fast", []), "system", "ratio").set_index("system").loc["slow"]
    assert (pytest.approx(ratio.value), ratio.n_rounds) == (2.5, 2)
    assert "separate_blocks" not in ratio.warnings
    rows["block"] = rows.system
    ratio = numbers(ratios(rows, "fast", []), "system", "ratio").set_index("system").loc["slow"]
    assert (pytest.approx(ratio.value), ratio.n_rounds) == (3.0, 3)
    assert "separate_blocks" in ratio.warnings


def test_rounds_apart_from_a_base_count_although_other_bases_were_side_by_side() -> None:
    names = ("slow", "step", "other")
    rows = frame_of(*(build_rows(name, [1.0, 2.0], at=name) for name in names))
    rows["turns"] = [dict.fromkeys(range(3), (1 / row.instances_per_s, False))
                     for row in rows.itertuples()]  # fmt: skip
    rows["cpu_share"] = 1.0
    rows["block"] = ["a" if row.system != "other" else "b" for row in rows.itertuples()]
    own = pd.concat([rows[rows.system == "slow"].assign(at=at) for at in ("step", "other")])
    bases = rows[rows.system != "slow"]
    found = numbers(ratios(own, bases, ["at"]), ["at"], "ratio").set_index("at")
    assert list(found.n_rounds) == [2, 2]
    assert "separate_blocks" in found.loc["other"].warnings
    assert "separate_blocks" not in found.loc["step"].warnings
