"""Real DyNet: graphs built instance by instance, batched by DyNet during evaluation.

Source: Neubig, Goldberg and Dyer, "On-the-fly Operation Batching in Dynamic Computation Graphs",
NIPS 2017.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from dynbatch.harness.contracts.model import Model, Weights
from dynbatch.harness.contracts.networks import (
    explain_unrunnable,
    find_network_modules,
    load_network,
)
from dynbatch.harness.contracts.system import Clock, Parameters, RunSettings
from dynbatch.harness.trials.workload import count_lookups
from dynbatch.systems.on_dynet.build import (
    AUTOBATCH,
    PRODUCT_SIGNATURE,
    SOURCE_BUILDS,
    explain_missing_build,
    explain_missing_clock,
    explain_missing_dynet,
    find_source_build,
    find_wheel_version,
    format_memory,
    read_source_facts,
)
from dynbatch.systems.on_dynet.segments import DynetSystem, GraphSegment, Needed
from dynbatch.systems.plans.programs import Once, explain_inference_only

NETWORKS = {
    "instance": "dynbatch.systems.on_dynet.models:NETWORKS",
    "manual": "dynbatch.systems.on_dynet.models:MANUAL",
}
# Networks of models that have a variant for an option.
BREADTH_FIRST = "dynbatch.systems.on_dynet.models:BREADTH_FIRST"
CONSTANTS_EACH = "dynbatch.systems.on_dynet.models:CONSTANTS_EACH"
MAX_ROWS = 128  # per copy of a mini-batch's outputs


@dataclass(frozen=True, slots=True)
class DynetOptions:
    """Options of batching, and the choice of a DyNet build.

    Attributes:
        autobatch: DyNet's scheduling algorithm.
        batching: "instance" runs programs for one instance; "manual" builds mini-batched
            expressions, whose remaining operators DyNet batches.
        products: matmuls that share a batch: "node", those with the same node as left factor, as in
            DyNet, or "sizes", those of the same sizes whose left factor is not a parameter
            (systems/on_dynet/patches; source build only).
        branches: order in which programs for one instance run where values decide: "in_turn", one
            branch of the instance after the other, or "together", breadth first. Only models with
            such a variant differ.
        constants: programs create a constant "once" and reuse it, or at "each" use, for which DyNet
            has no batched kernel. Only models with such a variant differ.
        build: "source" (installed by make dynet-native, or for CUDA by make dynet-cuda), "wheel"
            (for the CPU only), or "auto": source if installed.
        profile: time the copies of operands into batches (source build on a CPU only).
    """

    autobatch: Literal["off", "agenda", "depth"] = "agenda"
    batching: Literal["instance", "manual"] = "instance"
    products: Literal["node", "sizes"] = "node"
    branches: Literal["in_turn", "together"] = "in_turn"
    constants: Literal["once", "each"] = "once"
    build: Literal["auto", "source", "wheel"] = "auto"
    profile: bool = False


class Adapter(DynetSystem):
    """DyNet adapter. DyNet schedules in its forward call, so that phase includes scheduling."""

    fault = ValueError
    phases = ("construct", "forward", "backward", "update")
    option_type = DynetOptions
    options: DynetOptions

    def __init__(self, settings: RunSettings) -> None:
        super().__init__(settings)
        self._mini_batch: Sequence[Any] = []
        self._instances: list[Any] = []
        self._segments: list[GraphSegment] = []
        self._patch: ctypes.CDLL | None = None

    @classmethod
    def skip(cls, model: Model, settings: RunSettings) -> str | None:
        """Return the reason if the model or the build for the device is missing."""
        options = cls.options_of(settings)
        return (
            explain_inference_only(model, settings.mode)
            or explain_unrunnable(model, NETWORKS[options.batching])
            or _explain_missing_dynet(options, settings.device)
            or cls.explain_missing_device(settings)
        )

    def prepare(self, model: Model, weights: Weights) -> None:
        """Import DyNet with the settings of the trial, and pass the weights to it."""
        self._model = model
        self._open_device()
        self._patch = _patch(self.options, self.settings.device)
        runtime = _import_dynet(self.settings, self.options, weights)
        self._store = runtime.ParameterStore(weights)
        network = load_network(_select_table(model, self.options), model.name)
        self._network = network(model, self._store)
        self._as_lists = Once(self._network.read)
        self._trainer = runtime.make_trainer(self._store, self.settings.learning_rate)
        self._dy = runtime.dy

    def load(self, instances: Sequence[Any]) -> None:
        """Convert arrays to the Python lists that a DyNet program would hold."""
        self._mini_batch = instances
        self._instances = [self._as_lists(instance) for instance in instances]

    def _clear_gradients(self) -> None:
        self._store.clear_gradients()

    def _backward(self) -> None:
        self._loss.backward()

    def _update(self) -> None:
        self._trainer.update()

    def _evaluate(self, clock: Clock) -> None:
        """Build and evaluate one graph segment after the other, then the sum of their losses."""
        self._dy.renew_cg()
        self._segments = []
        for built in self._network.build(self._instances):
            is_needed = isinstance(built, Needed)
            newest = built.value if is_needed else built.loss
            if not is_needed:
                self._segments.append(built)
            clock.mark("construct")
            newest.forward()
            clock.mark("forward")
        self._loss = self._segments[0].loss
        if len(self._segments) > 1:
            self._loss = self._dy.esum([built.loss for built in self._segments])
            clock.mark("construct")
            self._loss.forward()
            clock.mark("forward")

    def _read_outputs(self) -> NDArray[np.float32]:
        of_instances = zip(*(built.outputs for built in self._segments), strict=True)
        outputs = [
            output
            for instance_outputs in of_instances
            for output in instance_outputs
            if output is not None
        ]
        return np.concatenate([rows for output in outputs for rows in self._read_rows(output)])

    def _read_gradients(self) -> Weights:
        looked_up = count_lookups(self._model, self._mini_batch)
        rows = {name: np.flatnonzero(counts) for name, counts in looked_up.items()}
        gradients: Weights = self._store.gradients(rows)
        return gradients

    def parameters(self) -> Parameters:
        """Return DyNet's parameters, transposed and joined to the shapes of the model."""
        parameters: Parameters = self._store.parameters()
        return parameters

    def last_loss(self) -> float:
        """Return the loss only: DyNet copies outputs value by value, which can take minutes."""
        return float(self._loss.scalar_value())

    def _read_rows(self, output: Any) -> Iterator[NDArray[np.float32]]:
        """Yield a vector, or a mini-batch of vectors with at most MAX_ROWS rows at a time.

        DyNet passes all values through Python lists.
        """
        _, n = output.dim()
        for start in range(0, n, MAX_ROWS):
            some = output
            if n > MAX_ROWS:
                end = min(n, start + MAX_ROWS)
                some = self._dy.pick_batch_elems(output, list(range(start, end)))
            values = np.array(some.npvalue(), dtype=np.float32)
            yield values.reshape(len(values), -1).T

    def effective_options(self) -> dict[str, str]:
        """Return the options, with the build that build=auto selected."""
        is_source = find_source_build(self.options.build, self.settings.device) is not None
        return super().effective_options() | {"build": "source" if is_source else "wheel"}

    def versions(self) -> dict[str, str]:
        """Return facts about this build of DyNet; builds are not comparable with each other."""
        facts: dict[str, str] = {"dynet_autobatch": self.options.autobatch}
        if self.options.branches == "together":
            is_written = _select_table(self._model, self.options) == BREADTH_FIRST
            facts["dynet_branches"] = "together" if is_written else "in turn (has none)"
        if self.options.constants == "each":
            is_written = _select_table(self._model, self.options) == CONSTANTS_EACH
            facts["dynet_constants"] = "each" if is_written else "once (makes none)"
        if self.options.products == "sizes":
            is_used = self._patch is not None and self._patch.product_signature_in_force()
            facts["dynet_products"] = "by sizes" if is_used else "by node (patch unused)"
        folder = find_source_build(self.options.build, self.settings.device)
        if folder is not None:
            return facts | read_source_facts(folder)
        return facts | {
            "dynet": str(self._dy.__version__),
            "dynet_build": f"wheel {find_wheel_version()}",
        }


