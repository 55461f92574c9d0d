"""Pairs of rows whose times are compared: ratios within a block, and their warnings."""

from __future__ import annotations

import pandas as pd

from dynbatch.harness.records.tidy import OTHER_KERNELS
from dynbatch.harness.records.turns import ENOUGH, compute_ratio

PAIR_COLUMNS = ("block", "turns", "cpu_share")  # of both rows; those of the base begin with `base_`
# Warnings: not measured in one block; wall and CPU time give different ratios.
SEPARATE_BLOCKS, CPU_TIME = "separate_blocks", "cpu_time_disagrees"
CPU_TIME_TOLERANCE = 0.03


def replace_by_ratios_in_cycles(ratio: pd.Series[float], both: pd.DataFrame) -> pd.Series[float]:
    """Replace the ratio of each pair that shares cycles by the median ratio within cycles."""
    if not {"turns", "base_turns"} <= set(both):
        return ratio
    computed = [
        compute_ratio(own, base) if isinstance(own, dict) and isinstance(base, dict) else None
        for own, base in zip(
            both.turns.where(find_side_by_side(both)), both.base_turns, strict=True
        )
    ]
    return pd.Series(computed, index=both.index, dtype=float).fillna(ratio)


def find_side_by_side(both: pd.DataFrame) -> pd.Series[bool]:
    """Return whether each row and its base share cycles of a block."""
    if not {"block", "base_block", "turns", "base_turns"} <= set(both):
        return pd.Series(False, index=both.index)
    known = both.block.fillna("").astype(str) != ""
    alike = known & (both.block == both.base_block)
    shared = [
        isinstance(own, dict) and isinstance(base, dict) and len(own.keys() & base.keys()) >= ENOUGH
        for own, base in zip(both.turns, both.base_turns, strict=True)
    ]
    return alike & pd.Series(shared, index=both.index)


def find_replaceable(both: pd.DataFrame) -> pd.Series[bool]:
    """Return whether a round ran apart while others of the same two trials ran side by side."""
    side_by_side = find_side_by_side(both)
    trials = [both.trial_id, both.base_trial_id]
    return ~side_by_side & side_by_side.groupby(trials, dropna=False).transform("any")


def join_pair_warnings(both: pd.DataFrame) -> pd.Series[str]:
    """Return the warnings of each pair: of both sides, of slow builds, and of the pair itself."""
    # Two sides on the same other kernels compare like with like.
    alike = both.weak_build.eq(OTHER_KERNELS) & both.base_weak.eq(OTHER_KERNELS)
    weak = join_words(both.weak_build, both.base_weak).where(~alike.fillna(value=False), "")
    return join_words(both.warnings, weak, both.doubts, find_pair_warnings(both))


def find_pair_warnings(both: pd.DataFrame) -> pd.Series[str]:
    """Return the warnings of pairs: other blocks, and wall and CPU time that disagree.

    CPU time is compared for one thread on a CPU, where a system that neither waits nor computes on
    other threads uses as much as wall time.
    """
    words = pd.Series("", index=both.index)
    if not {"block", "base_block", "cpu_share", "base_cpu_share"} <= set(both):
        return words
    has_block = (both.block.fillna("") != "") | (both.base_block.fillna("") != "")
    apart = has_block & both.base.notna() & ~find_side_by_side(both)
    relative = both.cpu_share.astype(float) / both.base_cpu_share.astype(float)
    is_single = (both.device == "cpu") & (both.threads == 1)
    disagrees = is_single & ((relative - 1).abs() > CPU_TIME_TOLERANCE)
    words = words.mask(apart, SEPARATE_BLOCKS)
    return join_words(words, pd.Series(CPU_TIME, index=both.index).where(disagrees, ""))


def join_words(*columns: pd.Series[str]) -> pd.Series[str]:
    """Join columns of words by spaces; missing words are empty."""
    joined = columns[0].fillna("")
    for column in columns[1:]:
        joined = joined + " " + column.fillna("")
    return joined.str.strip()
