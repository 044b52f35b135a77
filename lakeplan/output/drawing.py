"""HTML and SVG elements, and charts with axes. All text is escaped unless it is ``Markup``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape

from lakeplan.output.text import safe


class Markup(str):
    """Trusted HTML or SVG, made here or read from lakeplan's own files."""

    __slots__ = ()


Child = str | int | Iterable["Child"] | None
Attribute = str | int | float | bool | None

_VOID = frozenset({"meta", "input", "br", "col", "hr"})
_NAMES = {"cls": "class", "for_": "for", "type_": "type"}


def text(value: object) -> Markup:
    """Escape a text. ``Markup`` is returned unchanged."""
    return value if isinstance(value, Markup) else Markup(escape(safe(str(value)), quote=True))


def join(children: Iterable[Child]) -> Markup:
    return Markup("".join(_flat(children)))


def _flat(children: Iterable[Child]) -> Iterable[str]:
    for child in children:
        if child is None:
            continue
        if isinstance(child, (str, int)):
            yield text(child)
        else:
            yield from _flat(child)


def el(tag: str, *children: Child, **attributes: Attribute) -> Markup:
    """Return an element. ``cls`` and ``for_`` are the attributes class and for, and underscores become
    dashes. True makes an attribute without a value. False and None omit the attribute."""
    parts = [tag]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        name = _NAMES.get(key, key.replace("_", "-"))
        parts.append(name if value is True else f'{name}="{text(value)}"')
    opening = f"<{' '.join(parts)}>"
    return Markup(opening if tag in _VOID else f"{opening}{join(children)}</{tag}>")


WIDTH, LEFT, RIGHT, TOP, BOTTOM = 960, 74, 20, 14, 46
TICKS = 4
_STEPS = (1, 2, 5, 7, 10, 14, 30, 60, 90, 180, 365, 730, 1825, 3650, 7300, 36500)

Label = Callable[[int], str]


@dataclass(frozen=True)
class Frame:
    """The area of a chart: ``x`` runs from 0 to ``span``, ``y`` from 0 to ``highest``."""

    span: float
    highest: float
    height: int = 200
    left: int = LEFT
    top: int = TOP
    width: int = WIDTH - LEFT - RIGHT

    def x(self, value: float) -> str:
        return f"{self.left + self.width * value / self.span:.1f}"

    def y(self, value: float) -> str:
        return f"{self.top + self.height * (1 - value / self.highest):.1f}"

    @property
    def right(self) -> int:
        return self.left + self.width

    @property
    def floor(self) -> str:
        return self.y(0)


def frame(
    span: float,
    peaks: Iterable[int],
    height: int = 200,
    *,
    left: int = LEFT,
    top: int = TOP,
    width: int = WIDTH - LEFT - RIGHT,
) -> Frame:
    """Return a frame that fits all of ``peaks``."""
    return Frame(max(span, 1), nice_ceiling(max([1, *peaks])), height, left, top, width)


def words(x: float | str, y: float | str, content: str, cls: str) -> Markup:
    return el("text", content, x=str(x), y=str(y), cls=cls)


def axes(f: Frame, label: Label, ticks: Sequence[tuple[float, str]], below: str) -> list[Markup]:
    """Return grid lines with labels on the left, ``ticks`` as (position, label), and a caption below."""
    parts = []
    for value in sorted({int(f.highest * n // TICKS) for n in range(TICKS + 1)}):
        parts += level(f, value, label(value))
    return [*parts, *(tick(f, at, text) for at, text in ticks), foot(f, below)]


def level(f: Frame, value: float, label: str) -> list[Markup]:
    """Return a grid line with its label on the left."""
    at = f.y(value)
    line = el("line", cls="grid", x1=f.left, x2=f.right, y1=at, y2=at)
    return [line, words(f.left - 6, float(at) + 4, label, "soft end")]


def tick(f: Frame, at: float, label: str) -> Markup:
    return words(f.x(at), f.top + f.height + 17, label, "soft mid")


def foot(f: Frame, below: str) -> Markup:
    """The caption below a chart."""
    return words(f.right, f.top + f.height + 36, below, "soft end")


def day_ticks(span: int) -> list[tuple[float, str]]:
    """Return round numbers of days, few enough that their labels do not overlap."""
    step = next((s for s in _STEPS if span // s <= 9), span)
    return [(day, f"{day:,}") for day in range(0, span + 1, step)]


def step_path(f: Frame, steps: Sequence[tuple[float, float]]) -> str:
    """The path of a step function through these points, up to the right edge."""
    first = steps[0][1] if steps else 0
    path = f"M{f.x(0)} {f.y(first)}"
    path += "".join(f"H{f.x(min(at, f.span))}V{f.y(value)}" for at, value in steps[1:] if at <= f.span)
    return f"{path}H{f.x(f.span)}"


def area_path(f: Frame, steps: Sequence[tuple[float, float]]) -> str:
    return f"{step_path(f, steps)}V{f.floor}H{f.x(0)}Z"


def upright(f: Frame, at: float, cls: str, content: str) -> list[Markup]:
    """A vertical line with a label beside it, inside the chart."""
    end = at > f.span * 0.8
    line = el("line", cls=cls, x1=f.x(at), x2=f.x(at), y1=f.top, y2=f.floor)
    text_at = float(f.x(at)) + (-6 if end else 6)
    return [line, words(f"{text_at:.1f}", f.top + 12, content, "on end" if end else "on")]


def column(f: Frame, at: float, width: float, value: float, cls: str, title: str) -> Markup:
    top = float(f.y(value))
    return el(
        "rect",
        el("title", title),
        cls=cls,
        x=f"{float(f.x(at)):.1f}",
        y=f"{top:.1f}",
        width=f"{width:.1f}",
        height=f"{max(0.0, float(f.floor) - top):.1f}",
    )


def picture(name: str, description: str, parts: Iterable[Markup], height: int = 200) -> Markup:
    """The SVG. ``name`` is its title, and ``description`` describes it to people who cannot see it."""
    return el(
        "svg",
        el("title", name),
        *parts,
        cls="picture",
        role="img",
        aria_label=f"{name}. {description}",
        viewBox=f"0 0 {WIDTH} {TOP + height + BOTTOM}",
    )


def nice_ceiling(value: int) -> int:
    """Return the next number at or above ``value`` that has one or two digits followed by zeros. From 4 on,
    its quarters are whole numbers, so that every grid line can be labelled exactly."""
    power = 1
    while True:
        for lead in (1, 2, 4, 6, 8):
            if lead * power >= value:
                return lead * power
        power *= 10
