"""Compositions as plain values, for grids: what each override comes to is worked out once.

Merging a trial's overrides into a configuration and resolving it takes 5 ms, of which the papers'
grids have 5 700 to make; they set the same few values in many ways.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Sequence
from typing import Any

from omegaconf import DictConfig, OmegaConf

from harness.values.nested import texts_in

Plain = dict[str, Any]
Path = tuple[str, ...]
_OF_ENVIRONMENT, _REFERENCE, _MISSING = "${oc.env:", "${", "???"


class PlainValues:
    """Values of compositions whose overrides do not depend on each other.

    compose: composes any overrides. It raises for what is wrong, here as there.
    """

    def __init__(self, compose: Callable[[Sequence[str]], DictConfig]) -> None:
        self._compose = compose
        self._bases: dict[tuple[str, ...], bytes | None] = {}
        self._leaves: dict[tuple[str, ...], Any] = {}

    def of(self, groups: tuple[str, ...], values: Sequence[str]) -> Plain | None:
        """What `groups` and `values` compose to; None where that has to be composed as a whole.

        That is so where one value refers to another, a mapping is set, or what is none becomes one.
        """
        if groups not in self._bases:
            self._bases[groups] = self._base(groups)
        base = self._bases[groups]
        if base is None or any(_REFERENCE in text for text in values):
            return None
        plain: Plain = pickle.loads(base)
        for text in values:
            path, value = _path_of(text), self._leaf(groups, text)
            above = _mapping_above(plain, path)
            if above is None or path[-1] not in above or isinstance(value, dict):
                return None
            above[path[-1]] = copy.copy(value)
        return plain

    def _base(self, groups: tuple[str, ...]) -> bytes | None:
        config = self._compose(groups)
        if any(map(_refers, texts_in(OmegaConf.to_container(config)))):
            return None
        return pickle.dumps(OmegaConf.to_container(config, resolve=True))

    def _leaf(self, groups: tuple[str, ...], text: str) -> Any:
        """A value as the types make it; which are there depends on the group that it is below."""
        path = _path_of(text)
        near = (one for one in groups if one.partition("=")[0] == path[0])
        key = (text, *near)
        if key not in self._leaves:
            plain: Any = OmegaConf.to_container(self._compose([*groups, text]), resolve=True)
            above = _mapping_above(plain, path)
            assert above is not None, f"{text} was composed"
            self._leaves[key] = above[path[-1]]
        return self._leaves[key]


def _path_of(text: str) -> Path:
    return tuple(text.partition("=")[0].split("."))


def _mapping_above(plain: Plain, path: Path) -> Plain | None:
    """What holds a value; None where a value that is no mapping stands in the way."""
    found: Any = plain
    for key in path[:-1]:
        found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else None


def _refers(text: str) -> bool:
    """Whether a value is another one's, or is not there."""
    own = text.removeprefix(_OF_ENVIRONMENT)
    return _REFERENCE in own or text == _MISSING
