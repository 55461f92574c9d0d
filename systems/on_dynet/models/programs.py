"""Programs with control flow in DyNet: each runs to its next decision, then all are evaluated."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import dynet as dy

from dynbatch.harness.models.berxit import Berxit
from dynbatch.harness.models.drnn import DRNN
from dynbatch.harness.models.nested_rnn import NestedRNN
from dynbatch.harness.models.stack_rnn import StackRNN
from dynbatch.harness.values.instances import Chain
from dynbatch.systems.on_dynet.layers import (
    Program,
    add_to_graph,
    classify_states,
    evaluate_first_numbers,
    run_together,
)
from dynbatch.systems.on_dynet.runtime import ParameterStore
from dynbatch.systems.on_dynet.segments import Part
from dynbatch.systems.plans.programs import NONE, GrownTree, grow_tree

# Words, shift flags of steps, labels of steps.
ParsedWords = tuple[list[int], list[bool], list[int]]
Loops = tuple[int, int, list[int]]  # word, label, inner steps of every outer one
Tokens = tuple[list[int], int, int]  # words of all tokens, label, number of layers until its exit
CUBE = 0.044715  # constant of gelu, see dynbatch.harness.vertex.tracing
ROOT = 0.7978845608028654  # square root of 2 / pi


class StackRNNNetwork:
    """Equations of dynbatch.harness.models.stack_rnn; a matrix of two joined vectors is split."""

    def __init__(self, model: StackRNN, store: ParameterStore) -> None:
        self.actions, self.labels = model.replay_actions, model.expand_labels
        self.embedding = store.add_table("embedding")
        self.ends = [*store.add_vectors("end"), *store.add_vectors("bottom")]
        self.buffer = [store.add_vectors("b_buffer")[0], *store.add_matrices("W_buffer")]
        self.buffer += store.add_matrices("U_buffer")
        self.cells = [
            [*store.add_vectors(f"b_{name}"), *store.add_matrices(f"W_{name}", 2, axis=0)]
            for name in ("push", "compose", "decide")
        ]
        self.classifier = store.add_matrices("W_out")[0]

    def read(self, chain: Chain) -> ParsedWords:
        return chain.words.tolist(), self.actions(chain), self.labels(chain)

    def build(self, sentences: Sequence[ParsedWords]) -> Iterator[Part]:
        """Yield the actions of all parsers, one segment per step, then the scores of all states."""
        self._ends = add_to_graph(self.ends)
        self._reading = add_to_graph(self.buffer)
        self._cells = [add_to_graph(cell) for cell in self.cells]
        programs = (self._parse(words, actions) for words, actions, _ in sentences)
        states = yield from run_together(programs)
        labels = [label for *_, own in sentences for label in own]
        yield classify_states(self.classifier, [state for own in states for state in own], labels)

    def _parse(self, words: Sequence[int], actions: Sequence[bool]) -> Program[list[Any]]:
        """Run a parser's actions, and return the states that its decisions are made from."""
        push, compose, decide = self._cells
        end, bottom = self._ends
        buffer, stack = self._build_buffer(words, end), [bottom]
        stack.append(_combine_vectors(push, buffer.pop(), bottom))
        states = [_combine_vectors(decide, stack[-1], buffer[-1])]
        for shifts in actions:
            yield states[-1]
            if shifts:
                pushed = buffer.pop()
            else:
                upper = stack.pop()
                pushed = _combine_vectors(compose, stack.pop(), upper)
            stack.append(_combine_vectors(push, pushed, stack[-1]))
            states.append(_combine_vectors(decide, stack[-1], buffer[-1]))
        return states

    def _build_buffer(self, words: Sequence[int], end: Any) -> list[Any]:
        """Return the states of the words, read from last to first, with the first word's last."""
        affine, tanh, lookup, table = dy.affine_transform, dy.tanh, dy.lookup, self.embedding
        b, W, U = self._reading
        states = [end]
        for word in reversed(words):
            states.append(tanh(affine([b, W, lookup(table, word), U, states[-1]])))
        return states


def _combine_vectors(cell: Sequence[Any], first: Any, second: Any) -> Any:
    b, W_first, W_second = cell
    return dy.tanh(dy.affine_transform([b, W_first, first, W_second, second]))


