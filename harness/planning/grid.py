"""Grid of one experiment: conf/experiment/<name>.yaml, expanded to the settings of its trials.

Format of an experiment file (notes, compare, table and figure: plots/declaration.py):

    title: Time per epoch against batch size      # required, one line
    paper: Cavs (Xu et al., ATC 2018), Fig. 8 c    # required, one line
    scales:                                        # required, one entry per scale
      smoke:
        rounds: 6                                  # fresh processes per trial, default 1
        base:                                      # overrides of every trial of this scale
          model: tree_lstm
          timing.min_seconds: 0.2
        blocks:                                    # each is the product of its lists, in file order
          - system: [vertex, dynet]
            batch_size: [1, 16, 64]
            hidden_size: 64
          - {system: vertex, policy: [depth, agenda], batch_size: 64, hidden_size: 64}
          - {system: [vertex, kind:framework, not:dynet_depth], batch_size: 32, hidden_size: 64}
        counts:                                    # batch counts, one `bench-schedule` call each
          - {model: [tree_lstm, tree_gru], dataset: sst, batch_size: 8, policy: [agenda, depth]}
      paper: {...}

A scale may also be the word `nothing`: the table is read from the code, without measurements.

`system` lists names, kinds or both. `kind:framework` selects every framework that can run the
block's model and is neither slow nor extra, `slow:framework` and `extra:framework` the others, and
`not:NAME` removes one; see harness/planning/kinds.py. A new system is therefore measured without
being named here. The lists of `compare` have the same syntax.

A walk changes one preset of the engine into another, one switch at a time, and shows the effect of
each switch:

    walks:                     # a key of the experiment
      cavs_dynet: {to: vertex, steps: [pre_gather_parameters, layout, fusion, policy]}
    ...
        blocks:
          - {walk: cavs_dynet, model: tree_lstm} # in place of `system`: all trials of that walk
          - {along: cavs_dynet, model: tree_lstm} # only the trials after each step

Steps name each option in which the two files of conf/system differ, in the order of the walk. The
effect of a step depends on the others. A walk therefore also measures each step added to its start
and each step removed from its end.

Keys are override keys of `bench` with dots between levels (timing.min_seconds,
model.options.variant). A block's key overrides the base's key, and its `rounds` those of the scale.
A block with `device: cuda` is not planned on a CPU. `null` is a value like any other. A block
without lists is one trial. A scale has blocks, counts (keys: harness/planning/sweep.py), or both.

A scale without blocks and counts may be the word `claims`, which shows the trials and counts of
other experiments that conf/claims names. It may also be `trials_of: NAME`, which shows the trials
of other experiments; NAME may have the wildcards of file names (`headline_*`) or be a list.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from dynbatch.harness.errors import ConfigError
from dynbatch.harness.planning.kinds import read_selection
from dynbatch.harness.planning.sweep import Sweep, parse_sweep
from dynbatch.harness.planning.yaml_files import find_choice, read_mapping
from dynbatch.harness.values.checked import Count, check_known, read
from dynbatch.harness.values.paths import CONF_DIR

SCALES = ("smoke", "medium", "paper")
_REQUIRED_KEYS = ("title", "paper", "scales")
_KEYS = (*_REQUIRED_KEYS, "notes", "walks", "compare", "table", "figure")
CLAIMS = "claims"  # value of a scale that shows trials and counts of claims
WALK, ALONG = "walk", "along"  # keys of a block that replace `system`
TRIALS_OF = "trials_of"  # only key of a scale that shows trials of other experiments
EXPERIMENT = "experiment"  # key of a shown trial's settings that names its own experiment
NOTHING = "nothing"  # value of a scale without trials and counts

Settings = Mapping[str, Any]  # override key -> value of one trial


@dataclass(frozen=True, slots=True)
class Grid:
    """One experiment at one scale.

    Attributes:
        settings: override keys and values of each trial.
        sweeps: batch counts, each from one call of `bench-schedule`.
        of_claims: whether it shows trials and counts that conf/claims names, and has none itself.
        trials_of: experiments whose trials it shows; it has none itself then.
    """

    name: str
    scale: str
    rounds: int = 1
    settings: tuple[Settings, ...] = ()
    sweeps: tuple[Sweep, ...] = ()
    of_claims: bool = False
    trials_of: tuple[str, ...] = ()


def list_experiment_names(conf_dir: Path = CONF_DIR) -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in (conf_dir / "experiment").glob("*.yaml")))


def read_experiment(name: str, conf_dir: Path = CONF_DIR) -> dict[str, Any]:
    content = read_mapping(find_choice("experiment", name, conf_dir))
    check_known(content, _KEYS, owner=f"experiment/{name}.yaml")
    for key in _REQUIRED_KEYS:
        if not content.get(key):
            raise ConfigError(f"experiment/{name}.yaml has no {key}; set it")
    return content


def expand(name: str, scale: str, conf_dir: Path = CONF_DIR) -> Grid:
    content = read_experiment(name, conf_dir)
    scales = content["scales"]
    if scale not in scales:
        known = ", ".join(scales)
        raise ConfigError(f"experiment/{name}.yaml has no scale {scale}; choose one of: {known}")
    chosen = scales[scale]
    location = f"experiment/{name}.yaml, scale {scale}"
    if chosen == CLAIMS:
        return Grid(name, scale, of_claims=True)
    if chosen == NOTHING:
        return Grid(name, scale)
    if isinstance(chosen, dict) and TRIALS_OF in chosen:
        return Grid(name, scale, trials_of=_select_experiments(location, scale, chosen, conf_dir))
    try:
        parsed = read(_Scale, chosen, owner="the scale")
    except ConfigError as error:
        raise ConfigError(f"{location}: {error}") from error
    blocks = [{**(parsed.base or {}), **block} for block in parsed.blocks]
    walks = read_walks(name, content, conf_dir)
    settings = [
        entry
        for block in blocks
        for walked in _expand_walks(location, block, walks)
        for entry in _expand_block(location, walked, conf_dir)
    ]
    sweeps = tuple(parse_sweep(location, entry) for entry in parsed.counts)
    return Grid(name, scale, parsed.rounds, tuple(settings), sweeps)


@dataclass(frozen=True, slots=True)
class _Scale:
    """Content of a file for a scale that measures or counts."""

    rounds: Count = 1
    base: Mapping[str, Any] | None = None
    blocks: Sequence[Any] = ()
    counts: Sequence[Any] = ()

    def __post_init__(self) -> None:
        if not self.blocks and not self.counts:
            raise ConfigError(
                f"has no blocks and no counts; add one, or set the scale to {NOTHING}"
            )
        for block in self.blocks:
            if not isinstance(block, dict):
                raise ConfigError(f"invalid block: expected a mapping, got {block!r}; fix it")


def _select_experiments(
    location: str, scale: str, chosen: Mapping[str, Any], conf_dir: Path
) -> tuple[str, ...]:
    """Return the experiments that `trials_of` names and that measure at this scale."""
    if len(chosen) > 1:
        raise ConfigError(
            f"{location} has {', '.join(chosen)}: expected only {TRIALS_OF}; remove the others"
        )
    named, known = chosen[TRIALS_OF], list_experiment_names(conf_dir)
    measuring: list[str] = []
    for pattern in named if isinstance(named, list) else [named]:
        fits = fnmatch.filter(known, str(pattern))
        scales = {fit: read_experiment(fit, conf_dir)["scales"].get(scale) for fit in fits}
        selected = [
            experiment
            for experiment, content in scales.items()
            if isinstance(content, dict) and content.get("blocks")
        ]
        if not selected:
            raise ConfigError(
                f"{location} has {TRIALS_OF}={pattern}, which matches no experiment that"
                f" measures; choose one of {', '.join(known)}"
            )
        measuring += selected
    return tuple(dict.fromkeys(measuring))


def _expand_walks(
    location: str, block: Mapping[str, Any], walks: Mapping[str, Walk]
) -> Iterator[dict[str, Any]]:
    """Yield the block itself, or a block for each trial of the walks that it names."""
    rest = {key: value for key, value in block.items() if key not in (WALK, ALONG)}
    if len(rest) == len(block):
        yield rest
    for key in (WALK, ALONG):
        named = block.get(key, [])
        for start in named if isinstance(named, list) else [named]:
            if start not in walks:
                known = ", ".join(walks) or "none"
                raise ConfigError(f"{location} has unknown {key}={start}; choose one of: {known}")
            walk = walks[start]
            for trial in walk.follow_steps() if key == ALONG else walk.list_trials():
                yield rest | trial


def _expand_block(
    location: str, block: Mapping[str, Any], conf_dir: Path
) -> Iterator[dict[str, Any]]:
    """Yield every point of a block; a kind selects the systems that run the point's model."""
    selection = read_selection(location, block.get("system", []), conf_dir)
    if not selection.known:
        yield from _expand_product(block)
        return
    models = block.get("model")
    if not models:
        raise ConfigError(f"{location} selects systems by kind, but has no model; set one")
    names = selection.list_names(models if isinstance(models, list) else [models])
    for point in _expand_product({**block, "system": list(names)}):
        if selection.allows(point["system"], point["model"]):
            yield point


