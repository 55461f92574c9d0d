"""The files of conf/: which a group offers, and whether the one that is chosen can be read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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
    content = read_mapping(path)
    looping = _met_again(path, content, ())
    if looping is not None:
        raise ConfigError(f"{looping} has itself among its defaults; leave out what leads back")
    found = content.get("name")
    if group in NAMED and found != choice:
        raise ConfigError(f"{path} says name: {found}; write name: {choice}, as the file is called")


def _met_again(path: Path, content: dict[str, Any], above: tuple[Path, ...]) -> Path | None:
    """A file whose defaults lead back to it, by files of its group; None: there is none."""
    defaults = content.get("defaults")
    names = [one for one in defaults if isinstance(one, str)] if isinstance(defaults, list) else []
    for below in (path.with_name(f"{name}.yaml") for name in names):
        if below in (*above, path):
            return below
        if below.is_file():
            found = _met_again(below, read_mapping(below), (*above, path))
            if found is not None:
                return found
    return None
