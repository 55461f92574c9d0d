"""BiRNN: a plain RNN in each direction, and a layer over both states at every word.

The equations are h' = s(b + W_i x + W_h h), and relu(c_b + W_c [h_f; h_b]) at every token, whose
results are used as scores of the classes.

Source: Fegade et al., "ACRoBat", MLSys 2024, Listing 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dynbatch.harness.contracts.model import ParameterSpec
from dynbatch.harness.models.parts.chains import (
    build_block,
    build_pull,
    build_recurrence,
    concatenate_chains,
    join_blocks,
)
from dynbatch.harness.programs.model import ProgramModel
from dynbatch.harness.programs.writer import CallWriter
from dynbatch.harness.values.graph import MiniBatch
from dynbatch.harness.values.instances import Chain
from dynbatch.harness.vertex import Symbol, VertexTracer, pick_neg_log_softmax, relu, sigmoid


class BiRNN(ProgramModel):
    """BiRNN with one copy of the cell per direction; the first step reads no state."""

    name = "birnn"
    instance_kind = "chain"
    vertex_types = ("first", "cell", "token")
    copies = {"first": ("forward", "backward"), "cell": ("forward", "backward")}  # noqa: RUF012

    @property
    def state(self) -> Mapping[str, int]:
        return {"h": self.sizes.hidden_size, "t": self.sizes.get_size("classes")}

    @property
    def parameters(self) -> Mapping[str, ParameterSpec]:
        h, e, n_classes = (
            self.sizes.hidden_size,
            self.sizes.embedding_size,
            self.sizes.get_size("classes"),
        )
        cells: dict[str, ParameterSpec] = {}
        for weights in self.copies["cell"]:
            cells[f"W_{weights}"] = ParameterSpec((e, h), e**-0.5)
            cells[f"U_{weights}"] = ParameterSpec((h, h), h**-0.5)
            cells[f"b_{weights}"] = ParameterSpec((h,), 0.1)
        return {
            "embedding": ParameterSpec((self.sizes.get_size("words"), e), 0.5),
            **cells,
            "W_token": ParameterSpec(
                (2 * h, n_classes), (2 * h) ** -0.5
            ),  # rows: forward, backward
            "b_token": ParameterSpec((n_classes,), 0.1),
        }

    def program(self, p: CallWriter, sentence: Chain) -> list[Any]:
        """Run both directions concurrently, then all tokens as a separate stage."""
        words = sentence.words.tolist()
        forward, backward = p.concurrent(
            lambda: self._run_direction(p, p.first_forward, p.cell_forward, words),
            lambda: self._run_direction(p, p.first_backward, p.cell_backward, words[::-1])[::-1],
        )
        p.stage()
        labels = sentence.labels.tolist()
        token = p.token
        return p.map(lambda f, b, label: token(f, b, label=label), forward, backward, labels)

    def _run_direction(
        self, p: CallWriter, first: Any, cell: Any, words: Sequence[int]
    ) -> list[Any]:
        start = first(word=words[0])
        return [start, *p.chain(cell, start, len(words) - 1, word=words[1:])]

    def mini_batch(self, instances: Sequence[Chain]) -> MiniBatch:
        """Build the program's graph from arrays; no decision depends on computed values."""
        along = concatenate_chains([chain.n_words for chain in instances])
        words = np.concatenate([chain.words for chain in instances])
        labels = np.concatenate([chain.labels for chain in instances])
        mirror = along.mirror_positions()
        first_f, first_b, cell_f, cell_b, token_type = range(1, 6)
        forward = build_recurrence(0, along, first_f, cell_f)
        backward = build_recurrence(forward.end, along, first_b, cell_b)
        token = build_block(
            backward.end,
            token_type,
            np.stack([forward.vertices, backward.vertices[mirror]], axis=1),
        )
        graph = join_blocks((forward, backward, token), ("unbatchable", *self.vertex_types))
        read = ((forward.vertices, words), (backward.vertices, words[mirror]))
        return MiniBatch(
            graph=graph,
            pulls={
                "word": build_pull(token.end, *read),
                "label": build_pull(token.end, (token.vertices, labels)),
            },
            outputs=token.vertices,
            n_instances=len(instances),
        )

    def first(self, v: VertexTracer, weights: str) -> None:
        """Compute h = s(b + W x), from a state of zeros."""
        v.scatter(h=sigmoid(self._transform_word(v, weights)))

    def cell(self, v: VertexTracer, weights: str) -> None:
        """Compute h' = s(b + W x + U h)."""
        before = v.gather(0).h @ v.parameter(f"U_{weights}")
        v.scatter(h=sigmoid(self._transform_word(v, weights) + before))

    def _transform_word(self, v: VertexTracer, weights: str) -> Symbol:
        x = v.lookup("embedding", v.pull("word"))
        return x @ v.parameter(f"W_{weights}") + v.parameter(f"b_{weights}")

    def token(self, v: VertexTracer) -> None:
        """Compute t = relu(b + W [h_forward; h_backward])."""
        both = v.concat(v.gather(0).h, v.gather(1).h)
        v.scatter(t=relu(both @ v.parameter("W_token") + v.parameter("b_token")))

    def output(self, v: VertexTracer) -> None:
        """Push the scores, and the negative log likelihood of the correct class as loss."""
        logits = v.gather(0).t
        v.push(logits, loss=pick_neg_log_softmax(logits, v.pull("label")))
