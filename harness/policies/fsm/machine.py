"""State machine of ED-Batch: the type to execute in each state, and its file.

Type ids may follow the order of first appearance (as for the released graph's sums of n arguments).
They then differ between mini-batches, and a mini-batch can have types that another one does not
have. A machine therefore identifies types by name. Types of equal name (operators on different
parameters) are distinguished by their order.

Source: Chen et al., "ED-Batch: Efficient Automatic Batching of Dynamic Neural Networks via Learned
Finite State Machines", ICML 2023, Sec. 2.2 and Alg. 1.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dynbatch.harness.contracts.policy import FALLBACKS, VARIANTS, LearnedRun
from dynbatch.harness.errors import ConfigError, OutputError
from dynbatch.harness.machine.files import read_regular, replace_regular
from dynbatch.harness.policies.fsm.states import ENCODINGS, UNSEEN, States, build_states
from dynbatch.harness.policies.fsm.trials import run, run_segments
from dynbatch.harness.values.arrays import IntArray, as_int_array
from dynbatch.harness.values.graph import NO_TYPE, UNBATCHABLE, Graph
from dynbatch.harness.values.schedule import Schedule

SCHEMA_VERSION = 1
IN_WORDS = {
    "base": "types with ready vertices",
    "max": "types with ready vertices, and the most frequent one",
    "sort": "types with ready vertices, most frequent first",
}
FALLBACK_IN_WORDS = {
    "last": "the last type of the state",
    "agenda": "the type of lowest average depth",
    "sufficient": "the type whose ready vertices are the largest fraction of its frontier",
}
State = tuple[int, ...]
TypedArrays = tuple[IntArray, IntArray, NDArray[np.bool_]]
Key = tuple[str, int]


def map_types(graph: Graph, names: Sequence[str], follows: Sequence[int]) -> TypedArrays:
    """Return types, follows and cheap flags of a graph in the ids of `names`.

    Types of the graph that are not in `names` get the next ids, in the graph's order.

    Args:
        names, follows: the types of the machine, as in Graph.

    Raises:
        ConfigError: if the graph cannot be of the same model: types that lead or follow others
            differ, or no type is the same.
    """
    own = tuple(graph.follows.tolist())
    if graph.type_names == names and own == follows:
        return graph.types, graph.follows, graph.cheap
    _check_same_model(graph.type_names, own, names, follows)
    ids = {key: t for t, key in enumerate(_build_keys(names))}
    new = [ids.setdefault(key, len(ids)) for key in _build_keys(graph.type_names)]
    new_follows = np.array([*follows, *[NO_TYPE] * (len(ids) - len(names))], dtype=np.int32)
    cheap = np.zeros(len(ids), dtype=np.bool_)
    cheap[new] = graph.cheap
    cheap.setflags(write=False)
    return (
        as_int_array(np.array(new, dtype=np.int32)[graph.types]),
        as_int_array(new_follows),
        cheap,
    )


def collect_types(graphs: Sequence[Graph]) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Return the names of the types of all graphs, the first graph's first, and their leaders."""
    keys = dict.fromkeys(key for graph in graphs for key in _build_keys(graph.type_names))
    more = [NO_TYPE] * (len(keys) - graphs[0].n_types)
    return tuple(name for name, _ in keys), (*graphs[0].follows.tolist(), *more)


def _build_keys(names: Sequence[str]) -> list[Key]:
    """Return the names, each with the number of equal names before it."""
    seen: Counter[str] = Counter()
    keys = []
    for name in names:
        keys.append((name, seen[name]))
        seen[name] += 1
    return keys


def _check_same_model(
    graph_names: Sequence[str],
    graph_follows: Sequence[int],
    names: Sequence[str],
    follows: Sequence[int],
) -> None:
    here, there = _find_leaders(graph_names, graph_follows), _find_leaders(names, follows)
    if here != there or not set(graph_names[1:]) & set(names[1:]):
        raise ConfigError(
            f"a policy learned on types {', '.join(names[1:])} cannot schedule a graph of types"
            f" {', '.join(graph_names[1:])}; learn it on this model"
        )


