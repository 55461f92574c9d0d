"""ED-Batch's state machine as a value: which type to execute in which state.

Source: Chen et al., "ED-Batch: Efficient Automatic Batching of Dynamic Neural Networks via Learned
Finite State Machines", ICML 2023, Sec. 2.2 and Alg. 1.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from pathlib import Path

import numpy as np

from harness.contracts.policy import FALLBACKS, VARIANTS, LearnedRun
from harness.errors import ConfigError, OutputError
from harness.machine.regular_files import replace_regular
from harness.policies.fsm.encoding import ENCODINGS
from harness.policies.fsm.run import run
from harness.policies.fsm.states import UNSEEN, States, states_of
from harness.policies.fsm.types_of import in_types_of
from harness.values.arrays import IntArray, int_array
from harness.values.graph import UNBATCHABLE, Graph
from harness.values.schedule import Schedule

SCHEMA_VERSION = 1
IN_WORDS = {
    "base": "types with ready vertices",
    "max": "types with ready vertices, and which has most",
    "sort": "types with ready vertices, most first",
}
FALLBACK_IN_WORDS = {
    "last": "the last type of the state",
    "agenda": "the type of least average depth",
    "sufficient": "the type whose ready vertices are the largest share of its frontier",
}
State = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StateMachine:
    """A learned policy: call it with a graph.

    encoding: one of "base", "max", "sort". workload: model and granularity it was learned for.
    type_names, follows: as Graph has them; states: tuples of type ids; choices: a type for each.
    variant, fallback, seed: as LearningSettings; n_trials: episodes until learning stopped.
    n_batches, lower_bound: of the training graphs, summed, at the evaluation that was kept.

    Raises ConfigError when these do not fit together.
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
                raise ConfigError(f"{name} {getattr(self, name)!r} is none of {', '.join(allowed)}")
        n_types = len(self.type_names)
        if len(self.follows) != n_types:
            raise ConfigError(
                f"{n_types} types have {len(self.follows)} leaders; one each is needed"
            )
        if len(self.choices) != len(self.states) or len(set(self.states)) != len(self.states):
            raise ConfigError(f"{len(self.states)} states need one choice each and must differ")
        for state, choice in zip(self.states, self.choices, strict=True):
            if choice not in state or not all(UNBATCHABLE < t < n_types for t in state):
                raise ConfigError(f"state {list(state)} with choice {choice} is not possible")
        object.__setattr__(self, "_table", _table_of(self.states))
        object.__setattr__(self, "_choices", np.array(self.choices, dtype=np.int32))

    @property
    def name(self) -> str:
        """Name of the policy."""
        return f"fsm_{self.encoding}"

    def __call__(self, graph: Graph) -> Schedule:
        """Schedule a graph of the machine's own workload; raises ConfigError for another's."""
        order, starts, _ = self._found(graph)
        return Schedule.proved(order, starts)

    def run(self, graph: Graph) -> LearnedRun:
        """Schedule a graph, and tell which states it went through."""
        order, starts, decided = self._found(graph)
        return LearnedRun(schedule=Schedule.proved(order, starts), decided=int_array(decided))

    def _found(self, graph: Graph) -> tuple[IntArray, IntArray, IntArray]:
        """Order and starts of a schedule, and the state of every decision."""
        types, follows, cheap = in_types_of(graph, self.type_names, self.follows)
        found: tuple[IntArray, IntArray, IntArray] = run(
            types, graph.arg_start, graph.args, follows, cheap,
            self._table, self._choices,
            ENCODINGS.index(self.encoding), FALLBACKS.index(self.fallback),
        )  # fmt: skip
        return found

    def save(self, file: Path) -> None:
        """Write the machine as JSON; raises OutputError where that cannot be done."""
        values = {item.name: getattr(self, item.name) for item in fields(self) if item.init} | {
            "states": list(zip(self.states, self.choices, strict=True))
        }
        del values["choices"]
        head = {"schema_version": SCHEMA_VERSION}
        try:
            replace_regular(file, f"{json.dumps(head | values)}\n".encode())
        except OSError as error:
            raise OutputError(
                f"{file} cannot be written ({error.strerror}); make room, or choose another file"
            ) from error

    def describe(self) -> str:
        """Print the machine in words, one state a line, in the order in which they were met."""
        lines = [
            f"{self.name}, {self.workload or 'unnamed workload'}: {self.variant} variant, seed"
            f" {self.seed}, {self.n_trials} trials; {self.n_batches} batches where it learned"
            f" (bound {self.lower_bound})",
            f"{len(self.states)} states ({IN_WORDS[self.encoding]});"
            f" unseen states: {FALLBACK_IN_WORDS[self.fallback]}",
        ]
        states = [self.state_in_words(state) for state in range(len(self.states))]
        width = max(map(len, states), default=0)
        for words, choice in zip(states, self.choices, strict=True):
            lines.append(f"  {words.ljust(width)}  -> {self.type_names[choice]}")
        return "\n".join(lines)

    def state_in_words(self, state: int) -> str:
        """Names of the types of a state by number; UNSEEN is one too."""
        if state == UNSEEN:
            return "unseen"
        names = [self.type_names[t] for t in self.states[state]]
        if self.encoding == "max":
            return f"{', '.join(names[:-1])}; most {names[-1]}"
        return ", ".join(names)


def _table_of(states: tuple[State, ...]) -> States:
    keys = [t for state in states for t in state]
    starts = np.cumsum([0, *map(len, states)], dtype=np.int32)
    return states_of(np.array(keys, dtype=np.int32), starts)
