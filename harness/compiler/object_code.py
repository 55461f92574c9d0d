"""Machine code from LLVM IR by llvmlite, cached on disk by content, CPU and LLVM version."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import llvmlite
from llvmlite import binding as llvm

from dynbatch.harness.errors import CompileError
from dynbatch.harness.machine.caches import (
    delete_oldest,
    make_cache_folder,
    read_cached,
    write_cached,
)

FOLDER = "object_code"
MAX_ENTRIES = 10_000  # of about 3 KB each


@dataclass(frozen=True, slots=True)
class Target:
    """Target of machine code: LLVM's triple, CPU and list of features."""

    triple: str
    cpu: str
    features: str

    def create_machine(self) -> llvm.TargetMachine:
        """Return LLVM's target machine; raise CompileError if LLVM does not support it."""
        try:
            target = llvm.Target.from_triple(self.triple)
        except RuntimeError as error:
            raise CompileError(f"this LLVM does not support {self.triple}: {error}") from error
        return target.create_target_machine(self.cpu, self.features, opt=3, jit=True)


@functools.cache
def get_host_target() -> Target:
    """Return this machine's target.

    The environment variables BENCH_CPU_NAME and BENCH_CPU_FEATURES override its CPU and features.

    Raises:
        CompileError: if LLVM's library cannot be loaded.
    """
    try:
        llvm.initialize_native_target()
    except OSError as error:
        text = f"llvmlite {llvmlite.__version__} cannot be loaded ({error}); reinstall it"
        raise CompileError(text) from error
    llvm.initialize_native_asmprinter()
    cpu = os.environ.get("BENCH_CPU_NAME") or llvm.get_host_cpu_name()
    features = os.environ.get("BENCH_CPU_FEATURES") or llvm.get_host_cpu_features().flatten()
    return Target(llvm.get_process_triple(), cpu, features)


def verify(text: str, target: Target) -> tuple[llvm.ModuleRef, llvm.TargetMachine]:
    """Parse and verify a module; return it with its target machine.

    Raises:
        CompileError: for malformed IR.
    """
    machine = target.create_machine()
    try:
        module = llvm.parse_assembly(text)
        module.verify()
    except RuntimeError as error:
        reason = " ".join(str(error).split())
        raise CompileError(f"LLVM rejects the generated code: {reason}") from error
    return module, machine


def optimize(module: llvm.ModuleRef, machine: llvm.TargetMachine) -> None:
    """Run LLVM's passes over a module."""
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    options.loop_vectorization = True
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)


def compile_ir(text: str, target: Target, *, as_written: bool = False) -> bytes:
    """Return the object file of a module; raise CompileError as `verify` does.

    Args:
        as_written: skip LLVM's passes, for IR that they would not improve.
    """
    module, machine = verify(text, target)
    if not as_written:
        optimize(module, machine)
    code: bytes = machine.emit_object(module)
    return code


_LOADED: list[Loaded] = []


class Loaded:
    """Machine code, loaded until the process ends, as its addresses may be stored anywhere."""

    def __init__(self, code: bytes) -> None:
        nothing = llvm.parse_assembly("")
        self._engine: Any = llvm.create_mcjit_compiler(nothing, get_host_target().create_machine())
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        self._engine.finalize_object()
        _LOADED.append(self)

    def find_address(self, symbol: str) -> int:
        """Return the address of a function; raise KeyError if there is none of this name."""
        address: int = self._engine.get_function_address(symbol)
        if not address:
            raise KeyError(symbol)
        return address


def load_cached(key: str, write: Callable[[], str], *, as_written: bool = False) -> Loaded:
    """Load machine code from the cache, or compile and cache it.

    Args:
        key: identification of the code, without CPU and LLVM version.
        write: creates the module's LLVM IR if nothing is cached.
        as_written: see `compile_ir`.
    """
    path = _find_path(f"{as_written} {key}", get_host_target())
    code = read_cached(path) if path is not None else None
    if code is None:
        code = compile_ir(write(), get_host_target(), as_written=as_written)
        if path is not None:
            write_cached(path, code)
            delete_oldest(path.parent, MAX_ENTRIES)
    return Loaded(code)


def load_ir(text: str, *, as_written: bool = False) -> Loaded:
    """Load a module's machine code, from the cache or compiled now."""
    return load_cached(text, lambda: text, as_written=as_written)


def _find_path(key: str, target: Target) -> Path | None:
    folder = make_cache_folder(FOLDER)
    if folder is None:
        return None
    whole = repr((key, target, llvmlite.__version__, llvm.llvm_version_info))
    return folder / hashlib.sha256(whole.encode()).hexdigest()[:32]
