"""What of the engine can be switched on and off: its optimisations, one by one."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from harness.errors import ConfigError
from harness.values.precision import EXACT, PRECISIONS
from harness.vertex.subgraph.plan import LAYOUTS as SUBGRAPH_LAYOUTS

LAYOUTS = ("read_order", "policy", *SUBGRAPH_LAYOUTS)
# What `backend=auto` takes: the first that can run what is asked.
DEFAULT_BACKENDS = {"cpu": ("compiled",), "cuda": ("cuda", "stepwise")}
CHOICES = {
    "granularity": ("vertex", "operator"),
    "layout": LAYOUTS,
    "outputs": ("stage", "vertices"),
    "loop": ("compiled", "python"),
    "blas": ("auto", "openblas", "torch"),
    "precision": PRECISIONS,
}


@dataclass(frozen=True, slots=True)
class Switches:
    """Every optimisation of the engine, so that an ablation is a configuration.

    granularity: "vertex" (whole vertex functions are batched) or "operator" (DyNet's signatures).
    lazy_batching: parameter gradients and outputs once per mini-batch (Cavs). hoisting: operators
    that need no child run before the first batch. Outputs and such operators only with those of the
    same round, where the graph has rounds. fusion: elementwise operators become generated kernels.
    gather_fusion: such kernels read children's states where they are; else these are gathered
    first, unless they lie side by side (ACRoBat, MLSys 2024, section 5).
    horizontal_fusion: products of one value with several parameters, inside one vertex function,
    become one wider product where that saves steps, and so do their biases and sums (same section;
    vertex granularity only, and not with the layouts that batch such products themselves). Not on
    by itself: there are fewer kernels, but a library may take longer for one wide matrix than for
    four, where its rows are a multiple of 4 KiB apart.
    layout: "read_order" orders batches so that gathers become views; "policy" keeps their order.
        So do "pq" and "dynet", which also batch the operators inside a vertex function and lay
        their values out: by a PQ tree, or as they are computed, with copies where operands are
        apart (harness.vertex.subgraph.columns; vertex granularity only, and without fusion, which
        keeps such values in registers). All of this is decided ahead of time, once.
    pre_gather_parameters: with these two, parameters that are batched lie side by side for good;
        otherwise every batch brings them together again.
    share_equal_inputs: vertices without children that pull equal values are computed once
        (harness.granularity.sharing; vertex granularity only).
    fold_tables: in inference, products of looked-up rows with weights are looked up themselves
        (harness.vertex.folding).
    outputs: "stage" runs classifier and losses once, behind the last batch (of a round, where the
        graph has rounds); "vertices" makes them vertices of the graph, which the policy batches
        (vertex granularity only; operators are).
    backend: what executes the plans (a folder of harness/engine/backends); "auto": compiled code on
        a CPU, generated kernels on CUDA, or torch's operators where these cannot run.
    loop: "compiled" runs a stage of all batches in one call; "python" makes a call of every batch.
    blas: what multiplies in compiled code. "auto": few rows the engine itself, many oneDNN, else
        OpenBLAS; "openblas": it alone; "torch": the MKL that is inside PyTorch.
    precision: of products. "ieee": float32; on CUDA "tf32x3": nearly so, by three products of
        tensor cores, and "tf32": not; on CUDA, and on a CPU that has AVX-512 BF16 or AMX, "bf16":
        neither. The last two are out of comparisons (harness.values.precision).
    streaming: on CUDA, the next mini-batch of a pass is constructed, scheduled and uploaded while
        this one is computed; otherwise before its own forward stage.
    persistent: on CUDA, one launch runs all phases of a pass, whose programs meet behind each;
        otherwise a graph has a launch for every phase.
    profile: also tell which share of forward and backward goes on moving data, for a table of that;
        the counter is read around such steps, so that the trial's own time is for nothing else.
    """

    granularity: str = "vertex"
    lazy_batching: bool = True
    hoisting: bool = True
    fusion: bool = True
    gather_fusion: bool = True
    horizontal_fusion: bool = False
    layout: str = "read_order"
    pre_gather_parameters: bool = True
    share_equal_inputs: bool = False
    fold_tables: bool = False
    outputs: str = "stage"
    backend: str = "auto"
    loop: str = "compiled"
    blas: str = "auto"
    precision: str = EXACT
    streaming: bool = False
    persistent: bool = False
    profile: bool = False

    def __post_init__(self) -> None:
        for name in CHOICES:
            check_choice(name, getattr(self, name))
        for field in fields(self):
            if isinstance(field.default, bool) and not isinstance(getattr(self, field.name), bool):
                raise ConfigError(
                    f"{field.name}={getattr(self, field.name)} is not allowed; give true or false"
                )

    @property
    def lays_out_subgraphs(self) -> bool:
        """Whether vertex functions are batched and laid out inside."""
        return self.layout in SUBGRAPH_LAYOUTS and self.granularity == "vertex"

    def in_effect(self, *, train: bool) -> Switches:
        """The switches that do something: some have no meaning beside others, or in training."""
        by_operator = self.granularity == "operator"
        laid_out = self.lays_out_subgraphs and not self.fusion
        plain = "policy" if self.layout in SUBGRAPH_LAYOUTS and not laid_out else self.layout
        return replace(
            self,
            fold_tables=self.fold_tables and not train,
            share_equal_inputs=self.share_equal_inputs and not by_operator,
            outputs="vertices" if by_operator else self.outputs,
            layout=plain,
            gather_fusion=self.gather_fusion and self.fusion,
            horizontal_fusion=(
                self.horizontal_fusion and not by_operator and not self.lays_out_subgraphs
            ),
        )

    def words(self) -> dict[str, str]:
        """Every switch by name, as a YAML file would say it."""
        return {field.name: str(getattr(self, field.name)).lower() for field in fields(self)}


def check_choice(name: str, value: str) -> None:
    """Raise ConfigError unless a switch may have this value."""
    if value not in CHOICES[name]:
        raise ConfigError(
            f"{name}={value} is not allowed; choose one of {', '.join(CHOICES[name])}"
        )
