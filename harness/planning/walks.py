"""A walk from one preset of the engine to another, a switch at a time: what is each worth?

    walks:                     # a key of conf/experiment/<name>.yaml
      cavs_dynet: {to: vertex, steps: [pre_gather_parameters, layout, fusion, policy]}
    ...
        blocks:
          - {walk: cavs_dynet, model: tree_lstm} # in place of `system`: all trials of that walk
          - {along: cavs_dynet, model: tree_lstm} # those after each step, none of steps alone

Steps name each option in which the two files of conf/system differ, in the order of the walk. What
a step is worth depends on the others: so each is also added first, by itself, and removed last.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import ConfigError
from harness.planning.yaml_files import read_mapping

Settings = dict[str, Any]
UNSAID = object()


@dataclass(frozen=True, slots=True)
class Step:
    """One option of the engine, and what the two ends of a walk say of it."""

    option: str
    before: Any
    after: Any

    @property
    def key(self) -> str:
        """The override of `bench` that sets it."""
        return f"system.options.{self.option}"


@dataclass(frozen=True, slots=True)
class Walk:
    """From the preset `start` to the preset `end`; n steps."""

    start: str
    end: str
    steps: tuple[Step, ...]

    def walked(self, n_steps: int) -> Settings:
        """The trial after that many steps: 0 is the start itself, all of them the end itself."""
        if n_steps == len(self.steps):
            return {"system": self.end}
        return {"system": self.start, **{one.key: one.after for one in self.steps[:n_steps]}}

    def along(self) -> Iterator[Settings]:
        """The trials of the walk itself: the start, and after each step."""
        yield from (self.walked(n) for n in range(len(self.steps) + 1))

    def added_first(self, place: int) -> Settings:
        """The start with that one step alone."""
        step = self.steps[place]
        return {"system": self.start, step.key: step.after}

    def removed_last(self, place: int) -> Settings:
        """The end without that one step; of the last step, the walk just before it."""
        if place == len(self.steps) - 1:
            return self.walked(place)
        step = self.steps[place]
        return {"system": self.end, step.key: step.before}

    def trials(self) -> Iterator[Settings]:
        """Every trial once, in the order of the walk."""
        places = range(len(self.steps))
        found = [self.walked(n) for n in range(len(self.steps) + 1)]
        found += [self.added_first(place) for place in places]
        found += [self.removed_last(place) for place in places]
        yield from (one for i, one in enumerate(found) if one not in found[:i])


def read_walks(name: str, content: Mapping[str, Any], conf_dir: Path) -> dict[str, Walk]:
    """The walks of an experiment by where they start; raises ConfigError where one is wrong."""
    return {
        start: _walk(f"experiment/{name}.yaml, walk {start}", start, said, conf_dir)
        for start, said in (content.get("walks") or {}).items()
    }


def _walk(place: str, start: str, said: Any, conf_dir: Path) -> Walk:
    if not isinstance(said, Mapping) or set(said) != {"to", "steps"}:
        raise ConfigError(f"{place} has {said}; give to: PRESET and steps: [OPTION, ...]")
    before, after = (_options(place, name, conf_dir) for name in (start, said["to"]))
    differ = {
        option
        for option in before.keys() | after.keys()
        if before.get(option, UNSAID) != after.get(option, UNSAID)
    }
    steps = said["steps"]
    if sorted(steps) != sorted(differ):
        raise ConfigError(
            f"{place} steps over {', '.join(steps)}, but {start} and {said['to']} differ in"
            f" {', '.join(sorted(differ))}; name each of these once"
        )
    unsaid = sorted(option for option in differ if option not in before or option not in after)
    if unsaid:
        raise ConfigError(
            f"{place} has ends that do not both say {', '.join(unsaid)}; write it in both of"
            f" conf/system/{start}.yaml and {said['to']}.yaml"
        )
    return Walk(start, said["to"], tuple(Step(one, before[one], after[one]) for one in steps))


def _options(place: str, system: str, conf_dir: Path) -> dict[str, Any]:
    path = conf_dir / "system" / f"{system}.yaml"
    if not path.is_file():
        raise ConfigError(f"{place} names {system}, which conf/system has not; name a preset")
    options: dict[str, Any] = read_mapping(path, "options")["options"]
    return options
