"""Values of declared settings, made from their declarations, so that a new setting is tested at once."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import Any, TypeVar

from hypothesis import strategies as st

from lakeplan.values.declare import UNLIMITED, Order, Setting

Block = TypeVar("Block")

_WRITTEN: dict[str, tuple[Any, ...]] = {
    "boolean": (True, False),
    "count": (0, 7, 8, "9_000"),
    "bytes": (0, 7, "1GB", "1GiB", "6TB"),
    "percent": (0, 7.5, "8%", 100),
    "duration": ("1h", "26h", "3d", "1w3d12h"),
    "days": (1, 2, 7, 300),
    "rate": (None, 1, 5),
    "names": (["a", "b*"], ["a"], ["c"]),
    "globs": ([], ["a*"], ["a*", "b"], ["c"]),
}
"""By the kind of a setting, values as a tree writes them. A new kind needs a line here."""
SAME: dict[str, tuple[Any, Any]] = {
    "count": (1_000, "1_000"),
    "bytes": ("1TB", "1000GB"),
    "percent": (8, "8.0 %"),
    "duration": ("1d", "24h"),
}
"""By kind, a value in two spellings."""


def kind_of(setting: Setting) -> str:
    return setting.kind.definition.removesuffix(f"_or_{UNLIMITED}")


def written(setting: Setting) -> list[Any]:
    """Different values of a setting, as a tree writes them."""
    kind = setting.kind
    some = list(kind.words) if kind.words else list(_WRITTEN[kind_of(setting)])
    return [*some, UNLIMITED] if kind.or_null else some


def values(setting: Setting) -> list[Any]:
    return [setting.kind.parse(value) for value in written(setting)]


def strategy(settings: Iterable[Setting], block: type[Block]) -> st.SearchStrategy[Block]:
    return st.builds(block, **{s.field: st.sampled_from(values(s)) for s in settings})


def strictest(setting: Setting) -> Any:
    """The strictest of its values; of a neutral one the last."""
    return reduce(setting.rule.combine, values(setting))


def weakest(setting: Setting) -> Any:
    """The value that every other one is stricter than; of a neutral one the first."""
    some = values(setting)
    if setting.rule.order is not Order.STRICTER:
        return some[0]
    return next(
        v for v in some if all(setting.rule.combine(other, v) == other or other == v for other in some)
    )


def extreme(settings: Iterable[Setting], block: type[Block], *, strict: bool) -> Block:
    """A block with the strictest, or the weakest, value of every setting."""
    return block(**{s.field: strictest(s) if strict else weakest(s) for s in settings})
