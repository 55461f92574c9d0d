"""Compiler for plain Python functions of numbers and arrays; see docs/compiler.md."""

from importlib.util import find_spec

from dynbatch.harness.errors import CompileError

if find_spec("llvmlite") is None:
    raise CompileError("llvmlite is not installed; pip install llvmlite")