def _find_leaders(names: Sequence[str], follows: Sequence[int]) -> dict[str, str]:
    pairs = zip(names, follows, strict=True)
    return {name: names[leader] for name, leader in pairs if leader != NO_TYPE}


@dataclass(frozen=True, slots=True, kw_only=True)
class StateMachine:
    """Learned policy; call it with a graph.

    Attributes:
        encoding: one of "base", "max", "sort".
        workload: model and granularity that it was learned for.
        states: tuples of type ids.
        choices: one type for each state.
        variant, fallback, seed: as in LearningSettings.
        n_trials: episodes until learning stopped.
        n_batches, lower_bound: sums over the training graphs, at the best evaluation.

    Raises:
        ConfigError: if the attributes contradict each other.
    """

    encoding: str
    workload: str
    type_names: tuple[str, ...]
    follows: tuple[int, ...]
    states: tuple[State, ...]
    choices: tuple[int, ...]
    variant: str
    fallback: str
    seed: int
    n_trials: int
    n_batches: int
    lower_bound: int
    _table: States = field(init=False, repr=False, compare=False)
    _choices: IntArray = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name, allowed in (
            ("encoding", ENCODINGS),
            ("variant", VARIANTS),
            ("fallback", FALLBACKS),
        ):
            if getattr(self, name) not in allowed:
                raise ConfigError(
                    f"{name}: expected one of {', '.join(allowed)}, got {getattr(self, name)!r}"
                )
        n_types = len(self.type_names)
        if len(self.follows) != n_types:
            raise ConfigError(
                f"follows: expected {n_types} entries, one per type, got {len(self.follows)}"
            )
        if not all(t == NO_TYPE or UNBATCHABLE < t < n_types for t in self.follows):
            raise ConfigError(
                f"follows: expected types 1 to {n_types - 1} or {NO_TYPE}, got {list(self.follows)}"
            )
        if len(self.choices) != len(self.states) or len(set(self.states)) != len(self.states):
            raise ConfigError(f"expected {len(self.states)} different states with one choice each")
        for state, choice in zip(self.states, self.choices, strict=True):
            if choice not in state or not all(UNBATCHABLE < t < n_types for t in state):
                raise ConfigError(f"invalid state {list(state)} with choice {choice}")
        object.__setattr__(self, "_table", _build_table(self.states))
        object.__setattr__(self, "_choices", np.array(self.choices, dtype=np.int32))

    @property
    def name(self) -> str:
        """Name of the policy."""
        return f"fsm_{self.encoding}"

    def __call__(self, graph: Graph) -> Schedule:
        """Schedule a graph of the machine's own workload.

        Raises:
            ConfigError: for a graph of another model.
        """
        return self.run(graph).schedule

    def run(self, graph: Graph) -> LearnedRun:
        """Schedule a graph, and return the states of all decisions, too."""
        types, follows, cheap = map_types(graph, self.type_names, self.follows)
        arguments = (
            types, graph.arg_start, graph.args, follows, cheap, self._table, self._choices,
            ENCODINGS.index(self.encoding), FALLBACKS.index(self.fallback),
        )  # fmt: skip
        if graph.segments is None:
            order, starts, decided = run(*arguments)
            schedule = Schedule.from_valid_arrays(order, starts)
        else:
            *arrays, decided = run_segments(graph.segments, *arguments)
            schedule = Schedule(*arrays)
        return LearnedRun(schedule=schedule, decided=as_int_array(decided))

    def save(self, file: Path) -> None:
        """Write the machine as JSON.

        Raises:
            OutputError: if the file cannot be written.
        """
        values = {item.name: getattr(self, item.name) for item in fields(self) if item.init} | {
            "states": list(zip(self.states, self.choices, strict=True))
        }
        del values["choices"]
        head = {"schema_version": SCHEMA_VERSION}
        try:
            replace_regular(file, f"{json.dumps(head | values)}\n".encode())
        except OSError as error:
            raise OutputError(
                f"cannot write {file}: {error.strerror}; free disk space, or choose another file"
            ) from error

    def describe(self) -> str:
        """Describe the machine, one state per line, in the order of their first occurrence."""
        lines = [
            f"{self.name}, {self.workload or 'unnamed workload'}: {self.variant} variant, seed"
            f" {self.seed}, {self.n_trials} trials; {self.n_batches} batches in learning"
            f" (bound {self.lower_bound})",
            f"{len(self.states)} states ({IN_WORDS[self.encoding]});"
            f" unseen states: {FALLBACK_IN_WORDS[self.fallback]}",
        ]
        states = [self.describe_state(state) for state in range(len(self.states))]
        width = max(map(len, states), default=0)
        for text, choice in zip(states, self.choices, strict=True):
            lines.append(f"  {text.ljust(width)}  -> {self.type_names[choice]}")
        return "\n".join(lines)

    def describe_state(self, state: int) -> str:
        """Return the names of the types of a state, given by number; UNSEEN is allowed."""
        if state == UNSEEN:
            return "unseen"
        names = [self.type_names[t] for t in self.states[state]]
        if self.encoding == "max":
            return f"{', '.join(names[:-1])}; most {names[-1]}"
        return ", ".join(names)


