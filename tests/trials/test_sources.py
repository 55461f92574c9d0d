"""The hash of measured code, which only code that a trial runs can change."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from dynbatch.harness.errors import ConfigError
from dynbatch.harness.machine.source_code import (
    find_compiled_modules,
    find_mentions,
    find_module_file,
    hash_code,
)
from dynbatch.harness.trials import sources
from dynbatch.harness.trials.sources import (
    WORKER,
    SourceHashes,
    find_imported_files,
    hash_contents,
    hash_files,
    hash_trial_source,
)
from dynbatch.harness.trials.spec import TrialSpec
from tests.support.corpora import write
from tests.support.measured import MakeSpec

FILES = {
    "__init__.py": "",
    "adapter.py": (
        "import importlib\n"
        "from . import near\n"
        "from sample.deep import thing as other\n"
        "PLUGINS = 'sample.plugins'\n"
        "def load(name):\n"
        "    import sample.late\n"
        "    return importlib.import_module(f'{PLUGINS}.{name}')\n"
    ),
    "near.py": "import sample.adapter\n",  # a cycle must not hang the search
    "late.py": "",
    "unused.py": "",
    "deep/__init__.py": "from .inner import thing\n",
    "deep/inner.py": "thing = 1\n",
    "plugins/__init__.py": "",
    "plugins/red.py": "",
    "plugins/blue.py": "",
}


@pytest.fixture
def sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Package on the path that no module imports."""
    write(tmp_path / "sample", FILES)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path / "sample"


def test_imports_are_followed_without_importing(sample: Path) -> None:
    found = find_imported_files(["sample.adapter"])
    own = {"sample", "sample.adapter", "sample.near", "sample.late", "sample.plugins"}
    assert set(found) == own | {"sample.deep", "sample.deep.inner"}
    assert not {name for name in sys.modules if name.startswith("sample")}


def test_the_network_of_a_trial_is_measured_code(sample: Path, make_spec: MakeSpec) -> None:
    """The network's module counts only because of the table, not by an import or a file name.

    Without it, times of an old network would count as those of the current code.
    """
    trees = "NETWORKS = {'tree': 1, 'bush': 2}\n"
    nets = {"__init__": "", "trees": trees, "lines": "NETWORKS = {'line': 3}"}
    write(sample / "nets", nets, ".py")
    write(sample, {"runs.py": "NETWORKS = 'sample.nets:NETWORKS'\n"})
    specs = [make_spec(adapter="sample.runs", model=model) for model in ("bush", "line")]
    before = [hash_trial_source(spec) for spec in specs]
    write(sample / "nets", {"trees.py": f"{trees}changed = 1\n"})
    after = [hash_trial_source(spec) for spec in specs]
    assert [one != other for one, other in zip(before, after, strict=True)] == [True, False]


HEADER = "HEADER = 'import math\\nfrom sample.kernels import scale\\n'\n"


@pytest.mark.parametrize(
    ("adapter", "file"), [("adapter", "programs/tree.cc"), ("writer", "kernels.py")]
)
def test_programs_in_cpp_and_imports_in_generated_source_are_measured_code(
    sample: Path, make_spec: MakeSpec, adapter: str, file: str
) -> None:
    """A module counts if it is named only in a string that is the start of a program."""
    write(sample, {"writer.py": HEADER, file: "n = 1;\n"})
    spec = make_spec(adapter=f"sample.{adapter}")
    before = hash_trial_source(spec)
    write(sample, {file: "n = 2;\n"})
    assert hash_trial_source(spec) != before


@pytest.mark.parametrize(
    ("system", "model", "module"),
    [
        ("torch.levels", "mv_rnn", "torch.models.mv_rnn"),
        ("torch.fused", "bilstm", "torch.models.sentences"),
        ("dynet.autobatch", "parser", "dynet.models.pairs_parser"),
        ("tensorflow.fold", "tree_fc", "tensorflow.models.looms"),
        ("jax.scan", "tree_fc", "jax.models.trees"),
    ],
)
def test_frameworks_are_hashed_with_their_networks(
    make_spec: MakeSpec, monkeypatch: pytest.MonkeyPatch, system: str, model: str, module: str
) -> None:
    spec = make_spec(adapter=f"dynbatch.systems.on_{system}", model=model)
    assert f"dynbatch.systems.on_{module}" in code_of(spec, monkeypatch)


def test_the_hash_follows_content_not_place(sample: Path, make_spec: MakeSpec) -> None:
    spec = make_spec(adapter="sample.adapter", system_options={"color": "red"})
    before = hash_trial_source(spec)
    write(sample, dict.fromkeys(("unused.py", "plugins/blue.py"), "changed = 1\n"))
    assert hash_trial_source(spec) == before
    for name in ("deep/inner.py", "late.py", "plugins/red.py"):
        write(sample, {name: "changed = 1\n"})
        now = hash_trial_source(spec)
        assert now != before
        before = now


def test_the_hash_is_the_same_in_another_folder(tmp_path: Path) -> None:
    write(tmp_path, {"a/m.py": "x = 1\n", "b/m.py": "x = 1\n"})
    hashes = {hash_files({"m": tmp_path / folder / "m.py"}) for folder in ("a", "b")}
    assert len(hashes) == 1
    assert hash_files({"n": tmp_path / "a" / "m.py"}) not in hashes


CODE = "x = 1\ndef f() -> int:\n    return x\n"


