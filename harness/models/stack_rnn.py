"""StackRNN: a shift-reduce parser with RNNs over its stack and its buffer.

ACRoBat's text specifies a StackLSTM parser with RNN cells that takes the best action at every step.
The rest is chosen here: there are two actions, the buffer is read from its end, and a reduced pair
is composed and then pushed. After the scores are computed, dynbatch.harness.programs.decisions
draws the action among those allowed.

Source: Fegade et al., "ACRoBat", MLSys 2024, Table 3; Dyer et al., ACL 2015.
"""

from __future__ import annotations

from collections.abc import Mapping

from dynbatch.harness.contracts.model import ParameterSpec
from dynbatch.harness.programs.decisions import draw_chance
from dynbatch.harness.programs.model import ProgramModel
from dynbatch.harness.programs.writer import Body, CallWriter
from dynbatch.harness.values.instances import Chain
from dynbatch.harness.vertex import VertexTracer, pick_neg_log_softmax, tanh

N_ACTIONS = 2


class StackRNN(ProgramModel):
    """Parser that takes n shifts and n - 1 reductions for n words.

    A decision precedes each action except the first.
    """

    name = "stack_rnn"
    instance_kind = "chain"
    vertex_types = ("end", "bottom", "buffer", "push", "compose", "decide")

    @property
    def state(self) -> Mapping[str, int]:
        return {"h": self.sizes.hidden_size, "t": self.sizes.hidden_size}

    @property
    def parameters(self) -> Mapping[str, ParameterSpec]:
        h, e = self.sizes.hidden_size, self.sizes.embedding_size
        two, bias = ParameterSpec((2 * h, h), (2 * h) ** -0.5), ParameterSpec((h,), 0.1)
        return {
            "embedding": ParameterSpec((self.sizes.get_size("words"), e), 0.5),
            "end": bias,
            "bottom": bias,
            "W_buffer": ParameterSpec((e, h), e**-0.5),
            "U_buffer": ParameterSpec((h, h), h**-0.5),
            "b_buffer": bias,
            "W_push": two,  # rows: the pushed state, the stack below it
            "b_push": bias,
            "W_compose": two,  # rows: the lower state, the upper state
            "b_compose": bias,
            "W_decide": two,  # rows: the stack, the buffer
            "b_decide": bias,
            "W_out": ParameterSpec((h, N_ACTIONS), h**-0.5),
        }

    def program(self, p: CallWriter, sentence: Chain) -> Body:
        """Run the parser, and return the states of all decisions; it does not wait for the last."""
        buffer, stack = [p.end()], [p.bottom()]
        words = sentence.words[::-1].tolist()
        buffer += p.chain(p.buffer, buffer[0], len(words), word=words)
        stack.append(p.push(buffer.pop(), stack[-1]))
        labels, read = self.expand_labels(sentence), []
        for step, label in enumerate(labels):
            state = p.decide(stack[-1], buffer[-1], label=label)
            read.append(state)
            if step == len(labels) - 1:
                break
            score = yield p.chance(state, step)
            if should_shift(score, len(buffer) - 1, len(stack) - 1):
                pushed = buffer.pop()
            else:
                upper = stack.pop()
                pushed = p.compose(stack.pop(), upper)
            stack.append(p.push(pushed, stack[-1]))
        return read

    def expand_labels(self, sentence: Chain) -> list[int]:
        """Return the target action of every step, from the labels of the words."""
        return [label % N_ACTIONS for label in sentence.labels.tolist() for _ in range(2)][:-1]

    def replay_actions(self, sentence: Chain) -> list[bool]:
        """Return True for each step that shifts, without the last one, as the program decides."""
        n_buffer, n_stack, key = sentence.n_words - 1, 1, self.key_of(sentence)
        actions = []
        for step in range(2 * sentence.n_words - 2):
            actions.append(should_shift(draw_chance(self.seed, key, step), n_buffer, n_stack))
            n_buffer, n_stack = (
                (n_buffer - 1, n_stack + 1) if actions[-1] else (n_buffer, n_stack - 1)
            )
        return actions

    def end(self, v: VertexTracer) -> None:
        """Compute the state of the empty buffer."""
        v.scatter(h=v.zeros(self.sizes.hidden_size) + v.parameter("end"))

    def bottom(self, v: VertexTracer) -> None:
        """Compute the state of the empty stack."""
        v.scatter(h=v.zeros(self.sizes.hidden_size) + v.parameter("bottom"))

    def buffer(self, v: VertexTracer) -> None:
        """Compute h = tanh(W x + U h_behind + b), where h_behind is the state of the next word."""
        x = v.lookup("embedding", v.pull("word")) @ v.parameter("W_buffer")
        v.scatter(h=tanh(x + v.parameter("b_buffer") + v.gather(0).h @ v.parameter("U_buffer")))

    def push(self, v: VertexTracer) -> None:
        """Compute h = tanh(W [pushed; below] + b)."""
        self._combine_states(v, "push")

    def compose(self, v: VertexTracer) -> None:
        """Compute h = tanh(W [lower; upper] + b)."""
        self._combine_states(v, "compose")

    def _combine_states(self, v: VertexTracer, name: str) -> None:
        both = v.concat(v.gather(0).h, v.gather(1).h)
        v.scatter(h=tanh(both @ v.parameter(f"W_{name}") + v.parameter(f"b_{name}")))

    def decide(self, v: VertexTracer) -> None:
        """Compute t = tanh(W [stack; buffer] + b)."""
        both = v.concat(v.gather(0).h, v.gather(1).h)
        v.scatter(t=tanh(both @ v.parameter("W_decide") + v.parameter("b_decide")))

    def output(self, v: VertexTracer) -> None:
        """Compute the scores of the actions and the negative log likelihood of the target."""
        logits = v.gather(0).t @ v.parameter("W_out")
        v.push(logits, loss=pick_neg_log_softmax(logits, v.pull("label")))


def should_shift(score: float, n_buffer: int, n_stack: int) -> bool:
    """Return True if a step shifts; it must if the stack has no pair to reduce.

    Args:
        score: a number in [0, 1).
        n_buffer, n_stack: elements left in the buffer and on the stack.
    """
    if n_buffer == 0:
        return False
    return n_stack < 2 or score < 0.5
