"""Command lines drawn from the configuration's own types, right and wrong ones.

A value is drawn with what is to be expected of it: "right", "wrong", or "either" where the types do
not say; then only a stack, a hang or a second line is a fault.
"""

from __future__ import annotations

import random
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Union, get_args, get_origin, get_type_hints

import yaml

from harness.planning.schema import BenchConfig
from harness.values.places import CONF_DIR
from scripts.campaign_parts.small_bench import TINY

RIGHT, WRONG, EITHER = "right", "wrong", "either"
GROUPS = ("system", "model", "dataset")
BASE = ("system=null", *TINY)
WORDS = {  # of the keys that take one of a few
    "mode": ("train", "infer"),
    "device": ("cpu",),
    "split": ("train",),
    "order": ("shuffled", "file", "length"),
    "bad_data": ("refuse", "record"),
    "learning.variant": ("released", "intended"),
    "learning.fallback": ("last", "agenda", "sufficient"),
}
NO_NUMBERS = ("abc", "[1]", "{a: 1}", "1.5.2", "0x", "''", "1 2")
AWKWARD = ("x" * 5000, "a b", "'a\\nb'", "ünï", "-", "..", "a/b/c", "$HOME", "'a=b'", "null", "")
SHAPES = (
    *(("=5", WRONG), ("batch_size", WRONG), ("~batch_size", WRONG), ("+nothing=1", WRONG)),
    *(("batch_size=2=3", WRONG), ("'", WRONG), ("batch_size=[", WRONG), ("{", WRONG)),
    *(("--nothing", WRONG), ("--cfg=nothing", WRONG), ("system=nothing", WRONG)),
    *(("model=lattice_lstm", WRONG), ("nothing=1", WRONG), ("system.nothing=1", WRONG)),
    *(("++batch_size=2", RIGHT), ("experiment=null", EITHER), ("hydra.run.dir=.", EITHER)),
    *(("rounds=100000000000", EITHER), ("batch_size=${seed}", EITHER), ("system=", WRONG)),
    *(("seed=${nothing}", WRONG), ("~system", WRONG), ("system=null,reference", EITHER)),
    *(("batch_size=range(1,3)", EITHER), ("batch_size=choice(", WRONG), ("out=/dev/null", WRONG)),
    *(("experiment=nothing", WRONG), ("dataset=[sst,ptb]", WRONG), ("==", WRONG), ("", WRONG)),
)


@dataclass(frozen=True, slots=True)
class Key:
    """One key of the configuration and its type."""

    name: str
    kind: Any

    @property
    def plain(self) -> Any:
        """The type without None."""
        parts = [one for one in get_args(self.kind) if one is not type(None)]
        is_union = get_origin(self.kind) in (Union, types.UnionType)
        return parts[0] if is_union else self.kind

    @property
    def takes_null(self) -> bool:
        """Whether the type allows null."""
        return type(None) in get_args(self.kind)


def keys(schema: type[Any] = BenchConfig, above: str = "") -> Iterator[Key]:
    """Every key of the schema that holds a plain value; groups are chosen by name."""
    hints = get_type_hints(schema)
    for item in fields(schema):
        kind = hints[item.name]
        if not above and item.name in (*GROUPS, "experiment"):
            continue
        if is_dataclass(kind):
            assert isinstance(kind, type)
            yield from keys(kind, f"{above}{item.name}.")
        else:
            yield Key(above + item.name, kind)


def value_of(key: Key, rng: random.Random) -> tuple[str, str]:
    """A value for a key, and what is to be expected of it."""
    if key.name in WORDS:
        right = rng.choice(WORDS[key.name])
        return rng.choice([(right, RIGHT), (f"{right}x", WRONG), (right.upper(), WRONG)])
    if key.plain is bool:
        return rng.choice([("true", RIGHT), ("false", RIGHT), ("perhaps", WRONG), ("[]", WRONG)])
    if key.plain in (int, float):
        return _number(key, rng)
    return rng.choice(AWKWARD), EITHER


def _number(key: Key, rng: random.Random) -> tuple[str, str]:
    is_int = key.plain is int
    wrong = [*NO_NUMBERS, "nan", "-1", *(["1.5", "inf"] if is_int else [])]
    wrong += [] if key.takes_null else ["null"]
    either = ["0", "1e300", str(10**30), "true", "1e-320", *([] if is_int else ["inf"])]
    right = ["2"] if is_int else ["0.5", "2", "1e-2"]
    expected = rng.choice([RIGHT, WRONG, WRONG, EITHER])
    value = rng.choice({RIGHT: right, WRONG: wrong, EITHER: either}[expected])
    # An infinite time or rate is none; an infinite limit may be.
    is_endless = value == "inf" and not key.name.startswith("limits.")
    return value, WRONG if is_endless else expected


@dataclass(frozen=True, slots=True)
class Option:
    """An option in a file of conf/, with its value there."""

    group: str
    name: str
    key: str
    value: Any


def options() -> list[Option]:
    """Every option of every system, model and generated data set that is no mapping."""
    found = []
    for group in GROUPS:
        for path in sorted((CONF_DIR / group).glob("*.yaml")):
            plain = yaml.safe_load(path.read_text(encoding="utf-8"))
            for key, value in (plain.get("options") or {}).items():
                is_file = group == "dataset" and "sha256" in plain["options"]
                if isinstance(value, bool | int | float | str) and not is_file:
                    found.append(Option(group, path.stem, key, value))
    return found


