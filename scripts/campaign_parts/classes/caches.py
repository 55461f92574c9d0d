"""Cache entries of every kind that are damaged, not ours, or cannot be written, before a run.

Promised: what cannot be read is made anew, code that another user may have written is not run, and
the numbers are those of a run with a good cache.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llvmlite import binding, ir

from harness.compiler import object_code
from harness.compiler.object_code import compile_ir, host_target
from harness.machine import remembered
from harness.machine.caches import NAME
from harness.machine.kept import keep, kept
from scripts.campaign_parts.case import Case, Outcome, Run
from scripts.campaign_parts.judging import fault_of_ending, first_fault
from scripts.campaign_parts.kept import Kept
from scripts.campaign_parts.place import Place, python

LIMIT_S = 300.0  # without any cache all is compiled anew
NOBODY = 65534
BENCH = "harness.commands.bench"
WORK = (
    *("model=tree_lstm", "dataset=sst_synthetic", "hidden_size=4", "batch_size=2", "force=true"),
    *("timing.min_seconds=0", "timing.n_mini_batches=1", "timing.min_passes=1"),
)
ENGINE = "vertex"
MARKER = "poison.ran"
GLOBAL_FUNCTION, UNDEFINED = 0x12, 0  # as ELF says it of a symbol


@dataclass(frozen=True, slots=True)
class Kind:
    """Entries, as a pattern below the case's folder, and a system whose runs leave some."""

    pattern: str
    system: str = ENGINE


KINDS = {
    "answers_of_source": Kind(f"cache/{NAME}/{remembered.FOLDER}/*"),
    "object_code": Kind(f"cache/{NAME}/{object_code.FOLDER}/*"),
    "answers_of_oracle": Kind("results/.oracle/*"),
    "graphs_of_torch": Kind(f"cache/{NAME}/inductor/*", "torch_compiled"),
    "programs_of_jax": Kind(f"cache/{NAME}/jax/*", "jax_scan"),
}
DAMAGES = ("emptied", "truncated", "flipped", "a_folder", "dangling", "unwritable", "all_emptied")
N_CASES = len(KINDS) * len(DAMAGES) + 2  # two more: a foreign cache, and none at all


