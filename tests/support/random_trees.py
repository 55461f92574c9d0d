"""Random trees for hypothesis."""

from __future__ import annotations

from hypothesis import strategies as st

from dynbatch.harness.values.arrays import as_int_array
from dynbatch.harness.values.instances import Tree
from tests.support.sketch_models import SIZES


@st.composite
def trees(draw: st.DrawFn, max_leaves: int = 6) -> Tree:
    """Draw a binary tree by joining neighbors, in post-order of the joins."""
    n = draw(st.integers(1, max_leaves))
    words = draw(st.lists(st.integers(0, SIZES.get_size("words") - 1), min_size=n, max_size=n))
    left, right, roots = [-1] * n, [-1] * n, list(range(n))
    while len(roots) > 1:
        k = draw(st.integers(0, len(roots) - 2))
        words.append(-1)
        left.append(roots[k])
        right.append(roots[k + 1])
        roots[k : k + 2] = [len(words) - 1]
    n = len(words)
    labels = draw(st.lists(st.integers(0, SIZES.get_size("classes") - 1), min_size=n, max_size=n))
    return Tree(*map(as_int_array, (words, labels, left, right)))
