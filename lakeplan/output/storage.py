"""Renders storage reports for terminals, as CSV, and as one HTML file with a treemap of prefixes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from rich.console import Console

from lakeplan.output import html
from lakeplan.output.drawing import Markup, el, join
from lakeplan.output.tables import Amount, Folder, Name, Table, Value, csv_text, volume_cells
from lakeplan.output.text import UNKNOWN, Cell, Money, Page, count, days, moment, safe, size, volume
from lakeplan.values.simulation import total_row
from lakeplan.values.units import count_of

if TYPE_CHECKING:
    from lakeplan.fleet.storage import HolderRow, OwnerRow, PlaceRow, StorageDocument, StoredAgeRow, StoredRow
    from lakeplan.values.simulation import AmountRow

OwnedFigure = Literal["stored", "held", "reclaimable", "unreferenced", "noncurrent"]
PlaceFigure = Literal["held", "reclaimable", "young", "unreferenced"]
SHOWN = 10
"""The maximum number of branches, and of tags, per repository. JSON and CSV have all of them."""
WORDS = {
    "stored": "stored",
    "held": "kept",
    "exclusive": "  exclusive: by one branch or tag",
    "shared": "  shared",
    "tags_only": "  by tags only",
    "uncommitted": "uncommitted",
    "young": "too young to be deleted",
    "reclaimable": "reclaimable now",
    "unreferenced": "unreferenced",
    "noncurrent": "older versions",
}


def parts_of(row: StoredRow) -> Iterator[tuple[str, AmountRow | None]]:
    """Yield each figure with its name, in the order of the table. None means unknown."""
    yield "stored", row["stored"]
    yield "held", row["held"]
    yield "exclusive", row["exclusive"]
    yield "shared", row["shared"]
    yield "tags_only", row["tags_only"]
    yield "uncommitted", row["uncommitted"]
    yield "young", row["young"]
    yield "reclaimable", row["reclaimable"]
    for one in row["periods"]:
        yield f"reclaimable_{one['days']}_days", one["reclaimable"]
    yield "unreferenced", row["unreferenced"]
    yield "noncurrent", row["noncurrent"]


def render_storage(document: StorageDocument, console: Console) -> None:
    """Print the figures, branches and tags of every repository, then owners and totals."""
    page = Page(console)
    for row in document["repositories"]:
        _repository(page, row)
    page.failed(document["failed"], "not read")
    if owners := document.get("owners"):
        page.heading("Owners", "objects that several repositories share are counted in each of them")
        owners_table(owners, ("stored", "held", "reclaimable", "noncurrent")).print_on(page)
    page.total("Storage:", _total(document))


OWNED: tuple[OwnedFigure, ...] = ("stored", "held", "reclaimable", "unreferenced", "noncurrent")
"""The figures of an owner. The table on a terminal omits objects that are not in a commit."""
_OWNED_HEADERS = {"held": "kept", "reclaimable": "reclaimable\nnow", "noncurrent": "older\nversions"}


def owners_table(owners: Sequence[OwnerRow], names: Sequence[OwnedFigure] = OWNED) -> Table:
    """The bytes of these figures by owner."""
    rows: list[list[Value]] = [
        [
            Name(row["owner"] or "no owner"),
            Amount(row["repositories"]),
            *(_bytes(row[name]) for name in names),
        ]
        for row in owners
    ]
    return Table(("owner", "repositories", *(_OWNED_HEADERS.get(name, name) for name in names)), rows)


def _bytes(amount: AmountRow | None) -> Amount:
    return Amount(None if amount is None else amount["size_bytes"], size)


def _total(document: StorageDocument) -> str:
    rows = document["repositories"]
    failed = len(document["failed"]) + len(document["unfinished"])
    stored = [row["stored"]["size_bytes"] for row in rows if row["stored"] is not None]
    listed = f", {size(sum(stored))} stored" if stored else ""
    unlisted = f" in {count(len(stored))} of them" if stored and len(stored) < len(rows) else ""
    more = f", {count(failed)} not read" if failed else ""
    return f"{count_of(len(rows), 'repository')}{listed}{unlisted}{more}."


def _repository(page: Page, row: StoredRow) -> None:
    page.heading(row["repository"])
    parts = parts_of(row)
    shown = (part for part in parts if part[0] != "tags_only" or row["tags_only"]["objects"])
    figures_table(row, shown).print_on(page, solid=(0,))
    for holders in (row["branches"], row["tags"]):
        holders_table("branch" if holders is row["branches"] else "tag", holders).print_on(page, SHOWN)
        page.rest(len(holders), SHOWN, "in the JSON document")
    _places(page, row)
    ages_table(row).print_on(page)
    classes_table(row).print_on(page)
    page.facts(dict(_facts(row)), lead_width=12)
    page.warnings(notes_of(row), indent=2)


def figures_table(row: StoredRow, parts: Iterable[tuple[str, AmountRow | None]]) -> Table:
    """Figures of a repository, as ``parts_of`` has them."""
    cost = Money.of(row)
    rows = [[Cell(part_label(name)), *volume_cells(amount, cost)] for name, amount in parts]
    return Table(("", "objects", "size", *cost.header()), rows)


def holders_table(what: str, holders: Sequence[HolderRow]) -> Table:
    """Return the data that each branch or tag keeps, and the part that nothing else keeps."""
    rows = [
        [Name(one["name"]), *volume_cells(one["held"]), *volume_cells(one["exclusive"])] for one in holders
    ]
    return Table((what, "objects", "size", "exclusive\nobjects", "exclusive\nsize"), rows)


def ages_table(row: StoredRow) -> Table:
    """Return objects by the time when they were written."""
    rows = [[Cell(age_words(one)), *volume_cells(one)] for one in row.get("ages", ())]
    return Table(("written", "objects", "size"), rows)


def classes_table(row: StoredRow) -> Table:
    """Objects by storage class."""
    classes = row.get("classes") or ()
    rows = [[Name(one["storage_class"] or "not named"), *volume_cells(one)] for one in classes]
    return Table(("storage class", "objects", "size"), rows)


def part_label(name: str) -> str:
    """Return the label of a figure of ``parts_of``. A figure that is part of another is indented."""
    return WORDS.get(name) or f"  in {days(int(name.removeprefix('reclaimable_').partition('_')[0]))}"


def age_words(row: StoredAgeRow) -> str:
    """``7 to 30 days ago``."""
    if row["to_days"] is None:
        return f"{row['from_days']} days ago or more"
    return f"{row['from_days']} to {row['to_days']} days ago"


def place_sum(place: PlaceRow) -> AmountRow:
    """Return the sum of all known objects below a prefix."""
    parts = (place["held"], place["reclaimable"], place["young"], place["uncommitted"], place["unreferenced"])
    return total_row(part for part in parts if part is not None)


def _places(page: Page, row: StoredRow) -> None:
    places = [place for place in row.get("prefixes", ()) if place["prefix"]]
    if not places:
        return
    largest = sorted(places, key=lambda place: (-place_sum(place)["size_bytes"], place["prefix"]))
    parts = [(place_sum(place), place["held"], place["reclaimable"]) for place in largest]
    rows = [
        [Folder(place["prefix"]), *(cell for part in of for cell in volume_cells(part))]
        for place, of in zip(largest, parts, strict=True)
    ]
    headers = (f"{what}{unit}" for what in ("", "kept\n", "reclaimable\n") for unit in ("objects", "size"))
    Table(("prefix", *headers), rows).print_on(page, SHOWN)
    left = row.get("prefixes_left_out", 0)
    where = f"; the JSON document has the largest {count(len(places))}" if left else "in the JSON document"
    page.rest(len(places) + left, SHOWN, where)


def _facts(row: StoredRow) -> Iterator[tuple[str, str]]:
    compared = row["compared"]
    if compared is not None:
        first, second = compared["branches"]
        yield "both", f"{volume(compared['both'])} in {first} and {second}"
        yield "only first", f"{volume(compared['only_first'])} in {first} and not in {second}"
        yield "only second", f"{volume(compared['only_second'])} in {second} and not in {first}"
    growth = row.get("growth")
    if growth is not None:
        yield "since", moment(growth["since"])
        yield "stored", _change(growth["stored"])
        yield "kept", _change(growth["held"])


def _change(change: AmountRow | None) -> str:
    if change is None:
        return "unknown: one of the two reports does not contain this figure"
    sign = "+" if change["size_bytes"] > 0 else ""
    objects = "object" if abs(change["objects"]) == 1 else "objects"
    return f"{change['objects']:+,} {objects}, {sign}{size(change['size_bytes'])}"


def notes_of(row: StoredRow) -> Iterator[str]:
    """Notes on what the figures leave out."""
    if not row["listed"]:
        yield (
            f"storage was not listed ({row['not_listed']}), so figures come from metadata, include objects"
            " that are already gone, and are upper bounds"
        )
    elif row["uncommitted"] is None:
        yield (
            "there is no list of uncommitted objects from the last day, so such objects are reported as"
            " unreferenced or reclaimable, and both figures are upper bounds"
        )
    if not row["dangling_seen"]:
        yield (
            "commits of deleted branches were not read, so objects that only they reference are reported as"
            " unreferenced, although rules may keep them; add --dump-refs to read them"
            if row["listed"]
            else "commits of deleted branches were not read; add --dump-refs to read them"
        )
    if row["listed"] and "classes" in row and row["classes"] is None:
        yield "this kind of storage has no storage classes"
    if row["tags_only"]["objects"]:
        yield (
            "tags do not protect data on a server: its collector may delete objects that only a tag"
            " references"
        )


CSV_COLUMNS = ("repository", "kind", "name", "figure", "objects", "size_bytes")


def storage_csv(document: StorageDocument) -> str:
    """Return a line for each figure, with empty cells for unknown values."""
    lines = [(row["repository"], *line) for row in document["repositories"] for line in _lines(row)]
    lines += [
        ("", "owner", owner["owner"] or "", name, owner[name])
        for owner in document.get("owners", ())
        for name in OWNED
    ]
    lines += [(key, "not read", "", "", None) for key in (*document["failed"], *document["unfinished"])]
    return csv_text(CSV_COLUMNS, ((*line[:4], *_figures(line[4])) for line in lines))


def _figures(amount: AmountRow | None) -> tuple[int | None, int | None]:
    return (None, None) if amount is None else (amount["objects"], amount["size_bytes"])


def _lines(row: StoredRow) -> Iterator[tuple[str, str, str, AmountRow | None]]:
    for name, amount in parts_of(row):
        yield "repository", "", name, amount
    for kind, holders in (("branch", row["branches"]), ("tag", row["tags"])):
        for one in holders:
            yield kind, one["name"], "held", one["held"]
            yield kind, one["name"], "exclusive", one["exclusive"]
    for place in row.get("prefixes", ()):
        for figure in ("held", "reclaimable", "young", "uncommitted", "unreferenced"):
            yield "prefix", place["prefix"], figure, place[figure]
    for age in row.get("ages", ()):
        yield "age", age_words(age), "stored", age
    for one_class in row.get("classes") or ():
        yield "storage class", one_class["storage_class"], "stored", one_class
    compared = row["compared"]
    if compared is not None:
        first, second = compared["branches"]
        yield "compared", first, "only", compared["only_first"]
        yield "compared", second, "only", compared["only_second"]
        yield "compared", f"{first} {second}", "both", compared["both"]


# ---- the page
FOOT = (
    "`lakeplan storage` created this page. It is a single file that sends no requests and stores nothing."
    " Times are in UTC, and sizes are decimal. Do not delete data based on these figures: a sweep"
    " makes additional checks."
)
WIDTH, HEIGHT = 960.0, 420.0
MAX_TILES = 400
_LEGEND = (
    ("held", "kept"),
    ("some", "up to half could be deleted"),
    ("most", "more than half could be deleted"),
    ("own", "directly in the enclosing folder, or in no commit"),
)

Box = tuple[float, float, float, float]
"""Left, top, width and height."""


def render_storage_page(document: StorageDocument) -> str:
    """The page as text of an HTML file."""
    facts = [f"Created at {moment(document['at'])}", *document["servers"].values()]
    about = html.PageFacts("lakeplan storage", document["at"], facts, FOOT)
    owners = _owners(document.get("owners", []))
    failed = html.unread_section(
        document, "the command stopped before this repository", "Run the command again."
    )
    sections = [_summary(document), owners, *map(_section, document["repositories"]), failed]
    return html.whole_page(about, sections, ("page.css", "tree.css", "treemap.css"), html.TREE_SCRIPTS)


def _summary(document: StorageDocument) -> html.Section:
    rows = document["repositories"]
    names = ("stored", "held", "shared", "reclaimable", "unreferenced", "noncurrent")
    lines = [
        [
            el("a", row["repository"], href=f"#{html.anchor(row['repository'])}"),
            *html.cells(_bytes(amount) for name, amount in parts_of(row) if name in names),
        ]
        for row in rows
    ]
    headers = ("repository", *(part_label(name).strip() for name in names))
    totals = (
        ("Stored", [row["stored"] for row in rows], "according to the listing"),
        ("Kept", [row["held"] for row in rows], "by rules, branches or tags"),
        ("Reclaimable now", [row["reclaimable"] for row in rows], "committed, but no longer kept"),
        ("Unreferenced", [row["unreferenced"] for row in rows], "not in any commit"),
        ("Older versions", [row["noncurrent"] for row in rows], "kept by versioned buckets"),
    )
    figures = range(1, len(headers))
    overview = html.table(
        "All repositories", headers, lines, figures=figures, sortable=True, hidden_caption=True
    )
    return html.Section("summary", "Summary", join([html.cards(_card(*total) for total in totals), overview]))


def _card(name: str, amounts: Sequence[AmountRow | None], words: str) -> tuple[str, str, str]:
    known = [amount for amount in amounts if amount is not None]
    if not known:
        return name, UNKNOWN, ""
    total = total_row(known)
    objects = count_of(total["objects"], "object")
    lacking = len(known) < len(amounts)
    some = f", in {count(len(known))} of {count_of(len(amounts), 'repository')}" if lacking else ""
    return name, size(total["size_bytes"]), f"{objects} {words}{some}"


def _section(row: StoredRow) -> html.Section:
    name = row["repository"]
    body = [
        html.table_of(f"Figures of {name}", figures_table(row, parts_of(row))),
        *_places_of(row),
        html.table_of(f"Ages in {name}", ages_table(row), hidden_caption=False),
        html.table_of(f"Storage classes in {name}", classes_table(row), hidden_caption=False),
        _folded_holders(f"Branches of {name}", "branch", row["branches"]),
        _folded_holders(f"Tags of {name}", "tag", row["tags"]),
        *(el("p", text, cls="dim") for text in notes_of(row)),
    ]
    return html.Section(html.anchor(name), name, join(body))


def _folded_holders(caption: str, what: str, holders: Sequence[HolderRow]) -> Markup | None:
    made = html.table_of(caption, holders_table(what, holders), sortable=True)
    return None if made is None else html.folded(count_of(len(holders), what), made)


def _owners(owners: Sequence[OwnerRow]) -> html.Section | None:
    if not owners:
        return None
    note = el("p", "Objects that several repositories share are counted in each of them.", cls="dim")
    made = html.table_of("By owner", owners_table(owners), sortable=True, hidden_caption=False)
    return html.Section("owners", "Owners", join([made, note]))


# ---- prefixes
def _places_of(row: StoredRow) -> Iterator[Markup]:
    places = row.get("prefixes")
    if not places:
        return
    yield _treemap(row["repository"], places)
    yield el("ul", [el("li", _swatch(cls), words) for cls, words in _LEGEND], cls="legend")
    names: Mapping[PlaceFigure, str] = {
        "held": "kept",
        "reclaimable": "reclaimable now",
        "young": "too young",
        "unreferenced": "unreferenced",
    }
    headers = (f"{words}, {unit}" for words in names.values() for unit in ("objects", "size"))
    rows = [
        [
            Folder(place["prefix"], place["depth"]),
            *(cell for name in names for cell in volume_cells(place[name])),
        ]
        for place in places
    ]
    folders = html.table_of(f"Prefixes of {row['repository']}", Table(("prefix", *headers), rows))
    yield el("div", folders, cls="folders")
    left = row.get("prefixes_left_out", 0)
    words = (
        "A folder's figures include everything in it. An object with several paths is counted at each path."
    )
    yield el("p", f"{words} Smaller folders not shown: {count(left)}." if left else words, cls="dim")


def _swatch(cls: str) -> Markup:
    return el(
        "svg",
        el("rect", cls=cls, width=16, height=16),
        viewBox="0 0 16 16",
        cls="treemap",
        aria_hidden="true",
    )


def _treemap(repository: str, places: Sequence[PlaceRow]) -> Markup:
    """Return two levels of folders by their bytes. The table after the picture has the same figures."""
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
            yield _tile(tile, "own", f"directly in {above or 'no folder'}: {size(int(weight))}", "")
        elif levels > 1 and tile[2] > 120 and tile[3] > 80 and place["prefix"] in parents:
            yield from _tiles(places, sizes, place["prefix"], tile, levels=levels - 1)
        else:
            total, free = place_sum(place), place["reclaimable"]["size_bytes"]
            cls = "held" if not free else "some" if 2 * free <= total["size_bytes"] else "most"
            words = f"{place['prefix']}: {size(total['size_bytes'])}, {size(free)} reclaimable now"
            yield _tile(tile, cls, words, place["prefix"])


def _parent(prefix: str) -> str | None:
    """The folder that contains a prefix, or None for the root. The name of a folder may be empty."""
    return prefix[: prefix[:-1].rfind("/") + 1] if prefix else None


def _tile(box: Box, cls: str, title: str, name: str) -> Markup:
    left, top, width, height = box
    letters, name = int((width - 12) / 7.5), safe(name)
    shown = name if len(name) <= letters else f"{name[: letters - 1]}…"
    fits = name and letters > 3 and height > 26
    label = el("text", shown, x=f"{left + 7:.1f}", y=f"{top + 20:.1f}") if fits else None
    at = {"x": f"{left:.1f}", "y": f"{top:.1f}", "width": f"{width:.1f}", "height": f"{height:.1f}"}
    return el("g", el("rect", el("title", title), cls=cls, **at), label)


def split(weights: Sequence[float], box: Box) -> list[Box]:
    """Return a box for each weight, with an area in proportion to it. Boxes are split along the longer side
    into two parts of about equal weight."""
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