def does(number: int, rng: random.Random) -> dict[str, Any]:
    """Which kind of entry is damaged in which way."""
    if number >= len(KINDS) * len(DAMAGES):
        whole = ("foreign", "no_cache")[number - len(KINDS) * len(DAMAGES)]
        return {"kind": "whole_cache", "damage": whole}
    return {
        "kind": list(KINDS)[number % len(KINDS)],
        "damage": DAMAGES[number // len(KINDS)],
        "pick": rng.random(),
        "at": rng.random(),
    }


@dataclass(frozen=True, slots=True)
class Warm:
    """What two runs of a system left, and what the record of the second says."""

    place: Place
    record: tuple[str, str]


@contextmanager
def runner(folder: Path) -> Iterator[Run]:
    """Fill a cache once for each system, of which every case gets a copy."""
    warm: dict[str, Warm] = {}

    def run(case: Case, at: Path) -> Outcome:
        kind = KINDS.get(case.does["kind"])
        system = kind.system if kind else ENGINE
        if system not in warm:
            warm[system] = warmed(system, folder / system)
        if warm[system].record[0] != "ok":
            return Outcome("skipped", f"{system} does not run here")
        for name in ("cache", "results"):
            shutil.copytree(warm[system].place.folder / name, at / name, symlinks=True)
        shutil.rmtree(at / "results" / "raw")
        place = Place(at, at / "cache")
        refused = damage(case, at)
        if refused is not None:
            return refused
        ended = place.run(command(place, system), LIMIT_S)
        fault = _same(place, warm[system].record) if ended.returncode == 0 else None
        return first_fault(fault_of_ending(ended, (0,)), _fault_of_poison(at), fault)

    yield run


def warmed(system: str, folder: Path) -> Warm:
    """Run a system twice: the second run finds what the first has left.

    Raises RuntimeError where it fails.
    """
    place = Place(folder, folder / "cache")
    folder.mkdir()
    for _ in range(2):
        ended = place.run(command(place, system), LIMIT_S)
        if ended.returncode != 0:
            raise RuntimeError(f"the run fails with a good cache: {ended.stderr[-300:]}")
    return Warm(place, _fingerprint(place))


def command(place: Place, system: str) -> list[str]:
    """The run, with records in the place."""
    return python(BENCH, *WORK, f"system={system}", f"results_dir={place.results}")


def _fingerprint(place: Place) -> tuple[str, str]:
    """The status and the fingerprint of the one record."""
    kept = Kept.of(place.results)
    (content,) = kept.complete.values()
    record = json.loads(content)
    return record["status"], json.dumps(_of_one_pass(record["fingerprint"]), sort_keys=True)


def _of_one_pass(fingerprint: Any) -> Any:
    """Without the losses of passes, of which there are as many as there is time for."""
    if isinstance(fingerprint, dict):
        return {key: value for key, value in fingerprint.items() if key != "pass_losses"}
    return fingerprint


def _same(place: Place, wanted: tuple[str, str]) -> Outcome | None:
    found = _fingerprint(place)
    if found == wanted:
        return None
    if found[0] != "ok":
        reason = json.loads(next(iter(Kept.of(place.results).complete.values())))["reason"]
        return Outcome("other", f"the record says {found[0]}: {' '.join(str(reason).split())}")
    return Outcome("accepted", "other numbers than with a good cache")


def _fault_of_poison(at: Path) -> Outcome | None:
    ran = (at / MARKER).exists()
    return Outcome("accepted", "code from another user's cache was run") if ran else None


def damage(case: Case, at: Path) -> Outcome | None:
    """Damage what the case says; an outcome where that cannot be done here."""
    kind, what = case.does["kind"], case.does["damage"]
    if kind == "whole_cache":
        return _foreign(at) if what == "foreign" else _no_cache(at)
    entries = sorted(path for path in at.glob(KINDS[kind].pattern) if path.is_file())
    if not entries:
        return Outcome("other", f"this run leaves no {kind} in a cache: it is looked for elsewhere")
    some = entries if what == "all_emptied" else [entries[int(case.does["pick"] * len(entries))]]
    for path in some:
        _DAMAGES[what](path, case.does["at"])
    return None


def _foreign(at: Path) -> Outcome | None:
    """Another user's entries, intact, that would write a marker if they were loaded."""
    if os.geteuid() != 0:
        return Outcome("skipped", "only root can give files away")
    if not poison(at):
        return Outcome("other", "this run leaves no object_code in a cache")
    for path in [at / "cache", *(at / "cache").rglob("*")]:
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
        if path.is_dir():
            path.chmod(0o777)
    return None


def poison(at: Path) -> int:
    """Let all functions of machine code write the marker; returns how many entries there are."""
    entries = list(at.glob(KINDS["object_code"].pattern))
    for path in entries:
        code = kept(path)
        assert code is not None
        keep(path, _marking(functions_in(code), at / MARKER))
    return len(entries)


def functions_in(code: bytes) -> list[str]:
    """Names of the functions that others find in an object file, of ELF's 64 bits."""
    of_object = binding.ObjectFileRef.from_data(code)
    sections = {section.name(): section.data() for section in of_object.sections()}
    names = sections[b".strtab"]
    found = []
    for at, info, _, section, _, _ in struct.iter_unpack("<IBBHQQ", sections[b".symtab"]):
        if info == GLOBAL_FUNCTION and section != UNDEFINED:
            found.append(names[at : names.index(b"\0", at)].decode())
    return found


def _marking(names: list[str], marker: Path) -> bytes:
    """An object file with functions of these names, all of which write the marker."""
    module, path = ir.Module(), bytearray(bytes(marker) + b"\0")
    text = ir.GlobalVariable(module, ir.ArrayType(ir.IntType(8), len(path)), ".marker")
    text.initializer, text.global_constant = ir.Constant(text.value_type, path), True
    address = ir.IntType(8).as_pointer()
    creat = ir.Function(module, ir.FunctionType(ir.IntType(32), [address, ir.IntType(32)]), "creat")
    for name in names:
        function = ir.Function(module, ir.FunctionType(ir.IntType(64), []), name)
        builder = ir.IRBuilder(function.append_basic_block())
        mode = ir.Constant(ir.IntType(32), 0o600)
        builder.call(creat, [builder.bitcast(text, address), mode])
        builder.ret(ir.Constant(ir.IntType(64), 0))
    return compile_ir(str(module), host_target())


def _no_cache(at: Path) -> Outcome | None:
    """A file where the folder should be: nothing can be kept."""
    shutil.rmtree(at / "cache")
    (at / "cache").mkdir()
    (at / "cache" / NAME).write_text("in the way\n")
    return None


def _emptied(path: Path, _: float) -> None:
    path.write_bytes(b"")


def _truncated(path: Path, at: float) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: int(at * len(content))])


def _flipped(path: Path, at: float) -> None:
    content = bytearray(path.read_bytes())
    content[int(at * len(content))] ^= 0x10
    path.write_bytes(bytes(content))


def _a_folder(path: Path, _: float) -> None:
    path.unlink()
    path.mkdir()


def _dangling(path: Path, _: float) -> None:
    path.unlink()
    path.symlink_to(path.parent / "nowhere" / "at" / "all")


def _unwritable(path: Path, _: float) -> None:
    path.chmod(0)


_DAMAGES: dict[str, Callable[[Path, float], None]] = {
    "emptied": _emptied,
    "all_emptied": _emptied,
    "truncated": _truncated,
    "flipped": _flipped,
    "a_folder": _a_folder,
    "dangling": _dangling,
    "unwritable": _unwritable,
}
