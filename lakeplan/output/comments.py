"""Comments on a pull request: a plan, the result of an apply, and short answers.

A plan begins with its summary, weakened settings and the gates that block it. A table for each repository
follows, with folded details. Comments have a size limit: details are cut first, then tables, beginning with
the repositories that change least, and the comment says so. The impact and deleted branches of such a
repository remain. Weakened settings and gates are never cut: if there are very many, only the first of each
kind are shown. The comment of an apply begins with how it ended and what to do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakeplan.output import plan_changes, plan_impact
from lakeplan.output.branches import expires_then, follows_table, losses, stale_table, with_losses
from lakeplan.output.plan import SETTINGS, circumstances, summary_text, what_if
from lakeplan.output.text import (
    UNKNOWN,
    Json,
    Money,
    code,
    count,
    cut_lines,
    folded,
    length,
    moment,
    names,
    prose,
    size,
    table,
)
from lakeplan.values.units import count_of

if TYPE_CHECKING:
    from lakeplan.plan.documents import ApplyDocument, ResultRow
    from lakeplan.values.documents import BranchEntry


_SHOWN, _STALE = 20, 5


def branch_run_lines(repository: Json) -> str:
    """The heading of a repository, a table of the branches that are deleted, and the names of those that are
    deleted within 30 days, or "" if there are none."""
    branches = repository["lifecycle"]
    if branches is None or repository["failure"] is not None:
        return ""
    title = f"\n#### {code(plan_impact.key_of(repository))}: branches, {prose(plan_changes.BY_RUN)}\n\n"
    if branches["unknown"]:
        return f"{title}The branches to delete could not be determined: {_brief(branches['unknown'])}\n\n"
    going, later = plan_changes.deletions_of(repository), plan_changes.deleted_later(repository)
    if not going and not later:
        return ""
    headers = ("to delete", "created", "last write", "policy", "crossed", "has", "safe until", "then expire")
    more = f"\nand {count(len(going) - _SHOWN)} more in the plan file\n" if len(going) > _SHOWN else ""
    line = f"{_run_counts(repository)}\n\n"
    rows = table(headers, [_row(b, Money.of(repository)) for b in going[:_SHOWN]]) if going else ""
    soon = [b["branch_id"] for b in plan_changes.kept_branches(repository) if b["due"]][:later]
    following = f"\nDeleted later: {names(soon, _BRANCHES, code)}\n" if soon else ""
    return title + line + rows + more + following + "\n"


def _run_counts(repository: Json) -> str:
    branches = repository["lifecycle"]
    if branches["unknown"]:
        return UNKNOWN
    now, week, month = (branches["deletions"].get(h, 0) for h in ("now", "plus_7_days", "plus_30_days"))
    return (
        f"{count_of(now, 'branch')} now, {count(week)} within 7 days, {count(month)} within 30 days, assuming"
        " no new writes."
    )


def _row(branch: BranchEntry, cost: Money) -> list[str]:
    return [
        code(branch["branch_id"]),
        moment(branch["created"] or ""),
        moment(branch["last_write"] or ""),
        code(branch["policy"] or ""),
        moment(branch["since"] or ""),
        prose(", ".join(losses(branch))),
        moment(branch["safe_until"] or ""),
        prose(expires_then(branch["follows"], cost)),
    ]


def kept_and_following(repository: Json) -> str:
    """Return the branches that are kept, by reason, and what expires because of deletions, folded."""
    branches, cost = repository["lifecycle"], Money.of(repository)
    if branches is None or branches["unknown"] or not plan_changes.deletions_of(repository):
        return ""
    rest = plan_changes.kept_branches(repository)
    body = f"{count_of(len(rest), 'branch')} kept: {prose(plan_changes.why_kept(rest))}.\n\n" if rest else ""
    stale = stale_table(branches["branches"], cost)
    for made in (follows_table(branches, cost).markdown(), stale.markdown(_STALE)):
        body += f"{made}\n" if made else ""
    if (left := len(stale.rows) - _STALE) > 0:
        body += f"and {count_of(left, 'more stale branch')} in the plan file\n\n"
    body += "".join(f"- {prose(note)}\n" for note in branches["notes"])
    return folded("kept branches, and data that expires after the deletions", body)


_WORDS = {"add": "first GC rules", "change": "rules change", "clear": "all rules are removed"}
_SETTING_WORDS = {"add": "set for the first time", "change": "changed", "clear": "all removed"}
_CHANGES = 200
_PREFIXES = 5
_TAGS = 10
_BRANCHES = 10


def essence_of(repository: Json) -> str:
    """Return the impact of a repository and the branches that policies delete, for a comment that has no room
    for its changes."""
    lines = []
    if plan_impact.writes(repository):
        lines.append(headline(repository))
        for _, setting in plan_changes.settings_of(repository):
            lines += map(prose, _deletions(setting))
    if branch_run_lines(repository):
        going = [b["branch_id"] for b in plan_changes.deletions_of(repository)]
        lines.append(f"Branches, {prose(plan_changes.BY_RUN)}: {_run_counts(repository)}")
        lines.append(names(going, _BRANCHES, code))
    text = "\n".join(filter(None, lines))
    return f"\n#### {code(plan_impact.key_of(repository))}\n\n{text}\n"


def loudest_first(repository: Json) -> tuple[int, int, str]:
    """Sort refused gates first, then unknown impacts, then by the bytes that expire."""
    refused = any(g["outcome"] == "refused" for g in repository["gates"])
    now = repository["impact"]["horizons"].get("now") or {}
    size_bytes = now.get("bytes_expire")
    rank = 0 if refused else 1 if repository["impact"]["status"] == "unknown" else 2
    return (rank, -(size_bytes or 0), plan_impact.key_of(repository))


def changes_of(repository: Json) -> str:
    """Return the heading of a repository, the values that change, and the branches that ``branches run``
    deletes."""
    parts = []
    if not plan_impact.writes(repository):
        return branch_run_lines(repository)
    if repository["action"] != "none":
        title = _title(repository, _WORDS[repository["action"]])
        parts.append(
            title
            + plan_changes.rules_table(plan_changes.fold(plan_changes.change_rows(repository))).markdown()
        )
    for kind, setting in plan_changes.settings_of(repository):
        title = _title(repository, f"{plan_changes.TITLES[kind]}, {_SETTING_WORDS[setting['action']]}")
        notes = "".join(f"- {prose(note)}\n" for note in [*_deletions(setting), *setting["notes"]])
        parts.append(
            title
            + plan_changes.setting_table(setting["changes"]).markdown()
            + (f"\n{notes}" if notes else "")
        )
    parts.append(plan_changes.markdown_pins(repository))
    return "".join(parts) + f"\n{headline(repository)}\n\n" + branch_run_lines(repository)


def _deletions(setting: Json) -> list[str]:
    """Return how many branches the change newly deletes, and the names of the first."""
    counts = setting.get("deletions") or {}
    if not any(counts.values()):
        return []
    going = [with_losses(f) for f in setting["fates"] if f["goes_at"] and not f["before_at"]]
    now, month = counts.get("now", 0), counts.get("plus_30_days", 0)
    text = f"branches newly deleted: {count(now)} now, {count(month)} within 30 days"
    return [text + (f": {names(going, _BRANCHES)}" if going else "")]


def _title(repository: Json, words: str) -> str:
    adopted = ", adopted by a glob" if repository["adopted"] else ""
    return f"\n#### {code(plan_impact.key_of(repository))}: {words}{adopted}\n\n"


def headline(repository: Json) -> str:
    """Return one line about what the change does, and what that does not include."""
    left_out = (f"Not included: {_brief(text)}." for text in plan_impact.left_out(repository))
    return " ".join([_impact(repository), *left_out])


def _impact(repository: Json) -> str:
    impact = repository["impact"]
    if impact["status"] == "unknown":
        return f"Impact: **UNKNOWN**: {_brief(impact['reason'] or plan_impact.NO_REASON)}"
    horizons, now = impact["horizons"], impact["horizons"].get("now")
    if now is None:
        return f"Impact: not requested. {_brief(impact['reason'])}".rstrip()
    cost = Money.of(repository)
    text = f"Impact: {_objects(now, cost)}"
    if later := plan_impact.worst_later({name: h["objects_expire"] or 0 for name, h in horizons.items()}):
        text += f" ({_objects(horizons[later], cost)} {plan_impact.HORIZONS[later]})"
    risk = now["objects_at_risk"]
    return text + (f", **{count_of(risk, 'object')} at risk**" if risk else "") + "."


def _objects(h: Json, cost: Money) -> str:
    if h["objects_expire"] is None:
        return f"**UNKNOWN** objects of {count_of(h['commits_expire'], 'commit')}"
    words = prose(cost.words(h["bytes_expire"]))
    return f"{count_of(h['objects_expire'], 'object')}, {_size(h['bytes_expire'])}{words}"


def details_of(repository: Json) -> str:
    """Return the figures at the three moments, tags, folders and gates that passed, folded."""
    if not plan_impact.writes(repository):
        return kept_and_following(repository)
    parts = [_every_change(repository), _figures(repository), _tags(repository), _prefixes(repository)]
    passed = [g for g in repository["gates"] if g["outcome"] == "passed"]
    if passed:
        rows = "".join(f"- {code(g['gate'])} passed: {prose(g['message'])}\n" for g in passed)
        parts.append(f"{rows}\n")
    if repository["unexpanded"]:
        parts.append(f"Not expanded: {names(list(repository['unexpanded']), _BRANCHES, code)}\n\n")
    facts = [f"Entry {code(repository['entry'])}"]
    if repository["source"]:
        facts.append(f"at {code(repository['source'])}")
    if repository["owner"]:
        facts.append(f"owner {code(repository['owner'])}")
    parts.append(", ".join(facts) + "\n")
    return folded("details", "".join(parts)) + kept_and_following(repository)


def _every_change(repository: Json) -> str:
    """Return a row for every branch if branches share rows in the table above, because a single branch may
    matter."""
    rows = plan_changes.change_rows(repository)
    if len(rows) == len(list(plan_changes.fold(rows))):
        return ""
    more = f"\nand {len(rows) - _CHANGES:,} more, in the plan file\n" if len(rows) > _CHANGES else ""
    return f"{plan_changes.rules_table(rows).markdown(_CHANGES)}{more}\n"


def _figures(repository: Json) -> str:
    figures = plan_impact.moment_table(repository).markdown()
    return f"{figures}\n{plan_impact.AT_MOST}.\n\n" if figures else ""


def _tags(repository: Json) -> str:
    tags = plan_impact.tag_table(repository, plan_impact.tags_title(repository))
    more = f"\nand {len(tags.rows) - _TAGS:,} more\n" if len(tags.rows) > _TAGS else ""
    return tags.markdown(_TAGS) + more + "\n" if tags.rows else ""


def _prefixes(repository: Json) -> str:
    prefixes = (p for p in repository["impact"]["prefixes"] if p["prefix"])
    shown = plan_impact.prefix_table(prefixes, Money.of(repository)).markdown(_PREFIXES)
    return f"{shown}\n" if shown else ""


def _size(value: int | None) -> str:
    return f"**{UNKNOWN}**" if value is None else size(value)


COMMENT_LIMIT = 65_500
"""GitHub allows 65,536 characters, and GitLab more. `lakeplan ci comment` adds a hidden line."""
_NOTE = 3_000
"""Reserved for the text about what was cut."""
_SCOPES = 8
_ROWS = 20
_ALIKE = 3
_CHARACTERS = 500


def marker(tree: str = "", kind: str = "plan") -> str:
    """Return the first line of every comment about a tree, by which lakeplan finds the comment that it
    updates. ``tree`` is the tree's folder in the git repository, "" for the top folder."""
    where = "".join(c if c.isalnum() or c in "/._" else f"%{ord(c):x}" for c in tree)
    return f"<!-- lakeplan:{kind}:{where or '.'} -->"


