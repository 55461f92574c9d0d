"""Type checks of values from users, with a one-line message for the first error.

Types are those of dataclass fields: bool, int, float, str, a Literal of strings, dataclasses, and
lists and mappings of these. Any of them may be `| None`, and `Annotated` with bounds
(annotated_types), OneOf or PLACE. The only conversion is from int to float.
"""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from pathlib import PurePath
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from annotated_types import Ge, Gt, Le, MinLen
from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_core import core_schema

from dynbatch.harness.errors import ConfigError, suggest_name

LARGEST_COUNT = 2**31 - 1  # counts have 32 bits
LARGEST_SIZE = 2**20  # layers and mini-batches; the square is still a possible size of an array
LARGEST_SEED = 2**32 - 1  # the largest that every framework accepts
YEAR_S = 365 * 24 * 3600.0
LONGEST_NAME_BYTES = 255
LONGEST_PATH_BYTES = 3500  # of Linux's 4095; the rest is for the harness's directories and names


Kind = TypeVar("Kind")
Found = TypeVar("Found")
_NOT_UTF_8 = re.compile("[\ud800-\udfff]")  # Python reads bytes that are not UTF-8 as these
PLACE = "a path"  # annotation of a string that is the path of a file or directory


@dataclass(frozen=True, slots=True)
class OneOf:
    """Annotation of a string with the values that it may have."""

    texts: tuple[str, ...]

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        return core_schema.literal_schema(list(self.texts))


@dataclass(frozen=True, slots=True)
class OneLine:
    """Annotation of a string that is one nonblank line."""

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> core_schema.CoreSchema:
        return core_schema.str_schema(strict=True, pattern=r"^\s*\S[^\n]*\s*$")


Count = Annotated[int, Ge(1), Le(LARGEST_COUNT)]
CountOrNone = Annotated[int, Ge(0), Le(LARGEST_COUNT)]  # 0: none, or another setting applies
Size = Annotated[int, Ge(1), Le(LARGEST_SIZE)]
Seed = Annotated[int, Ge(0), Le(LARGEST_SEED)]
Seconds = Annotated[float, Ge(0), Le(YEAR_S)]
Positive = Annotated[float, Gt(0)]
NotNegative = Annotated[float, Ge(0)]
Text = Annotated[str, MinLen(1)]
Line = Annotated[str, OneLine()]
Place = Annotated[str, PLACE]

_WORDS: Mapping[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a string",
    types.NoneType: "null",
}
_MAPPING = "a mapping of names to values"
_BOUNDS = ("greater_than", "greater_than_equal", "less_than", "less_than_equal")


def check_value(key: str, value: object, hint: Any) -> None:
    try:
        _build_adapter(hint).validator.validate_python(value)
    except ValidationError as error:
        first = error.errors()[0]["type"]
        if value == "" and (first == "string_too_short" or _list_texts(hint)):
            raise ConfigError(f"{key} is empty; set a value, or remove {key}") from None
        raise ConfigError(
            f"{key}={show(value)} is not allowed{_describe_rule(hint, first)}"
        ) from None
    if isinstance(value, str) and PLACE in _list_annotations(hint):
        check_path_text(key, value)


def check_path_text(name: str, text: str) -> None:
    """Check that a path is not empty, is UTF-8 without NUL characters, and is not too long."""
    if not text:
        raise ConfigError(f"{name} is empty; set a path, or remove {name}")
    if "\0" in text:
        raise ConfigError(f"{name}={text!r} has a NUL character; remove it")
    if _NOT_UTF_8.search(text):
        raise ConfigError(
            f"{name}={text!a} is not allowed: expected UTF-8; rename the file or directory"
        )
    longest = max(map(_count_bytes, PurePath(text).parts), default=0)
    if longest > LONGEST_NAME_BYTES or _count_bytes(text) > LONGEST_PATH_BYTES:
        raise ConfigError(
            f"{name}={text[:40]}... is too long: expected a path of at most {LONGEST_PATH_BYTES}"
            f" bytes and names of at most {LONGEST_NAME_BYTES} bytes, got {_count_bytes(text)} and"
            f" {longest}"
        )