def wrong_value(value: Any, rng: random.Random) -> str:
    """A value of another type, or a misspelt word."""
    if isinstance(value, bool):
        return rng.choice(["perhaps", "5", "None", "off_"])
    if isinstance(value, int | float):
        return rng.choice(["abc", "nan", "[1]", "-7"])
    return rng.choice([f"{value}x", str(value)[:-1] or "x", "5", "none_"])


def bench_line(rng: random.Random) -> tuple[list[str], str]:
    """One or two keys with values, or a line of odd shape."""
    if rng.random() < 0.2:
        text, expected = rng.choice(SHAPES)
        return [*BASE, text], expected
    every = list(keys())
    chosen = [(key, *value_of(key, rng)) for key in rng.sample(every, rng.randint(1, 2))]
    line = [*BASE, *(f"{key.name}={value}" for key, value, _ in chosen)]
    return line, together([expected for _, _, expected in chosen])


def together(expected: Sequence[str]) -> str:
    """What is to be expected of several values: one wrong one is enough."""
    return next((word for word in (WRONG, EITHER) if word in expected), RIGHT)


def option_line(rng: random.Random) -> tuple[list[str], str]:
    """An option of a wrong value."""
    one = rng.choice(options())
    base = [text for text in BASE if not text.startswith(f"{one.group}")]
    if one.group == "dataset":
        base = [text for text in base if not text.startswith("model=")]
        base.append(f"model={_model_for(one.name)}")
    if one.group == "model":
        base = [text for text in base if not text.startswith("dataset")]
        base.append(f"dataset={_data_for(one.name)}")
    choice = f"{one.group}={one.name}"
    value = f"{one.group}.options.{one.key}={wrong_value(one.value, rng)}"
    return [*base, choice, value], WRONG


def _model_for(dataset: str) -> str:
    kind = yaml.safe_load((CONF_DIR / "dataset" / f"{dataset}.yaml").read_text())["instance_kind"]
    return MODEL_OF_KIND[kind]


def _data_for(model: str) -> str:
    return next((data for kind, data in DATA_OF_MODEL if model in kind), "sst_synthetic")


MODEL_OF_KIND = {
    "tree": "tree_lstm",
    "lattice": "lattice_lstm",
    "chain": "var_lstm",
    "sentence_pair": "seq2seq",
    "parsed_sentence": "parser",
}
DATA_OF_MODEL = (
    (("lattice_lstm", "lattice_gru", "gated_lattice_lstm"), "lattice_synthetic"),
    (("var_lstm",), "ptb_synthetic"),
    (("bilstm",), "bilstm_synthetic"),
    (("bilstm_char",), "wikiner_synthetic"),
    (("seq2seq",), "iwslt15_synthetic"),
    (("parser",), "ud_ewt_synthetic"),
)


def schedule_line(rng: random.Random) -> tuple[list[str], str]:
    """Keys of `bench-schedule`, right and wrong."""
    base = ["model=tree_fc", "dataset=complete_trees", "dataset.options.n_leaves=4", "batch_size=2"]
    choices = [
        *(("policy=agenda", RIGHT), ("policy=agenda,depth", RIGHT), ("policy=agend", WRONG)),
        *(("policy=", WRONG), ("offset=1", RIGHT), ("offset=-1", WRONG), ("offset=x", WRONG)),
        *(("granularity=operatr", WRONG), ("granularity=operator", RIGHT)),
        *(("outputs=stag", WRONG), ("outputs=stage", RIGHT), ("n_following=nan", WRONG)),
        *(("n_following=1", RIGHT), ("nothing=1", WRONG), ("=5", WRONG), ("batch_size", WRONG)),
        *(("--draw=/dev/null", WRONG), ("--draw=x.txt", WRONG), ("--nothing", WRONG)),
        *(("learning.trials=0", EITHER), ("batch_size=0", WRONG), ("out=x.txt", WRONG)),
        *(("out=/dev/null", WRONG), ("--json", RIGHT), ("save_policy=/dev/full", WRONG)),
    ]
    text, expected = rng.choice(choices)
    return [*base, *(["policy=agenda"] if "policy=" not in text else []), text], expected


def collect_line(rng: random.Random) -> tuple[list[str], str]:
    """Places and flags of `bench-collect` where there are no records: all of them are wrong."""
    words = ["nothing", "--latest", "--out=", "--out=/dev/null", "--pack=p", "--unpack=u", "--pack"]
    words += ["--nothing", "x" * 5000, "", "--out=a/b.csv", "/dev/null", "/dev/zero", "-", "a\nb"]
    return [rng.choice(words) for _ in range(rng.randint(0, 3))], WRONG


def data_line(rng: random.Random) -> tuple[list[str], str]:
    """`bench-data` without downloads."""
    names = [("complete_trees", RIGHT), ("nothing", WRONG), ("", WRONG), ("x" * 5000, WRONG)]
    name, expected = rng.choice(names)
    split, more = rng.choice([("train", RIGHT), ("nothing", WRONG), ("", WRONG)])
    lines = [
        (["describe", name, "--split", split], together([expected, more])),
        (["list", "--data-root", rng.choice(["nowhere", "/dev/null", "x" * 5000])], EITHER),
        (rng.choice([["nothing"], [], ["describe"], ["list", "--nothing"]]), WRONG),
    ]
    return rng.choice(lines)