class NestedRNNNetwork:
    """Equations of dynbatch.harness.models.nested_rnn.

    z h + (1 - z) n is written n + z (h - n), because DyNet has no batched kernel of 1 - z. One
    affine transform for both r and z takes as long.
    """

    def __init__(self, model: NestedRNN, store: ParameterStore) -> None:
        self.loops = model.list_inner_counts
        self.embedding = store.add_table("embedding")
        self.inner = [*store.add_vectors("b"), *store.add_matrices("U")]
        self.inputs = [*store.add_vectors("b_gates", 3), *store.add_matrices("W_x", 3)]
        self.states = [*store.add_matrices("W_h", 2), *store.add_matrices("U_n")]
        self.classifier = store.add_matrices("W_out")[0]

    def read(self, chain: Chain) -> Loops:
        return int(chain.words[0]), int(chain.labels[0]), self.loops(chain)

    def build(self, instances: Sequence[Loops]) -> Iterator[Part]:
        """Yield the outer states of all instances, one segment per step, then the scores of all."""
        inner = add_to_graph(self.inner)
        outer = [p.expr(True) for p in (*self.inputs, *self.states)]
        programs = [self._run_loops(word, loops, inner, outer) for word, _, loops in instances]
        states = yield from run_together(programs)
        labels = [label for _, label, loops in instances for _ in loops]
        yield classify_states(self.classifier, [state for own in states for state in own], labels)

    def _run_loops(
        self, word: int, loops: Sequence[int], inner: Sequence[Any], outer: Sequence[Any]
    ) -> Program[list[Any]]:
        """Run both loops of an instance, and return its outer states.

        Every state decides the number of inner iterations, and the first one also that of the outer
        loop.
        """
        affine, tanh = dy.affine_transform, dy.tanh
        b, U = inner
        states = [dy.lookup(self.embedding, word)]
        for n_inner in loops:
            yield states[-1]
            h = states[-1]
            for _ in range(n_inner):
                h = tanh(affine([b, U, h]))
            states.append(_step_gru(outer, h, states[-1]))
        return states[1:]


def _step_gru(weights: Sequence[Any], x: Any, h: Any) -> Any:
    affine, logistic = dy.affine_transform, dy.logistic
    b_r, b_z, b_n, W_r, W_z, W_n, U_r, U_z, U_n = weights
    r = logistic(affine([b_r, W_r, x, U_r, h]))
    z = logistic(affine([b_z, W_z, x, U_z, h]))
    n = dy.tanh(affine([b_n, W_n, x, U_n, dy.cmult(r, h)]))
    return n + dy.cmult(z, h - n)


class Growth(NamedTuple):
    """Nodes that grow from a word, and its label.

    Attributes:
        segments: for each segment after the first, the nodes that grow: the ranks of the node, its
            parent and the sibling before it (NONE for a first child).
    """

    word: int
    label: int
    segments: list[list[tuple[int, int, int]]]
    n_nodes: int


class DRNNNetwork:
    """Equations of harness/models/drnn.py; trees grow as in recursion, children before siblings.

    DyNet does not batch the product of a vector and a number. A product with ones, which is
    batched, is not faster.
    """

    def __init__(self, model: DRNN, store: ParameterStore) -> None:
        self.model = model
        self.embedding = store.add_table("embedding")
        self.cell = [
            *store.add_vectors("b"),
            *store.add_matrices("U_a"),
            *store.add_matrices("U_f"),
        ]
        self.cell += store.add_matrices("u")
        self.classifier = store.add_matrices("W_out")[0]

    def read(self, chain: Chain) -> Growth:
        """Return the nodes that will grow, as values decide it."""
        tree = grow_tree(self.model, chain)
        segments = [
            [(rank, tree.nodes[rank].parent, tree.nodes[rank].before) for rank in ranks]
            for ranks in self.list_segments(tree)
        ]
        return Growth(tree.word, tree.label, segments[1:], len(tree.nodes))

    def list_segments(self, tree: GrownTree) -> list[list[int]]:
        """Return the nodes of each segment, one per segment."""
        return [[rank] for rank in tree.list_depth_first()]

    def build(self, trees: Sequence[Growth]) -> Iterator[Part]:
        """Yield one segment per step of growth, then the scores of all nodes."""
        affine, logistic, tanh, cmult = dy.affine_transform, dy.logistic, dy.tanh, dy.cmult
        b, U_a, U_f, u = add_to_graph(self.cell)
        newest = [dy.lookup(self.embedding, tree.word) for tree in trees]
        states: list[list[Any]] = [[None] * tree.n_nodes for tree in trees]
        for own, root in zip(states, newest, strict=True):
            own[0] = root
        step = 0
        while newest:
            yield from evaluate_first_numbers(newest)
            newest = []
            for tree, h in zip(trees, states, strict=True):
                if step >= len(tree.segments):
                    continue
                for node, parent, before in tree.segments[step]:
                    if before == NONE:
                        x = tanh(affine([b, U_a, h[parent]]))
                    else:
                        x = tanh(affine([b, U_a, h[parent], U_f, h[before]]))
                    h[node] = cmult(x, logistic(u * x))
                    newest.append(h[node])
            step += 1
        labels = [tree.label for tree in trees for _ in range(tree.n_nodes)]
        yield classify_states(self.classifier, [h for own in states for h in own], labels)


class BreadthFirstDRNN(DRNNNetwork):
    """DRNNNetwork in which every node grows as soon as it can."""

    def list_segments(self, tree: GrownTree) -> list[list[int]]:
        """Return the nodes of each segment: all whose parents and previous siblings exist."""
        return tree.list_waves()


