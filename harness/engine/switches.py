"""Switches of the engine, one for each optimization."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Annotated, Literal

from dynbatch.harness.values.checked import OneOf, check_fields
from dynbatch.harness.values.precision import EXACT, PRECISIONS
from dynbatch.harness.vertex.subgraph.plan import LAYOUTS as SUBGRAPH_LAYOUTS

LAYOUTS = ("read_order", "policy", *SUBGRAPH_LAYOUTS)
# `backend=auto` chooses the first that can run the trial.
DEFAULT_BACKENDS = {"cpu": ("compiled",), "cuda": ("cuda", "stepwise")}
CHOICES = {
    "granularity": ("vertex", "operator"),
    "layout": LAYOUTS,
    "outputs": ("stage", "vertices"),
    "loop": ("compiled", "python"),
    "blas": ("auto", "openblas"),
    "precision": PRECISIONS,
}


@dataclass(frozen=True, slots=True)
class Switches:
    """Optimizations of the engine, so that an ablation is a configuration.

    If a graph has several segments, "once per mini-batch" means once per segment for outputs and
    hoisted operators.

    Attributes:
        granularity: "vertex" batches whole vertex functions, "operator" single operators by DyNet's
            signatures.
        lazy_batching: Compute parameter gradients and outputs once per mini-batch (Cavs).
        hoisting: In functions that read children, run operators that need none before the first
            batch; "stream": on a second stream of a GPU, next to the batches (Cavs's streaming;
            backend cuda only).
        fusion: Generate kernels for elementwise operators.
        gather_fusion: These kernels read children's states in place; otherwise the states are
            gathered first unless they are consecutive (ACRoBat, MLSys 2024, section 5).
        layout: "read_order" orders batches so that gathers become views; the others keep the order
            of the policy. "pq" and "dynet" also batch the operators inside a vertex function and
            lay out their values, once: by a PQ tree, or in the order of computation, with copies if
            operands are not adjacent (dynbatch.harness.vertex.subgraph.columns). Both have an
            effect at vertex granularity and without fusion only, because fusion keeps these values
            in registers.
        pre_gather_parameters: With these two layouts, store batched parameters in adjacent columns
            once; otherwise copy them together for every batch.
        deduplicate_inputs: Compute vertices without children that pull equal values only once
            (dynbatch.harness.granularity.sharing; vertex granularity only).
        fold_tables: In inference, look up precomputed products of embeddings and weights
            (dynbatch.harness.vertex.folding; vertex granularity only).
        share_products: Compute a product of a child's state and a parameter once at the child, if a
            mini-batch has more parents than children (dynbatch.harness.vertex.shared_products;
            vertex granularity only). The first mini-batch decides.
        outputs: "stage" runs classifier and losses once after the last batch; "vertices" makes them
            vertices of the graph, which the policy batches (always so at operator granularity).
        backend: The directory of harness/engine/backends that executes the plans; "auto": compiled
            code on a CPU, generated kernels on CUDA, or PyTorch's operators if those cannot run.
        loop: "compiled" runs a stage of all batches in one call, "python" makes one call per batch.
        blas: The library for matmuls in compiled code. "auto": the engine's kernels for few rows,
            oneDNN for many, and OpenBLAS otherwise; "openblas": OpenBLAS only.
        precision: The precision of matmuls. "ieee": float32. On CUDA, "tf32x3" is almost as
            precise, with three matmuls of tensor cores, and "tf32" is not. "bf16" is even less
            precise. "tf32" and "bf16" do not belong in comparisons
            (dynbatch.harness.values.precision).
        profile: Also measure the fraction of forward and backward that only moves data. Steps are
            surrounded by reads of a counter, so the time of such a trial serves no other purpose.
    """

    granularity: Annotated[str, OneOf(CHOICES["granularity"])] = "vertex"
    lazy_batching: bool = True
    hoisting: bool | Literal["stream"] = True
    fusion: bool = True
    gather_fusion: bool = True
    layout: Annotated[str, OneOf(CHOICES["layout"])] = "read_order"
    pre_gather_parameters: bool = True
    deduplicate_inputs: bool = False
    fold_tables: bool = False
    share_products: bool = True
    outputs: Annotated[str, OneOf(CHOICES["outputs"])] = "stage"
    backend: str = "auto"
    loop: Annotated[str, OneOf(CHOICES["loop"])] = "compiled"
    blas: Annotated[str, OneOf(CHOICES["blas"])] = "auto"
    precision: Annotated[str, OneOf(CHOICES["precision"])] = EXACT
    profile: bool = False

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def hoists(self) -> bool:
        """True if operators that need no child run apart from the batches."""
        return self.hoisting is not False

    @property
    def streams(self) -> bool:
        """True if they run on a second stream."""
        return self.hoisting == "stream"

    @property
    def lays_out_subgraphs(self) -> bool:
        """True if the operators inside vertex functions are batched and laid out.

        Fused operators keep their values in registers, which have no layout.
        """
        is_apart = self.granularity == "vertex" and not self.fusion
        return self.layout in SUBGRAPH_LAYOUTS and is_apart

    def resolve_effective(self, *, train: bool) -> Switches:
        """Return the switches that have an effect; some are ignored in training or with others."""
        by_operator = self.granularity == "operator"
        is_ignored = self.layout in SUBGRAPH_LAYOUTS and not self.lays_out_subgraphs
        return replace(
            self,
            hoisting=False if by_operator else self.hoisting,
            fold_tables=self.fold_tables and not (train or by_operator),
            deduplicate_inputs=self.deduplicate_inputs and not by_operator,
            share_products=self.share_products and not by_operator,
            outputs="vertices" if by_operator else self.outputs,
            layout="policy" if is_ignored else self.layout,
            gather_fusion=self.gather_fusion and self.fusion,
        )

    def format_values(self) -> dict[str, str]:
        """Return every switch by name, as a YAML file has it."""
        return {field.name: str(getattr(self, field.name)).lower() for field in fields(self)}