def _select_table(model: Model, options: DynetOptions) -> str:
    """Return the table with the model's network that the options select."""
    asked = {
        BREADTH_FIRST: options.branches == "together",
        CONSTANTS_EACH: options.constants == "each",
    }
    for table, is_asked in asked.items():
        if (
            is_asked
            and options.batching == "instance"
            and model.name in find_network_modules(table)
        ):
            return table
    return NETWORKS[options.batching]


def _explain_missing_dynet(options: DynetOptions, device: str = "cpu") -> str | None:
    if options.build == "wheel":
        if options.profile:
            return "profile=true needs DyNet's source build; set build=source"
        if options.products == "sizes":
            return "products=sizes needs DyNet's source build; set build=source"
        if device == "cuda":
            return "DyNet's wheel is for the CPU only; set build=source"
    if options.profile:
        return explain_missing_clock(device)
    if options.products == "sizes":
        return explain_missing_build(device)
    if options.build == "source" or device == "cuda":
        return explain_missing_dynet(device)
    if find_source_build(options.build) is None and importlib.util.find_spec("dynet") is None:
        return "DyNet is not installed; run make dynet-native or pip install dyNET38"
    return None


def _patch(options: DynetOptions, device: str) -> ctypes.CDLL | None:
    """Load the replacements of DyNet's own functions, which must precede DyNet; None if unused."""
    if options.products == "node":
        return None
    return ctypes.CDLL(str(SOURCE_BUILDS[device] / PRODUCT_SIGNATURE), mode=ctypes.RTLD_GLOBAL)


def _import_dynet(settings: RunSettings, options: DynetOptions, weights: Weights) -> ModuleType:
    folder = find_source_build(options.build, settings.device)
    if folder is not None:
        sys.path.insert(0, str(folder))
    config = importlib.import_module("dynet_config")
    config.set(
        mem=format_memory(weights),
        random_seed=settings.seed + 1,  # with 0 DyNet would take a seed from the clock
        autobatch=AUTOBATCH[options.autobatch],
        requested_gpus=int(settings.device == "cuda"),
    )
    return importlib.import_module("dynbatch.systems.on_dynet.runtime")
