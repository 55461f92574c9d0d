"""The files of conf/: which a group offers, and whether the one that is chosen can be read."""

from __future__ import annotations

from pathlib import Path

from harness.errors import ConfigError
from harness.planning.yaml_files import read_mapping
from harness.values.places import CONF_DIR

NAMED = ("system", "model", "dataset")  # groups whose files say their own name
GROUPS = (*NAMED, "experiment")


def choices_of(group: str, conf_dir: Path = CONF_DIR) -> tuple[str, ...]:
    """Names that a group of the configuration offers."""
    return tuple(sorted(path.stem for path in (conf_dir / group).glob("*.yaml")))


def check_name(group: str, choice: str, conf_dir: Path = CONF_DIR) -> None:
    """Raise ConfigError for a file that cannot be read, or says another name than its own.

    A record would bear the name of a system that it is not of. Of a choice that has no file Hydra
    says what there is.
    """
    path = conf_dir / group / f"{choice}.yaml"
    if group not in GROUPS or choice not in choices_of(group, conf_dir):
        return
    found = read_mapping(path).get("name")
    if group in NAMED and found != choice:
        raise ConfigError(f"{path} says name: {found}; write name: {choice}, as the file is called")
