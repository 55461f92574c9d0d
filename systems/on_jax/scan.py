"""JAX as an expert writes it: padded schedules, compiled once for each size of a mini-batch."""

from __future__ import annotations

from dataclasses import dataclass

from harness.errors import ConfigError
from systems.on_jax.runtime import JaxSystem


@dataclass(frozen=True, slots=True)
class ScanOptions:
    """How shapes are padded.

    widths: how many widths the columns of sentences, or the chunks of trees, have at most. More pad
    less and take longer to compile: on one thread a BiLSTM tagger of hidden size 256 tags 733
    sentences a second with 8, 690 with 4; a program takes 4.6 and 2.5 s to compile.
    chunk: vertices of a tree that are computed at once at most; 0: 64 to 256, by their number.
    multiple: what numbers of rows are rounded up to, so that few programs are compiled.

    Raises ConfigError for numbers below these.
    """

    widths: int = 8
    multiple: int = 64
    chunk: int = 0

    def __post_init__(self) -> None:
        for name, least in (("widths", 1), ("multiple", 1), ("chunk", 0)):
            value = getattr(self, name)
            if value < least:
                raise ConfigError(
                    f"system.options.{name}={value} is not allowed; give {least} or more"
                )


class Adapter(JaxSystem):
    """Chunks of trees and steps of sentences, loops within one compiled program.

    Loops are `fori_loop`s whose numbers of turns are data, so that one program serves many lengths.
    JAX cannot differentiate those backwards, so their derivatives are written by hand
    (jax.custom_vjp); they leave the gradients of weights to one product over all rows.
    """

    option_type = ScanOptions
    options: ScanOptions