def render_markdown(document: Json, *, tree: str = "", limit: int = COMMENT_LIMIT) -> str:
    """Return the comment of a plan, never longer than ``limit`` (at least 8,000), however the host counts
    length."""
    blocks = [
        _Block(plan_impact.key_of(r), changes_of(r), details_of(r), essence_of(r))
        for r in sorted(_shown(document), key=loudest_first)
    ]
    room = limit - _NOTE
    head, tail = _head(document, tree), _tail(document)
    if length(head) > room // 2:  # leave room for the changes
        head = _head(document, tree, compact=True)
    if length(head) > room:
        head = cut_lines(head, room)
    if length(head) + length(tail) > room:
        tail = _circumstances(document)
    if length(head) + length(tail) > room:
        tail = ""
    text = head + _fitting(blocks, room - length(head) - length(tail)) + tail
    return text if length(text) <= limit else cut_lines(text, limit)


def _shown(document: Json) -> list[Json]:
    """Return the repositories that the plan writes to, and those where ``branches run`` deletes branches."""
    written = plan_impact.writing(document)
    return [*written, *(r for r in document["repositories"] if r not in written and branch_run_lines(r))]


@dataclass(frozen=True)
class _Block:
    key: str
    changes: str
    details: str
    essence: str


def _fitting(blocks: Sequence[_Block], room: int) -> str:
    """Return as much as fits: the essence of each repository first, then tables instead of it, then details.
    A part that is too long does not exclude those after it."""
    essence = {b.key: length(b.essence) for b in blocks}
    named = _that_fit(essence, room)
    left = room - sum(essence[key] for key in named)
    more = {b.key: length(b.changes) - (essence[b.key] if b.key in named else 0) for b in blocks}
    shown = _that_fit(more, left)
    left -= sum(more[key] for key in shown)
    detailed = _that_fit({b.key: length(b.details) for b in blocks if b.key in shown}, left)
    text = "".join(
        b.changes + (b.details if b.key in detailed else "")
        if b.key in shown
        else b.essence
        if b.key in named
        else ""
        for b in blocks
    )
    cut = []
    if len(detailed) < len(blocks):
        cut.append(f"the details of {_several([b.key for b in blocks if b.key not in detailed])}")
    if len(shown) < len(blocks):
        cut.append(f"the changes of {_several([b.key for b in blocks if b.key not in shown])}")
    if not cut:
        return text
    return f"{text}\n**Omitted to fit the comment:** {' and '.join(cut)}. The plan file has everything.\n"