@pytest.mark.parametrize(
    ("text", "is_the_same"),
    [
        ('"""A story."""\n\n\nx = 1  # one\n\ndef f() -> int:\n    return x\n', True),
        ("x = 1\ndef f() -> int:\n    'What it does.'\n    return (\n        x\n    )\n", True),
        (CODE.replace("1", "2"), False),
        (CODE.replace("1", "1.0"), False),
        (CODE.replace("1", "True"), False),
        (f"{CODE}'a text at the end'\n", False),
        (f"{CODE}y = 'no docstring'\n", False),
        (CODE.replace("def", "@staticmethod\ndef"), False),
    ],
)
def test_docstrings_and_layout_are_no_code(tmp_path: Path, text: str, is_the_same: bool) -> None:
    one, other = tmp_path / "one.py", tmp_path / "other.py"
    write(tmp_path, {"one": CODE, "other": text}, ".py")
    assert (hash_files({"m": one}) == hash_files({"m": other})) == is_the_same
    assert hash_contents({"m": one}) != hash_contents({"m": other})


def test_the_worker_s_code_is_measured_code_and_the_parent_s_is_not() -> None:
    found = {name.removeprefix("dynbatch.harness.") for name in find_imported_files([WORKER])}
    assert {f"measuring.{name}" for name in ("worker", "passes", "clock")} <= found
    assert {"measuring.checks.reference_check", "contracts.system", "contracts.corpus"} <= found
    assert "reference" in found
    outside = {"measuring.processes.launch", "planning.config", "planning.artifacts"}
    assert not found & (outside | {"terminal.reporting"})
    assert not {name for name in found if name.startswith(("commands", "dynbatch.plots"))}


def test_a_policy_belongs_to_the_trials_that_name_it(make_spec: MakeSpec) -> None:
    def spec(policy: str) -> TrialSpec:
        return make_spec(adapter="dynbatch.systems.on_core.vertex", policy=policy)

    assert hash_trial_source(spec("agenda")) != hash_trial_source(spec("depth"))


def code_of(spec: TrialSpec, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Return the modules whose content the hash of a trial covers."""
    found: set[str] = set()

    def note(files: Mapping[str, Path], *_: object) -> str:
        found.update(files)
        return ""

    monkeypatch.setattr(sources, "hash_files", note)
    hash_trial_source(spec)
    return found


@pytest.mark.parametrize(
    ("device", "options", "kernels"),
    [
        ("cpu", {}, {"compiled.program"}),
        ("cuda", {}, {"cuda.module", "stepwise.steps"}),  # either one, depending on the trial
        ("cpu", {"backend": "stepwise"}, {"stepwise.steps"}),
    ],
)
def test_the_backend_that_runs_a_trial_is_measured_code(
    make_spec: MakeSpec,
    monkeypatch: pytest.MonkeyPatch,
    device: str,
    options: dict[str, str],
    kernels: set[str],
) -> None:
    """No other backend counts: changes for a GPU do not invalidate measurements on a CPU."""
    spec = make_spec(
        adapter="dynbatch.systems.on_core.vertex", device=device, system_options=options
    )
    found = code_of(spec, monkeypatch)
    assert {f"dynbatch.harness.engine.backends.{name}" for name in kernels} <= found
    folders = {name.split(".")[0] for name in kernels}
    below = "dynbatch.harness.engine.backends."
    others = {name.removeprefix(below).split(".")[0] for name in found if name.startswith(below)}
    assert others == folders
    if "compiled" in folders:
        called = ("blas", "context", "elementwise", "loss_kernels", "memory_kernels", "row_kernels")
        assert {f"dynbatch.harness.engine.cpu_kernels.{name}" for name in called} <= found


def test_submodule_of_a_dynamically_named_package_is_included(sample: Path) -> None:
    """In f"sample.plugins.{name}.core" the trial has the name red, and the file has .core."""
    write(sample / "plugins/deep", dict.fromkeys(("__init__", "core", "other"), ""), ".py")
    write(sample, {"below.py": "PLACE = f'sample.plugins.{name}.core'\n"})
    found = set(find_imported_files(["sample.below"], ["deep"]))
    assert "sample.plugins.deep.core" in found
    assert "sample.plugins.deep.other" not in found


def test_modules_without_python_source_have_no_file() -> None:
    assert find_module_file("no_such_module.at_all") is None
    assert find_module_file("_struct") is None
    assert find_module_file("dynbatch.harness.trials.spec") == Path(
        sys.modules["dynbatch.harness.trials.spec"].__file__ or ""
    )


def test_hashes_of_many_trials_are_those_of_each(make_spec: MakeSpec) -> None:
    specs = [make_spec(batch_size=8), make_spec(batch_size=9), make_spec(policy="agenda")]
    hashes = SourceHashes()
    assert [hashes.hash_trial(spec) for spec in specs] == list(map(hash_trial_source, specs))


@pytest.mark.parametrize("text", ["x = 1\ndef schedule(graph)\n    pass\n", "x = 1\ndef (\n"])
def test_invalid_python_error_names_file_and_line(text: str, tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    path.write_text(text)
    reason = r"^[^\n]*broken\.py, line 2: invalid Python: [^\n]*$"
    for read in (
        lambda: hash_code(path),
        lambda: find_mentions(path, "broken"),
        lambda: find_compiled_modules(path, "broken"),
    ):
        with pytest.raises(ConfigError, match=reason):
            read()
