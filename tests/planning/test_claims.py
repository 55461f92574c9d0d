"""Claims of papers: reading of every file, and one-line errors for invalid ones."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml

from dynbatch.harness.planning.claim_points import STEP, Answer, find_comparisons
from dynbatch.harness.planning.claims import EACH_STEP, Claim, read_claims
from dynbatch.harness.planning.grid import SCALES, expand
from dynbatch.harness.values.paths import CONF_DIR
from tests.support.refusals import expect_refusal

GOOD: dict[str, Any] = {
    "claim": "A cell trains twice as fast when it is batched",
    "authors": "Nobody",
    "paper": "None, 2020",
    "year": 2020,
    "location": "Table 0",
    "conditions": "in a dream",
    "device": "cpu",
    "published": {"text": "2"},
    "answer": {
        "experiment": "one",
        "quantity": "epoch_s",
        "numerator": {"system": ["slow", "slower"]},
        "denominator": {"system": "quick"},
        "substitution": "nothing",
    },
    "rule": {"at_least": 2, "tolerance": 0.5, "quantifier": "all", "rationale": "2, as rounded"},
}
BLOCKS = [
    {"system": ["slow", "quick"], "batch_size": [1, 8], "timing.min_seconds": 1},
    {"system": "slower", "batch_size": 8, "timing.min_seconds": 2},
    {"system": "quick", "policy": "depth", "batch_size": 8},
    {"system": "slow", "batch_size": 64},
]
COUNTS = {"model": ["tree_fc", "mv_rnn"], "dataset": "sst", "batch_size": 8}
NO_SIDES: dict[str, Any] = {"answer__numerator": None, "answer__denominator": None}


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    """Return a configuration with a grid, a sweep of counts, and three systems.

    Scale medium has the points of the paper scale, in another order and with other times; smoke has
    one of them.
    """
    for folder in ("claims", "experiment", "system"):
        (tmp_path / folder).mkdir()
    for name in ("slow", "slower", "quick"):
        (tmp_path / f"system/{name}.yaml").write_text(f"name: {name}\n")
    base = {"model": "tree_fc", "dataset": "sst", "hidden_size": 4}
    small = [{"system": ["slow", "quick"], "batch_size": 1}]
    scales = {
        "paper": {"base": base, "blocks": BLOCKS},
        "medium": {"base": base | {"timing.min_seconds": 9}, "blocks": BLOCKS[::-1]},
        "smoke": {"base": base, "blocks": small},
    }
    counts = {"paper": {"counts": [COUNTS | {"policy": ["depth", "agenda"]}]}}
    for name, content in (("one", scales), ("counted", counts), ("shown", {"paper": "claims"})):
        file = {"title": "T", "paper": "P", "scales": content}
        (tmp_path / f"experiment/{name}.yaml").write_text(yaml.safe_dump(file, sort_keys=False))
    return tmp_path


def changed(**changes: Any) -> dict[str, Any]:
    """Return the valid claim with changes; `__` separates levels, None removes a key."""
    content: dict[str, Any] = yaml.safe_load(yaml.safe_dump(GOOD))
    for key, value in changes.items():
        above, _, name = key.rpartition("__")
        place = content[above] if above else content
        place[name] = value
        if value is None:
            del place[name]
    return content


def read(conf: Path, content: object) -> Claim:
    """Return the claim of a file with this content."""
    (conf / "claims/dream.yaml").write_text(yaml.safe_dump(content))
    (claim,) = read_claims(conf)
    return claim


def test_a_claim_is_read_and_finds_its_points(conf: Path) -> None:
    claim = read(conf, GOOD)
    assert claim.name == "dream"
    settings = expand("one", "paper", conf).settings
    pairs = find_comparisons(claim.answer, settings)
    # Batch size 64 has only one side; trials with another policy belong to neither side.
    assert [pair.settings["batch_size"] for pair in pairs] == [1, 8]
    sides = [
        [
            {settings[place]["system"] for place in side}
            for side in (pair.numerator, pair.denominator)
        ]
        for pair in pairs
    ]
    assert sides == [[{"slow"}, {"quick"}], [{"slow", "slower"}, {"quick"}]]


def test_points_that_the_paper_lacks_are_left_out(conf: Path) -> None:
    """A point is left out if it has all values of `without`."""
    points = expand("one", "paper", conf).settings
    for without, left in (
        (None, [1, 8]),
        ({"batch_size": 8}, [1]),
        ({"batch_size": 8, "model": "tree_fc"}, [1]),
        ({"batch_size": 8, "system": "slow"}, [1, 8]),
    ):
        claim = read(conf, changed(answer__without=without))
        found = [pair.settings["batch_size"] for pair in find_comparisons(claim.answer, points)]
        assert sorted(found) == left, without


def test_a_claim_is_decided_at_scales_with_the_points_of_the_paper(conf: Path) -> None:
    """A scale may miss a size, or a system whose best value counts; times do not matter."""
    claim = read(conf, GOOD)
    assert set(claim.answered_at) == {"smoke", "medium", "paper"}
    assert set(claim.decided_at) == {"medium", "paper"}
    narrow = read(conf, changed(answer__settings={"batch_size": 1}))
    assert set(narrow.decided_at) == {"smoke", "medium", "paper"}
    file = conf / "experiment/one.yaml"
    content = yaml.safe_load(file.read_text())
    content["scales"]["medium"]["blocks"].remove(BLOCKS[1])  # batch size 8 without `slower`
    file.write_text(yaml.safe_dump(content))
    claim = read(conf, GOOD)
    assert (set(claim.answered_at), claim.decided_at) == (set(SCALES), ("paper",))


def test_a_claim_is_decidable_on_its_device(conf: Path) -> None:
    devices = ("cpu", "cuda")
    for printed, expected in (("cpu", ["cpu"]), ("cuda", ["cuda"]), ("any", ["cpu", "cuda"])):
        claim = read(conf, changed(device=printed))
        assert [d for d in devices if not claim.explain_undecidable("paper", d)] == expected
        assert all(claim.explain_undecidable("smoke", d) for d in devices)


def test_a_step_is_compared_with_the_one_before_it(conf: Path) -> None:
    steps = {"system": ["slow", "slower", "quick"]}
    claim = read(conf, changed(**NO_SIDES, answer__steps=steps, rule__quantifier=EACH_STEP))
    settings = expand("one", "paper", conf).settings
    systems = [
        (
            *(pair.settings[key] for key in (STEP, "batch_size")),
            *(settings[side[0]]["system"] for side in (pair.numerator, pair.denominator)),
        )
        for pair in find_comparisons(claim.answer, settings)
    ]
    assert systems == [("slower", 8, "slow", "slower"), ("quick", 8, "slower", "quick")]


MEASURED = [
    {"system": "slow", "dataset": "sst", "rounds": 6, "timing.n_mini_batches": 2},
    {"system": "quick", "dataset": "sst", "timing.n_mini_batches": 8},
]
ANSWER = Answer(
    experiment="one",
    quantity="epoch_s",
    numerator={"system": ("slow",)},
    denominator={"system": ("quick",)},
    substitution="nothing",
)


@pytest.mark.parametrize(
    ("dataset", "n_slow", "n_points"),
    [
        ("sst", 8, 1),  # neither rounds nor the measuring time matter
        ("sst", 2, 0),  # other trees, of other sizes
        ("complete_trees", 2, 1),  # trees of one size
        ("ptb_fixed_synthetic", 2, 1),
        ("ptb", 2, 0),
    ],
)
def test_sides_have_equal_instances(dataset: str, n_slow: int, n_points: int) -> None:
    slow, quick = ({**one, "dataset": dataset} for one in MEASURED)
    slow["timing.n_mini_batches"] = n_slow
    assert len(find_comparisons(ANSWER, [slow, quick])) == n_points
    # The best batch size compares whatever instances were measured at each size.
    best = replace(ANSWER, best_over="batch_size")
    assert len(find_comparisons(best, [slow, quick])) == 1


@pytest.mark.parametrize("name", ["bilstm_synthetic", "complete_trees", "ptb_fixed_synthetic"])
def test_instances_that_count_as_alike_are_equally_long(name: str) -> None:
    printed = yaml.safe_load((CONF_DIR / f"dataset/{name}.yaml").read_text())
    corpus = import_module(printed["loader"]).load("train", None, **printed["options"])
    assert len({len(corpus.instances[place].words) for place in range(0, 200, 20)}) == 1


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"claim": None}, "a claim has no claim; add it"),
        ({"claim": "x" * 80}, "expected at most 72 characters, got 80"),
        ({"published": {"text": "2", "at": 1}}, "published.at is unknown"),
        ({"published__number": 0}, "published.number=0 is not allowed: expected a value above 0"),
        ({"rule": None}, "expected either answer and rule, or only unanswerable"),
        ({"unanswerable": "no code"}, "expected either answer and rule, or only unanswerable"),
        ({"rule__at_least": None}, "rule has no limit; set at_least, at_most or both"),
        ({"rule__at_most": 1.2}, "above at_most=1.2; swap them"),
        ({"rule__tolerance": -1}, "rule.tolerance=-1 is not allowed: expected a value of at least"),
        ({"rule__tolerance": 2}, "rule has a wide tolerance: expected less than 2, got 2"),
        ({"rule__quantifier": EACH_STEP}, "expected steps with quantifier each_step; set both"),
        ({"rule__quantifier": "most"}, "rule.quantifier=most is not allowed; choose one of all"),
        ({"answer__numerator": {}}, "expected either numerator or steps in answer; set one"),
        ({"answer__steps": {"system": "slow"}}, "expected either numerator or steps in answer"),
        (
            {"answer__numerator": None, "answer__steps": {"system": ["slow", "quick"]}},
            "answer.steps replaces both sides by values of one key",
        ),
        (NO_SIDES | {"answer__steps": {"system": "slow"}}, "answer.steps has no step"),
        (
            {"answer__denominator": None, "answer__numerator_quantity": "computation_s"},
            "answer.numerator_quantity needs a denominator",
        ),
        ({"answer__decisive_scales": "paper"}, "answer.decisive_scales is unknown"),
        ({"decided_at": ["paper"]}, "unknown key 'decided_at' of a claim; remove it"),
        ({"answer__settings": {"dataset": "sst"}}, "selects by dataset, which may be a fallback"),
        ({"answer__experiment": "two"}, "experiment=two is unknown; choose one of: counted, one"),
        ({"answer__experiment": "shown"}, "shown, which shows trials of others"),
        ({"answer__denominator": {"system": "swift"}}, "denominator system=swift, steps nothing"),
        (
            {"answer__numerator": {"system": ["slow", "swift"]}},
            "with system=swift; choose one of slow, quick, slower",
        ),
        ({"answer__settings": {"batch_size": 2}}, "at scale paper that match numerator system"),
        ({"answer__settings": {"batch_size": [8, 9]}}, "with batch_size=9; choose one of 1, 8, 64"),
        ({"answer__settings": {"leaves": 8}}, "one has no trials at scale paper that match"),
        ({"answer__without": {"batch_size": 7}}, "has no trials with batch_size=7; choose one of"),
        ({"answer__quantity": "batches"}, "one has no counts at scale paper that match"),
    ],
)
def test_invalid_claim_gives_one_line(conf: Path, changes: dict[str, Any], words: str) -> None:
    with expect_refusal("claims/dream.yaml", words):
        read(conf, changed(**changes))


def test_a_count_is_compared_with_another_or_with_the_bound(conf: Path) -> None:
    content = changed(answer__experiment="counted", answer__quantity="batches")
    content["answer"] |= {"numerator": {"policy": "depth"}, "denominator": {"policy": "bound"}}
    read(conf, content)
    content["answer"]["numerator"] = {"policy": "width"}
    words = "counted has no counts at scale paper that match numerator policy=width"
    with expect_refusal("claims/dream.yaml", words):
        read(conf, content)