def _that_fit(lengths: Mapping[str, int], room: int) -> set[str]:
    """Return the keys of the parts that fit, each into the space left by those before it."""
    fitting = set()
    for key, size_bytes in lengths.items():
        if size_bytes <= room:
            fitting.add(key)
            room -= size_bytes
    return fitting


def _several(keys: Sequence[str]) -> str:
    return f"{count_of(len(keys), 'repository')} ({_names(keys)})"


def _names(values: Sequence[str], limit: int | None = _SCOPES) -> str:
    return names(values, limit, code)


def _head(document: Json, tree: str, *, compact: bool = False) -> str:
    """Return the part that is never cut. If ``compact``, it has only the first repositories of each gate, and
    the first settings of each kind."""
    summary = summary_text(document).replace("BLOCKED", "**BLOCKED**")
    where = f" for {code(tree)}" if tree else ""
    assumed = what_if(document, code)
    first = [f"**What if** {assumed}", ""] if assumed else []
    kind = "what-if" if assumed else "plan"  # never replaces the comment with the real plan
    lines = [marker(tree, kind), *first, f"**lakeplan**{where}: {summary}", ""]
    parts = [_weakened(document, compact=compact), _blocked(document, compact=compact)]
    if compact:
        parts.reverse()  # the list of refused gates is short now, and nothing before it can be long
    parts += [_opened(document, compact=compact), _failed(document, _ALIKE if compact else _ROWS)]
    return "\n".join(lines) + "".join(parts)


