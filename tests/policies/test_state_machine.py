"""Learned policies as values: saved, loaded, rejected, printed and drawn."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from dynbatch.harness.contracts.policy import LearningSettings, learn_policy
from dynbatch.harness.errors import ConfigError, OutputError
from dynbatch.plots.figures.state_machine import END, draw_machine, list_transitions
from dynbatch.plots.write import save_figure
from tests.support.policies import FEW, figure, learn


def load(file: Path) -> Any:
    return learn_policy("fsm_sort", [], LearningSettings(file=str(file)), "chain, vertex")


def test_a_machine_comes_back_as_it_was_saved(tmp_path: Path) -> None:
    for variant in ("released", "intended"):
        machine = learn(variant=variant, fallback="agenda", seed=7, trials=50)
        machine.save(tmp_path / "machine.json")
        assert load(tmp_path / "machine.json") == machine
        schedule = load(tmp_path / "machine.json")(figure())
        assert schedule.order.tolist() == machine(figure()).order.tolist()


@pytest.mark.parametrize(
    ("content", "message"),  # changed entries, text, or None without a file
    [
        ({"schema_version": 0}, "expected schema_version 1, got 0; learn the policy"),
        ({"encoding": "base"}, "expected encoding 'sort', got 'base'"),
        ({"encoding": None}, "expected encoding 'sort', got None"),
        ({"workload": "tree_lstm"}, "expected workload 'chain, vertex', got 'tree_lstm'"),
        ({"variant": 3}, "variant: expected one of released, intended, got 3"),
        ({"states": [[[1, 2], 3]]}, r"invalid state \[1, 2\] with choice 3"),
        ({"states": [[[4], 4]]}, r"invalid state \[4\] with choice 4"),
        ({"states": [[[1], 1], [[1], 1]]}, "expected 2 different states"),
        ({"states": [[["I"], 1]]}, "is not a saved policy: ValueError"),
        ({"states": None}, "is not a saved policy: TypeError"),
        ({"follows": [-1]}, "expected 4 entries, one per type, got 1"),
        (
            {"follows": [-1, -1, 4, -1]},
            r"follows: expected types 1 to 3 or -1, got \[-1, -1, 4, -1\]",
        ),
        ({"what": 1}, "is not a saved policy: TypeError"),
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON: .*recursion"),
        ("[]", "is not a saved policy"),
        (None, "cannot read"),
    ],
)
def test_an_unfit_file_is_refused(
    content: dict[str, Any] | str | None, message: str, tmp_path: Path
) -> None:
    file = tmp_path / "machine.json"
    if isinstance(content, str):
        file.write_text(content)
    elif content is not None:
        learn().save(file)
        file.write_text(json.dumps(json.loads(file.read_text()) | content))
    with pytest.raises(ConfigError, match=message) as caught:
        load(file)
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_machine_cannot_be_saved_in_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="cannot write"):
        learn().save(tmp_path / "no_such" / "machine.json")


def test_a_graph_of_another_model_is_refused() -> None:
    machine, graph = learn(), figure()
    other = dataclasses.replace(graph, type_names=("unbatchable", "A", "B", "C"))
    with pytest.raises(ConfigError, match="learned on types I, O, R cannot schedule a graph of"):
        machine(other)
    leads = dataclasses.replace(graph, follows=[-1, -1, 1, -1])
    with pytest.raises(ConfigError, match="learn it on this model"):
        machine(leads)


def test_a_machine_is_printed_with_its_choices() -> None:
    first, second, *states = learn().describe().splitlines()
    assert {"fsm_sort,", "50", "6"} <= set(first.split())
    assert second.startswith(f"{len(states)} states")
    choices = {tuple(line.split("->")[0].strip().split(", ")): line.split()[-1] for line in states}
    assert choices["I",] == "I"
    assert choices["O", "I"] == "I"
    assert choices["O",] == "O"
    modal = learn_policy("fsm_max", [figure()], FEW)
    assert "I, O; most O  -> I" in modal.describe()


def test_a_machine_is_drawn(tmp_path: Path) -> None:
    files = [tmp_path / f"{k}.svg" for k in range(2)]
    for file in files:
        save_figure(draw_machine(learn(), figure(), "States"), file)
    assert files[0].read_bytes().startswith(b"<?xml")
    assert files[0].read_bytes() == files[1].read_bytes()


def test_a_machine_without_states_can_be_drawn() -> None:
    ignorant = dataclasses.replace(learn(), states=(), choices=())
    assert draw_machine(ignorant, figure(), "States").axes
    transitions = list_transitions(ignorant, figure())
    assert set(transitions.state) == {"unseen"}
    assert set(transitions.next_state) == {"unseen", END}
