"""Replaces object paths, prefixes, physical addresses and storage URLs in a document with digests.

Values under the keys below are replaced entirely. In all other texts, these values, storage URLs and keys of
lakeFS's own folders are replaced. Names of servers, repositories, branches, tags and files of the tree
remain, because they are not object paths.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from lakeplan.values.sweep import SWEEP
from lakeplan.values.urls import STORAGES, UrlForm, is_digest, path_digest

if TYPE_CHECKING:
    from lakeplan.values.plan import Plan


Json = Mapping[str, Any]

_PATHS = frozenset(
    {"prefix", "paths", "address", "addresses", "examples", "storage_namespace", "namespace", "held_prefixes"}
)
_NAMES = frozenset(
    {
        *("server", "name", "repository", "owner", "entry", "source", "scope", "targets", "unmanaged"),
        *("branch_id", "branch", "branches", "tag", "tags", "ref", "head_of", "default_branch", "start"),
        *("commit_id", "id", "run_id", "mark_id", "of_run", "format", "schema", "key", "gate", "policy"),
        *("patterns", "digest", "etag", "before_etag", "after_etag", "config_hash", "as_of", "by"),
    }
)
"""Keys whose texts are names or ids, in which only storage URLs are replaced."""
_SERVERS = frozenset({"endpoint_url"})
_BY_KEY = frozenset({"failures", "reasons"})
"""Maps whose keys are redacted too."""
_PLAN_TOP = frozenset({"gates", "warnings", "loosenings"})
_PLAN_PARTS = frozenset({"impact", "gates", "warnings", "failure", "storage_namespace", "lifecycle"})
"""The parts of a plan file that are redacted. An apply compares all others with the servers and the tree."""

_END = r"[^\s'\"`,;()\[\]{}<>|]*"
_SCHEMES = {
    *(s for kind in STORAGES if kind.form is not UrlForm.WEB for s in kind.schemes),
    *(s for kind in STORAGES for s in kind.hadoop_schemes),
    *("az", "azure"),
}
_URL = re.compile(rf"\b(?:{'|'.join(sorted(_SCHEMES))})://{_END}|https?://[^\s/]*\.blob\.{_END}")
_KEY = re.compile(rf"(?<![\w./-])(?:data|_lakefs|_lakeplan)/{_END}")
_HOLD = re.compile(r"(?<=holds\[prefix )[^\]]+(?=\])")
_QUOTED = re.compile(r"""(?:(?<=hold on prefix )|(?<=the path ))(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")""")
"""Paths in logs and errors, where only the words before them show that they are paths."""


def redacted(document: Json) -> dict[str, Any]:
    """Return a redacted copy of a document."""
    made: dict[str, Any] = _Redactor(document).part(document, _scope(document, ""))
    return made


def redact_text(text: str, scope: str = "") -> str:
    """Return the message without storage URLs and keys of lakeFS's folders."""
    for pattern in (_URL, _KEY, _HOLD, _QUOTED):
        text = pattern.sub(lambda match: _digest(scope, match.group()), text)
    return text


def redact_plan(plan: Plan) -> Plan:
    """Return a plan whose file can be shown to others and still be applied. Rules remain, including the
    prefixes of object rules, because an apply writes them. The storage namespace becomes a digest that an
    apply can compare. Free text, such as the reasons of holds, is removed."""
    # Imported here because plans need numpy, and every command needs this module to redact its errors.
    from lakeplan.values.plan_document import digest_of, load_plan, to_document, with_shown

    document = to_document(plan)
    redactor = _Redactor(document)
    made = {key: redactor.part(value, "") if key in _PLAN_TOP else value for key, value in document.items()}
    made["repositories"] = [
        {
            key: redactor.at(key, value, _scope(repository, "")) if key in _PLAN_PARTS else value
            for key, value in repository.items()
        }
        for repository in document["repositories"]
    ]
    made["sweep_guards"] = {key: _no_reasons(guard) for key, guard in document["sweep_guards"].items()}
    if document.get("what_if"):
        made["what_if"] = [f"{setting.partition('=')[0]}=…" for setting in document["what_if"]]
    made["digest"] = digest_of(made)
    known = {r.key: r.impact.shown for r in plan.repositories if r.impact.shown is not None}
    return with_shown(load_plan(json.dumps(made), where="the redacted plan"), known)


