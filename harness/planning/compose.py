"""Composes configurations with Hydra; its errors become one line."""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from harness.errors import ConfigError, meant
from harness.planning.plain_values import PlainValues
from harness.planning.schema import BenchConfig, register_schema
from harness.planning.typed_words import check_dotted
from harness.planning.yaml_files import GROUPS, NAMED, read_mapping, yaml_fault
from harness.values.places import CONF_DIR

CONFIG_NAME = "bench"

POLICY_OPTION = "system.options.policy="


def as_recorded(override: str) -> str:
    """Write an override as Hydra takes it, and as trials are named: one way for one thing."""
    if override.startswith(POLICY_OPTION):
        return f"policy={override.removeprefix(POLICY_OPTION)}"
    return quote_null(override)


def quote_null(override: str) -> str:
    """Write `system=null` so that Hydra takes the name of a system, not the absence of a value."""
    key, equals, value = override.partition("=")
    if key != "system" or not equals:
        return override
    names = ("'null'" if name.strip() == "null" else name for name in value.split(","))
    return f"{key}={','.join(names)}"


def sweep_of_one(override: str) -> str:
    """Write an option of a system, model or data set as a sweep over its one value.

    Hydra checks what is not swept against the defaults' options first, whatever is swept. Its
    `choice` takes neither null nor nothing: null is a list of itself, of equal jobs.
    """
    key, equals, value = override.partition("=")
    if not equals or not key.startswith(tuple(f"{group}.options." for group in NAMED)):
        return override
    parsed = OverridesParser.create().parse_override(override)
    if parsed.is_sweep_override():
        return override
    if parsed.value() is None:
        return f"{key}={value},{value}"
    return f"{key}=choice({value.strip() or repr('')})"


_UNKNOWN_CHOICE = re.compile(
    r"Could not find '(?P<group>\w+)/(?P<name>[^']*)'\s+Available options in '\w+':(?P<known>.*?)"
    r"(Config search path|$)",
    re.DOTALL,
)


_UNKNOWN_OPTION = re.compile(
    r"Could not override '(?P<key>(?P<group>\w+)\.options\.[^']*)'.\s+To append to your config use"
    r" (?P<append>[^\n]+)"
)
# Hydra's advice for a key that it does not know.
_APPEND = re.compile(r"\s*To append to your config use \S+")
_NOISE = ("full_key:", "object_type=", "reference_type=", "Set the environment variable")


def one_line(error: Exception) -> str:
    """Return what Hydra or OmegaConf say as one line: what was found, what is allowed."""
    if isinstance(error, OverrideParseException):
        return (
            f"{error.override!r} is not understood; write KEY=VALUE, and quotes around a value that"
            " has other signs than letters, digits and - _ . / : + %, as in KEY='\"a, b\"'"
        )
    unknown = _UNKNOWN_CHOICE.search(str(error))
    if unknown:
        name, known = unknown["name"], unknown["known"].split()
        return (
            f"{unknown['group']}={name} is unknown{meant(name, known)}; choose one of:"
            f" {', '.join(known)}"
        )
    option = _UNKNOWN_OPTION.search(str(error))
    if option:
        return (
            f"{option['key']} is not in the file of this {option['group']}, or of one of several;"
            f" if each of them takes it all the same, write {option['append']}; `bench --cfg job`"
            " prints every key and its value"
        )
    cause = error.__cause__ if isinstance(error.__cause__, OmegaConfBaseException) else error
    lines = [line.strip() for line in f"{error}\n{cause}".splitlines()]
    text = " ".join(dict.fromkeys(x for x in lines if x and not x.startswith(_NOISE)))
    text = _APPEND.sub("", text)
    key = getattr(cause, "full_key", None)
    advice = "`bench --cfg job` prints every key and its value"
    return f"{key}: {text}; {advice}" if key else f"{text}; {advice}"


@contextmanager
def hydra_errors() -> Iterator[None]:
    """Turn the errors of Hydra and of the YAML files that it reads into ConfigError: one line."""
    try:
        yield
    except yaml.YAMLError as error:
        raise ConfigError(yaml_fault(error)) from error
    except UnicodeDecodeError as error:  # which does not know its file
        raise ConfigError(f"a file of conf/ is not UTF-8: {error}; correct the file") from error
    # Hydra and OmegaConf tell some of what is wrong with an input by an error of Python itself.
    except (HydraException, OmegaConfBaseException, ValueError, RecursionError) as error:
        raise ConfigError(one_line(error)) from error
    except OSError as error:
        if error.filename is None:  # of writing: Hydra keeps notes of a sweep in a temporary folder
            raise
        raise ConfigError(f"{error.filename} cannot be read: {error.strerror}") from error


