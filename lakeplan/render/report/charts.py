"""Still pictures: axes, steps, bars and dots as SVG. Each has a title and says in words what it shows; the
figures behind it stand in a table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from lakeplan.render.curve_svg import nice_ceiling
from lakeplan.render.report.html import Markup, el

WIDTH, LEFT, RIGHT, TOP, BOTTOM = 960, 74, 20, 14, 46
TICKS = 4
_STEPS = (1, 2, 5, 7, 10, 14, 30, 60, 90, 180, 365, 730, 1825, 3650, 7300, 36500)

Label = Callable[[int], str]


@dataclass(frozen=True)
class Frame:
    """A field with ``x`` from 0 to ``span`` and ``y`` from 0 to ``highest``."""

    span: float
    highest: float
    height: int = 200

    def x(self, value: float) -> str:
        return f"{LEFT + (WIDTH - LEFT - RIGHT) * value / self.span:.1f}"

    def y(self, value: float) -> str:
        return f"{TOP + self.height * (1 - value / self.highest):.1f}"

    @property
    def floor(self) -> str:
        return self.y(0)


def frame(span: float, peaks: Iterable[int], height: int = 200) -> Frame:
    return Frame(max(span, 1), nice_ceiling(max([1, *peaks])), height)


def words(x: float | str, y: float | str, content: str, cls: str) -> Markup:
    return el("text", content, x=str(x), y=str(y), cls=cls)


def axes(f: Frame, label: Label, ticks: Sequence[tuple[float, str]], below: str) -> list[Markup]:
    """Lines with figures at the left, ``ticks`` (place, words) and what they mean at the foot."""
    parts = []
    for value in sorted({int(f.highest * n // TICKS) for n in range(TICKS + 1)}):
        at = f.y(value)
        parts.append(el("line", cls="grid", x1=LEFT, x2=WIDTH - RIGHT, y1=at, y2=at))
        parts.append(words(LEFT - 6, float(at) + 4, label(value), "soft end"))
    foot = TOP + f.height
    parts += [words(f.x(at), foot + 17, text, "soft mid") for at, text in ticks]
    parts.append(words(WIDTH - RIGHT, foot + 36, below, "soft end"))
    return parts


def day_ticks(span: int) -> list[tuple[float, str]]:
    """Round days, few enough to stand apart."""
    step = next((s for s in _STEPS if span // s <= 9), span)
    return [(day, f"{day:,}") for day in range(0, span + 1, step)]


def step_path(f: Frame, steps: Sequence[tuple[float, float]]) -> str:
    """Level from each point to the next, and on to the right end."""
    first = steps[0][1] if steps else 0
    path = f"M{f.x(0)} {f.y(first)}"
    path += "".join(f"H{f.x(min(at, f.span))}V{f.y(value)}" for at, value in steps[1:] if at <= f.span)
    return f"{path}H{f.x(f.span)}"


def area_path(f: Frame, steps: Sequence[tuple[float, float]]) -> str:
    return f"{step_path(f, steps)}V{f.floor}H{f.x(0)}Z"


def upright(f: Frame, at: float, cls: str, content: str) -> list[Markup]:
    """A line at one place, with words beside it that stay inside the picture."""
    end = at > f.span * 0.8
    line = el("line", cls=cls, x1=f.x(at), x2=f.x(at), y1=TOP, y2=f.floor)
    beside = float(f.x(at)) + (-6 if end else 6)
    return [line, words(f"{beside:.1f}", TOP + 12, content, "on end" if end else "on")]


def column(f: Frame, at: float, width: float, value: float, cls: str, said: str) -> Markup:
    top = float(f.y(value))
    return el(
        "rect",
        el("title", said),
        cls=cls,
        x=f"{float(f.x(at)):.1f}",
        y=f"{top:.1f}",
        width=f"{width:.1f}",
        height=f"{max(0.0, float(f.floor) - top):.1f}",
    )


def picture(name: str, said: str, parts: Iterable[Markup], height: int = 200) -> Markup:
    """The SVG. ``name`` is its title, ``said`` what it shows."""
    return el(
        "svg",
        el("title", name),
        *parts,
        cls="picture",
        role="img",
        aria_label=f"{name}. {said}",
        viewBox=f"0 0 {WIDTH} {TOP + height + BOTTOM}",
    )


def figure(drawn: Markup, caption: str) -> Markup:
    return el("figure", drawn, el("figcaption", caption))


def behind(title: str, *body: Markup) -> Markup:
    """The table behind a picture, folded."""
    return el("details", el("summary", title), *body)
