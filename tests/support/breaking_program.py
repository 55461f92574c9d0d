"""A model whose program breaks one rule, for the command line; `rule` says which.

model.model=tests.support.breaking_program +model.options.rule=never_joins
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.contracts.model import ModelSizes, ParameterSpec
from harness.programs.model import ProgramModel
from harness.programs.writer import Body, Writer
from harness.values.instances import Chain
from harness.vertex import VertexTracer, pick_neg_log_softmax, tanh


class Breaks(ProgramModel):
    """start: a word's row; step: of a state; table: of a state that steps do not scatter."""

    name = "breaks"
    instance_kind = "chain"
    vertex_types = ("start", "step", "table")

    def __init__(self, sizes: ModelSizes, rule: str = "none", seed: int = 0) -> None:
        super().__init__(sizes, seed=seed, rule=rule)
        self.rule = rule

    @property
    def state(self) -> Mapping[str, int]:
        return {"h": self.sizes.hidden_size, "x": self.sizes.hidden_size}

    @property
    def parameters(self) -> Mapping[str, ParameterSpec]:
        h = self.sizes.hidden_size
        return {
            "words": ParameterSpec((self.sizes.of("words"), h), 0.5),
            "U": ParameterSpec((h, h), 0.5),
            "W_out": ParameterSpec((h, self.sizes.of("classes")), 0.5),
        }

    def program(self, p: Writer, sentence: Chain) -> Any:
        word, label = int(sentence.words[0]), int(sentence.labels[0])
        start = p.start(word=word, label=label)
        return getattr(self, f"_{self.rule}")(p, start, label)

    def _none(self, p: Writer, start: Any, label: int) -> Any:
        return p.step(start, label=label)

    def _waits_for_nothing(self, p: Writer, start: Any, label: int) -> Body:
        yield p.chance(None, 1)

    def _never_joins(self, p: Writer, start: Any, label: int) -> Body:
        p.fork(self._branch(p, start, label))
        yield p.chance(start, 1)
        return start

    def _branch(self, p: Writer, start: Any, label: int) -> Body:
        yield p.chance(start, 2)
        return p.step(start, label=label)

    def _other_shapes(self, p: Writer, start: Any, label: int) -> Any:
        return p.table(p.step(start, label=label), label=label)

    def _goes_back(self, p: Writer, start: Any, label: int) -> Any:
        deep: list[Any] = []

        def runs() -> None:
            deep.append(p.step(p.step(start, label=label), label=label))

        return p.concurrent(runs, lambda: p.step(deep[0], label=label))

    def _recurses(self, p: Writer, start: Any, label: int) -> Any:
        return self._recurses(p, p.step(start, label=label), label)

    def _asks_for_a_number(self, p: Writer, start: Any, label: int) -> Body:
        yield p.value(start, "h", 0)
        return p.step(start, label=label)

    def start(self, v: VertexTracer) -> None:
        x = v.lookup("words", v.pull("word"))
        v.scatter(h=tanh(x), x=x)

    def step(self, v: VertexTracer) -> None:
        v.scatter(h=tanh(v.gather(0).h @ v.parameter("U")))

    def table(self, v: VertexTracer) -> None:
        v.scatter(h=tanh(v.gather(0).x))

    def output(self, v: VertexTracer) -> None:
        logits = v.gather(0).h @ v.parameter("W_out")
        v.push(logits, loss=pick_neg_log_softmax(logits, v.pull("label")))