def _weakened(document: Json, *, compact: bool) -> str:
    loosenings = plan_changes.weakened_settings(document)
    if not loosenings:
        return ""
    kinds = Counter[str]()
    shown = []
    for item in loosenings:
        kind = item.path.partition("[")[0].partition(" of ")[0]
        kinds[kind] += 1
        if not compact or kinds[kind] <= _ALIKE:
            before, after = _short(item.before), _short(item.after)
            shown.append(
                plan_changes.WeakenedRow(_short(item.path), before, after, _short(item.where), item.scopes)
            )
    left = [f"{count(n - _ALIKE)} of {code(kind)}" for kind, n in kinds.items() if compact and n > _ALIKE]
    more = (
        f"\n**Omitted to fit the comment:** {', '.join(left)}. The plan file has everything.\n"
        if left
        else ""
    )
    title = f"\n### :warning: {prose(plan_changes.weakened_title(document))}\n\n"
    table = plan_changes.weakened_table(shown, _SCOPES).markdown()
    return f"{title}{table}{more}\n{plan_changes.REVIEW_FIRST}\n"


def _short(text: str) -> str:
    """Return the text, cut so that it cannot push everything else out of a comment."""
    return text if len(text) <= _CHARACTERS else f"{text[: _CHARACTERS - 1]}…"


