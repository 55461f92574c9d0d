"""Walks from one preset to another: each difference once, and every trial that tells its worth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.errors import ConfigError
from harness.planning.grid import expand
from harness.planning.walks import Step, Walk, read_walks
from harness.values.places import CONF_DIR

OPTIONS = {
    "start": {"policy": "agenda", "fusion": False, "hoisting": False, "layout": "policy"},
    "end": {"policy": "depth", "fusion": True, "hoisting": True, "layout": "policy"},
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


def test_a_step_says_what_both_ends_do(conf: Path) -> None:
    assert walk_of(conf).steps == (
        Step("fusion", False, True),
        Step("hoisting", False, True),
        Step("policy", "agenda", "depth"),
    )


def test_each_difference_is_added_first_walked_over_and_removed_last(conf: Path) -> None:
    walk = walk_of(conf)
    fusion, hoisting = "system.options.fusion", "system.options.hoisting"
    assert walk.walked(0) == {"system": "start"}
    assert walk.walked(2) == {"system": "start", fusion: True, hoisting: True}
    assert walk.walked(3) == {"system": "end"}
    assert walk.added_first(1) == {"system": "start", hoisting: True}
    assert walk.removed_last(0) == {"system": "end", fusion: False}
    assert walk.removed_last(2) == walk.walked(2), "the last step back is the walk before it"


def test_every_trial_comes_once(conf: Path) -> None:
    trials = list(walk_of(conf).trials())
    assert len({str(sorted(one.items(), key=str)) for one in trials}) == len(trials)
    # ends, two between; hoisting and policy alone; without fusion, without hoisting
    assert len(trials) == 2 + 2 + 2 + 2


def test_a_walk_ends_at_its_end_whatever_the_options(conf: Path) -> None:
    """The walk's last trial has the options of the end, step by step."""
    walk = walk_of(conf)
    options: dict[str, Any] = dict(OPTIONS["start"])
    for step in walk.steps:
        assert options[step.option] == step.before
        options[step.option] = step.after
    assert options == OPTIONS["end"]


@pytest.mark.parametrize(
    ("steps", "to", "words"),
    [
        (["fusion", "policy"], "end", "but start and end differ in fusion, hoisting, policy"),
        ([*STEPS, "layout"], "end", "name each of these once"),
        (["fusion", *STEPS], "end", "name each of these once"),
        (STEPS, "nowhere", "names nowhere, which conf/system has not"),
    ],
)
def test_a_wrong_walk_is_told_in_one_line(
    conf: Path, steps: list[str], to: str, words: str
) -> None:
    with pytest.raises(ConfigError, match=r"experiment/one\.yaml, walk start") as caught:
        walk_of(conf, steps, to)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_option_that_one_end_does_not_say_is_told(conf: Path) -> None:
    options = {k: v for k, v in OPTIONS["end"].items() if k != "hoisting"}
    (conf / "system/end.yaml").write_text(yaml.safe_dump({"options": options}))
    with pytest.raises(ConfigError, match="do not both say hoisting"):
        walk_of(conf)


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
    assert list(expand("one", "smoke", conf).settings) == [
        {"model": "tree_fc", **trial} for trial in walk_of(conf).trials()
    ]
    with pytest.raises(ConfigError, match="walk=up; walks of this experiment: start"):
        expand("one", "paper", conf)


def test_the_shipped_walks_lead_to_the_plain_engine() -> None:
    """That they step over every difference is checked whenever they are read."""
    walks = {
        (settings["system"], key)
        for settings in expand("switch_walks", "paper").settings
        for key in settings
        if key.startswith("system.options.")
    }
    assert {system for system, _ in walks} == {"cavs_dynet", "dynet_policy", "vertex"}
    assert ("cavs_dynet", "system.options.pre_gather_parameters") in walks
    assert (CONF_DIR / "system/vertex.yaml").is_file()
