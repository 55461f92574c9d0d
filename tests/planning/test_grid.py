"""Experiment files: expansion to trials and to batch counts, and errors that name invalid ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from dynbatch.harness.contracts.policy import list_policy_names
from dynbatch.harness.errors import RecordError
from dynbatch.harness.planning.artifacts import build_choices, hash_sweep, plan_counts
from dynbatch.harness.planning.config import Composer
from dynbatch.harness.planning.grid import Walk, expand, read_walks
from dynbatch.harness.planning.sweep import Sweep, parse_sweep
from dynbatch.harness.records.count_row import read_count_rows
from dynbatch.harness.values.paths import CONF_DIR
from tests.support.refusals import expect_refusal

GOOD: dict[str, Any] = {
    "title": "A title",
    "paper": "A paper",
    "scales": {
        "smoke": {
            "rounds": 2,
            "base": {"model": "tree_lstm", "batch_size": 8},
            "blocks": [
                {"system": ["vertex", "dynet"], "hidden_size": [16, 32]},
                {"system": "vertex", "policy": None, "batch_size": 1, "hidden_size": 16},
            ],
        },
        "paper": {"blocks": [{"system": "vertex"}]},
    },
}


def write(folder: Path, content: object, name: str = "one") -> Path:
    (folder / "experiment").mkdir(exist_ok=True)
    text = yaml.safe_dump(content, sort_keys=False)
    (folder / "experiment" / f"{name}.yaml").write_text(text)
    return folder


def test_blocks_are_products_and_win_over_the_base(tmp_path: Path) -> None:
    grid = expand("one", "smoke", write(tmp_path, GOOD))
    base = {"model": "tree_lstm", "batch_size": 8}
    assert grid.settings == (
        *(base | {"system": s, "hidden_size": h} for s in ("vertex", "dynet") for h in (16, 32)),
        base | {"system": "vertex", "policy": None, "batch_size": 1, "hidden_size": 16},
    )
    assert (grid.scale, grid.rounds) == ("smoke", 2)


NO_MATCH = "which matches no experiment that measures"


def changed(**smoke: object) -> dict[str, Any]:
    return GOOD | {"scales": {"smoke": GOOD["scales"]["smoke"] | smoke}}


def others(**scale: Any) -> dict[str, Any]:
    return {**GOOD, "scales": {"smoke": scale}}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({**GOOD, "title": ""}, "has no title"),
        ({**GOOD, "scales": {}}, "has no scales"),
        ({**GOOD, "scales": {"smoke": "claim"}}, "the scale=claim is not allowed: expected a"),
        ({**GOOD, "titel": "x"}, "titel is unknown in experiment/one.yaml, did you mean title?"),
        ({**GOOD, "scales": {"paper": {}}}, "has no scale smoke; choose one of: paper"),
        (changed(blocks=[]), "has no blocks"),
        (changed(blocks=["system=vertex"]), "expected a mapping, got 'system=vertex'"),
        (changed(rounds=0), "rounds=0"),
        (changed(rounds="many"), "rounds=many"),
        (changed(blcks=[]), "blcks is unknown in the scale, did you mean blocks?; choose one of"),
        (others(trials_of="tails_*"), f"has trials_of=tails_*, {NO_MATCH}; choose one of one"),
        (others(trials_of="one"), f"scale smoke has trials_of=one, {NO_MATCH}"),
        (others(trials_of=["tails_*"]), f"scale smoke has trials_of=tails_*, {NO_MATCH}"),
        (others(trials_of="*", rounds=3), "smoke has trials_of, rounds: expected only trials_of"),
    ],
)
def test_a_wrong_file_is_named(tmp_path: Path, content: object, words: str) -> None:
    with expect_refusal("experiment/one.yaml", words):
        expand("one", "smoke", write(tmp_path, content))


def test_a_scale_may_show_the_trials_of_others(tmp_path: Path) -> None:
    """Only experiments with their own trials at the scale are shown."""
    for name in ("head_a", "head_b", "tail"):
        write(tmp_path, GOOD, name)
    write(tmp_path, {**GOOD, "scales": {"paper": {"blocks": [{"system": "vertex"}]}}}, "head_c")
    for name in ("head_answers", "head_more"):
        write(tmp_path, others(trials_of="head_*"), name)
    grid = expand("head_answers", "smoke", tmp_path)
    assert (grid.trials_of, grid.settings) == (("head_a", "head_b"), ())
    write(tmp_path, others(trials_of=["tail", "head_?"]), "several")
    assert expand("several", "smoke", tmp_path).trials_of == ("tail", "head_a", "head_b")


OPTIONS = {
    "start": {"policy": "agenda", "fusion": False, "hoisting": False, "layout": "policy"},
    "end": {"policy": "depth", "fusion": True, "hoisting": True, "layout": "policy"},
    "silent": {"policy": "depth", "fusion": True, "layout": "policy"},
}
STEPS = ["fusion", "hoisting", "policy"]


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    (tmp_path / "system").mkdir()
    for name, options in OPTIONS.items():
        (tmp_path / f"system/{name}.yaml").write_text(yaml.safe_dump({"options": options}))
    return tmp_path


def walk_of(conf: Path, steps: object = tuple(STEPS), to: str = "end") -> Walk:
    content = {"walks": {"start": {"to": to, "steps": list(steps)}}}  # type: ignore[call-overload]
    return read_walks("one", content, conf)["start"]


def test_each_difference_is_added_first_walked_over_and_removed_last(conf: Path) -> None:
    walk = walk_of(conf)
    fusion, hoisting = "system.options.fusion", "system.options.hoisting"
    assert walk.take_steps(0) == {"system": "start"}
    assert walk.take_steps(2) == {"system": "start", fusion: True, hoisting: True}
    assert walk.take_steps(3) == {"system": "end"}
    assert walk.add_first(1) == {"system": "start", hoisting: True}
    assert walk.remove_last(0) == {"system": "end", fusion: False}
    assert walk.remove_last(2) == walk.take_steps(2), "the last step back is the walk before it"


def test_every_trial_comes_once(conf: Path) -> None:
    trials = list(walk_of(conf).list_trials())
    assert len({str(sorted(one.items(), key=str)) for one in trials}) == len(trials)
    # both ends, two between; only hoisting, only policy; without fusion, without hoisting
    assert len(trials) == 2 + 2 + 2 + 2


@pytest.mark.parametrize(
    ("steps", "to", "words"),
    [
        (["fusion", "policy"], "end", "but start and end differ in fusion, hoisting, policy"),
        ([*STEPS, "layout"], "end", "set each of these once"),
        (["fusion", *STEPS], "end", "set each of these once"),
        (STEPS, "nowhere", "unknown system nowhere"),
        (STEPS, "silent", "only one end sets hoisting"),
    ],
)
def test_invalid_walk_gives_one_line(conf: Path, steps: list[str], to: str, words: str) -> None:
    with expect_refusal("experiment/one.yaml, walk start", words):
        walk_of(conf, steps, to)


def test_a_block_takes_the_trials_of_its_walks(conf: Path) -> None:
    (conf / "experiment").mkdir()
    block = {"walk": "start", "model": "tree_fc"}
    content = {
        "title": "T",
        "paper": "P",
        "walks": {"start": {"to": "end", "steps": STEPS}},
        "scales": {"smoke": {"blocks": [block]}, "paper": {"blocks": [{**block, "walk": ["up"]}]}},
    }
    (conf / "experiment/one.yaml").write_text(yaml.safe_dump(content))
    trials = [{"model": "tree_fc", **trial} for trial in walk_of(conf).list_trials()]
    assert list(expand("one", "smoke", conf).settings) == trials
    with expect_refusal("unknown walk=up; choose one of: start"):
        expand("one", "paper", conf)


COUNTS: dict[str, Any] = {
    "model": ["tree_lstm", "lattice_lstm"],
    "dataset": ["sst", "weibo_lattice"],
    "batch_size": 2,
    "policy": ["agenda", "depth"],
}


def test_a_sweep_is_a_call_of_bench_schedule(tmp_path: Path) -> None:
    grid = expand("one", "smoke", write(tmp_path, others(counts=[COUNTS])))
    assert grid.settings == ()
    (sweep,) = grid.sweeps
    assert sweep.overrides == (
        "model=tree_lstm,lattice_lstm",
        "dataset=sst,weibo_lattice",
        "batch_size=2",
        "policy=agenda,depth",
    )


def test_all_policies_are_those_that_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new policy is counted without any other change."""
    wanted = ["depth", "all", "not:beam_2"]
    before = parse_sweep("here", COUNTS | {"policy": wanted}).get_values("policy")
    assert before[0] == "depth"
    assert sorted(before) == sorted(set(list_policy_names()) - {"beam_2"})
    names = (*list_policy_names(), "somebodys_own")
    for module in ("planning.sweep", "contracts.policy"):
        monkeypatch.setattr(f"dynbatch.harness.{module}.list_policy_names", lambda: names)
    after = parse_sweep("here", COUNTS | {"policy": wanted}).get_values("policy")
    assert after == (*before, "somebodys_own")