def _brief(text: str) -> str:
    return prose(_short(text))


def _blocked(document: Json, *, compact: bool) -> str:
    lines = _gates(document, ("refused",), "override with ", compact=compact)
    if compact and lines:
        lines += (
            "\n**Omitted to fit the comment:** the messages of the gates. The plan file has everything.\n"
        )
    return "\n### :no_entry: BLOCKED\n\n" + lines if lines else ""


def _opened(document: Json, *, compact: bool) -> str:
    """Return the overridden gates, which a reviewer accepts by approving the pull request."""
    lines = _gates(document, ("overridden", "allowed"), "", compact=compact)
    return "\n### Gates overridden in this plan\n\n" + lines if lines else ""


def _gates(document: Json, outcomes: Sequence[str], word: str, *, compact: bool) -> str:
    """Return a line for each result of a gate, with all repositories that have this result."""
    gates = [
        {**gate, "message": "", "opens_with": ""} if compact else gate
        for gate in plan_impact.gates_of(document)
        if gate["outcome"] in outcomes
    ]
    lines = []
    for (_, name, message, opens), scopes in plan_impact.gate_groups(gates).items():
        about = _names(scopes, _SCOPES if compact else None)
        text = f": {_brief(message)}" if message else f" ({count_of(len(scopes), 'gate')})"
        opening = f" — {word}{_brief(opens)}" if opens else ""
        lines.append(f"- {code(name)} of {about}{text}{opening}\n")
    return "".join(lines)


def _failed(document: Json, limit: int) -> str:
    groups = plan_impact.failure_groups(document["repositories"])
    if not groups:
        return ""
    lines = []
    for (reason, place, hint), keys in list(groups.items())[:limit]:
        at = f" ({_brief(place)})" if place and place not in keys else ""
        lines.append(f"- {_names(keys)}{at}: {_brief(reason)}{f' — {_brief(hint)}' if hint else ''}\n")
    if len(groups) > limit:
        lines.append(f"- and {len(groups) - limit:,} more kinds of failure in the plan file\n")
    return "\n### Failed: not in this plan, so an apply does not change them\n\n" + "".join(lines)


def _tail(document: Json) -> str:
    notes = []
    for gate in plan_impact.gates_of(document):
        if gate["outcome"] == "warned":
            text = f"{code(gate['gate'])} of {code(plan_impact.scope_of(gate['scope']))}"
            notes.append(f"- {text}: {_brief(gate['message'])}\n")
    notes += [f"- {_brief(text)}\n" for text in document["warnings"]]
    for repository in document["repositories"]:
        notes += [
            f"- {code(plan_impact.key_of(repository))}: {_brief(text)}\n" for text in repository["warnings"]
        ]
    if document["unmanaged"]:
        count = count_of(len(document["unmanaged"]), "repository")
        notes.append(
            f"- not managed, because no entry in the tree matches them: {count},"
            f" {_names(document['unmanaged'])}\n"
        )
    more = f"- and {len(notes) - _ROWS:,} more in the plan file\n" if len(notes) > _ROWS else ""
    body = "".join(notes[:_ROWS]) + more
    return ("\n" + folded(count_of(len(notes), "note"), body) if notes else "") + _circumstances(document)


def _circumstances(document: Json) -> str:
    """Return when and how the plan was made, as on a terminal but without ``--read-only``."""
    parts = circumstances({**document, "read_only": False}, code, _SCOPES)
    return f"\n<sub>{', '.join(parts)}, plan {code(document['digest'][:12])}.</sub>\n"


def not_applied(reason: str, hint: str, tree: str) -> str:
    """Return the comment of an apply that was not started."""
    where = f" for {code(tree)}" if tree else ""
    lines = [marker(tree, "apply"), f"**lakeplan**{where}: :x: **not applied**", "", prose(reason), ""]
    return "\n".join([*lines, *([f"**What to do:** {prose(hint)}", ""] if hint else [])])


