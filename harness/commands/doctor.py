"""`bench-doctor`: checks which systems this machine can run, and its sources of noise."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial

from harness.contracts.model import model_class
from harness.engine.cpu_kernels.libraries import multiplies_with
from harness.machine.facts import Machine, describe_machine, has_cuda_device
from harness.machine.folders import temporary_folder
from harness.machine.noise import Finding, judge_core, look_for_disturbance
from harness.measuring.clock import watch_core
from harness.measuring.launch import (
    interpreter_of,
    what_it_lacks,
    why_no_python,
    why_not_startable,
    worker_environment,
)
from harness.measuring.supervise import Ending, death_reason, last_line, supervise
from harness.planning.config import Composer, datasets_of
from harness.planning.kinds import SystemFile, read_systems
from harness.planning.yaml_files import choices_of, read_mapping
from harness.terminal.ending import OneLineParser, run_command
from harness.trials.spec import Limits, TrialSpec
from harness.values.places import CONF_DIR

PROBE = "harness.measuring.probe"
PROBE_LIMITS = Limits(time_s=120.0)
NO_CUDA = "no NVIDIA device is visible"
FIRST_MODEL = "tree_lstm"
_SMALL = {"batch_size": 1, "hidden_size": 8, "mode": "infer"}


@dataclass(frozen=True, slots=True)
class Answer:
    """Availability of a system on a device; `reason` is None if it runs."""

    system: str
    device: str
    reason: str | None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `bench-doctor`.

    Returns:
        0 whatever the findings are, 1 for wrong input, 2 for an internal error.
    """
    typed = sys.argv[1:] if arguments is None else list(arguments)
    return run_command("bench-doctor", partial(_doctor, typed), typed)


def _doctor(typed: Sequence[str]) -> int:
    parser = OneLineParser(prog="bench-doctor", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON instead of text")
    show = to_json if parser.parse_args(typed).json else to_text
    answers = ask_all()
    machine = describe_machine()
    products = Finding("products", *multiplies_with())
    disturbance = [*look_for_disturbance(machine), judge_core(watch_core())]
    print(show(machine, answers, disturbance, products))
    return 0


def ask_all() -> list[Answer]:
    """Check every system on every device, in one process per adapter."""
    composer = Composer()
    devices = ("cpu", "cuda") if has_cuda_device() else ("cpu",)
    by_adapter: dict[tuple[str, str], list[TrialSpec]] = {}
    for system in read_systems(CONF_DIR):
        for device in devices:
            spec = _small_trial(system, device, composer)
            by_adapter.setdefault((spec.adapter, interpreter_of(spec)), []).append(spec)
    answers = [answer for specs in by_adapter.values() for answer in ask(specs)]
    if "cuda" not in devices:
        names = dict.fromkeys(answer.system for answer in answers)
        answers += [Answer(name, "cuda", NO_CUDA) for name in names]
    return answers


def _small_trial(system: SystemFile, device: str, composer: Composer) -> TrialSpec:
    """Build a small trial of a model that the system runs, on generated data if possible."""
    models = [FIRST_MODEL, *choices_of("model")]
    model = next((one for one in models if system.runs(one)), FIRST_MODEL)
    module = read_mapping(CONF_DIR / "model" / f"{model}.yaml")["model"]
    fitting = datasets_of(model_class(module).instance_kind)
    generated = [one for one in fitting if one.endswith("_synthetic")]
    chosen = {"system": system.name, "model": model, "dataset": (generated or fitting)[0]}
    return composer.trial({**chosen, "device": device, **_SMALL})


def ask(specs: Sequence[TrialSpec]) -> list[Answer]:
    """Check the systems of one adapter in a new process."""
    reason = why_not_startable(specs[0])
    if reason is not None:
        return _all(specs, reason)
    first = specs[0]
    with temporary_folder() as folder:
        asked, answered, log = (folder / name for name in ("specs", "answers", "log"))
        asked.write_text(json.dumps([spec.to_dict() for spec in specs]), encoding="utf-8")
        probe = (PROBE, str(asked), str(answered))
        environment = worker_environment(first)
        ending = supervise(interpreter_of(first), probe, environment, PROBE_LIMITS, log)
        if ending.returncode != 0 or not answered.exists():
            return _all(specs, _why_not(first, ending, last_line(log)))
        reasons = json.loads(answered.read_text(encoding="utf-8"))
    return [Answer(s.system, s.device, r) for s, r in zip(specs, reasons, strict=True)]


def _why_not(spec: TrialSpec, ending: Ending, last_words: str) -> str:
    if ending.status == "timeout":
        return f"its import takes more than {PROBE_LIMITS.time_s:g} s"
    if ending.returncode is None or ending.reason is not None:
        return f"its import fails: {ending.reason}"
    why = death_reason(ending.returncode, last_words)
    lacks = what_it_lacks(spec, last_words) or why_no_python(spec, why)
    return lacks or f"its import fails: {why}"


def _all(specs: Sequence[TrialSpec], reason: str) -> list[Answer]:
    return [Answer(spec.system, spec.device, reason) for spec in specs]


def to_json(
    machine: Machine, answers: Sequence[Answer], findings: Sequence[Finding], products: Finding
) -> str:
    """Return all findings as JSON; `products` is the engine's matmul library on a CPU."""
    quiet = not any(finding.advice for finding in findings)
    content = {
        "machine": machine.to_dict(),
        "products": asdict(products),
        "systems": [asdict(answer) for answer in answers],
        "disturbance": [asdict(finding) for finding in findings],
        "quiet": quiet,
    }
    return json.dumps(content, indent=1)


def to_text(
    machine: Machine, answers: Sequence[Answer], findings: Sequence[Finding], products: Finding
) -> str:
    """Return all findings as text; `products` is the engine's matmul library on a CPU."""
    gpus = ", ".join(f"{gpu.name} (driver {gpu.driver})" for gpu in machine.gpus) or "none"
    lines = [
        "Machine",
        f"  CPU     {machine.cpu}, {machine.n_cores} cores, {len(machine.usable_cpus)} CPUs usable",
        f"  memory  {machine.memory_bytes / 2**30:.1f} GiB",
        f"  GPU     {gpus}",
        "",
        "Engine",
        _line(products),
        "",
        "Systems",
    ]
    width = max(len(answer.system) for answer in answers)
    for answer in answers:
        if answer.reason == NO_CUDA:
            continue  # true for all systems, printed once below
        verdict = "runs" if answer.reason is None else f"no: {answer.reason}"
        lines.append(f"  {answer.system:{width}}  {answer.device:4}  {verdict}")
    if any(answer.reason == NO_CUDA for answer in answers):
        lines.append(f"  {'all':{width}}  cuda  no: {NO_CUDA}")
    lines += ["", "Quiet enough to measure?"]
    lines += [_line(finding) for finding in findings]
    disturbed = any(finding.advice for finding in findings)
    return "\n".join([*lines, "  no, see the advice above" if disturbed else "  yes"])


def _line(finding: Finding) -> str:
    advice = f"  <- {finding.advice}" if finding.advice else ""
    return f"  {finding.name:12} {finding.value}{advice}"


if __name__ == "__main__":
    sys.exit(main())
