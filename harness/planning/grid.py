"""The grid of one paper artefact: conf/experiment/<name>.yaml expanded to lists of overrides.

Format of an experiment file (notes, compare, table and figure: plots/declaration.py):

    title: Time per epoch against batch size      # required, one line
    paper: Cavs (Xu et al., ATC 2018), Fig. 8 c    # required, one line
    scales:                                        # required, one entry per scale
      smoke:
        rounds: 6                                  # fresh processes per trial, default 1
        screening: {rounds: 2, factor: 2}          # or left out: harness/planning/ordering.py
        base:                                      # overrides of every trial of this scale
          model: tree_lstm
          timing.min_seconds: 0.2
        blocks:                                    # each the product of its lists, in file order
          - system: [vertex, dynet]
            batch_size: [1, 16, 64]
            hidden_size: 64
          - {system: vertex, policy: [depth, agenda], batch_size: 64, hidden_size: 64}
          - {system: [vertex, kind:framework, not:dynet_depth], batch_size: 32, hidden_size: 64}
        counts:                                    # batch counts, a call of `bench-schedule` each
          - {model: [tree_lstm, tree_gru], dataset: sst, batch_size: 8, policy: [agenda, depth]}
      paper: {...}

A scale may also be the word `nothing`: what is shown is read from the code, not measured.

`system` lists names, kinds (harness/planning/kinds.py: what a system's YAML says)
or both: kind:framework is every framework that can run the block's model and is not slow,
slow:framework the slow ones, not:NAME leaves one out (harness/planning/kinds.py). A new system is
so measured without being named here. The lists of `compare` are written in the same way.

A walk leads from one preset of the engine to another, a switch at a time, and shows the value of
each:

    walks:                     # a key of the experiment
      cavs_dynet: {to: vertex, steps: [pre_gather_parameters, layout, fusion, policy]}
    ...
        blocks:
          - {walk: cavs_dynet, model: tree_lstm} # in place of `system`: all trials of that walk
          - {along: cavs_dynet, model: tree_lstm} # those after each step, none of steps alone

Steps name each option in which the two files of conf/system differ, in the order of the walk. The
value of a step depends on the others: so each is also added first, by itself, and removed last.

Keys are override keys of `bench` (a dot goes down: timing.min_seconds, model.options.variant); a
block's key wins over the base's. `null` is a value like any other. A block without lists is one
trial. A scale has blocks, counts (keys: harness/planning/sweep.py), or both.
In place of all that a scale may be the word `claims`: those trials and counts of other experiments
that conf/claims names; or `trials_of: NAME`, the trials of other experiments, where NAME may have
the wildcards of file names (`headline_*`): it measures nothing of its own.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from harness.errors import ConfigError, meant
from harness.planning.kinds import read_selection
from harness.planning.sweep import Sweep, sweep_of
from harness.planning.yaml_files import read_mapping
from harness.trials.spec import Screening
from harness.values.checked import Count, read
from harness.values.places import CONF_DIR

SCALES = ("smoke", "medium", "paper")
_REQUIRED_KEYS = ("title", "paper", "scales")
_KEYS = (*_REQUIRED_KEYS, "notes", "walks", "compare", "table", "figure")
CLAIMS = "claims"  # in place of a scale: trials and counts that conf/claims names
WALK, ALONG = "walk", "along"  # a block's keys in place of `system`
TRIALS_OF = "trials_of"  # a scale's only key, in place of blocks and counts
EXPERIMENT = "experiment"  # the key under which such a trial remembers whose grid it is of
NOTHING = "nothing"  # in place of a scale: no trial and no count

Settings = Mapping[str, Any]  # override key -> value of one trial


@dataclass(frozen=True, slots=True)
class Grid:
    """One artefact at one scale: its trials as override lists, each run in `rounds` rounds.

    screening: which of its systems have fewer; None: none has.
    sweeps: batch counts that it takes from `bench-schedule`.
    of_claims: True where it has no points of its own, but those that conf/claims names.
    trials_of: experiments whose points it shows; it has none of its own then.
    """

    name: str
    title: str
    paper: str
    scale: str
    rounds: int
    settings: tuple[Settings, ...]
    sweeps: tuple[Sweep, ...] = ()
    of_claims: bool = False
    trials_of: tuple[str, ...] = ()
    screening: Screening | None = None


def experiment_names(conf_dir: Path = CONF_DIR) -> tuple[str, ...]:
    """Names of all artefacts that have a grid."""
    return tuple(sorted(path.stem for path in (conf_dir / "experiment").glob("*.yaml")))


def read_experiment(name: str, conf_dir: Path = CONF_DIR) -> dict[str, Any]:
    """Read one artefact's file; raises ConfigError if there is none or it is not in the format."""
    path = conf_dir / "experiment" / f"{name}.yaml"
    if not path.is_file():
        known = experiment_names(conf_dir)
        choices = ", ".join(known) or "none"
        raise ConfigError(
            f"experiment={name} is unknown{meant(name, known)}; choose one of: {choices}"
        )
    content = read_mapping(path)
    for key in content:
        if key not in _KEYS:
            told = f"unknown key {key!r}{meant(str(key), _KEYS)}; choose from {', '.join(_KEYS)}"
            raise ConfigError(f"experiment/{name}.yaml: {told}")
    for key in _REQUIRED_KEYS:
        if not content.get(key):
            raise ConfigError(f"experiment/{name}.yaml has no {key}; see harness/planning/grid.py")
    return content