class BerxitNetwork:
    """Equations of dynbatch.harness.models.berxit.

    The tokens of a sentence are the mini-batch of its expressions, and the heads are that of its
    attention, as a user of DyNet would write it. DyNet's batching is then across sentences.
    """

    def __init__(self, model: Berxit, store: ParameterStore) -> None:
        self.model, h = model, model.sizes.hidden_size
        self.n_heads, self.n_tokens, self.width = model.n_heads, model.tokens, h
        self.embedding, self.places = store.add_table("embedding"), store.add_table("places")
        names = (*("q", "k", "v", "heads", "up", "down", "exit"),)
        self.layers = {
            n: [*store.add_vectors(f"b_{n}"), *store.add_matrices(f"W_{n}")] for n in names
        }
        norms = {"token": "b_token", "heads": "b_heads_norm", "layer": "b_layer"}
        self.norms = {
            n: [*store.add_vectors(f"gain_{n}"), *store.add_vectors(bias)]
            for n, bias in norms.items()
        }
        self.classifier = store.add_matrices("W_out")[0]

    def read(self, chain: Chain) -> Tokens:
        model = self.model
        return model.pad_words(chain), int(chain.labels[0]), model.count_layers(chain)

    def build(self, sentences: Sequence[Tokens]) -> Iterator[Part]:
        """Yield the exits of all sentences, one segment per layer, then the scores."""
        layers = {name: add_to_graph(parameters) for name, parameters in self.layers.items()}
        norms = {name: add_to_graph(parameters) for name, parameters in self.norms.items()}
        programs = [self._exit(words, n, layers, norms) for words, _, n in sentences]
        exits = yield from run_together(programs)
        yield classify_states(self.classifier, exits, [label for _, label, _ in sentences])

    def _exit(
        self, words: list[int], n_layers: int, layers: dict[str, Any], norms: dict[str, Any]
    ) -> Program[Any]:
        """Run the layers of a sentence; every exit except the last decides whether it continues."""
        places = dy.lookup_batch(self.places, list(range(self.n_tokens)))
        x = _apply_norm(norms["token"], dy.lookup_batch(self.embedding, words) + places)
        for layer in range(1, n_layers + 1):
            heads = _apply_affine(layers["heads"], self._compute_attention(layers, x))
            a = _apply_norm(norms["heads"], x + heads)
            x = _apply_norm(
                norms["layer"],
                a + _apply_affine(layers["down"], _apply_gelu(_apply_affine(layers["up"], a))),
            )
            leaving = dy.tanh(_apply_affine(layers["exit"], dy.pick_batch_elem(x, 0)))
            if layer < self.model.layers:
                yield leaving
        return leaving

    def _compute_attention(self, layers: dict[str, Any], x: Any) -> Any:
        """Compute v softmax(k^T q / sqrt(columns of a head)), with one column per query token."""
        q, k, v = (self._split_heads(_apply_affine(layers[part], x)) for part in "qkv")
        scores = dy.transpose(k) * (q * (self.n_heads / self.width) ** 0.5)
        mixed = v * dy.softmax(scores)
        return self._join_heads(mixed)

    def _split_heads(self, x: Any) -> Any:
        """Convert a mini-batch of tokens, each (h), to one of heads, each (columns, tokens)."""
        columns = self.width // self.n_heads
        whole = dy.reshape(x, (columns, self.n_heads, self.n_tokens))
        turned = dy.transpose(whole, [0, 2, 1])
        return dy.reshape(turned, (columns, self.n_tokens), batch_size=self.n_heads)

    def _join_heads(self, x: Any) -> Any:
        """Convert a mini-batch of heads back to one of tokens."""
        columns = self.width // self.n_heads
        whole = dy.reshape(x, (columns, self.n_tokens, self.n_heads))
        turned = dy.transpose(whole, [0, 2, 1])
        return dy.reshape(turned, (self.width,), batch_size=self.n_tokens)


def _apply_affine(weights: Sequence[Any], x: Any) -> Any:
    return dy.affine_transform([*weights, x])


def _apply_norm(weights: Sequence[Any], x: Any) -> Any:
    gain, bias = weights
    return dy.layer_norm(x, gain, bias)


def _apply_gelu(x: Any) -> Any:
    # Numbers are right operands: the wheel's expressions do not accept them on the left.
    return dy.cmult(x, dy.tanh((x + dy.cube(x) * CUBE) * ROOT) + 1.0) * 0.5


NETWORKS = {
    "stack_rnn": StackRNNNetwork,
    "nested_rnn": NestedRNNNetwork,
    "drnn": DRNNNetwork,
    "berxit": BerxitNetwork,
}
BREADTH_FIRST = {
    "drnn": BreadthFirstDRNN,
}
