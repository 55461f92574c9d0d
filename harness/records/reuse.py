"""Whether a stored record still tells what a trial would give today: code, data, machine, versions.

A trial's name says what was asked for, and not what was there: a file without a checksum may hold
other data, a folder of results may come from another machine, and a framework may be another
version. A record of anything but the present is measured again, as its number would otherwise stand
beside numbers of other things.
"""

from __future__ import annotations

import importlib.metadata
import json
import platform
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.contracts.corpus import Corpus, inputs_sha256, load_corpus, mini_batches
from harness.contracts.home import checksum_of, home_of
from harness.errors import BenchError
from harness.machine.facts import describe_machine
from harness.records.cross_check import hardware_facts
from harness.records.record import Record
from harness.trials.sources import SourceHashes
from harness.trials.spec import TrialSpec

UNREADABLE = "unreadable"  # in place of a hash of inputs, which no record has
_LIST_VERSIONS = """
import importlib.metadata, json, platform
found = {one.metadata["Name"].lower(): one.version for one in importlib.metadata.distributions()}
print(json.dumps(found | {"python": platform.python_version()}))
"""


class Present:
    """What trials would be measured with now; for one run, in which none of it changes.

    Args:
        sources: hashes of the code, which others may have worked out already.
        measures_here: whether this machine is the one that measures; if not, records of any
            machine and any versions are taken.
    """

    def __init__(self, sources: SourceHashes | None = None, *, measures_here: bool = True) -> None:
        self._sources = sources or SourceHashes()
        self._measures_here = measures_here
        self._own_data = OwnData()
        self._machine: dict[str, Any] | None = None
        self._installed: dict[str | None, Mapping[str, str]] = {}

    def is_kept(self, record: Record | None, spec: TrialSpec) -> bool:
        """Return whether a record makes measuring a trial's round (again) unnecessary."""
        return (
            record is not None
            and record.answers(spec, self._sources.of(spec))
            and self.find_change(record, spec) is None
        )

    def is_of_this_code(self, record: Record, spec: TrialSpec) -> bool:
        """Return whether a record is of the trial's present code, whatever came of it."""
        return record.source_sha256 == self._sources.of(spec)

    def find_change(self, record: Record, spec: TrialSpec) -> str | None:
        """Say in words what a record of this trial and code was measured with, if not the same."""
        inputs = self._own_data.inputs_sha256(spec)
        if inputs is not None and record.inputs_sha256 != inputs:
            return "it is of other data"
        return self._find_machine_change(record, spec) if self._measures_here else None

    def _find_machine_change(self, record: Record, spec: TrialSpec) -> str | None:
        if self._machine is None:
            self._machine = describe_machine().to_dict()
        theirs = hardware_facts(record.machine, spec.device)
        for name, value in hardware_facts(self._machine, spec.device).items():
            if theirs[name] != value:
                return f"it is of {name} {theirs[name]}, and here it is {value}"
        # What was not measured has no versions of its own.
        installed = self._versions_in(spec.python) if record.status == "ok" else {}
        for name, version in record.versions.items():
            found = installed.get(name, version)
            if found != version and version[:1].isdigit():
                return f"it is of {name} {version}, and here it is {found}"
        return None

    def _versions_in(self, python: str | None) -> Mapping[str, str]:
        """Return the version of each installed package of an interpreter; None: of this one."""
        if python not in self._installed:
            self._installed[python] = _list_versions(python)
        return self._installed[python]


def _list_versions(python: str | None) -> Mapping[str, str]:
    if python is None:
        found = importlib.metadata.distributions()
        versions = {one.metadata["Name"].lower(): one.version for one in found}
        return versions | {"python": platform.python_version()}
    try:
        listed = subprocess.run(
            [python, "-c", _LIST_VERSIONS], capture_output=True, check=True, timeout=60
        )
    except (OSError, subprocess.SubprocessError):
        return {}  # its trial will say so
    listed_versions: dict[str, str] = json.loads(listed.stdout)
    return listed_versions


class OwnData:
    """Hashes of inputs that a trial's settings do not determine: files without a checksum."""

    def __init__(self) -> None:
        self._corpora: dict[str, Corpus | None] = {}
        self._hashes: dict[str, str | None] = {}

    def inputs_sha256(self, spec: TrialSpec) -> str | None:
        """Hash the mini-batches of a trial as its worker does.

        Returns:
            None where the settings determine them: generated data, and files with checksums.
            UNREADABLE where they cannot be read; measuring says why.
        """
        if has_checksums(spec):
            return None
        drawn = [spec.batch_size, spec.n_mini_batches, spec.seed, spec.order]
        key = json.dumps([*_place_of(spec), *drawn, spec.timing.n_instances], default=str)
        if key not in self._hashes:
            self._hashes[key] = self._hash(spec)
        return self._hashes[key]

    def _hash(self, spec: TrialSpec) -> str | None:
        try:
            corpus = self._load(spec)
        except (BenchError, ImportError):
            return UNREADABLE
        if corpus.generated:
            return None
        only_first = bool(spec.timing.n_instances)
        return inputs_sha256(
            mini_batches(
                corpus,
                spec.batch_size,
                spec.n_mini_batches,
                spec.seed,
                spec.order,
                only_first=only_first,
            )
        )

    def _load(self, spec: TrialSpec) -> Corpus:
        key = json.dumps(_place_of(spec), default=str)
        corpus = self._corpora.get(key)
        if corpus is None:
            options = spec.dataset_options
            corpus = load_corpus(spec.loader, spec.split, Path(spec.data_root), **options)
            self._corpora[key] = corpus
        return corpus


def _place_of(spec: TrialSpec) -> tuple[object, ...]:
    return spec.loader, spec.split, spec.data_root, dict(spec.dataset_options)


def has_checksums(spec: TrialSpec) -> bool:
    """Return whether every file that a loader may read is bound by a checksum of the trial."""
    try:
        home = home_of(spec.loader)
    except ImportError:
        return False
    expected = spec.dataset_options.get("sha256")
    return home is not None and all(checksum_of(expected, part) for part in home.origins)