def _expand_product(block: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    axes = [values if isinstance(values, list) else [values] for values in block.values()]
    for point in product(*axes):
        yield dict(zip(block, point, strict=True))


UNSAID = object()


@dataclass(frozen=True, slots=True)
class WalkStep:
    """One option of the engine, with its values at the two ends of a walk."""

    option: str
    before: Any
    after: Any

    @property
    def key(self) -> str:
        return f"system.options.{self.option}"


@dataclass(frozen=True, slots=True)
class Walk:
    """Change of the preset `start` into the preset `end`, one option per step."""

    start: str
    end: str
    steps: tuple[WalkStep, ...]

    def take_steps(self, n_steps: int) -> dict[str, Any]:
        """Return the trial after n steps; 0 gives the start and all steps give the end."""
        if n_steps == len(self.steps):
            return {"system": self.end}
        return {"system": self.start, **{step.key: step.after for step in self.steps[:n_steps]}}

    def follow_steps(self) -> Iterator[dict[str, Any]]:
        yield from (self.take_steps(n) for n in range(len(self.steps) + 1))

    def add_first(self, index: int) -> dict[str, Any]:
        """Return the start with only one step."""
        step = self.steps[index]
        return {"system": self.start, step.key: step.after}

    def remove_last(self, index: int) -> dict[str, Any]:
        """Return the end without one step; for the last step, the trial before it."""
        if index == len(self.steps) - 1:
            return self.take_steps(index)
        step = self.steps[index]
        return {"system": self.end, step.key: step.before}

    def list_trials(self) -> Iterator[dict[str, Any]]:
        """Yield every trial once: along the walk, with steps added first, then removed last."""
        places = range(len(self.steps))
        trials = [self.take_steps(n) for n in range(len(self.steps) + 1)]
        trials += [self.add_first(index) for index in places]
        trials += [self.remove_last(index) for index in places]
        yield from (trial for i, trial in enumerate(trials) if trial not in trials[:i])


def read_walks(name: str, content: Mapping[str, Any], conf_dir: Path) -> dict[str, Walk]:
    return {
        start: _read_walk(f"experiment/{name}.yaml, walk {start}", start, entry, conf_dir)
        for start, entry in (content.get("walks") or {}).items()
    }


def _read_walk(location: str, start: str, entry: Any, conf_dir: Path) -> Walk:
    if not isinstance(entry, Mapping) or set(entry) != {"to", "steps"}:
        raise ConfigError(f"{location} has {entry}; set to: PRESET and steps: [OPTION, ...]")
    before, after = (_read_options(location, name, conf_dir) for name in (start, entry["to"]))
    differ = {
        option
        for option in before.keys() | after.keys()
        if before.get(option, UNSAID) != after.get(option, UNSAID)
    }
    steps = entry["steps"]
    if sorted(steps) != sorted(differ):
        raise ConfigError(
            f"{location} has steps {', '.join(steps)}, but {start} and {entry['to']} differ in"
            f" {', '.join(sorted(differ))}; set each of these once"
        )
    unsaid = sorted(option for option in differ if option not in before or option not in after)
    if unsaid:
        raise ConfigError(
            f"{location}: only one end sets {', '.join(unsaid)}; set it in both"
            f" conf/system/{start}.yaml and {entry['to']}.yaml"
        )
    return Walk(
        start,
        entry["to"],
        tuple(WalkStep(option, before[option], after[option]) for option in steps),
    )


def _read_options(location: str, system: str, conf_dir: Path) -> dict[str, Any]:
    path = conf_dir / "system" / f"{system}.yaml"
    if not path.is_file():
        raise ConfigError(f"{location} has unknown system {system}; choose a preset")
    options: dict[str, Any] = read_mapping(path, "options")["options"]
    return options