class Composer:
    """Composes many configurations quickly: Hydra for a few, files and values merged into those.

    A composition by Hydra costs tens of milliseconds and a grid has hundreds of trials, which join
    the same few systems, models and data sets in many ways.
    """

    def __init__(self, conf_dir: Path = CONF_DIR) -> None:
        self._conf_dir = conf_dir
        self._composed: dict[tuple[str, ...], DictConfig] = {}
        self._pickled: dict[tuple[str, ...], bytes] = {}
        self._first: dict[tuple[str, ...], tuple[str, ...]] = {}  # by the groups that it chooses
        self._parts: dict[tuple[str, ...], DictConfig | None] = {}
        self._parsed: dict[str, Any] = {}
        self._checked: set[str] = set()
        self._plain_values = PlainValues(self.compose)

    def compose(self, overrides: Sequence[str]) -> DictConfig:
        """Compose what `bench OVERRIDES` would; raises ConfigError for a wrong override."""
        groups, values = self._split(overrides)
        with hydra_errors():
            if any(map(_is_hydra_s, values)):
                return self._by_hydra(tuple(map(as_recorded, overrides)))
            merged = self._copy_of(groups)
            merged.merge_with(self._nested(values))
        return merged

    def plain(self, overrides: Sequence[str]) -> dict[str, Any]:
        """What compose(overrides) resolves to, as plain values; raises ConfigError as it does."""
        groups, values = self._split(overrides)
        found = None
        if not any(map(_is_hydra_s, values)):
            with hydra_errors():
                found = self._plain_values.of(groups, values)
        return plain_of(self.compose(overrides)) if found is None else found

    def _split(self, overrides: Sequence[str]) -> tuple[tuple[str, ...], list[str]]:
        """Choices of groups, and values; each override is checked when it is first met.

        Groups in one order, so that choices which experiments write in another are the same ones.
        """
        overrides = [as_recorded(text) for text in overrides]
        with hydra_errors():
            for text in dict.fromkeys(overrides):
                if text not in self._checked:
                    check_dotted(text, self._conf_dir)
                    self._checked.add(text)
        chosen = [text for text in overrides if text.partition("=")[0] in GROUPS]
        groups = tuple(sorted(chosen, key=lambda text: text.partition("=")[0]))
        return groups, [text for text in overrides if text.partition("=")[0] not in GROUPS]

    def _copy_of(self, groups: tuple[str, ...]) -> DictConfig:
        """What Hydra makes of a choice of groups; pickled, which copies 2.5 times faster."""
        if groups not in self._pickled:
            self._pickled[groups] = pickle.dumps(self._joined(groups))
        copied: DictConfig = pickle.loads(self._pickled[groups])
        return copied

    def _joined(self, groups: tuple[str, ...]) -> DictConfig:
        """The first choice of these groups, with every file that is another in its place.

        All of it by Hydra where a file says more than what stands below its own group.
        """
        names = tuple(text.partition("=")[0] for text in groups)
        first = self._first.get(names)
        if first is None or len(set(names)) < len(names) or not set(names) <= set(NAMED):
            whole = self._by_hydra(groups)
            self._first.setdefault(names, groups)
            return whole
        joined = self._copy_of(first)
        for place, name in enumerate(names):
            if groups[place] != first[place]:
                part = self._part((*first[:place], groups[place], *first[place + 1 :]), first, name)
                if part is None:
                    return self._by_hydra(groups)
                joined[name] = part
        return joined

    def _part(
        self, groups: tuple[str, ...], first: tuple[str, ...], name: str
    ) -> DictConfig | None:
        """What stands below one group, in which alone two choices differ; None: more differs."""
        if groups not in self._parts:
            whole = self._by_hydra(first)
            part = self._below(groups, name) if self._below(first, name) == whole[name] else None
            if part is None:
                own = self._by_hydra(groups)
                part = own[name] if _all_but(name, own) == _all_but(name, whole) else None
            self._parts[groups] = part
        return self._parts[groups]

    def _below(self, groups: tuple[str, ...], name: str) -> DictConfig | None:
        """A group's own file under the types; None where it asks for more, which Hydra knows.

        0.1 s less than a composition by Hydra, and a scale has a hundred files.
        """
        chosen = dict(text.split("=", 1) for text in groups)[name].strip("'")
        path = self._conf_dir / name / f"{chosen}.yaml"
        if not path.is_file():
            return None
        content = OmegaConf.load(path)
        if "defaults" in content or "@package" in path.read_text(encoding="utf-8"):
            return None
        below = OmegaConf.structured(type(getattr(BenchConfig(), name)))
        try:
            below.merge_with(content)
        except OmegaConfBaseException:  # Hydra says more of it
            return None
        assert isinstance(below, DictConfig)
        return below

    def _nested(self, values: Sequence[str]) -> dict[str, Any]:
        """Overrides as nested values, later ones over earlier; a grid has the same ones often."""
        found: dict[str, Any] = {}
        for text in values:
            if text not in self._parsed:
                self._parsed[text] = OmegaConf.to_container(OmegaConf.from_dotlist([text]))
            _update(found, self._parsed[text])
        return found

    def _by_hydra(self, overrides: tuple[str, ...]) -> DictConfig:
        if overrides not in self._composed:
            register_schema()
            GlobalHydra.instance().clear()
            read_mapping(self._conf_dir / f"{CONFIG_NAME}.yaml")  # which names the file
            with initialize_config_dir(str(self._conf_dir), version_base="1.3"):
                self._composed[overrides] = compose(CONFIG_NAME, overrides=list(overrides))
        return self._composed[overrides]


def plain_of(config: DictConfig) -> dict[str, Any]:
    """A configuration resolved to plain values; raises ConfigError where one is missing."""
    with hydra_errors():
        plain: Any = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    found: dict[str, Any] = plain
    return found


def _is_hydra_s(value: str) -> bool:
    """Whether it takes Hydra's grammar to add or remove what a file does not say."""
    return value.startswith(("+", "~"))


def _all_but(group: str, config: DictConfig) -> dict[str, Any]:
    """A configuration without what stands below one group."""
    plain: Any = OmegaConf.to_container(config)
    return {key: value for key, value in plain.items() if key != group}


def _update(nested: dict[str, Any], more: dict[str, Any]) -> None:
    """Put values over those of the same keys, at every depth."""
    for key, value in more.items():
        below = nested.get(key)
        if isinstance(below, dict) and isinstance(value, dict):
            _update(below, value)
        else:
            nested[key] = copy.deepcopy(value)