def refused_answer(command: str, reason: str, hint: str) -> str:
    return f"{code(f'/lakeplan {command}')}: {prose(reason)}. {prose(hint)}\n"


def approved_answer(mark: str, login: str) -> str:
    return (
        f"Mark {code(mark)} was approved by {code(login)}. To delete its objects, run"
        f" {code(f'lakeplan sweep run {mark}')}.\n"
    )


_TITLES = {
    "applied": ":white_check_mark: applied",
    "nothing": ":white_check_mark: nothing to write",
    "partly": ":warning: **partly applied**",
    "failed": ":x: **not applied**",
    "refused": ":no_entry: **refused**, nothing was written",
    "stale": ":no_entry: **stale**, nothing was written",
}
_NEXT = {
    "partly": "Fix the cause, then run the job again. It skips what was already written.",
    "failed": "Fix the cause, then run the job again.",
    "refused": "Open a new pull request so that the current plan is reviewed. To override a gate, list it"
    " under `overrides` in that pull request.",
    "stale": "Open a new pull request so that the current plan is reviewed. An empty commit is enough,"
    " because the tree is already merged.",
}
_NAMES = 20


def render_apply_markdown(document: ApplyDocument, *, tree: str = "", limit: int = COMMENT_LIMIT) -> str:
    """Return the comment of an apply, never longer than ``limit``."""
    title = _TITLES[document["end"]]
    if document["not_written"]:
        title = title.replace(":white_check_mark: nothing to write", ":warning: **nothing was written**")
    where = f" for {code(tree)}" if tree else ""
    lines = [
        marker(tree, "apply"),
        f"**lakeplan**{where}: {title}{_amounts(document)}",
        "",
        *_list("Why", document["refusals"]),
        *_to_do(document),
        *_problems(document["results"]),
        *_list("Planned again, because the servers have changed since the review", document["planned_again"]),
    ]
    if document["planned_again"]:
        lines += ["Everything that this plan deletes was reviewed.", ""]
    if document["not_written"]:
        keys = names(document["not_written"], _NAMES, code)
        lines += [
            f"These changes are in the tree but not in the plan, so they were not written: {keys}. Plan again"
            " to have them reviewed.",
            "",
        ]
    if document["note"]:
        lines += [prose(document["note"]), ""]
    text = "\n".join(lines) + _done(document["results"]) + f"\n<sub>Run {code(document['run_id'])}.</sub>\n"
    return text if length(text) <= limit else cut_lines(text, limit)


def _amounts(document: ApplyDocument) -> str:
    summary = document["summary"]
    words = {
        "applied": "applied",
        "already": "already as planned",
        "failed": "failed",
        "uncertain": "uncertain",
    }
    parts = [f"{count(summary[k])} {word}" for k, word in words.items() if summary[k]]  # type: ignore[index]
    return f" ({', '.join(parts)})" if parts else ""


def _to_do(document: ApplyDocument) -> list[str]:
    advice = _NEXT.get(document["end"])
    if advice is None:
        return []
    hint = "" if document["end"] in ("stale", "refused") or not document["hint"] else prose(document["hint"])
    return [f"**What to do:** {hint or advice}", ""]


def _list(title: str, texts: Iterable[str]) -> list[str]:
    lines = [f"- {_brief(text)}" for text in texts]
    return [f"{title}:", "", *lines, ""] if lines else []


def _problems(results: Iterable[ResultRow]) -> list[str]:
    return _list(
        "Failed",
        (
            f"{r['repository']}, {SETTINGS[r['setting']]}: {r['outcome']}: {r['message']}"
            + (f" {r['hint']}" if r["hint"] else "")
            for r in results
            if r["exit_code"]
        ),
    )


def _done(results: list[ResultRow]) -> str:
    rows = [
        (code(r["repository"]), SETTINGS[r["setting"]], r["action"], r["outcome"])
        for r in results
        if not r["exit_code"]
    ]
    if not rows:
        return ""
    body = table(("repository", "setting", "change", "result"), rows)
    return folded(count_of(len(rows), "setting"), body)
