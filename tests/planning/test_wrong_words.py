"""Wrong words on a command line: one line each, before anything is composed or measured."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from harness.errors import ConfigError
from harness.planning.compose import Composer
from harness.planning.sweep_sizes import MOST_TRIALS
from harness.planning.typed_words import check_dotted, check_typed, types_of_keys
from harness.terminal.command_line import parse, plan
from tests.support.wrong_words import plain_keys, wrong_overrides

SEED, N_OVERRIDES = 14, 210


def refusal(arguments: Sequence[str], results: Path) -> str:
    """The line that a command line is refused with."""
    here = [] if any(a.startswith("results_dir") for a in arguments) else [f"results_dir={results}"]
    with pytest.raises(ConfigError) as fault:
        plan(parse(["system=null", *here, *arguments]), arguments)
    assert "\n" not in str(fault.value)
    return str(fault.value)


def test_what_is_drawn_is_the_same_again_and_meets_every_key() -> None:
    assert wrong_overrides(1, 50) == wrong_overrides(1, 50) != wrong_overrides(2, 50)
    drawn = {text.partition("=")[0] for text in wrong_overrides(0, 20_000)}
    assert set(plain_keys()) <= drawn
    assert {"system", "model", "dataset", "experiment"} <= drawn


def test_wrong_command_lines_are_refused_in_one_line(tmp_path: Path) -> None:
    accepted, long = [], []
    results = f"results_dir={tmp_path / 'results'}"
    for text in dict.fromkeys(wrong_overrides(SEED, N_OVERRIDES)):
        try:
            plan(parse(["system=null", results, text]), [text])
        except ConfigError as error:
            long += [text] if "\n" in str(error) else []
        else:
            accepted.append(text)
    assert accepted == long == []
    assert not (tmp_path / "results").exists()


def test_right_ones_are_not() -> None:
    right = ["force=true", "batch_size=8", "learning_rate=1", "timing.min_seconds=0", "rounds=null"]
    right += ["results_dir=2026", "seed=0", "policy=null", "mode=infer", "learning_rate=1e-3"]
    check_typed([*right, "--cfg", "job", "system='null'", "batch_size=${hidden_size}"])
    for text in right:
        check_dotted(text)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["=5"], "=5 has no key; choose one of: system, model"),
        (["experiment=null"], "experiment=null names no experiment; choose one of: ablation"),
        (["~batch_size"], "~batch_size: every trial needs batch_size; write batch_size=VALUE"),
        (["~timing"], "every trial needs timing"),
        (["bench_size=1"], "did you mean batch_size?"),
        (["force=2"], "force=2 is not allowed; give true or false"),
        (["force=no"], "force=no is not allowed; give true or false"),
        (["batch_size='8'"], "batch_size='8' is not allowed; give a whole number"),
        (["batch_size=08"], "batch_size=08 is not allowed; give a whole number"),
        (["learning.trials=true"], "learning.trials=true is not allowed; give a whole number"),
        (["rounds=100000000000"], "rounds=100000000000 is not allowed; give a value of at least 1"),
        (["rounds=1e11"], "rounds=1e11 is not allowed; give a whole number or null"),
        (["limits.time_s=nan"], "limits.time_s=nan is not allowed; give a value above 0 and"),
        (["limits.time_s=inf"], "at most 31536000.0"),
        (["learning_rate=nan"], "learning_rate=nan is not allowed"),
        (["timing.min_seconds=1e400"], "timing.min_seconds=inf is not allowed"),
        ([f"batch_size={10**30}"], "and at most 1048576"),
        ([f"seed={2**64}"], "and at most 4294967295"),
        (["results_dir="], "results_dir is empty"),
        ([f"results_dir=/{'x' * 300}"], "whose names have at most 255"),
        ([f"out={'/x' * 3000}.json"], "one of at most 3500 bytes"),
        (["results_dir=1e3"], "results_dir=1e3 is not allowed; give a text"),
        (["system.name=vertex"], "write system=vertex"),
        (["model.model=.x"], "model.model=.x is not allowed; name a module"),
        (["system.adapter=''"], "system.adapter is empty"),
        (["system.adapter=a b"], "system.adapter=a b is not allowed; name a module"),
        (["dataset.options.vocab_modulo=true"], "vocab_modulo=true is not allowed"),
        (["dataset.options.sha256=5"], "sha256=5 is not allowed; give a mapping of names"),
        (["model=var_lstm", "dataset=ptb", "model.options.layers='2'"], "give a whole number"),
        (["model=var_lstm", "dataset=ptb", f"model.options.layers={10**9}"], "and at most 64"),
        (["scale=huge"], "scale=huge is not allowed; choose one of smoke, medium, paper"),
        (["batch_size=???"], "batch_size=??? is not allowed; give a whole number"),
        (["system=~"], "'system=~' is not understood; write KEY=VALUE"),
        (["-m", "batch_size=2,,4"], "is not understood"),
        (["-m", "batch_size=range(1,1e9)"], f"give one of at most {MOST_TRIALS}"),
        (
            ["-m", "batch_size=range(1,200)", "hidden_size=range(1,200)"],
            "the sweep has 39601 trials",
        ),
        (["-m", "batch_size=range(0)"], "batch_size=range(0) names no value"),
        (["-m", "model=glob(zz*)"], "model=glob(zz*) names no value"),
        (["-m", "batch_size=2,'4'"], "give a whole number"),
        (["--resolve"], "--resolve flag"),
    ],
)
def test_what_was_found_what_is_allowed_and_what_to_do(
    arguments: list[str], words: str, tmp_path: Path
) -> None:
    assert words in refusal(arguments, tmp_path / "results").replace("=True", "=true")
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    "text", ["force=off", "batch_size='8'", "experiment=null", "learning.file="]
)
def test_grids_and_counts_are_held_to_the_same(text: str) -> None:
    """They are composed in another way, in which YAML would take off for false."""
    with pytest.raises(ConfigError, match=r"not allowed|names no|is empty"):
        Composer().compose(["system=null", text])
    with pytest.raises(ConfigError, match=r"not allowed|names no|is empty"):
        Composer().plain(["system=null", text])


def test_every_key_has_a_type() -> None:
    assert types_of_keys()["timing.n_warmup"] is int
    assert {"learning.seed", "limits.time_s", "dataset.needs"} <= set(types_of_keys())


def test_several_values_want_a_sweep() -> None:
    check_typed(["system=vertex,dynet"])
    with pytest.raises(ConfigError, match="has several values; write -m before all else"):
        check_typed(["system=vertex,dynet"], may_sweep=False)


@pytest.mark.parametrize(
    ("typed", "close"),
    [
        ("experiment=headline_tree_lsmt", "headline_tree_lstm"),
        ("policy=critcal_share", "critical_share"),
        ("model=tree_lstn", "tree_lstm"),
    ],
)
def test_a_wrong_name_says_which_is_close(typed: str, close: str, tmp_path: Path) -> None:
    assert f" is unknown, did you mean {close}?; choose one of" in refusal([typed], tmp_path)
