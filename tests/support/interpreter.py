"""Independent oracle for recorded programs: evaluates one instance at a time, in float64.

It runs a program in program order and builds no graph: each call of a block is computed
immediately, branches run one after the other, and waits return immediately.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import GeneratorType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dynbatch.harness.contracts.model import trace_functions
from dynbatch.harness.errors import ProgramError
from dynbatch.harness.programs.decisions import draw_chance
from dynbatch.harness.programs.fibers import allow_deep_calls
from dynbatch.harness.programs.model import ProgramModel
from dynbatch.harness.programs.writer import (
    Block,
    Body,
    CallWriter,
    Fork,
    StageRequest,
    Wait,
    find_location,
    require_result,
)
from dynbatch.harness.reference import KERNELS, Array, ReferenceResult
from dynbatch.harness.vertex.operators import EDGE, Node
from dynbatch.harness.vertex.program import VertexFunction

Parameters = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True, eq=False)
class Computed:
    """Result of a block's call: the states, and the numbers that were passed to the call."""

    states: Mapping[str, Array]
    numbers: Mapping[str, int]


def interpret(
    model: ProgramModel, weights: Parameters, instances: Sequence[Any]
) -> ReferenceResult:
    """Evaluate loss and outputs of the programs of a mini-batch in float64.

    Raises:
        ProgramError: for a program that breaks the rules.
    """
    parameters = {name: w.astype(np.float64) for name, w in weights.items()}
    functions = trace_functions(model)
    outputs: list[Array] = []
    loss = 0.0
    with allow_deep_calls():
        for instance in instances:
            run = Interpreter(model, functions, parameters, model.key_of(instance))
            for read in run.run_program(instance):
                values = evaluate(functions["output"], parameters, (read,), read.numbers)
                output = functions["output"]
                assert output.push is not None
                outputs.append(values[output.push])
                loss += 0.0 if output.loss is None else float(values[output.loss][0])
    return ReferenceResult(loss, np.stack(outputs) if outputs else np.zeros((0, 0)), {})


class Interpreter(CallWriter):
    """Interpreter of the program of one instance; its key determines random decisions."""

    def __init__(
        self,
        model: ProgramModel,
        functions: Mapping[str, VertexFunction],
        parameters: Parameters,
        key: int,
    ) -> None:
        super().__init__(is_checked=True)
        self._model, self._key = model, key
        for name in model.vertex_types:
            self.__dict__[name] = _make_block(functions[name], parameters)

    def __getattr__(self, name: str) -> Block:
        raise ProgramError(f"{find_location(sys._getframe(1))} calls {name}, which is not a block")

    def run_program(self, instance: Any) -> list[Computed]:
        result = self._finish(self._model.program(self, instance))
        self.check_joined()
        return result if isinstance(result, list) else [result]

    def _finish(self, result: Any) -> Any:
        return self._run(result) if type(result) is GeneratorType else result

    def _run(self, body: Body) -> Any:
        answer: Any = None
        while True:
            try:
                request = body.send(answer)
            except StopIteration as ended:
                return ended.value
            self.accept_request(request)
            if isinstance(request, Fork):
                answer = [self._run(branch) for branch in request.branches]
            else:
                answer = self._resolve_wait(request) if isinstance(request, Wait) else None

    def _resolve_wait(self, wait: Wait) -> float:
        if not isinstance(wait.of, Computed):
            raise ProgramError(f"{wait.made_at} waits for a value that no block computed")
        if wait.key is not None:
            return draw_chance(self._model.seed, self._key, *wait.key)
        return float(wait.of.states[wait.state][wait.column])

    def concurrent(self, *branches: Callable[[], Any]) -> list[Any]:
        """Run the branches one after the other, and return their results."""
        return [require_result(branch()) for branch in branches]

    def stage(self) -> StageRequest:
        """Return a stage; the order of computation does not change."""
        return StageRequest(find_location(sys._getframe(1)))

    def ghosts(self, n: int) -> None:
        """Do nothing: ghost operators compute nothing."""


def _make_block(function: VertexFunction, parameters: Parameters) -> Block:
    def call(*operands: Computed, **numbers: int) -> Computed:
        values = evaluate(function, parameters, operands, numbers)
        states = {state: values[i].reshape(-1) for state, i in function.scatter}
        return Computed(states, numbers)

    return call


def evaluate(
    function: VertexFunction,
    parameters: Parameters,
    operands: Sequence[Computed],
    numbers: Mapping[str, int],
) -> list[Any]:
    """Compute the values of all operators of a function in float64."""
    values: list[Any] = []
    for node in function.nodes:
        values.append(_evaluate_node(node, values, parameters, operands, numbers))
    return values


def _evaluate_node(
    node: Node,
    values: Sequence[Any],
    parameters: Parameters,
    operands: Sequence[Computed],
    numbers: Mapping[str, int],
) -> Any:
    if node.op == "gather":
        return operands[node.index].states[node.name].reshape(node.shape)
    if node.op == "gather_each":
        rows = [operand.states[node.name] for operand in operands]
        return np.stack(rows).reshape(-1, *node.shape) if rows else np.zeros((0, *node.shape))
    if node.op == "pull":
        return numbers[node.name]
    if node.op == "parameter":
        return parameters[node.name]
    if node.op in ("zeros", "ones"):
        edges = (len(operands),) if node.domain == EDGE else ()
        return np.full((*edges, *node.shape), float(node.op == "ones"))
    if node.op == "spread":
        return np.repeat(values[node.inputs[0]][None], len(operands), axis=0)
    if node.op == "relu":
        return np.maximum(values[node.inputs[0]], 0.0)
    return KERNELS[node.op](node, *(values[i] for i in node.inputs))