def _build_table(states: tuple[State, ...]) -> States:
    keys = [t for state in states for t in state]
    starts = np.cumsum([0, *map(len, states)], dtype=np.int32)
    return build_states(np.array(keys, dtype=np.int32), starts)


def load_machine(file: Path, encoding: str, workload: str) -> StateMachine:
    """Read a machine that `StateMachine.save` wrote.

    Raises:
        ConfigError: if the file cannot be read or contains no machine, or if the machine has
            another schema version, encoding or workload.
    """
    values = _read(file)
    if values["schema_version"] != SCHEMA_VERSION:
        raise ConfigError(
            f"{file}: expected schema_version {SCHEMA_VERSION}, got"
            f" {values['schema_version']!r}; learn the policy again"
        )
    for name, wanted in (("encoding", encoding), ("workload", workload)):
        if values.get(name) != wanted:
            raise ConfigError(
                f"{file}: expected {name} {wanted!r}, got {values.get(name)!r}; learn the policy"
                " again, or choose another file"
            )
    try:
        return _build_machine(values)
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError) as error:
        raise ConfigError(f"{file} is not a saved policy: {type(error).__name__} {error}") from None
    except ConfigError as error:
        raise ConfigError(f"{file} is not a saved policy: {error}") from None


def is_saved_policy(content: bytes) -> bool:
    """Return True if the content of a file is a saved policy of any workload."""
    try:
        values = json.loads(content)
    except (ValueError, RecursionError):
        return False
    return isinstance(values, dict) and {"schema_version", "workload"} <= values.keys()


def _read(file: Path) -> dict[str, Any]:
    try:
        values = json.loads(read_regular(file).decode())
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{file} is not JSON: {error}") from error
    if not isinstance(values, dict) or "schema_version" not in values:
        raise ConfigError(f"{file} is not a saved policy; save one with `bench-schedule`")
    return values


def _build_machine(values: dict[str, Any]) -> StateMachine:
    rest = {k: v for k, v in values.items() if k not in ("schema_version", "states")}
    return StateMachine(
        **rest
        | {
            "type_names": tuple(map(str, values["type_names"])),
            "follows": tuple(map(int, values["follows"])),
            "states": tuple(tuple(map(int, state)) for state, _ in values["states"]),
            "choices": tuple(int(choice) for _, choice in values["states"]),
        }
    )