def test_equal_sweeps_share_a_file_and_others_do_not() -> None:
    sweep = parse_sweep("here", COUNTS)
    swapped = parse_sweep("there", dict(reversed(COUNTS.items())))
    assert sweep.sweep_id == swapped.sweep_id
    assert parse_sweep("here", {**COUNTS, "batch_size": 3}).sweep_id != sweep.sweep_id
    path = sweep.build_path(Path("results"))
    assert path.parent == Path("results/counts"), "made of records, which are below raw/"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("model=tree_lstm", "expected a mapping, got 'model=tree_lstm'"),
        ({"model": "tree_lstm"}, "no dataset"),
        ({**COUNTS, "policy": []}, "no policy"),
        ({**COUNTS, "policy": ["all", "not:agender"]}, "policy=agender is unknown"),
        ({**COUNTS, "policy": "agender"}, "policy=agender is unknown, did you mean agenda"),
        ({**COUNTS, "offset": [0, 8]}, "2 values of offset"),
        ({**COUNTS, "out": "here.json"}, "out, which the pipeline sets"),
        ({**COUNTS, "records": "here"}, "records, which the pipeline sets"),
        ({**COUNTS, "model": {"a": 1}}, "expected text or a number, got {'a': 1}"),
        ({**COUNTS, "offset": True}, "expected text or a number, got True"),
    ],
)
def test_invalid_counts_give_one_line(content: object, words: str, tmp_path: Path) -> None:
    with expect_refusal("experiment/one.yaml, scale smoke", words):
        expand("one", "smoke", write(tmp_path, others(counts=[content])))


def test_stand_ins_are_counted_where_a_corpus_is_not_here(tmp_path: Path) -> None:
    conf_dir = write(tmp_path, others(counts=[COUNTS]))
    (conf_dir / "dataset").symlink_to(CONF_DIR / "dataset")
    choices = build_choices({"scale": "smoke", "data_root": "none", "conf_dir": conf_dir}, {})
    (sweep,) = plan_counts("one", choices)
    assert sweep.get_values("dataset") == ("sst_synthetic", "lattice_synthetic")


def test_the_code_that_counts_is_hashed() -> None:
    composer = Composer()
    one, same, other = (
        hash_sweep(Sweep({**parse_sweep("here", COUNTS).settings, "policy": (policy,)}), composer)
        for policy in ("agenda", "agenda", "fsm_sort")
    )
    assert one == same != other


@pytest.mark.parametrize("text", ["", "{}", '[{"model": "tree_lstm"}]'])
def test_invalid_count_file_is_named_in_the_error(text: str, tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    file.write_text(text)
    with pytest.raises(RecordError, match=r"rows\.json"):
        read_count_rows(file)
    with pytest.raises(RecordError, match="cannot be read"):
        read_count_rows(tmp_path / "none.json")
