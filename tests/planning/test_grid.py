"""Experiment files: expanded in a fixed order, wrong ones named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from harness.errors import ConfigError
from harness.planning.grid import Grid, expand, experiment_names, override_text

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
    text = content if isinstance(content, str) else yaml.safe_dump(content, sort_keys=False)
    (folder / "experiment" / f"{name}.yaml").write_text(text)
    return folder


def test_blocks_are_products_and_win_over_the_base(tmp_path: Path) -> None:
    grid = expand("one", "smoke", write(tmp_path, GOOD))
    assert grid.overrides == (
        ("model=tree_lstm", "batch_size=8", "system=vertex", "hidden_size=16"),
        ("model=tree_lstm", "batch_size=8", "system=vertex", "hidden_size=32"),
        ("model=tree_lstm", "batch_size=8", "system=dynet", "hidden_size=16"),
        ("model=tree_lstm", "batch_size=8", "system=dynet", "hidden_size=32"),
        ("model=tree_lstm", "batch_size=1", "system=vertex", "policy=null", "hidden_size=16"),
    )
    assert (grid.title, grid.paper, grid.scale, grid.rounds) == ("A title", "A paper", "smoke", 2)


def test_a_scale_may_be_a_single_trial(tmp_path: Path) -> None:
    grid = expand("one", "paper", write(tmp_path, GOOD))
    settings = ({"system": "vertex"},)
    assert grid == Grid("one", "A title", "A paper", "paper", 1, settings)


def test_overrides_are_written_as_bench_takes_them() -> None:
    values = [None, True, 0.25, "tree_lstm", 3]
    written = [override_text("a.b", value) for value in values]
    assert written == ["a.b=null", "a.b=true", "a.b=0.25", "a.b=tree_lstm", "a.b=3"]


def changed(**smoke: object) -> dict[str, Any]:
    return GOOD | {"scales": {"smoke": GOOD["scales"]["smoke"] | smoke}}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({**GOOD, "title": ""}, "has no title"),
        ({**GOOD, "scales": {}}, "has no scales"),
        ("[1, 2]", "holds a list; it maps keys to values"),
        ("a: [1", "is not YAML"),
        ({**GOOD, "scales": {"paper": {}}}, "has no scale smoke; choose one of: paper"),
        (changed(blocks=[]), "has no blocks"),
        (changed(blocks=["system=vertex"]), "a block maps keys to values"),
        (changed(rounds=0), "rounds=0"),
        (changed(rounds="many"), "rounds=many"),
        (changed(blcks=[]), "only base, blocks, counts, rounds, screening are allowed"),
    ],
)
def test_a_wrong_file_is_named(tmp_path: Path, content: object, words: str) -> None:
    with pytest.raises(ConfigError, match=r"experiment/one\.yaml.*") as caught:
        expand("one", "smoke", write(tmp_path, content))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("key", "close"),
    [("titel", "title"), ("scale", "scales"), ("note", "notes"), ("compair", "compare")],
)
def test_an_unknown_key_is_named_with_a_close_one(tmp_path: Path, key: str, close: str) -> None:
    content = {key: {}, **GOOD}
    if close in GOOD:  # then the mistake takes the place of the key
        del content[close]
    expected = rf"experiment/one.yaml: unknown key '{key}', did you mean {close}\?; choose from"
    with pytest.raises(ConfigError, match=expected):
        expand("one", "smoke", write(tmp_path, content))


def test_an_unknown_experiment_lists_the_known_ones(tmp_path: Path) -> None:
    write(write(tmp_path, GOOD), GOOD, "another")
    assert experiment_names(tmp_path) == ("another", "one")
    with pytest.raises(ConfigError, match="experiment=two is unknown; choose one of: another, one"):
        expand("two", "smoke", tmp_path)


def of_others(**scale: Any) -> dict[str, Any]:
    return {**GOOD, "scales": {"smoke": scale}}


def test_a_scale_may_show_the_trials_of_others(tmp_path: Path) -> None:
    """Those that have the scale and measure: neither itself, nor others of its kind, nor counts."""
    for name in ("head_a", "head_b", "tail"):
        write(tmp_path, GOOD, name)
    write(tmp_path, {**GOOD, "scales": {"paper": {"blocks": [{"system": "vertex"}]}}}, "head_c")
    for name in ("head_answers", "head_more"):
        write(tmp_path, of_others(trials_of="head_*"), name)
    grid = expand("head_answers", "smoke", tmp_path)
    assert (grid.trials_of, grid.settings) == (("head_a", "head_b"), ())


@pytest.mark.parametrize(
    ("scale", "words"),
    [
        ({"trials_of": "tails_*"}, "which no experiment that measures fits; there are one"),
        ({"trials_of": "one"}, "which no experiment that measures fits"),
        ({"trials_of": "*", "rounds": 3}, "beside trials_of nothing is allowed"),
    ],
)
def test_wrong_trials_of_others_are_named(
    tmp_path: Path, scale: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=r"experiment/one\.yaml, scale smoke has") as caught:
        expand("one", "smoke", write(tmp_path, of_others(**scale)))
    assert words in str(caught.value)