def expand(name: str, scale: str, conf_dir: Path = CONF_DIR) -> Grid:
    """Expand one artefact's grid at one scale; raises ConfigError where the file is wrong."""
    content = read_experiment(name, conf_dir)
    scales = content["scales"]
    if scale not in scales:
        known = ", ".join(scales)
        raise ConfigError(f"experiment/{name}.yaml has no scale {scale}; choose one of: {known}")
    chosen = scales[scale]
    place = f"experiment/{name}.yaml, scale {scale}"
    if chosen == CLAIMS:
        return Grid(name, content["title"], content["paper"], scale, 1, (), of_claims=True)
    if chosen == NOTHING:
        return Grid(name, content["title"], content["paper"], scale, rounds=1, settings=())
    if isinstance(chosen, dict) and TRIALS_OF in chosen:
        names = _others(name, scale, chosen, conf_dir)
        return Grid(name, content["title"], content["paper"], scale, 1, (), trials_of=names)
    said = _read_scale(place, chosen)
    blocks = [{**(said.base or {}), **block} for block in said.blocks]
    walks = read_walks(name, content, conf_dir)
    settings = [
        one
        for block in blocks
        for walked in _without_walk(place, block, walks)
        for one in _points(place, walked, conf_dir)
    ]
    return Grid(
        name=name,
        title=content["title"],
        paper=content["paper"],
        scale=scale,
        rounds=said.rounds,
        screening=said.screening,
        settings=tuple(settings),
        sweeps=tuple(sweep_of(place, one) for one in said.counts),
    )


@dataclass(frozen=True, slots=True)
class _Scale:
    """What a file says of a scale that measures or counts."""

    rounds: Count = 1
    screening: Screening | None = None
    base: Mapping[str, Any] | None = None
    blocks: Sequence[Any] = ()
    counts: Sequence[Any] = ()

    def __post_init__(self) -> None:
        if not self.blocks and not self.counts:
            raise ConfigError(
                f"has no blocks and no counts; list at least one of either, or say {NOTHING}"
            )
        if self.screening is not None and self.screening.rounds >= self.rounds:
            raise ConfigError(
                f"has screening.rounds={self.screening.rounds} of rounds={self.rounds}, which"
                " leaves none out; give less, or leave screening out"
            )
        for block in self.blocks:
            if not isinstance(block, dict):
                raise ConfigError(f"has the block {block!r}; a block maps keys to values")


def _read_scale(place: str, chosen: Any) -> _Scale:
    try:
        return read(_Scale, chosen, owner="the scale")
    except ConfigError as error:
        raise ConfigError(f"{place}: {error}") from error


def _others(name: str, scale: str, chosen: Mapping[str, Any], conf_dir: Path) -> tuple[str, ...]:
    """Experiments that `trials_of` names, as far as they measure at this scale."""
    place = f"experiment/{name}.yaml, scale {scale}"
    if len(chosen) > 1:
        raise ConfigError(f"{place} has {', '.join(chosen)}; beside {TRIALS_OF} nothing is allowed")
    fits = fnmatch.filter(experiment_names(conf_dir), str(chosen[TRIALS_OF]))
    scales = {one: read_experiment(one, conf_dir)["scales"].get(scale) for one in fits}
    measuring = tuple(n for n, of in scales.items() if isinstance(of, dict) and of.get("blocks"))
    if not measuring:
        raise ConfigError(
            f"{place} has {TRIALS_OF}={chosen[TRIALS_OF]}, which no experiment that measures fits;"
            f" there are {', '.join(experiment_names(conf_dir))}"
        )
    return measuring


def _without_walk(
    place: str, block: Mapping[str, Any], walks: Mapping[str, Walk]
) -> Iterator[dict[str, Any]]:
    """The block itself, or a block for each trial of the walk that it names."""
    rest = {key: value for key, value in block.items() if key not in (WALK, ALONG)}
    if len(rest) == len(block):
        yield rest
    for key in (WALK, ALONG):
        said = block.get(key, [])
        for start in said if isinstance(said, list) else [said]:
            if start not in walks:
                known = ", ".join(walks) or "none"
                raise ConfigError(f"{place} has {key}={start}; walks of this experiment: {known}")
            walk = walks[start]
            for trial in walk.along() if key == ALONG else walk.trials():
                yield rest | trial


def _points(place: str, block: Mapping[str, Any], conf_dir: Path) -> Iterator[dict[str, Any]]:
    """Every point of a block; a kind of systems stands for those that run the point's model."""
    selection = read_selection(place, block.get("system", []), conf_dir)
    if not selection.selects_by_kind:
        yield from _product(block)
        return
    models = block.get("model")
    if not models:
        raise ConfigError(f"{place} selects systems by kind, but has no model; give one")
    names = selection.names(models if isinstance(models, list) else [models])
    for point in _product({**block, "system": list(names)}):
        if selection.allows(point["system"], point["model"]):
            yield point


def _product(block: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    axes = [values if isinstance(values, list) else [values] for values in block.values()]
    for point in product(*axes):
        yield dict(zip(block, point, strict=True))


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

    def walked(self, n_steps: int) -> dict[str, Any]:
        """The trial after that many steps: 0 is the start itself, all of them the end itself."""
        if n_steps == len(self.steps):
            return {"system": self.end}
        return {"system": self.start, **{one.key: one.after for one in self.steps[:n_steps]}}

    def along(self) -> Iterator[dict[str, Any]]:
        """The trials of the walk itself: the start, and after each step."""
        yield from (self.walked(n) for n in range(len(self.steps) + 1))

    def added_first(self, place: int) -> dict[str, Any]:
        """The start with that one step alone."""
        step = self.steps[place]
        return {"system": self.start, step.key: step.after}

    def removed_last(self, place: int) -> dict[str, Any]:
        """The end without that one step; of the last step, the walk just before it."""
        if place == len(self.steps) - 1:
            return self.walked(place)
        step = self.steps[place]
        return {"system": self.end, step.key: step.before}

    def trials(self) -> Iterator[dict[str, Any]]:
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
