"""DyNet itself, and helpers that every model needs.

DyNet reads memory sizes, seed and autobatch mode when it is imported, and they are known only when
a trial's adapter is constructed. The adapter therefore sets them first and then loads this module
and dynbatch.systems.on_dynet.models.* by importlib. No other modules import DyNet at the top.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import dynet as dy
import numpy as np
from numpy.typing import NDArray

from dynbatch.systems.on_dynet.lstm_gates import swap_first_gates, swap_last_gates

Array = NDArray[np.float32]
Join = Callable[[list[Array]], Array]


class ParameterStore:
    """The shared weights as DyNet parameters; values and gradients are returned in shared shapes.

    DyNet multiplies from the left (y = W x), so every matrix is stored transposed.
    """

    def __init__(self, weights: Mapping[str, Array]) -> None:
        self.collection = dy.ParameterCollection()
        self._weights = weights
        self._parts: dict[str, tuple[list[Any], Join]] = {}
        self._tables: dict[str, tuple[int, ...]] = {}  # shapes of the lookup tables

    def add_table(self, name: str) -> Any:
        """Add embeddings as a lookup parameter, whose gradient and update are sparse."""
        table = self.collection.lookup_parameters_from_numpy(self._weights[name])
        self._tables[name] = self._weights[name].shape
        self._parts[name] = ([table], lambda parts: parts[0].reshape(self._weights[name].shape))
        return table

    def add_square_table(self, name: str) -> Any:
        """Add a lookup table of square matrices, each stored in one row of the shared table.

        The shared table is row-major and DyNet is column-major, so lookups give transposed
        matrices.
        """
        values = self._weights[name]
        side = math.isqrt(values.shape[1])
        table = self.collection.lookup_parameters_from_numpy(values.reshape(-1, side, side))
        self._tables[name] = (len(values), side, side)
        self._parts[name] = (
            [table],
            lambda parts: parts[0].transpose(0, 2, 1).reshape(values.shape),
        )
        return table

    def add_vectors(self, name: str, pieces: int | list[int] = 1) -> list[Any]:
        """Add a bias, cut into a number of equal pieces, or at the given indices."""
        parts = [self._add(piece) for piece in np.split(self._weights[name], pieces)]
        self._parts[name] = (parts, np.concatenate)
        return parts

    def add_matrices(self, name: str, pieces: int | list[int] = 1, axis: int = 1) -> list[Any]:
        """Add a weight matrix, cut as a bias, by columns (axis 1) or rows (axis 0)."""
        parts = [self._add(piece.T) for piece in np.split(self._weights[name], pieces, axis=axis)]
        self._parts[name] = (parts, lambda arrays: np.concatenate([g.T for g in arrays], axis=axis))
        return parts

    def add_lstm(self, *suffixes: str) -> Any:
        """Add DyNet's own LSTM with a layer per suffix, from parameters W, U and b with suffix.

        Its gates are i, f, o, g. It would add 1 to f, which the biases already include.
        """
        shapes = [(len(self._weights[f"W{s}"]), len(self._weights[f"U{s}"])) for s in suffixes]
        n_inputs, width = shapes[0]
        lstm = dy.VanillaLSTMBuilder(
            len(suffixes), n_inputs, width, self.collection, forget_bias=0.0
        )
        for suffix, layer in zip(suffixes, lstm.get_parameters(), strict=True):
            for letter, parameter in zip("WUb", layer, strict=True):
                name = f"{letter}{suffix}"
                parameter.set_value(swap_last_gates(self._weights[name]).T)
                self._parts[name] = ([parameter], lambda arrays: swap_last_gates(arrays[0].T))
        return lstm

    def add_lstm_gates(self, name: str) -> Any:
        """Add a weight with the columns of gates f, i, o and g, for vanilla_lstm_gates."""
        parameter = self._add(swap_first_gates(self._weights[name]).T)
        self._parts[name] = ([parameter], lambda arrays: swap_first_gates(arrays[0].T))
        return parameter

    def _add(self, values: Array) -> Any:
        return self.collection.parameters_from_numpy(np.ascontiguousarray(values))

    def gradients(self, rows: Mapping[str, Array]) -> dict[str, Array]:
        """Return dense gradients of the last backward pass by shared name.

        Args:
            rows: indices of the rows that were looked up in each table; all others have no
                gradient. DyNet copies tables row by row, 18 000 words in 0.2 s.
        """
        gradients = {}
        for name, (parts, join) in self._parts.items():
            if name in self._tables:
                gradient = np.zeros(self._tables[name], np.float32)
                if len(rows[name]):
                    gradient[rows[name]] = parts[0].rows_grad_as_array(rows[name].tolist())
                gradients[name] = join([gradient])
            else:
                gradients[name] = join([np.array(part.grad_as_array()) for part in parts])
        return gradients

    def parameters(self) -> dict[str, Array]:
        return {
            name: np.array(join([np.array(part.as_array()) for part in parts]))
            for name, (parts, join) in self._parts.items()
        }

    def clear_gradients(self) -> None:
        """Set to zero all gradients that no update has used."""
        for parts, _ in self._parts.values():
            for part in parts:
                part.scale_gradient(0.0)


def make_trainer(store: ParameterStore, learning_rate: float) -> Any:
    """Return DyNet's plain SGD without clipping; only the looked-up rows of tables are updated."""
    trainer = dy.SimpleSGDTrainer(store.collection, learning_rate)
    trainer.set_clip_threshold(0)
    trainer.set_sparse_updates(True)
    return trainer
