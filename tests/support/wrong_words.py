"""Invalid command lines of `bench`, drawn from the types of the configuration."""

from __future__ import annotations

import random
from dataclasses import is_dataclass
from typing import Any

from dynbatch.harness.planning.config import BenchConfig
from dynbatch.harness.planning.yaml_files import GROUPS
from dynbatch.harness.values.checked import describe_values, find_key_types

YAML_1_1 = ("no", "off", "yes", "on", "None")  # true, false and null in YAML 1.1
HUGE = str(10**30)
NOTHING = ("''", "")
# Values that are invalid for every key of a type; null is, too, for keys without null.
WRONG = {
    bool: (*YAML_1_1, *NOTHING, "0", "1", "2", "'true'", "nan", "[true]"),
    int: (*YAML_1_1, *NOTHING, "true", "'8'", "08", "1.5", "1e11", "nan", "inf", "-1", HUGE, "[1]"),
    float: (*YAML_1_1, *NOTHING, "true", "'1'", "nan", "inf", "-inf", "-1", "1e400", "[1]", "1,5"),
    str: (*NOTHING, "true", "1e3", "[a]", "{a:1}"),
}
KINDS: dict[str, type[Any]] = {"true or false": bool, "a whole number": int, "a number": float}
LISTED = ("mode", "device", "order", "split", "scale", "on_invalid_data", "policy")
LISTED_BELOW = ("learning.variant", "learning.fallback")
PATHS = ("results_dir", "data_root", "out", "learning.file")
WORDS_OF_GROUPS = (*YAML_1_1, *NOTHING, "null", "nothing", "[a]", "{a:1}", "5", "../system/null")


def wrong_overrides(seed: int, n: int) -> list[str]:
    """Return n overrides, each of which alone makes a command line invalid."""
    draw = random.Random(seed)
    return [_KINDS[place % len(_KINDS)](draw) for place in range(n)]


def plain_keys() -> dict[str, type[Any]]:
    """Return keys that have a value of a plain type, with that type."""
    found = {}
    for key, hint in find_key_types(BenchConfig).items():
        word = describe_values(hint)[0]
        if word not in ("a mapping of names to values", "a list"):
            found[key] = KINDS.get(word, str)
    return {key: kind for key, kind in found.items() if key not in GROUPS}


def _value(draw: random.Random) -> str:
    key, kind = draw.choice(sorted(plain_keys().items(), key=lambda item: item[0]))
    nothing = () if "null" in describe_values(find_key_types(BenchConfig)[key]) else ("null",)
    return f"{key}={draw.choice((*WRONG[kind], *nothing))}"


def _listed(draw: random.Random) -> str:
    word = draw.choice((*YAML_1_1, "nothing", "Train", "all"))
    return f"{draw.choice((*LISTED, *LISTED_BELOW))}={word}"


def _path(draw: random.Random) -> str:
    too_long = draw.choice(("x" * 300, "/x" * 3000))
    return f"{draw.choice(PATHS)}={draw.choice((too_long, *NOTHING))}"


def _group(draw: random.Random) -> str:
    group, word = draw.choice(GROUPS), draw.choice(WORDS_OF_GROUPS)
    is_a_system = (group, word) == ("system", "null")  # a valid choice
    return f"{group}={'nothing' if is_a_system else word}"


def _misspelled(draw: random.Random) -> str:
    """Return a key with a repeated letter, after one of Hydra's signs or none."""
    key = draw.choice(sorted(plain_keys()))
    place = draw.randrange(len(key))
    wrong = f"{key[:place]}{key[place]}{key[place:]}"
    return f"{draw.choice(('', '+', '++'))}{wrong}={draw.choice(('1', 'x', 'null'))}"


def _taken_away(draw: random.Random) -> str:
    levels = [key for key, hint in find_key_types(BenchConfig).items() if is_dataclass(hint)]
    return f"~{draw.choice([*sorted(plain_keys()), *levels])}"


def _no_key(draw: random.Random) -> str:
    return draw.choice(("=5", "=", "@x=1", "a.b=1", "++a.b=1", "hydra=5", "batch_size==3", "x=~"))


_KINDS = (_value, _listed, _path, _group, _misspelled, _taken_away, _no_key)
