"""Names of the libraries that multiply, as they tell them: version, and kernels for this CPU."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import Any

import numpy as np

# Words of OpenBLAS's configuration that are no kernels; those stand before the number of threads.
_OPENBLAS = re.compile(r"OpenBLAS (?P<version>\S+) .*?(?P<kernels>\S+) MAX_THREADS")
# dnnl_cpu_isa_t of oneDNN.
_ONEDNN_KERNELS = {
    0x1: "SSE4.1",
    0x3: "AVX",
    0x7: "AVX2",
    0xF: "AVX2 VNNI",
    0x1F: "AVX2 VNNI 2",
    0x27: "AVX-512",
    0x67: "AVX-512 VNNI",
    0xE7: "AVX-512 BF16",
    0x1EF: "AVX-512 FP16",
    0xFEF: "AVX-512 AMX",
    0x1FEF: "AVX-512 AMX FP16",
}
_HAS_BFLOAT16 = 0x80  # in the code of AVX-512 BF16, and of all that know more


def openblas_name(library: Any) -> str:
    """Return name, version and kernels of the loaded OpenBLAS that NumPy or SciPy brought."""
    tell = library.scipy_openblas_get_config64_
    tell.restype = ctypes.c_char_p
    return openblas_words(tell().decode())


def openblas_words(configuration: str) -> str:
    """Return library, version and kernels from what openblas_get_config says."""
    found = _OPENBLAS.search(configuration)
    if found is None:
        return " ".join(configuration.split()) or "OpenBLAS"
    return f"OpenBLAS {found['version']} ({found['kernels']})"


def onednn_kernels(library: Any) -> str:
    """Return the instructions that a loaded oneDNN takes; "?" where it does not tell."""
    try:
        code = int(library.dnnl_get_effective_cpu_isa())
    except AttributeError:
        return "?"
    return _ONEDNN_KERNELS.get(code, hex(code))


def onednn_multiplies_bfloat16(library: Any) -> bool:
    """Whether a loaded oneDNN has instructions for it here: AVX-512 BF16, or AMX."""
    try:
        return bool(int(library.dnnl_get_effective_cpu_isa()) & _HAS_BFLOAT16)
    except AttributeError:
        return False


def numpy_blas_name() -> str:
    """Return what NumPy multiplies with: its own OpenBLAS as that tells, or as NumPy was built."""
    folder = Path(np.__file__).parent.parent / "numpy.libs"
    for path in sorted(folder.glob("libscipy_openblas64_*")):
        try:
            return openblas_name(ctypes.CDLL(str(path)))
        except (OSError, AttributeError):
            continue
    built: Any = np.show_config(mode="dicts")
    blas = built.get("Build Dependencies", {}).get("blas", {})
    return f"{blas.get('name', 'unknown')} {blas.get('version', '')}".strip()
