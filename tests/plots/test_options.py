"""Keys of tables and figures: a mistake in any of them is one line that names file and key."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from harness.errors import ConfigError
from harness.planning.artefacts import Choices
from harness.planning.grid import experiment_names
from harness.values.places import CONF_DIR
from plots.declaration import read_declaration
from plots.experiment import load_experiment

WRONG = {1: {2: 3}}  # no text, no number, no list, and not a mapping of names
FAMILY = {"name": "DyNet", "look": "dynet_policy", "policies": ["depth"], "color": "red"}
FUNCTIONS = {"table": "build", "figure": "draw"}


def list_kinds() -> list[tuple[str, str]]:
    """Return ("table" or "figure", experiment), one for each kind."""
    found: dict[tuple[str, str], str] = {}
    for name in experiment_names():
        for part in FUNCTIONS:
            if content := getattr(read_declaration(name, CONF_DIR), part):
                found.setdefault((part, content["kind"]), name)
    return [(part, name) for (part, _), name in found.items()]


def list_keys() -> list[tuple[str, str, str]]:
    """Return every key that those experiments use."""
    return [
        (part, name, key)
        for part, name in list_kinds()
        for key in getattr(read_declaration(name, CONF_DIR), part)
        if key not in ("kind", "also")
    ]


def refuse(part: str, name: str, choices: Choices, content: Mapping[str, Any]) -> str:
    """Return the message with which a table or figure of this content is refused."""
    experiment = load_experiment(name, choices, ())
    declaration = replace(experiment.declaration, **{part: content})
    module = importlib.import_module(f"plots.{part}s.{content['kind']}")
    with pytest.raises(ConfigError) as caught:
        getattr(module, FUNCTIONS[part])(replace(experiment, declaration=declaration))
    message = str(caught.value)
    assert message.startswith(declaration.file)
    assert "\n" not in message
    return message


@pytest.mark.parametrize(("part", "name"), list_kinds())
def test_an_unknown_key_is_refused(part: str, name: str, choices: Choices) -> None:
    content = getattr(read_declaration(name, CONF_DIR), part)
    message = refuse(part, name, choices, {**content, "nonsense": 1})
    assert f"unknown word of a {part} 'nonsense'" in message


@pytest.mark.parametrize(("part", "name", "key"), list_keys())
def test_a_value_of_a_wrong_type_is_refused(
    part: str, name: str, key: str, choices: Choices
) -> None:
    content = getattr(read_declaration(name, CONF_DIR), part)
    assert f"{part}.{key}" in refuse(part, name, choices, {**content, key: WRONG})


@pytest.mark.parametrize(
    ("part", "name", "key", "value"),
    [
        ("figure", "dynet_fig3", "published", {"table": "dynet_fig3", "modle": "tree_lstm"}),
        ("figure", "dynet_fig2", "published", {"table": "dynet_fig2"}),
        ("figure", "edbatch_fig9", "families", [FAMILY]),
        (
            "table",
            "cavs_lines_of_code",
            "code",
            {"vertex": {"package": "harness.models", "shard": []}},
        ),
        ("table", "acrobat_table2", "code", [{"model": "tree_lstm", "paper": "REC", "page": 4}]),
    ],
)
def test_keys_within_keys_are_checked(
    part: str, name: str, key: str, value: object, choices: Choices
) -> None:
    content = getattr(read_declaration(name, CONF_DIR), part)
    assert f"{part}.{key}." in refuse(part, name, choices, {**content, key: value})


@pytest.mark.parametrize(
    ("name", "key", "message"),
    [
        ("cavs_fig8a", "values", "figure.values: Field required"),
        ("cavs_fig8a", "x", "expected either x or axes"),
        ("first_look", "parts", "expected either parts, or steps and settings"),
        ("answers", "band", "figure.band: Field required"),
    ],
)
def test_a_missing_key_is_refused(name: str, key: str, message: str, choices: Choices) -> None:
    figure = read_declaration(name, CONF_DIR).figure
    without = {word: value for word, value in figure.items() if word != key}
    assert message in refuse("figure", name, choices, without)
