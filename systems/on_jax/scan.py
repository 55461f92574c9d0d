"""JAX as an expert writes it: padded schedules, compiled once for each size of a mini-batch."""

from __future__ import annotations

from dataclasses import dataclass

from harness.errors import ConfigError
from systems.on_jax.runtime import JaxSystem


@dataclass(frozen=True, slots=True)
class ScanOptions:
    """How shapes are padded.

    widths: how many widths the columns of sentences have at most. multiple: what numbers of rows
    are rounded up to, so that few programs are compiled.

    Raises ConfigError for numbers below 1.
    """

    widths: int = 4
    multiple: int = 64
    chunk: int = 64

    def __post_init__(self) -> None:
        for name in ("widths", "multiple", "chunk"):
            if getattr(self, name) < 1:
                raise ConfigError(
                    f"system.options.{name}={getattr(self, name)} is not allowed; give 1 or more"
                )


class Adapter(JaxSystem):
    """Levels of trees and steps of sentences, loops within one compiled program."""

    option_type = ScanOptions
    options: ScanOptions
