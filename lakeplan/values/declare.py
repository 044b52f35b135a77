"""Declarations of the tree's settings: one field of a block, with its kind, default, help and strictness.

``setting`` makes the field, ``settings_of`` lists the fields of a block. Reading and checking trees, the JSON
Schemas, ``docs/settings.md``, merging and the comparison of two trees go through that list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from typing import Any, Literal

from lakeplan.values.units import parse_age, parse_bytes, parse_count, parse_duration, parse_percent

UNLIMITED = "unlimited"


@dataclass(frozen=True)
class Kind:
    """The values that a setting may have. ``definition`` names their JSON Schema in
    ``schemas/repository.v1.json``, or ``words`` lists them. ``parse`` turns the text or number in the tree
    into the value, or raises ValueError. ``unit`` is the unit in messages. ``recorded`` is the type in
    documents and marks, which may also be null with ``or_null``."""

    definition: str = ""
    parse: Callable[[Any], Any] = lambda value: value
    unit: str = ""
    words: tuple[str, ...] = ()
    recorded: Literal["integer", "number", "boolean", "string", "strings"] = "integer"
    or_null: bool = False

    @property
    def is_free_text(self) -> bool:
        """Whether a person may write any text here. Redacted documents omit it."""
        return self.recorded == "string" and not self.words


def words(*allowed: str | Enum) -> Kind:
    """Return the kind of a setting whose value is one of these words. Messages list them in this order."""
    values = {str(word.value if isinstance(word, Enum) else word): word for word in allowed}

    def parse(text: Any) -> str | Enum:
        if text not in values:
            raise ValueError(f"{text!r} is not one of {', '.join(values)}")
        return values[text]

    return Kind(parse=parse, words=tuple(values), recorded="string")


def or_unlimited(kind: Kind) -> Kind:
    """Return the kind of a limit that may also be ``unlimited``, which becomes None."""
    parse = kind.parse
    return replace(
        kind,
        definition=f"{kind.definition}_or_unlimited",
        parse=lambda value: None if value == UNLIMITED else parse(value),
        or_null=True,
    )


FLAG = Kind("boolean", recorded="boolean")
COUNT = Kind("count", parse_count)
BYTES = Kind("bytes", parse_bytes, "bytes")
PERCENT = Kind("percent", parse_percent, "percent", recorded="number")
DURATION = Kind("duration", parse_duration, "seconds")
AGE = Kind("duration", parse_age, "seconds")
"""A duration that may be ``0s``."""

MAX_NOTICE_SECONDS = 365 * 86400


def parse_notice_period(text: str) -> int:
    """Return the seconds of a notice period, at most a year. Raises ValueError."""
    seconds = parse_age(text)
    if seconds > MAX_NOTICE_SECONDS:
        raise ValueError("a notice period must be at most 365 days")
    return seconds


NOTICE_PERIOD = Kind("duration", parse_notice_period, "seconds")
DAYS = Kind("days", parse_count)
RATE = Kind("rate")
ANYTHING = Kind()
TEXT = Kind("text_or_empty", recorded="string")
BRANCH_GLOBS = Kind("names", tuple, recorded="strings")
TAG_GLOBS = Kind("globs", tuple, recorded="strings")


class Order(Enum):
    """The order of a setting's values, which decides what ``plan --base`` lists."""

    STRICTER = "one of two values may be stricter: a weaker one is listed"
    UNORDERED = "no value is stricter, but the choice matters: every change is listed"
    NEUTRAL = "no value is stricter: no change is listed"


@dataclass(frozen=True)
class Rule:
    """Which of two values is stricter. ``combine(then, now)`` returns the stricter one, or ``now`` if neither
    is. ``why`` explains the rule."""

    combine: Callable[[Any, Any], Any]
    order: Order = Order.STRICTER
    why: str = ""

    def weakens(self, before: Any, after: Any) -> bool:
        """Whether a change of the value is listed, because ``after`` is weaker than ``before`` in any
        respect."""
        if self.order is Order.UNORDERED:
            return bool(before != after)
        return bool(self.combine(before, after) != after)


