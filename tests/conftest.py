"""Fixtures that many tests share."""

from __future__ import annotations

import gc
import importlib
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hydra.core.global_hydra import GlobalHydra
from hypothesis import HealthCheck, Phase, settings

from dynbatch.harness.machine import process
from dynbatch.harness.machine.process import release_memory
from dynbatch.harness.measuring import clock
from dynbatch.harness.records.record import Record
from dynbatch.harness.trials.spec import Limits, Timing, TrialSpec
from dynbatch.harness.values.paths import ROOT
from tests.support.measured import share_servers
from tests.support.records import SPEC, record_of
from tests.support.shards import select_shard

BESIDE = ROOT.parent / "shared" / "data"  # real datasets next to some checkouts
if "BENCH_DATA" not in os.environ and BESIDE.is_dir():
    os.environ["BENCH_DATA"] = str(BESIDE)

# Without a GPU, Triton interprets kernels. It reads this variable at its first import.
if not Path("/dev/nvidia0").exists():
    os.environ.setdefault("TRITON_INTERPRET", "1")
# Triton and TensorFlow each include LLVM. If Triton is imported after TensorFlow, its LLVM
# registers command-line options again, which aborts the process. The reverse order works.
with suppress(ImportError):
    importlib.import_module("triton")
    if os.environ.get("TRITON_INTERPRET") == "1":
        importlib.import_module("tests.support.quick_interpreter").use_quick_interpreter()

# The same examples at every run, so that tests do not fail at random. New examples are drawn by
# pytest --hypothesis-profile=explore; each failure that it finds becomes a separate test.
settings.register_profile("repeatable", derandomize=True)
settings.register_profile("explore", print_blob=True)
# Many new examples of whole commands. Each takes seconds, too long to shrink failing examples.
settings.register_profile(
    "campaign",
    deadline=None,
    print_blob=True,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=list(HealthCheck),
)
settings.load_profile("repeatable")


@pytest.fixture(scope="session")
def data_root() -> Path:
    """Return the directory of the real datasets; skip the test if it does not exist."""
    folder = os.environ.get("BENCH_DATA")
    if not folder:
        pytest.skip("BENCH_DATA does not name a folder with the real corpora")
    root = Path(folder)
    if not (root / "sst").is_dir():
        pytest.skip(f"BENCH_DATA={folder} has no sst/")
    return root


@pytest.fixture(autouse=True)
def _hydra_forgets() -> Iterator[None]:
    yield
    GlobalHydra.instance().clear()


@pytest.fixture(autouse=True, scope="session")
def _signals_as_a_terminal_gives_them() -> Iterator[None]:
    """Set the default signal handlers, because nohup and background jobs ignore some signals."""
    usual = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: signal.SIG_DFL}
    before = {number: signal.signal(number, handler) for number, handler in usual.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture(autouse=True, scope="session")
def _nothing_is_synced() -> Iterator[None]:
    """Leave out os.fsync in this process: thousands of calls wait for the disk."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture(autouse=True, scope="session")
def _freeze_only_here() -> Iterator[None]:
    """Disable gc.freeze and gc.unfreeze in trials: only `_freeze_long_lived` decides here."""
    same = {name: getattr(gc, name) for name in ("isenabled", "enable", "disable", "collect")}
    frozen = {"freeze": lambda: None, "unfreeze": lambda: None}
    with pytest.MonkeyPatch.context() as patch:
        for module in (clock, process):
            patch.setattr(module, "gc", SimpleNamespace(**same, **frozen))
        yield
    gc.unfreeze()


@pytest.fixture(autouse=True, scope="module")
def _freeze_long_lived(_freeze_only_here: None) -> None:
    """Freeze all objects before each file: a trial collects three times, each in up to 0.6 s."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module")
def shared_servers() -> Iterator[None]:
    """Let the tests of a file share fork servers."""
    with share_servers():
        yield


@pytest.fixture
def make_spec(tmp_path: Path) -> Callable[..., TrialSpec]:
    """Return a function that builds fast trials: Tree-FC on two complete trees of four leaves."""

    def make(**changes: Any) -> TrialSpec:
        values: dict[str, Any] = {
            **SPEC,
            "dataset_options": {"n_leaves": 4, "n_instances": 8, "seed": 0},
            "timing": Timing(min_seconds=0.0, n_mini_batches=2, min_passes=2),
            "limits": Limits(time_s=60.0),
            "cache_dir": str(tmp_path / "oracle"),
        }
        if "model" in changes:
            values["model_module"] = f"dynbatch.harness.models.{changes['model']}"
        if "dataset" in changes:
            values["loader"] = f"dynbatch.datasets.{changes['dataset']}"
        return TrialSpec(**(values | changes))

    return make


@pytest.fixture
def make_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """Return a function that writes a module for this process and workers, and returns its name."""

    def make(text: str) -> str:
        folder = tmp_path / "modules"
        folder.mkdir()
        (folder / "made_module.py").write_text(text, encoding="utf-8")
        monkeypatch.syspath_prepend(folder)
        monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
        monkeypatch.delitem(sys.modules, "made_module", raising=False)
        return "made_module"

    return make


@pytest.fixture
def make_record(make_spec: Callable[..., TrialSpec]) -> Callable[..., Record]:
    """Return a function that builds a valid record, by default of a trial of `make_spec`."""

    def make(spec: TrialSpec | None = None, **changes: Any) -> Record:
        return record_of(spec or make_spec(), changes)

    return make


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shard", default="1/1", metavar="K/N", help="run the K-th of N parts")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Select one shard of the tests, and let several processes start with the longest files."""
    items[:] = select_shard(items, str(config.getoption("--shard")))
    if hasattr(config, "workerinput"):
        n_slow = Counter(item.path for item in items if item.get_closest_marker("slow"))
        n_all = Counter(item.path for item in items)

        def rank(item: pytest.Item) -> tuple[bool, int, int]:
            is_long = item.path.parent.name in ("whole", "docs")
            return not is_long, -n_slow[item.path], -n_all[item.path]

        items.sort(key=rank)


@pytest.fixture(scope="module", autouse=True)
def _memory_is_given_back() -> Iterator[None]:
    """Return freed memory to the system after each file; compilers leave hundreds of MiB of it."""
    yield
    release_memory()
