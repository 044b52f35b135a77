"""What repositories store as a page with a treemap of their prefixes: one HTML file without requests."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from lakeplan.output.report_shell import (
    About,
    Cell,
    Markup,
    Section,
    behind,
    el,
    join,
    script,
    styles,
    table,
    whole_page,
)
from lakeplan.output.storage import (
    OWNED,
    age_words,
    class_words,
    notes_of,
    owner_words,
    part_label,
    parts_of,
    place_sum,
)
from lakeplan.output.text import UNKNOWN, Money, amounts, count, count_of, moment, safe, size
from lakeplan.values.urls import is_digest

if TYPE_CHECKING:
    from lakeplan.fleet.documents import HolderRow, OwnerRow, PlaceRow, StorageDocument, StoredRow
    from lakeplan.values.simulation import AmountRow

STYLES = ("page.css", "tree.css", "treemap.css")
SCRIPTS = ("page.js", "tree.js", "start_tree.js")
FOOT = (
    "Made by lakeplan storage; this page is one file, sends no requests and stores nothing. Times are UTC,"
    " sizes decimal. These figures are not a permission to delete: a mark checks more."
)
WIDTH, HEIGHT = 960.0, 420.0
MAX_TILES = 400
_LEGEND = (
    ("held", "held"),
    ("some", "up to half could be deleted"),
    ("most", "more than half could be deleted"),
    ("own", "directly in the folder above, or in no commit"),
)

Box = tuple[float, float, float, float]
"""Left, top, width and height."""


def render_storage_page(document: StorageDocument) -> str:
    """The page as text of an HTML file."""
    facts = [f"Made at {moment(document['at'])}", *document["servers"].values()]
    about = About("lakeplan storage", document["at"], facts, FOOT)
    owners = _owners(document.get("owners", []))
    sections = [_summary(document), owners, *map(_repository, document["repositories"]), _failed(document)]
    shown = [section for section in sections if section is not None]
    return whole_page(about, shown, (), styles(STYLES), script(SCRIPTS))


def _summary(document: StorageDocument) -> Section:
    rows = document["repositories"]
    headers = ("repository", "stored", "held", "shared", "reclaimable now", "unreferenced", "older versions")
    lines: list[list[Cell]] = [
        [
            el("a", row["repository"], href=f"#{_id(row)}"),
            *map(_bytes, (row["stored"], row["held"], row["shared"], row["reclaimable"])),
            *map(_bytes, (row["unreferenced"], row["noncurrent"])),
        ]
        for row in rows
    ]
    totals = (
        ("Stored", [row["stored"] for row in rows], "as storage was listed"),
        ("Held", [row["held"] for row in rows], "that rules, branches or tags keep"),
        ("Reclaimable now", [row["reclaimable"] for row in rows], "that were committed, and nothing keeps"),
        ("Unreferenced", [row["unreferenced"] for row in rows], "that no commit names"),
        ("Older versions", [row["noncurrent"] for row in rows], "that buckets keep besides"),
    )
    cards = [
        el("div", el("dt", name), el("dd", _total(found, words)), cls="card") for name, found, words in totals
    ]
    figures = range(1, len(headers))
    every = table("All repositories", headers, lines, figures=figures, sortable=True, hidden_caption=True)
    return Section("summary", "Summary", join([el("dl", cards, cls="cards"), every]))


def _total(found: Sequence[AmountRow | None], words: str) -> Markup:
    known = [amount for amount in found if amount is not None]
    if not known:
        return el("strong", UNKNOWN)
    objects = count_of(sum(amount["objects"] for amount in known), "object")
    some = (
        f", in {count(len(known))} of {count_of(len(found), 'repository')}" if len(known) < len(found) else ""
    )
    return join(
        [
            el("strong", size(sum(amount["size_bytes"] for amount in known))),
            el("span", f"{objects} {words}{some}"),
        ]
    )


def _bytes(amount: AmountRow | None) -> Cell:
    if amount is None:
        return UNKNOWN, {"data_sort": -1}
    return size(amount["size_bytes"]), {"data_sort": amount["size_bytes"]}


def _cells(amount: AmountRow | None) -> list[Cell]:
    if amount is None:
        return [(UNKNOWN, {"data_sort": -1})] * 2
    sizes = (amount["objects"], amount["size_bytes"])
    return [(words, {"data_sort": by}) for words, by in zip(amounts(amount), sizes, strict=True)]


def _id(row: StoredRow) -> str:
    return "repository-" + "".join(c if c.isalnum() and c.isascii() else "-" for c in row["repository"])


def _repository(row: StoredRow) -> Section:
    cost = Money.of(row)
    unknown = [UNKNOWN] * (2 + cost.shown)
    figures: list[list[Cell]] = [
        [part_label(name).strip(), *(unknown if amount is None else amounts(amount, cost))]
        for name, amount in parts_of(row)
    ]
    headers = ("part", "objects", "size", *cost.header(" "))
    numbers = range(1, len(headers))
    body = [
        table(f"Figures of {row['repository']}", headers, figures, figures=numbers, hidden_caption=True),
        *_places(row),
        _ages(row),
        _classes(row),
        _holders(row, "branches", row["branches"]),
        _holders(row, "tags", row["tags"]),
        *(el("p", text, cls="dim") for text in notes_of(row)),
    ]
    return Section(_id(row), row["repository"], join([part for part in body if part is not None]))


def _holders(row: StoredRow, what: str, holders: list[HolderRow]) -> Markup | None:
    if not holders:
        return None
    headers = (what, "objects", "size", "exclusive objects", "exclusive size")
    lines: list[list[Cell]] = [
        [one["name"], *_cells(one["held"]), *_cells(one["exclusive"])] for one in holders
    ]
    name = f"{what.capitalize()} of {row['repository']}"
    found = table(name, headers, lines, figures=range(1, 5), sortable=True, hidden_caption=True)
    return behind(count_of(len(holders), "branch" if what == "branches" else "tag"), found)


def _ages(row: StoredRow) -> Markup | None:
    ages = row.get("ages")
    if not ages:
        return None
    lines: list[list[Cell]] = [
        [(age_words(one), {"data_sort": one["from_days"]}), *_cells(one)] for one in ages
    ]
    headers = ("written", "objects", "size")
    return table(f"Ages in {row['repository']}", headers, lines, figures=range(1, 3))


def _classes(row: StoredRow) -> Markup | None:
    classes = row.get("classes")
    if not classes:
        return None
    lines: list[list[Cell]] = [[class_words(one), *_cells(one)] for one in classes]
    headers = ("storage class", "objects", "size")
    return table(f"Storage classes in {row['repository']}", headers, lines, figures=range(1, 3))


def _owners(owners: Sequence[OwnerRow]) -> Section | None:
    if not owners:
        return None
    headers = ("owner", "repositories", *(part_label(name).strip() for name in OWNED))
    lines: list[list[Cell]] = [
        [owner_words(row), count(row["repositories"]), *(_bytes(row[name]) for name in OWNED)]
        for row in owners
    ]
    note = el("p", "What a repository shares with another is counted in each.", cls="dim")
    found = table("By owner", headers, lines, figures=range(1, len(headers)), sortable=True)
    return Section("owners", "Owners", join([found, note]))


# ---- prefixes
def _places(row: StoredRow) -> Iterator[Markup]:
    places = row.get("prefixes")
    if not places:
        return
    yield _treemap(row["repository"], places)
    yield el("ul", [el("li", _swatch(cls), words) for cls, words in _LEGEND], cls="legend")
    headers = ("prefix", *(f"{words}, {unit}" for words in _PARTS for unit in ("objects", "size")))
    lines: list[list[Cell]] = [
        [
            _folder(place),
            *_cells(place["held"]),
            *_cells(place["reclaimable"]),
            *_cells(place["young"]),
            *_cells(place["unreferenced"]),
        ]
        for place in places
    ]
    name = f"Prefixes of {row['repository']}"
    found = table(name, headers, lines, figures=range(1, len(headers)), hidden_caption=True)
    yield el("div", found, cls="folders")
    left = row.get("prefixes_left_out", 0)
    words = "Each folder counts everything below it. An object with several paths counts in each."
    yield el("p", f"{words} {count_of(left, 'smaller folder')} left out." if left else words, cls="dim")


_PARTS = ("held", "reclaimable now", "too young", "unreferenced")


def _folder(place: PlaceRow) -> Cell:
    prefix = place["prefix"]
    name = prefix or "(all)"
    if prefix and not is_digest(prefix):
        name = f"{prefix.rstrip('/').rpartition('/')[2]}/"
    return name, {"data_depth": place["depth"], "data_sort": name, "title": prefix or None}


def _swatch(cls: str) -> Markup:
    return el(
        "svg",
        el("rect", cls=cls, width=16, height=16),
        viewBox="0 0 16 16",
        cls="treemap",
        aria_hidden="true",
    )


def _treemap(repository: str, places: Sequence[PlaceRow]) -> Markup:
    """Two levels of folders by their bytes. The table below has the same figures for those who read it."""
    sizes = {place["prefix"]: place_sum(place)["size_bytes"] for place in places}
    tiles = list(_tiles(places, sizes, "", (0.0, 0.0, WIDTH, HEIGHT), levels=2))[:MAX_TILES]
    about = f"Treemap of the prefixes of {repository} by size. The table after it has the same figures."
    return el(
        "svg", el("title", about), *tiles, viewBox=f"0 0 {WIDTH:g} {HEIGHT:g}", cls="treemap", role="img"
    )


def _tiles(
    places: Sequence[PlaceRow], sizes: dict[str, int], above: str, box: Box, *, levels: int
) -> Iterator[Markup]:
    inside = [place for place in places if _parent(place["prefix"]) == above and sizes[place["prefix"]]]
    parents = {_parent(place["prefix"]) for place in places}
    rest = sizes.get(above, 0) - sum(sizes[place["prefix"]] for place in inside)
    parts: list[tuple[float, PlaceRow | None]] = [(sizes[place["prefix"]], place) for place in inside]
    if rest > 0:
        parts.append((rest, None))
    parts.sort(key=lambda part: -part[0])
    for (weight, place), tile in zip(parts, split([weight for weight, _ in parts], box), strict=True):
        if place is None:
            yield _tile(tile, "own", f"{above or 'no folder'}: {size(int(weight))} directly", "")
        elif levels > 1 and tile[2] > 120 and tile[3] > 80 and place["prefix"] in parents:
            yield from _tiles(places, sizes, place["prefix"], tile, levels=levels - 1)
        else:
            total, free = place_sum(place), place["reclaimable"]["size_bytes"]
            cls = "held" if not free else "some" if 2 * free <= total["size_bytes"] else "most"
            words = f"{place['prefix']}: {size(total['size_bytes'])}, {size(free)} reclaimable now"
            yield _tile(tile, cls, words, place["prefix"])


def _parent(prefix: str) -> str | None:
    """The folder that a prefix is in; None for all of them."""
    return "".join(f"{part}/" for part in prefix.rstrip("/").split("/")[:-1]) if prefix else None


def _tile(box: Box, cls: str, said: str, name: str) -> Markup:
    left, top, width, height = box
    letters, name = int((width - 12) / 7.5), safe(name)
    shown = name if len(name) <= letters else f"{name[: letters - 1]}…"
    fits = name and letters > 3 and height > 26
    label = el("text", shown, x=f"{left + 7:.1f}", y=f"{top + 20:.1f}") if fits else None
    at = {"x": f"{left:.1f}", "y": f"{top:.1f}", "width": f"{width:.1f}", "height": f"{height:.1f}"}
    return el("g", el("rect", el("title", said), cls=cls, **at), label)


def split(weights: Sequence[float], box: Box) -> list[Box]:
    """A box for each weight, in proportion: halves of about equal weight, along the longer side."""
    if len(weights) <= 1:
        return [box] * len(weights)
    whole, half, at = sum(weights), 0.0, 0
    while at < len(weights) - 1 and (not at or half + weights[at] / 2 < whole / 2):
        half += weights[at]
        at += 1
    share = half / whole if whole else at / len(weights)
    left, top, width, height = box
    if width >= height:
        first, second = (
            (left, top, width * share, height),
            (left + width * share, top, width * (1 - share), height),
        )
    else:
        first, second = (
            (left, top, width, height * share),
            (left, top + height * share, width, height * (1 - share)),
        )
    return [*split(weights[:at], first), *split(weights[at:], second)]


def _failed(document: StorageDocument) -> Section | None:
    lines: list[list[Cell]] = [[key, one["message"], one["hint"]] for key, one in document["failed"].items()]
    lines += [[key, "the command was stopped before", "Run it again."] for key in document["unfinished"]]
    if not lines:
        return None
    headers = ("repository", "why", "what to do")
    return Section(
        "failed", "Not read", table("Repositories that were not read", headers, lines, hidden_caption=True)
    )
