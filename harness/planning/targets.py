"""What Snakemake was asked to draw and nobody knows: its own words name no choices."""

from __future__ import annotations

from collections.abc import Collection

from harness.errors import ConfigError, meant

DRAW = "draw_"


def no_artefact(name: str, artefacts: Collection[str]) -> ConfigError:
    """What is wrong with draw_NAME."""
    known = [f"{DRAW}{one}" for one in ("all", *sorted(artefacts))]
    close = meant(f"{DRAW}{name}", known)
    return ConfigError(f"{DRAW}{name} draws nothing{close}; choose one of: {', '.join(known)}")