def lower_limit(one: Any, other: Any) -> Any:
    """Return the lower of two limits. None means no limit."""
    if one is None or other is None:
        return other if one is None else one
    return min(one, other)


def strictest_first(*values: Any) -> Rule:
    """Return the rule for these values, which are ordered from the strictest to the weakest."""
    return Rule(lambda then, now: min(then, now, key=values.index))


def neutral(why: str) -> Rule:
    """Return the rule for values none of which is stricter: the new one applies, and no change is listed."""
    return Rule(lambda then, now: now, Order.NEUTRAL, why)


def unordered(why: str) -> Rule:
    """Return the rule for values none of which is stricter: the new one applies, and every change is
    listed."""
    return Rule(lambda then, now: now, Order.UNORDERED, why)


def _union(then: tuple[Any, ...], now: tuple[Any, ...]) -> tuple[Any, ...]:
    return (*now, *(item for item in then if item not in now))


MORE = Rule(max)
LESS = Rule(lower_limit)
ON = strictest_first(True, False)
OFF = strictest_first(False, True)
ALL_OF_BOTH = Rule(_union)
POLICY = strictest_first("fail", "warn", "ignore")


class SinceMark(Enum):
    """How ``sweep run`` handles a setting that is stricter in the tree now than at the mark."""

    COMBINED = "the stricter value applies from the next round of deletions"
    GATE = "the mark is checked again with the stricter value, and a gate may refuse it"
    NEW_MARK = "the mark was created with a different value, so a new mark is needed"
    ANY_CHANGE = "any change of the value requires a new mark"
    PERSON = "an automatic approval is no longer valid: a person must approve the mark"


_RECORDED_TYPES: Mapping[str, Any] = {
    "integer": int,
    "number": float,
    "boolean": bool,
    "string": str,
    "strings": list[str],
}


@dataclass(frozen=True)
class Setting:
    """A declared setting. ``path`` and ``default`` are as the tree writes them. ``field`` is the attribute of
    the typed block that has its value, or "" if the value is judged elsewhere (``rule.why`` says where)."""

    path: str
    field: str
    rule: Rule
    kind: Kind = ANYTHING
    default: Any = None
    help: str = ""
    since_mark: SinceMark = SinceMark.COMBINED

    @property
    def key(self) -> str:
        """The last part of the path."""
        return self.path.rpartition(".")[2]

    @property
    def unit(self) -> str:
        return self.kind.unit

    @property
    def may_be_null(self) -> bool:
        """Whether documents may record null, which means no limit."""
        return self.kind.or_null or self.default is None

    @property
    def recorded_type(self) -> Any:
        """The type of its value in documents."""
        recorded = Literal[self.kind.words] if self.kind.words else _RECORDED_TYPES[self.kind.recorded]
        return recorded | None if self.may_be_null else recorded


def setting(
    kind: Kind, default: Any, *, stricter: Rule, help: str, since_mark: SinceMark = SinceMark.COMBINED
) -> Any:
    """Return a field of a block. ``default`` is as the tree writes it, and ``kind`` parses it."""
    declared = Setting("", "", stricter, kind, default, help, since_mark)
    return field(default=kind.parse(default), metadata={"setting": declared})


def settings_of(block: str, made_for: type) -> tuple[Setting, ...]:
    """Return the settings of a block in the order of its fields. The key is the field's name, for a duration
    without ``_seconds``."""
    return tuple(
        replace(each.metadata["setting"], path=f"{block}.{key}", field=each.name)
        for each in fields(made_for)
        for key in [each.name.removesuffix("_seconds")]
    )


def parse_settings(settings: Iterable[Setting], block: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that a checked block of the tree sets, by name."""
    return {s.field: s.kind.parse(block[s.key]) for s in settings if s.key in block}
