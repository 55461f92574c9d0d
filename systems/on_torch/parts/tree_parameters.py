"""Parameters of tree models as layers, whichever way the trees are walked."""

from __future__ import annotations

from torch import nn

from harness.contracts.model import Model


class TreeLSTMParameters(nn.Module):
    """Parameters of harness.models.tree_lstm."""

    SHARED = {  # noqa: RUF012 - never changed
        "embedding": "embedding.weight",
        "W": "leaf_gates.weight",
        "b_leaf": "leaf_gates.bias",
        "U": "gates.weight",
        "b": "gates.bias",
        "F_1": "forget_1.weight",
        "F_2": "forget_2.weight",
        "b_f": "forget_1.bias",
        "W_out": "classifier.weight",
    }

    def __init__(self, model: Model) -> None:
        super().__init__()
        sizes = model.sizes
        self.h = h = sizes.hidden_size
        self.embedding = nn.Embedding(sizes.of("words"), sizes.embedding_size, sparse=True)
        self.leaf_gates = nn.Linear(sizes.embedding_size, 3 * h)
        self.gates = nn.Linear(2 * h, 3 * h)
        self.forget_1 = nn.Linear(h, h)  # its bias serves both children
        self.forget_2 = nn.Linear(h, h, bias=False)
        self.classifier = nn.Linear(h, sizes.of("classes"), bias=False)


class TreeGRUParameters(nn.Module):
    """Parameters of harness.models.tree_gru."""

    SHARED = {  # noqa: RUF012 - never changed
        "embedding": "embedding.weight",
        "W": "leaf_gates.weight",
        "b_leaf": "leaf_gates.bias",
        "W_c": "leaf_candidate.weight",
        "b_leaf_c": "leaf_candidate.bias",
        "U_1": "gates_1.weight",
        "U_2": "gates_2.weight",
        "b": "gates_1.bias",
        "U_c1": "candidate_1.weight",
        "U_c2": "candidate_2.weight",
        "b_c": "candidate_1.bias",
        "W_out": "classifier.weight",
    }

    def __init__(self, model: Model) -> None:
        super().__init__()
        sizes = model.sizes
        h = sizes.hidden_size
        self.embedding = nn.Embedding(sizes.of("words"), h, sparse=True)
        self.leaf_gates, self.leaf_candidate = nn.Linear(h, 2 * h), nn.Linear(h, h)
        # The biases of the first child serve both.
        self.gates_1, self.gates_2 = nn.Linear(h, 2 * h), nn.Linear(h, 2 * h, bias=False)
        self.candidate_1, self.candidate_2 = nn.Linear(h, h), nn.Linear(h, h, bias=False)
        self.classifier = nn.Linear(h, sizes.of("classes"), bias=False)


class MVRNNParameters(nn.Module):
    """Parameters of harness.models.mv_rnn; matrices, as there, stored transposed."""

    SHARED = {  # noqa: RUF012 - never changed
        "embedding": "embedding.weight",
        "matrices": "matrices.weight",
        "W": "vector.weight",
        "b": "vector.bias",
        "A_1": "matrix_1.weight",
        "A_2": "matrix_2.weight",
        "b_T": "matrix_1.bias",
        "W_out": "classifier.weight",
    }

    def __init__(self, model: Model) -> None:
        super().__init__()
        sizes = model.sizes
        self.h = h = sizes.hidden_size
        self.embedding = nn.Embedding(sizes.of("words"), h, sparse=True)
        self.matrices = nn.Embedding(sizes.of("words"), h * h, sparse=True)
        self.vector = nn.Linear(2 * h, h)
        self.matrix_1 = nn.Linear(h, h)  # its bias is that of the sum
        self.matrix_2 = nn.Linear(h, h, bias=False)
        self.classifier = nn.Linear(h, sizes.of("classes"), bias=False)


class TreeFCParameters(nn.Module):
    """Parameters of harness.models.tree_fc; the variant "cavs" has no table."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.h = h = model.sizes.hidden_size
        self.layer = nn.Linear(2 * h, h)
        self.SHARED = {"W": "layer.weight", "b": "layer.bias"}
        self.embedding: nn.Embedding | None = None
        if "embedding" in model.parameters:
            self.embedding = nn.Embedding(model.sizes.of("words"), h, sparse=True)
            self.SHARED["embedding"] = "embedding.weight"
