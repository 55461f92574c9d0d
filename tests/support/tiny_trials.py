"""What is typed for a trial of milliseconds, but for its system."""

from __future__ import annotations

TINY = (
    "model=tree_fc",
    "dataset=complete_trees",
    "dataset.options.n_leaves=4",
    "batch_size=2",
    "hidden_size=8",
    "timing.min_seconds=0",
    "timing.n_mini_batches=2",
)
