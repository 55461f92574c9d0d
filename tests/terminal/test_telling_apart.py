"""Lines of a sweep over options name the options that tell its trials apart."""

from __future__ import annotations

from collections.abc import Callable

from harness.records.record import trial_of
from harness.terminal.reporting import trial_words
from harness.terminal.telling_apart import words_of_all
from harness.trials.spec import TrialSpec

MakeSpec = Callable[..., TrialSpec]


def test_trials_that_would_be_called_the_same_are_told_apart(make_spec: MakeSpec) -> None:
    specs = [
        make_spec(order="length", dataset_options={"vocab_modulo": 0, "depth": 3}),
        make_spec(order="length", dataset_options={"vocab_modulo": 256, "depth": 3}),
        make_spec(order="shuffled", dataset_options={"vocab_modulo": 0, "depth": 3}),
        make_spec(batch_size=7, dataset_options={"vocab_modulo": 7}),
    ]
    same, other = trial_words(trial_of(specs[0])), trial_words(trial_of(specs[3]))
    first, second, third, alone = words_of_all(specs)
    assert sorted(first.removeprefix(same).split()) == [
        "dataset.options.vocab_modulo=0",
        "order=length",
    ]
    assert sorted(second.removeprefix(same).split()) == [
        "dataset.options.vocab_modulo=256",
        "order=length",
    ]
    assert third.endswith(" order=shuffled")
    assert alone == other


def test_an_option_that_only_one_has_and_switches(make_spec: MakeSpec) -> None:
    specs = [make_spec(system_options=said) for said in ({}, {"fusion": False}, {"fusion": True})]
    words = [one.split(" r0")[1].strip() for one in words_of_all(specs)]
    assert words == ["", "system.options.fusion=false", "system.options.fusion=true"]


def test_rounds_of_one_trial_are_told_apart_already(make_spec: MakeSpec) -> None:
    specs = [make_spec().with_round(k) for k in range(3)]
    assert words_of_all(specs) == [trial_words(trial_of(spec)) for spec in specs]
