"""Run as a program: products by computed matrices in DyNet, with the patch that an argument names.

DyNet itself prints every batch that it executes.
"""

from __future__ import annotations

import ctypes
import sys

patch = ctypes.CDLL(sys.argv[1], mode=ctypes.RTLD_GLOBAL) if sys.argv[1:] else None

import dynet_config  # noqa: E402 - after the patch, which takes the place of functions of DyNet

dynet_config.set(mem="64", random_seed=1, autobatch=1, profiling=2)
import dynet as dy  # noqa: E402
import numpy as np  # noqa: E402

N = 6

if __name__ == "__main__":
    rng = np.random.default_rng(0)
    W, M = rng.standard_normal((2, N, 3, 3))
    v = rng.standard_normal((N, 3))
    parameter = dy.ParameterCollection().add_parameters((3, 3), init=W[0])
    dy.renew_cg()
    shared = [parameter * dy.inputTensor(v[k]) for k in range(N)]
    own = [dy.tanh(dy.inputTensor(M[k])) * shared[k] for k in range(N)]
    dy.esum([dy.sum_elems(value) for value in own]).forward()
    expected = [np.tanh(M[k]) @ W[0] @ v[k] for k in range(N)]
    assert np.allclose([value.npvalue() for value in own], expected, rtol=1e-4, atol=1e-5)
    assert patch is None or patch.product_signature_in_force()