def _count_bytes(text: str) -> int:
    return len(text.encode())


def show(value: object) -> str:
    """Format a value as in YAML, with quotes around strings that look like numbers."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    if isinstance(value, str) and re.fullmatch(r"[-+]?[0-9][0-9_.eE+-]*", value):
        return repr(value)
    return repr(value) if "\n" in str(value) else str(value)


def check_count(key: str, value: object, lowest: int, highest: int = LARGEST_COUNT) -> None:
    """Check that a value is an integer within inclusive bounds."""
    check_value(key, value, Annotated[int, Ge(lowest), Le(highest)])


def check_number(key: str, value: object, lowest: float, highest: float) -> None:
    """Check that a value is a finite number within inclusive bounds."""
    check_value(key, value, Annotated[float, Ge(lowest), Le(highest)])


def check_fields(owner: Any, above: str = "") -> None:
    """Check the fields of a dataclass.

    Args:
        above: Prefix of the fields' keys in messages, such as "timing.".
    """
    for item in _list_fields(type(owner)):
        value = getattr(owner, item.name)
        if not item.allows(value):
            check_value(f"{above}{item.name}", value, item.hint)


def read(kind: type[Kind], values: object, above: str = "", owner: str = "") -> Kind:
    """Build a dataclass, including nested ones that are not built yet, from plain values.

    Args:
        above: Prefix of the keys in messages, such as "nodes.".
        owner: File or section of the keys, for messages.
    """
    location = owner or above.rstrip(".")
    if not isinstance(values, Mapping):
        raise ConfigError(f"{location}={show(values)} is not allowed: expected {_MAPPING}")
    hints, built = find_field_types(kind), {}
    check_known(values, hints, above, owner)
    for item in _list_fields(kind):
        if item.name in values:
            built[item.name] = _build(item, values[item.name], above)
        elif item.is_needed:
            raise ConfigError(f"{location or 'it'} has no {item.name}; add it")
    return kind(**built)


def check_known(
    keys: Iterable[Any], known: Collection[str], above: str = "", owner: str = ""
) -> None:
    """Check that keys are known; `above` and `owner` as in `read`."""
    for key in keys:
        if key not in known:
            raise ConfigError(
                f"{above}{key} is unknown{f' in {owner}' if owner else ''}"
                f"{suggest_name(str(key), known)}; choose one of: {', '.join(known)}"
            )


def _build(item: _Field, value: Any, above: str) -> Any:
    """Return the value of a field: a built dataclass, or the checked value."""
    if item.kind is not None and not (value is None and item.may_be_null):
        if isinstance(value, item.kind):
            return value
        return read(item.kind, value, f"{above}{item.name}.")
    if not item.allows(value):
        check_value(f"{above}{item.name}", value, item.hint)
    return float(value) if item.is_float and type(value) is int else value


@dataclass(frozen=True, slots=True)
class _Field:
    """Field of a dataclass and the check of its values.

    Attributes:
        kind: The nested dataclass, or None.
    """

    name: str
    hint: Any
    is_needed: bool
    kind: type[Any] | None
    may_be_null: bool
    is_float: bool
    is_path: bool
    validate: Callable[[object], object]

    def allows(self, value: object) -> bool:
        """Return whether a value passes the fast check; a path never does."""
        try:
            self.validate(value)
        except ValidationError:
            return False
        return not (self.is_path and isinstance(value, str))


def _cached(function: Callable[[Any], Found]) -> Callable[[Any], Found]:
    return cache(function)  # uncached, these functions take most of the time of a check


@_cached
def _list_fields(kind: Any) -> tuple[_Field, ...]:
    items = []
    for item in fields(kind):
        hint = find_field_types(kind)[item.name]
        parts = _list_alternatives(hint)
        bare = [_strip_annotation(part) for part in parts]
        items.append(
            _Field(
                name=item.name,
                hint=hint,
                is_needed=item.default is MISSING and item.default_factory is MISSING,
                kind=next(filter(_is_class, parts), None),
                may_be_null=types.NoneType in parts,
                is_float=float in bare and int not in bare,
                is_path=PLACE in _list_annotations(hint),
                validate=_build_adapter(hint).validator.validate_python,
            )
        )
    return tuple(items)


@_cached
def find_field_types(kind: Any) -> Mapping[str, Any]:
    hints = get_type_hints(kind, include_extras=True)
    return {item.name: hints[item.name] for item in fields(kind)}


@_cached
def find_key_types(kind: Any) -> Mapping[str, Any]:
    """Return the type of every key of a dataclass and nested ones, with dots between levels."""
    hints: dict[str, Any] = {}
    for name, hint in find_field_types(kind).items():
        hints[name] = hint
        if _is_class(hint):
            hints |= {f"{name}.{key}": inner for key, inner in find_key_types(hint).items()}
    return hints


def _is_class(hint: Any) -> bool:
    return isinstance(hint, type) and is_dataclass(hint)


@cache
def _build_adapter(hint: Any) -> TypeAdapter[Any]:
    config = ConfigDict(strict=True, allow_inf_nan=False, arbitrary_types_allowed=True)
    if _is_class(hint):
        return TypeAdapter(hint)  # a dataclass does not accept a configuration here
    return TypeAdapter(hint, config=config)


def _describe_rule(hint: Any, fault: str) -> str:
    marks = _list_annotations(hint)
    lowest = next((mark.ge for mark in marks if isinstance(mark, Ge)), None)
    highest = next((mark.le for mark in marks if isinstance(mark, Le)), None)
    if fault in _BOUNDS or (fault == "finite_number" and highest is not None):
        above = "a value above 0" if lowest is None else f"a value of at least {lowest}"
        is_low = fault.startswith("greater")
        return f": expected {above}" + (
            "" if is_low or highest is None else f" and at most {highest}"
        )
    texts, phrases = _list_texts(hint), describe_values(hint)
    if texts and len(phrases) == len(texts):
        quotes = " (in quotes: YAML reads a bare off as false)" if "off" in texts else ""
        return f"; choose one of {', '.join(texts)}{quotes}"
    return f": expected {' or '.join(phrases)}"


def describe_values(hint: Any) -> list[str]:
    phrases: list[str] = []
    for part in _list_alternatives(hint):
        if texts := _list_texts(part):
            phrases += texts
        elif any(isinstance(mark, OneLine) for mark in _list_annotations(part)):
            phrases.append("a string of one line")
        else:
            phrases.append(_describe_type(_strip_annotation(part)))
    return phrases


def _describe_type(hint: Any) -> str:
    if hint in _WORDS or hint is Any:
        return _WORDS.get(hint, "a list")
    return (
        _MAPPING
        if is_dataclass(hint) or issubclass(get_origin(hint) or hint, Mapping)
        else "a list"
    )


def _list_texts(hint: Any) -> list[str]:
    """Return the strings that a type lists, including null if it is allowed."""
    allowed: list[str] = []
    for part in _list_alternatives(hint):
        listed = [mark.texts for mark in _list_annotations(part) if isinstance(mark, OneOf)]
        if get_origin(_strip_annotation(part)) is Literal:
            listed = [get_args(_strip_annotation(part))]
        allowed += [str(text) for texts in listed for text in texts]
        if part is types.NoneType and allowed:
            allowed.append("null")
    return allowed


def _list_alternatives(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _strip_annotation(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def _list_annotations(hint: Any) -> tuple[Any, ...]:
    """Return the annotations that `Annotated` adds to a type or to one of its alternatives."""
    return tuple(
        mark
        for part in _list_alternatives(hint)
        if get_origin(part) is Annotated
        for mark in get_args(part)[1:]
    )
