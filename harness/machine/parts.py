"""Compiled functions as other compiled functions see them: code that becomes part of theirs.

numba makes what compiled code calls whole: it optimises it, with all that it calls itself, makes
machine code and an entry for Python, and then has every caller take a copy in and optimise that
again. Of what only compiled code calls nothing of this is ever run. A part is lowered, and left to
its callers. Its errors have constants in them: for others it would need an environment of Python's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from llvmlite import binding
from numba.core import compiler as untyped_compiler
from numba.core import sigutils
from numba.core.codegen import JITCodeLibrary
from numba.core.typing import templates as untyped_templates

from harness.machine.machine_code import MachineCode, Results

compiler: Any = untyped_compiler
templates: Any = untyped_templates
_KIND = "part"  # of what is kept, beside numba's "object" and "bitcode"


class _Library(JITCodeLibrary):
    """Code that is linked into others, and never run."""

    def _optimize_final_module(self) -> None:
        """Whoever it is linked into does."""

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()  # type: ignore[no-untyped-call]
        self._finalized = True

    def serialize_using_object_code(self) -> tuple[str, str, bytes]:
        """As numba asks to keep it."""
        self._ensure_finalized()  # type: ignore[no-untyped-call]
        module: Any = self._get_module_for_linking()  # type: ignore[no-untyped-call]
        return self.name, _KIND, module.as_bitcode()

    @classmethod
    def read(cls, codegen: Any, kept: tuple[str, str, bytes], prepare: Iterable[Any]) -> Any:
        """Return what was kept. prepare: what whoever links it calls, when it is read itself."""
        name, _, bitcode = kept
        library: Any = cls(codegen, name)
        library._reload_init.update(prepare)
        library._final_module = library._shared_module = binding.parse_bitcode(bitcode)
        library._finalize_final_module()
        return library


_library: Any = _Library


class _Results(Results):
    """How a part is kept."""

    def rebuild(self, target_context: Any, payload: Any) -> Any:
        """Return what was kept, for numba's compiled code to call."""
        library, fndesc, env, signature, *_, reload_init, _ = payload
        for prepare in reload_init:
            prepare()
        return compiler.CompileResult(
            target_context=target_context,
            typing_context=target_context.typing_context,
            library=_Library.read(target_context.codegen(), library, reload_init),
            environment=env,
            entry_point=None,
            fndesc=fndesc,
            type_annotation="",
            signature=signature,
            objectmode=False,
            lifted=(),
            typing_error=None,
            call_helper=None,
            metadata=None,
            reload_init=reload_init,
            referenced_envs=(),
        )


class _Kept(MachineCode):
    """Its entries beside those of the function as Python calls it."""

    _impl_class = _Results


class Part:
    """What stands for a dispatcher of numba's where compiled code calls it.

    kind_of: the type that it is compiled for, of an argument's. stamp: as MachineCode has it.
    """

    def __init__(self, dispatcher: Any, stamp: str, kind_of: Callable[[Any], Any]) -> None:
        self._compiler, self._counter = dispatcher._compiler, dispatcher._compiling_counter
        self._targets = dispatcher.targetctx
        self._kept = _Kept(dispatcher.py_func, f"{stamp} {_KIND}")
        self._kind_of = kind_of
        self._found: dict[tuple[Any, ...], Any] = {}

    def get_call_template(self, args: Any, kws: Any) -> Any:
        """As numba.core.dispatcher has it: what a call with arguments of these types returns."""
        given = map(self._kind_of, args), {name: self._kind_of(one) for name, one in kws.items()}
        signature, kinds = self._compiler.fold_argument_types(tuple(given[0]), given[1])
        self._compile(tuple(kinds))
        name = self._compiler.py_func.__name__
        returned = [one.signature for one in self._found.values()]
        template = templates.make_concrete_template(
            f"CallTemplate({name})", key=name, signatures=returned
        )
        return template, signature, kinds, {}

    def get_overload(self, sig: Any) -> Any:
        """As numba.core.dispatcher has it: by what the code for these types is called."""
        kinds, _ = sigutils.normalize_signature(sig)  # type: ignore[no-untyped-call]
        return self._found[tuple(kinds)].entry_point

    def _compile(self, kinds: tuple[Any, ...]) -> None:
        if kinds in self._found:
            return
        cache: Any = self._kept
        found = cache.load_overload(kinds, self._targets)
        if found is None:
            found = self._lowered(kinds)
            cache.save_overload(kinds, found)
        found = found._replace(entry_point=object())  # numba finds functions by it
        self._targets.insert_user_function(found.entry_point, found.fndesc, [found.library])
        self._found[kinds] = found

    def _lowered(self, kinds: tuple[Any, ...]) -> Any:
        """As numba compiles, up to machine code."""
        library = _library(self._targets.codegen(), self._compiler.py_func.__qualname__)
        with self._counter:  # by which numba knows a function that calls itself
            found = without_entries(self._compiler, kinds, library)
        library._ensure_finalized()
        return found._replace(reload_init=list(library._reload_init))


def without_entries(own: Any, kinds: tuple[Any, ...], library: Any = None) -> Any:
    """What numba compiles for arguments of these types, but that neither Python nor C can call it.

    own: what a dispatcher compiles with. library: that the code is only added to; None: machine
    code is made of it.
    """
    flags: Any = compiler.Flags()
    own.targetdescr.options.parse_as_flags(flags, own.targetoptions)
    flags.no_cpython_wrapper = flags.no_cfunc_wrapper = True
    flags.no_compile = library is not None
    contexts = own.targetdescr.typing_context, own.targetdescr.target_context
    given = {"library": library, "pipeline_class": own.pipeline_class}
    return compiler.compile_extra(*contexts, own.py_func, kinds, None, flags, {}, **given)
