"""Every system agrees with the reference: loss, outputs, all gradients, and one update."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from dynbatch.harness.measuring.checks.reference_check import (
    SgdStep,
    compute_relative_error,
    is_within_tolerance,
)
from dynbatch.harness.planning.yaml_files import list_choices, read_mapping
from dynbatch.harness.reference import ReferenceResult, run_reference
from dynbatch.harness.trials.workload import count_lookups
from dynbatch.harness.values.paths import ROOT
from dynbatch.systems.on_dynet.build import explain_missing_build
from tests.support.processes import run_python
from tests.support.run_adapter import CASES, FRAMEWORKS, ONLY, prefixed, values_of

TOLERANCE = 1e-4  # relative to an array's largest entry
STEP_TOLERANCE = 2e-3  # relative to the change of the loss: a difference of float32 losses
THREADS = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
OWN_FRAMEWORKS = {
    "dynet": {"dynet"},
    "torch": {"torch"},
    "core": {"torch"},
    "tensorflow": {"tensorflow"},
    "jax": {"jax"},
}
NEEDS_CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no CUDA device")
ON_CUDA = (pytest.mark.gpu, NEEDS_CUDA)
LEFT_OPEN = ("build", "workers")  # options with a value, auto or 0, for automatic choice
Found = Mapping[str, Any]

pytestmark = pytest.mark.slow


class Variant(NamedTuple):
    """A file of conf/system, a build of its framework ("" if it has only one), and a device."""

    system: str
    build: str
    device: str


def _variants() -> list[Any]:
    """List the systems of conf/system that compute; DyNet's builds and devices are separate.

    Without a CUDA device, all systems on CUDA are one variant, which is skipped: collecting and
    reporting thousands of skipped tests takes longer than running many tests.
    """
    has_cuda = torch.cuda.is_available()
    found = [] if has_cuda else [_param(Variant("every_system", "", "cuda"), ON_CUDA)]
    for system in list_choices("system"):
        config = read_config(system)
        adapter = config["adapter"]
        if adapter in (
            "dynbatch.systems.null_system",
            "dynbatch.systems.products",
            "dynbatch.systems.copies",
            "dynbatch.systems.on_core.subgraph",
        ):  # the last one runs only cells
            continue
        if ".on_dynet." in adapter:
            is_patched = config.get("options", {}).get("products") == "sizes"
            builds = ("",) if is_patched or ".cpp." in adapter else ("source", "wheel")
            for build in builds:
                marks = (pytest.mark.dynet, _needs_dynet(build))
                found.append(_param(Variant(system, build, "cpu"), marks))
            continue
        found.append(_param(Variant(system, "", "cpu")))
        if has_cuda and adapter != "dynbatch.systems.on_core.reference":
            marks = (*ON_CUDA, _needs_framework(adapter))
            found.append(_param(Variant(system, "", "cuda"), marks))
    return found


def read_config(system: str) -> dict[str, Any]:
    return read_mapping(ROOT / "conf" / "system" / f"{system}.yaml")


def _param(variant: Variant, marks: Sequence[pytest.MarkDecorator] = ()) -> Any:
    return pytest.param(variant, marks=marks, id="-".join(filter(None, variant)))


def _needs_dynet(build: str) -> pytest.MarkDecorator:
    """Skip without a build of DyNet, or without the programs of the source build ("")."""
    if build == "":
        reason = explain_missing_build()
        return pytest.mark.skipif(reason is not None, reason=str(reason))
    if build == "source":
        there = (ROOT / ".dynet-native" / "build.json").exists()
        return pytest.mark.skipif(not there, reason="no source build of DyNet: make dynet-native")
    return pytest.mark.skipif(find_spec("_dynet") is None, reason="the DyNet wheel is missing")


def _needs_framework(adapter: str) -> pytest.MarkDecorator:
    """Skip where a framework is missing: on a machine with a GPU, few come with it."""
    own = OWN_FRAMEWORKS.get(adapter.split(".")[2].removeprefix("on_"), set())
    missing = [framework for framework in own if find_spec(framework) is None]
    return pytest.mark.skipif(bool(missing), reason=f"{', '.join(missing)} is not installed")


@pytest.fixture(scope="module", params=_variants())
def variant(request: pytest.FixtureRequest) -> Variant:
    return request.param


@pytest.fixture(scope="module")
def results(
    variant: Variant,
    request: pytest.FixtureRequest,
    folder_of: Callable[[tuple[Variant, ...]], Path],
) -> Found:
    """Results of a system for all cases; freed before the next system."""
    selected = dict.fromkeys(
        item.callspec.params["variant"]
        for item in request.session.items
        if isinstance(item, pytest.Function)
        and item.module is request.module
        and "variant" in getattr(item, "callspec", SimpleNamespace(params={})).params
    )
    alike = [one for one in selected if one.device == variant.device]
    together = tuple(one for one in alike if group_of(one) == group_of(variant))
    with np.load(folder_of(together) / f"{variant.system}.npz") as arrays:
        found = dict(arrays)
    assert "crash" not in found, found["crash"]
    return found


def group_of(variant: Variant) -> tuple[str, ...]:
    """Return the key of the systems that share a process.

    DyNet's settings apply to a process, and so may those of each build. Of the other frameworks,
    importing takes longer than running the small cases.
    """
    family = read_config(variant.system)["adapter"].rpartition(".")[0]
    is_alone = family in ("dynbatch.systems.on_dynet", "dynbatch.systems")
    return variant if is_alone else (family, variant.device)


@pytest.fixture(scope="module")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[tuple[Variant, ...]], Path]:
    """Return a function that runs a group once and returns the folder of its results."""
    return cache(lambda together: run_group(together, tmp_path_factory.mktemp("systems")))


def run_group(together: Sequence[Variant], folder: Path) -> Path:
    """Run systems one after another in a process of their own."""
    options = json.dumps({"build": together[0].build} if together[0].build else {})
    configs = [str(ROOT / "conf" / "system" / f"{one.system}.yaml") for one in together]
    arguments = (str(folder), options, together[0].device, *configs)
    printed = run_python("-m", "tests.support.run_adapter", *arguments, **THREADS)
    assert printed == ""  # records and tables may be written there
    return folder


@cache
def truth(case: str, mode: str = "train", *, alone: bool = False) -> ReferenceResult:
    """Run the reference on all instances, or on the last one alone."""
    instances = CASES[case].instances[-1:] if alone else CASES[case].instances
    return run_reference(CASES[case].model, CASES[case].weights, instances, mode)


@cache
def truth_after_step(case: str, forgotten: str | None = None) -> ReferenceResult:
    """Run the reference after a step that updates all parameters except a forgotten one."""
    rate, gradients = CASES[case].learning_rate, truth(case).gradients
    stepped = {
        name: values - (rate * gradients[name] if name != forgotten else 0.0)
        for name, values in CASES[case].weights.items()
    }
    return run_reference(CASES[case].model, stepped, CASES[case].instances, "train")


def assert_equal(found: Mapping[str, Any], prefix: str, expected: ReferenceResult) -> None:
    wanted = values_of(expected)
    assert names_in(found, prefix) == set(wanted), prefix
    for name, value in wanted.items():
        own_value = np.asarray(found[f"{prefix}/{name}"])
        assert own_value.shape == value.shape, f"{prefix}/{name}"
        assert compute_relative_error(own_value, value) < TOLERANCE, f"{prefix}/{name}"


def names_in(found: Mapping[str, Any], prefix: str) -> set[str]:
    return {key.partition("/")[2] for key in found if key.startswith(f"{prefix}/")}


def test_skipped_cases_have_reasons(results: Found) -> None:
    """Skipped if the system skips any case, so that the list of skipped tests has the reasons."""
    cases_of: dict[str, list[str]] = {}
    for case in CASES:
        if f"{case}/skip" in results:
            cases_of.setdefault(str(results[f"{case}/skip"]), []).append(case)
    assert "" not in cases_of
    if cases_of:
        pytest.skip("; ".join(f"{', '.join(cases)}: {why}" for why, cases in cases_of.items()))


def effective_options_include_every_option(found: Found, case: str) -> None:
    """Check systems except the engine, which omits options without effect and has its own tests."""
    options, effective_options = (
        json.loads(str(found[key])) for key in ("options", "effective options")
    )
    if "backend" in options:  # it is the engine
        return
    assert set(options) <= set(effective_options)
    said = {name: value for name, value in options.items() if name not in LEFT_OPEN}
    assert {name: effective_options[name] for name in said} == said


def loss_outputs_and_gradients(found: Found, case: str) -> None:
    """Results of a first run, a repeated one, one instance alone, and inference (no gradients)."""
    mode = str(found["mode"])  # "infer" if the system does not train the model
    assert_equal(found, "first", truth(case, mode))
    assert_equal(found, "again", truth(case, mode))
    assert_equal(found, "alone", truth(case, mode, alone=True))
    assert_equal(found, "inferred", truth(case, "infer"))


def parameters_are_read_back_as_they_are(found: Found, case: str) -> None:
    """Parameters are bitwise equal to the given ones before any update."""
    for name, values in CASES[case].weights.items():
        np.testing.assert_array_equal(found[f"kept/{name}"], values, err_msg=name)
    assert names_in(found, "kept") == set(CASES[case].weights)


def one_step_of_plain_sgd(found: Found, case: str) -> None:
    """Loss, outputs and gradients after the step, and the loss difference more precisely."""
    assert_equal(found, "stepped", truth_after_step(case))
    expected = truth_after_step(case).loss - truth(case).loss
    change = float(found["stepped/loss"]) - float(found["first/loss"])
    assert abs(expected) > 1e-3 * abs(truth(case).loss)  # otherwise the test is too weak
    assert change == pytest.approx(expected, rel=STEP_TOLERANCE)


def parameters_are_read_back_one_step_further(found: Found, case: str) -> None:
    rate, gradients, weights = CASES[case].learning_rate, truth(case).gradients, CASES[case].weights
    n_rows = count_lookups(CASES[case].model, CASES[case].instances)
    step = SgdStep(weights, gradients, rate, n_rows)
    for name, values in weights.items():
        stepped = np.asarray(found[f"stepped parameters/{name}"], np.float64)
        rounding = step.compute_rounding(name) / rate
        assert is_within_tolerance((values - stepped) / rate, gradients[name], rounding), name
    assert names_in(found, "stepped parameters") == set(weights)


OF_TRAINED = (one_step_of_plain_sgd, parameters_are_read_back_one_step_further)
STATEMENTS = (
    *(effective_options_include_every_option, loss_outputs_and_gradients),
    *(parameters_are_read_back_as_they_are, *OF_TRAINED),
)


@pytest.mark.parametrize("holds", STATEMENTS, ids=lambda holds: holds.__name__)
def test_it_holds_in_every_case(results: Found, holds: Callable[[Found, str], None]) -> None:
    """Check every case that the system runs, or trains, and name all cases that fail.

    One test covers all cases, because thousands of tests would have more overhead than comparisons.
    """
    modes = {case: str(results.get(f"{case}/mode", "skipped")) for case in CASES}
    modes_of_it = ("train",) if holds in OF_TRAINED else ("train", "infer")
    cases, wrong = [case for case, mode in modes.items() if mode in modes_of_it], []
    if not cases:
        pytest.skip("it runs no case like this")
    for case in cases:
        start = f"{case}/"
        own = {k.removeprefix(start): v for k, v in results.items() if k.startswith(start)}
        try:
            holds(own, case)
        except (AssertionError, KeyError) as error:
            wrong.append(f"{case}: {type(error).__name__} {error}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "case",
    [name for name in CASES if CASES[name].model.is_trainable and not name.endswith("_large")],
)
def test_a_parameter_that_is_not_updated_is_found(case: str) -> None:
    right = truth_after_step(case)
    for name, gradient in truth(case).gradients.items():
        if np.any(gradient):
            forgetful = prefixed("stepped", values_of(truth_after_step(case, forgotten=name)))
            with pytest.raises(AssertionError):
                assert_equal(forgetful, "stepped", right)
    assert_equal(prefixed("stepped", values_of(right)), "stepped", right)


@pytest.mark.parametrize("variant", [Variant("torch_compiled", "", "cpu")], indirect=True)
def test_new_sizes_compile_nothing_again(results: Found) -> None:
    """A mini-batch of all instances and of one, in training and in inference."""
    cases = [case for case in ONLY["torch_compiled"] if f"{case}/mode" in results]
    if not cases:
        pytest.skip("it runs no case, for example without a compiler")
    n_ahead, n_later = (
        {case: json.loads(str(results[f"{case}/{key}"])) for case in cases}
        for key in ("compiled ahead", "compiled")
    )
    assert n_later == n_ahead
    assert all(min(counts) > 0 for counts in n_ahead.values())


def test_a_process_loads_one_framework(results: Found, variant: Variant) -> None:
    family = read_config(variant.system)["adapter"].split(".")[2].removeprefix("on_")
    own = OWN_FRAMEWORKS.get(family, set())
    assert set(results["loaded"].tolist()) <= own < set(FRAMEWORKS)
