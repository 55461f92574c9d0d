"""Eager PyTorch, as a first version is written: one instance at a time, recursively, with autograd.

TorchSystem has the parts that all PyTorch systems share: weights, optimizer, results, versions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import torch
import torch._dynamo  # an optimizer imports it, which takes a second
from numpy.typing import NDArray
from torch import Tensor, nn

from dynbatch.harness.contracts.model import Model, Weights
from dynbatch.harness.contracts.networks import explain_unrunnable, load_network
from dynbatch.harness.contracts.system import (
    Clock,
    Counters,
    Parameters,
    Result,
    RunSettings,
    System,
)
from dynbatch.harness.engine.torch_cuda import explain_no_cuda
from dynbatch.systems.on_torch.layers import LateOutputs
from dynbatch.systems.on_torch.net import HeldParameter
from dynbatch.systems.plans.programs import explain_inference_only

Array = NDArray[np.floating[Any]]
_BLAS = re.compile(r"BLAS_INFO=(\w+)")


class TorchSystem(System):
    """System with a network of the table `networks`, trained with autograd and torch.optim.SGD.

    The network is a Net (dynbatch.systems.on_torch.net). Its `prepare` (untimed) turns instances
    into the argument of `forward`, which returns the summed loss and the outputs.
    """

    framework = "torch"
    networks: ClassVar[str]  # see dynbatch.harness.contracts.networks

    def __init__(self, settings: RunSettings) -> None:
        super().__init__(settings)
        self._device = torch.device(settings.device)
        torch.set_num_threads(settings.threads)
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False

    @classmethod
    def skip(cls, model: Model, settings: RunSettings) -> str | None:
        """Return why the system cannot run, or None.

        Reasons: no CUDA device, no network for the model, or training of a program.
        """
        if settings.device == "cuda" and (reason := explain_no_cuda()) is not None:
            return reason
        reason = explain_unrunnable(model, cls.networks)
        return reason or explain_inference_only(model, settings.mode)

    def prepare(self, model: Model, weights: Weights) -> None:
        with self._device:
            self._net: Any = self._build(load_network(self.networks, model.name), model)
        with torch.no_grad():
            for name, held in self._held.items():
                held.as_model(held.parameter).copy_(torch.from_numpy(weights[name]))
        self._optimizer = torch.optim.SGD(self._net.parameters(), lr=self.settings.learning_rate)

    def _build(self, network: Callable[..., nn.Module], model: Model) -> nn.Module:
        return network(model)

    @property
    def _held(self) -> dict[str, HeldParameter]:
        held: dict[str, HeldParameter] = self._net.held
        return held

    def load(self, instances: Sequence[Any]) -> None:
        self._instances = self._net.prepare(instances)

    def run(self, clock: Clock, *, update: bool = True) -> None:
        """Run forward; in mode "train" also autograd's backward and the optimizer's step."""
        if self.settings.mode != "train":
            with torch.inference_mode():
                self._loss, self._outputs = self._forward(clock)
            return
        self._optimizer.zero_grad()
        self._loss, self._outputs = self._forward(clock)
        self._loss.backward()  # type: ignore[no-untyped-call]
        clock.mark("backward")
        if update:
            self._optimizer.step()
            clock.mark("update")

    def _forward(self, clock: Clock) -> tuple[Tensor, Tensor | LateOutputs]:
        loss_and_outputs: tuple[Tensor, Tensor | LateOutputs] = self._net(self._instances)
        clock.mark("forward")
        return loss_and_outputs

    def result(self) -> Result:
        """Return loss, outputs and, in mode "train", dense gradients of a run without a step."""
        gradients = {}
        if self.settings.mode == "train":
            for name, held in self._held.items():
                gradient = held.parameter.grad
                if gradient is None:  # unused, for example if all trees are single leaves
                    gradient = torch.zeros_like(held.parameter)
                dense = gradient.to_dense() if gradient.is_sparse else gradient
                gradients[name] = held.as_model(dense).cpu().numpy()
        with torch.no_grad():
            computed = self._outputs() if callable(self._outputs) else self._outputs.detach()
        outputs = self._order_outputs(computed.cpu().numpy())
        return Result(self._loss.item(), outputs, gradients, self.counters())

    def last_loss(self) -> float:
        return float(self._loss.item())

    def parameters(self) -> Parameters:
        """Return copies, with each matrix oriented as in the model."""
        return {
            name: held.as_model(held.parameter.detach()).cpu().numpy().copy()
            for name, held in self._held.items()
        }

    def _order_outputs(self, outputs: Array) -> Array:
        """Return rows in the order of MiniBatch.outputs."""
        return outputs

    def counters(self) -> Counters:
        """Return empty counters, because torch does not count its work."""
        return Counters()

    def synchronize(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize()

    def peak_memory_bytes(self) -> int | None:
        """Return the peak of CUDA memory; None on the CPU, where the peak of the process counts."""
        return int(torch.cuda.max_memory_allocated()) if self._device.type == "cuda" else None

    def reset_peak_memory(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()

    def versions(self) -> dict[str, str]:
        match = _BLAS.search(torch.__config__.show())
        facts = {
            "torch": str(torch.__version__),
            "torch_blas": match.group(1) if match else "unknown",
            "torch_threads": str(torch.get_num_threads()),
        }
        if self._device.type == "cuda":
            facts["torch_cuda"] = str(torch.version.cuda)
        return facts


class Adapter(TorchSystem):
    """Eager system; autograd builds its graph during forward, which includes construction."""

    networks = "dynbatch.systems.on_torch.models:EAGER"
    phases = ("forward", "backward", "update")