def _no_reasons(guard: Json) -> dict[str, Any]:
    texts = {setting.field: "" for setting in SWEEP if setting.kind.is_free_text}
    holds = [{**hold, "reason": ""} for hold in guard["holds"]]
    return {**guard, "holds": holds, "settings": {**guard["settings"], **texts}}


def _scope(part: Json, outer: str) -> str:
    """``server/name`` of the repository that a part is about, or its name in ``explain`` and ``curve``."""
    name = part.get("name", part.get("repository"))
    if isinstance(part.get("server"), str) and isinstance(name, str):
        return f"{part['server']}/{name}"
    if "what" in part and isinstance(name, str):
        return name
    for key in ("repository", "scope"):
        if isinstance(part.get(key), str) and "/" in part[key]:
            return str(part[key])
    return outer


class _Redactor:
    def __init__(self, document: Json) -> None:
        known: dict[str, set[str]] = {}
        for scope, path in _known(document, _scope(document, "")):
            known.setdefault(scope, set()).add(path)
        self._known = {scope: _any_of(paths) for scope, paths in known.items()}

    def part(self, value: Any, scope: str) -> Any:
        if isinstance(value, Mapping):
            inner = _scope(value, scope)
            return {key: self.at(key, item, inner) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.part(item, scope) for item in value]
        return self._text(value, scope) if isinstance(value, str) else value

    def at(self, key: str, value: Any, scope: str) -> Any:
        """The redacted value of a key."""
        if key in _SERVERS:
            return value
        if key in _PATHS:
            return _whole(value, scope)
        if key == "what" and isinstance(value, Mapping) and value.get("kind") in ("path", "address"):
            return {**value, "text": _whole(value["text"], scope)}
        if key in _NAMES and not isinstance(value, Mapping):
            return self._names(value, scope)
        if key in _BY_KEY and isinstance(value, Mapping):
            return {self._text(name, scope): self.part(item, scope) for name, item in value.items()}
        return self.part(value, scope)

    def _names(self, value: Any, scope: str) -> Any:
        """Names and lists of names. A map is redacted like any other part."""
        if isinstance(value, str):
            return _URL.sub(lambda match: _digest(scope, match.group()), value)
        if isinstance(value, (list, tuple)):
            return [self._names(item, scope) for item in value]
        return self.part(value, scope)

    def _text(self, text: str, scope: str) -> str:
        known = self._known.get(scope)
        if known is not None:
            text = known.sub(lambda match: _digest(scope, match.group()), text)
        return redact_text(text, scope)


def _known(value: Any, scope: str) -> Iterator[tuple[str, str]]:
    """Yield every path under a key for paths, with its repository."""
    if isinstance(value, Mapping):
        inner = _scope(value, scope)
        for key, item in value.items():
            is_question = (
                key == "what" and isinstance(item, Mapping) and item.get("kind") in ("path", "address")
            )
            values = [item["text"]] if is_question else item if key in _PATHS else None
            for path in values if isinstance(values, (list, tuple)) else [values]:
                if isinstance(path, str) and path:
                    yield inner, path
            yield from _known(item, inner)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _known(item, scope)


def _any_of(paths: set[str]) -> re.Pattern[str]:
    """Return a pattern that matches these paths, the longest first, and everything below those that are
    folders."""
    parts = [
        re.escape(path) + (_END if path.endswith("/") or "://" in path else r"(?![\w/-])")
        for path in sorted(paths, key=len, reverse=True)
    ]
    return re.compile(rf"(?<![\w./-])(?:{'|'.join(parts)})")


def _whole(value: Any, scope: str) -> Any:
    if isinstance(value, str):
        return _digest(scope, value)
    return [_whole(item, scope) for item in value] if isinstance(value, (list, tuple)) else value


def _digest(scope: str, path: str) -> str:
    if is_digest(path):
        return path
    end = path[len(path.rstrip(".:")) :]
    return path_digest(scope, path.rstrip(".:")) + end
