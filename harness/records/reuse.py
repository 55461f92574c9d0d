"""Reuse of stored records, if code, data, machine and versions are still the same.

A trial's id covers its settings only: a file without a checksum may have other data, a results
directory may come from another machine, and a framework may have another version. A trial whose
record differs in any of these is measured again, because its numbers would not be comparable.
"""

from __future__ import annotations

import functools
import importlib.metadata
import json
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path

from dynbatch.harness.contracts.corpus import OWN_SPLIT, Corpus, hash_inputs, load_corpus
from dynbatch.harness.contracts.home import find_checksum, find_home
from dynbatch.harness.errors import BenchError
from dynbatch.harness.machine.facts import describe_machine
from dynbatch.harness.records.cross_check import collect_hardware_facts
from dynbatch.harness.records.record import Record
from dynbatch.harness.trials.sources import SourceHashes
from dynbatch.harness.trials.spec import TrialSpec
from dynbatch.harness.trials.workload import draw_batches
from dynbatch.harness.values.paths import expand_home

UNREADABLE = "unreadable"  # replaces the hash of inputs; no record has it
# The remains of a package have no name.
_LIST_VERSIONS = """
import importlib.metadata, json, platform
packages = importlib.metadata.distributions()
found = {str(package.metadata["Name"]).lower(): package.version for package in packages}
print(json.dumps(found | {"python": platform.python_version()}))
"""


class Present:
    """Current code, data, machine and versions, which stay the same during one run.

    Args:
        measures_here: Whether this machine measures; if not, records of any machine and any
            versions are reused.
    """

    def __init__(self, sources: SourceHashes | None = None, *, measures_here: bool = True) -> None:
        self.sources = sources or SourceHashes()
        self._measures_here = measures_here
        self._own_data = OwnData()
        self._describe_machine = functools.cache(lambda: describe_machine().to_dict())
        self._list_versions = functools.cache(_list_versions)

    def is_kept(self, record: Record | None, spec: TrialSpec) -> bool:
        """Return whether a record makes measuring a trial's round unnecessary."""
        return (
            record is not None
            and record.is_valid_for(spec, self.sources.hash_trial(spec))
            and self.find_change(record, spec) is None
        )

    def is_of_this_code(self, record: Record, spec: TrialSpec) -> bool:
        """Return whether a record is of the trial's current code, whatever its status."""
        return record.source_sha256 == self.sources.hash_trial(spec)

    def find_change(self, record: Record, spec: TrialSpec) -> str | None:
        """Return in which data, machine or version a record of this trial differs, or None."""
        inputs = self._own_data.hash_inputs(spec)
        if inputs is not None and record.inputs_sha256 != inputs:
            return "the data differs"
        return self._find_machine_change(record, spec) if self._measures_here else None

    def _find_machine_change(self, record: Record, spec: TrialSpec) -> str | None:
        theirs = collect_hardware_facts(record.machine, spec.device)
        ours = collect_hardware_facts(self._describe_machine(), spec.device)
        for name in ours | theirs:  # only a machine with a CPU quota has one
            if theirs.get(name) != ours.get(name):
                return f"{name} was {theirs.get(name)}, now {ours.get(name)}"
        # A record without a measurement does not depend on versions.
        installed = self._list_versions(spec.python) if record.status == "ok" else {}
        for name, version in record.versions.items():
            current = installed.get(name, version)
            if version[:1].isdigit() and not are_same_versions(version, current):
                return f"{name} was {version}, now {current}"
        return None


def are_same_versions(version: str, other: str) -> bool:
    """Return whether two versions are equal; a local label counts only if both have one.

    PyTorch reports 2.13.0+cu130, but its package may be listed as 2.13.0.
    """
    (public, _, local), (other_public, _, other_local) = (
        version.partition("+"),
        other.partition("+"),
    )
    return public == other_public and (local == other_local or not (local and other_local))


def _list_versions(python: str | None) -> Mapping[str, str]:
    """Return the versions of an interpreter's packages; None means this interpreter."""
    if python is None:
        distributions = importlib.metadata.distributions()
        versions = {
            str(distribution.metadata["Name"]).lower(): distribution.version
            for distribution in distributions
        }
        return versions | {"python": platform.python_version()}
    try:
        command = [str(expand_home("system.python", python)), "-c", _LIST_VERSIONS]
        listed = subprocess.run(command, capture_output=True, check=True, timeout=60)
        # Other lines are what an environment prints at its start.
        listed_versions: dict[str, str] = json.loads(listed.stdout.splitlines()[-1])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return {}  # the trial itself reports the error
    return listed_versions


class OwnData:
    """Hashes of inputs that a trial's settings do not determine: files without checksums."""

    def __init__(self) -> None:
        self._load = functools.cache(load_identified)
        self._hashes: dict[str, str | None] = {}

    def hash_inputs(self, spec: TrialSpec) -> str | None:
        """Hash the mini-batches of a trial as its worker does.

        Returns:
            None if the settings determine them: generated data, and files with checksums.
            UNREADABLE if they cannot be read; the trial itself reports the reason.
        """
        if has_checksums(spec):
            return None
        drawn = [spec.batch_size, spec.n_mini_batches, spec.seed, spec.order, spec.timing.last]
        key = json.dumps([*identify_corpus(spec), *drawn, spec.timing.n_instances])
        if key not in self._hashes:
            self._hashes[key] = self._hash(spec)
        return self._hashes[key]

    def _hash(self, spec: TrialSpec) -> str | None:
        try:
            corpus = self._load(*identify_corpus(spec))
        except BenchError:
            return UNREADABLE
        return None if corpus.generated else hash_inputs(draw_batches(spec, corpus))


def identify_corpus(spec: TrialSpec) -> tuple[str, str, str, str]:
    """Return the loader, split, data root and options of a trial's corpus, as a key of caches."""
    options = json.dumps(spec.dataset_options, sort_keys=True)
    return spec.loader, spec.split, spec.data_root, options


def load_identified(loader: str, split: str, root: str, options: str) -> Corpus:
    return load_corpus(loader, split, Path(root), **json.loads(options))


def has_checksums(spec: TrialSpec) -> bool:
    """Return whether the trial's settings have a checksum of every file of its loader."""
    try:
        home = find_home(spec.loader)
    except BenchError:
        return False
    expected = spec.dataset_options.get("sha256")
    if "path" in spec.dataset_options:
        return find_checksum(expected, OWN_SPLIT) is not None
    return home is not None and all(find_checksum(expected, part) for part in home.origins)
