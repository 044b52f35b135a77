"""Hostile text in every string of every document, through every renderer: the shape of the output stays."""

from __future__ import annotations

import io
import json
import logging
import re
import unicodedata
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Mapping
from html.parser import HTMLParser
from typing import Any

import pytest
from rich.console import Console

from lakeplan.cli.console import configure_logging, print_error
from lakeplan.output.annotations import plan_annotations, render_github, render_junit_plan
from lakeplan.output.branches import render_branches_plan, render_branches_run, render_branches_undo
from lakeplan.output.comments import render_markdown
from lakeplan.output.explain import render_explain, render_tests, render_tests_junit
from lakeplan.output.metrics import (
    apply_metrics,
    branches_plan_metrics,
    drift_metrics,
    history_metrics,
    mark_metrics,
    plan_metrics,
    sweep_metrics,
)
from lakeplan.output.operations import (
    render_collector_runs,
    render_doctor,
    render_drift,
    render_history,
    render_run,
)
from lakeplan.output.plan import render_apply, render_plan
from lakeplan.output.report import render_report
from lakeplan.output.simulate import render_curve, render_simulate
from lakeplan.output.sweep import render_marks, render_purge, render_restore, render_sweep
from lakeplan.output.text import safe, safe_json, safe_lines, safe_output
from lakeplan.tree.schemas import load_schema

HOSTILE = (
    "\x1b[31mred\x1b]8;;http://evil.example\x07",
    "c1 \x9b31m\x85",
    "\u202eevil\u2066\u2069",
    "zero\u200b\u2060\ufeff\U000e0041",
    "blank\u3164\u115f\uffa0\u2800\u034f\ufe0f\U000e0100",
    "\u0301\u0308" + "marks" + "\u0302\u0323\u0489" * 60,
    "cr\rlf\nls\u2028ps\u2029vt\x0bff\x0c",
    "::error::x",
    "\n::add-mask::x",
    "##[add-mask]x ##vso[task.setvariable variable=a]b",
    "[link=http://evil.example]x[/link][bold]",
    "| a | b |\n| - | - |",
    "</td></code></summary><script>x</script><img src=x>",
    "![x](http://evil.example/x.png) @everyone #1 !2 https://evil.example",
    "<!-- ``` --> `a`",
    '"} 1\n# EOF\nlakeplan_evil{a="',
    "]]> & \x00 \ufffe",
)
TIME = "2026-03-31T12:00:00Z"


def nobody(_: str) -> str:
    return ""


class Documents:
    """Documents made from a schema: every property, one item in every list, one text everywhere."""

    def __init__(self, name: str, text: str) -> None:
        self._schema = load_schema(name)
        self._text = text

    def make(self, definition: str | None) -> Any:
        return self._of({"$ref": f"#/$defs/{definition}"} if definition else self._schema)

    def _of(self, schema: Mapping[str, Any]) -> Any:
        if "$ref" in schema:
            return self._of(self._schema["$defs"][schema["$ref"].rpartition("/")[2]])
        for key in ("oneOf", "anyOf"):
            if key in schema and "properties" not in schema:
                return self._of(next(s for s in schema[key] if s.get("type") != "null"))
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return next(value for value in schema["enum"] if value is not None)
        kinds = schema.get("type", "string")
        kind = next(k for k in ([kinds] if isinstance(kinds, str) else kinds) if k != "null")
        return getattr(self, f"_{kind}")(schema)

    def _object(self, schema: Mapping[str, Any]) -> dict[str, Any]:
        found = {key: self._of(value) for key, value in schema.get("properties", {}).items()}
        if found.get("outcome") == self._text:
            found["outcome"] = "refused"  # of a gate; its schema does not list them
        if schema.get("properties", {}).get("plan") == load_schema("report")["properties"]["plan"]:
            found["plan"] = Documents("plan", self._text).make(None)
            found["repositories"] = found["plan"]["repositories"]
            found["curves"][0]["curve"] = Documents("curve", self._text).make(None)
        more = schema.get("additionalProperties")
        if isinstance(more, Mapping):
            names = schema.get("propertyNames", {}).get("enum", [self._text])
            found |= {name: self._of(more) for name in names}
        return found

    def _array(self, schema: Mapping[str, Any]) -> list[Any]:
        if "prefixItems" in schema:
            return [self._of(item) for item in schema["prefixItems"]]
        items = schema.get("items", {"type": "string"})
        return [self._of(items) for _ in range(max(1, schema.get("minItems", 1)))]

    def _string(self, schema: Mapping[str, Any]) -> str:
        pattern = schema.get("pattern", "")
        if schema.get("format") == "date-time" or "T" in pattern:
            return TIME
        return next((known for known in KNOWN if pattern and re.search(pattern, known)), self._text)

    def _integer(self, schema: Mapping[str, Any]) -> int:
        return max(1, int(schema.get("minimum", 1)))

    _number = _integer

    def _boolean(self, schema: Mapping[str, Any]) -> bool:
        return True

    def _null(self, schema: Mapping[str, Any]) -> None:
        return None


KNOWN = ("a1" * 32, "012", "default_retention_days", "EUR")
Show = Callable[[Any], str]


def on_a_terminal(render: Callable[[Any, Console], None]) -> Show:
    def shown(document: Any) -> str:
        stream = io.StringIO()
        render(document, Console(file=stream, force_terminal=True, width=200, color_system="standard"))
        return stream.getvalue()

    return shown


TERMINAL: dict[str, tuple[str, str | None, Callable[[Any, Console], None]]] = {
    "plan": ("plan", None, render_plan),
    "apply": ("apply", None, render_apply),
    "drift": ("drift", None, render_drift),
    "explain": ("explain", None, render_explain),
    "curve": ("curve", None, render_curve),
    "doctor": ("doctor", None, render_doctor),
    "history": ("history", None, render_history),
    "run": ("history", None, lambda d, c: render_run(d, c)),
    "branches plan": ("lifecycle", "plan", render_branches_plan),
    "branches run": ("lifecycle", "run", render_branches_run),
    "branches undo": ("lifecycle", "undo", render_branches_undo),
    "marks": ("marks", None, render_marks),
    "sweep": ("sweep", None, render_sweep),
    "restore": ("restore", None, render_restore),
    "purge": ("purge", None, render_purge),
    "collector runs": ("collector-runs", None, render_collector_runs),
    "simulate": ("simulate", None, render_simulate),
    "test": ("test", None, render_tests),
}
TEXTS: dict[str, tuple[str, str | None, Show]] = {
    "markdown": ("plan", None, render_markdown),
    "github": ("plan", None, lambda d: render_github(plan_annotations(d))),
    "junit": ("plan", None, render_junit_plan),
    "test junit": ("test", None, render_tests_junit),
    "html": ("report", None, render_report),
    "plan metrics": ("plan", None, plan_metrics),
    "apply metrics": ("apply", None, lambda d: apply_metrics(d, nobody)),
    "drift metrics": ("drift", None, drift_metrics),
    "history metrics": ("history", None, lambda d: history_metrics(d, nobody)),
    "lifecycle metrics": ("lifecycle", "plan", lambda d: branches_plan_metrics(d, nobody)),
    "mark metrics": ("marks", None, lambda d: mark_metrics(d, nobody)),
    "sweep metrics": ("sweep", None, lambda d: sweep_metrics(d, nobody)),
}


def harmful(text: str) -> list[str]:
    """Characters that a terminal acts on, that cannot be seen, or that cover the lines around them."""
    kinds = "".join("m" if unicodedata.category(c) in ("Mn", "Me") else "." for c in text)
    return [text[found.start() : found.end()] for found in re.finditer("mmmmm+", kinds)] + [
        c
        for c in text
        if c != "\n"
        and (
            unicodedata.category(c) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
            or re.search("FILLER|VARIATION SELECTOR|PATTERN BLANK|JOINER", unicodedata.name(c, ""))
        )
    ]


def it_shows_letters_with_the_marks_of_their_script_as_they_are() -> None:
    for text in ("Việt", "Vie\u0302\u0323t", "ที่นี่", "בְּרֵאשִׁ֖ית", "हिन्दी", "ខ្ញុំ"):
        assert safe(text) == text
    assert safe("\u0338not equal") == "\\u0338not equal"


def orders(text: str) -> list[str]:
    """Lines that a runner of workflows would act on."""
    return [
        line
        for line in text.split("\n")
        if line.lstrip().startswith("::") or re.search(r"##[A-Za-z]*\[", line)
    ]


@pytest.mark.parametrize("hostile", HOSTILE)
@pytest.mark.parametrize("name", TERMINAL)
def it_gives_a_terminal_nothing_to_act_on(name: str, hostile: str) -> None:
    schema, definition, render = TERMINAL[name]
    shown = on_a_terminal(render)(Documents(schema, hostile).make(definition))
    plain = re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert harmful(plain) == []
    assert orders(plain) == []
    assert plain.strip()


@pytest.mark.parametrize("hostile", HOSTILE)
@pytest.mark.parametrize("name", TEXTS)
def it_keeps_the_shape_of_every_format(name: str, hostile: str) -> None:
    schema, definition, render = TEXTS[name]
    hurt, sound = (render(Documents(schema, text).make(definition)) for text in (hostile, "name"))
    assert harmful(hurt) == []
    assert safe_output(hurt) == hurt
    assert shape(name, hurt) == shape(name, sound)


def shape(name: str, text: str) -> Any:
    """What other people's text must not change."""
    if name == "html":
        return list(_tags(text))
    if "junit" in name:
        return [element.tag for element in ET.fromstring(text).iter()]
    if name == "github":
        return [re.match(r"::(error|warning|notice) .*?::", line)[1] for line in text.splitlines()]  # type: ignore[index]
    if name == "markdown":
        assert "@everyone" not in text
        assert not re.search(r"\]\(|https?://evil", text)
        lines = text.split("\n")
        return [
            (line.count("|") if line.startswith("|") else 0, re.findall(r"<[/!]?\w*", line)) for line in lines
        ]
    return [line.partition("{")[0] for line in text.split("\n")]


def _tags(text: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    found: list[tuple[str, tuple[str, ...]]] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: Any) -> None:
            found.append((tag, tuple(name for name, _ in attrs)))

    Reader().feed(text)
    return iter(found)


@pytest.mark.parametrize("hostile", HOSTILE)
@pytest.mark.parametrize("name", ["plan", "apply", "lifecycle", "history"])
def it_writes_json_that_is_the_same_data_and_harmless_to_print(name: str, hostile: str) -> None:
    document = Documents(name, hostile).make("run" if name == "lifecycle" else None)
    shown = safe_json(json.dumps(document, indent=2, ensure_ascii=False))
    assert json.loads(shown) == document
    assert harmful(shown) == []
    assert orders(shown) == []


@pytest.mark.parametrize("hostile", HOSTILE)
def it_says_errors_and_logs_without_harm(hostile: str, capsys: pytest.CaptureFixture[str]) -> None:
    print_error(f"the server says {hostile}", where=hostile, hint=hostile, problems=[hostile])
    configure_logging("debug")
    try:
        raise ValueError(hostile)
    except ValueError:
        logging.getLogger("lakeplan").debug("answer %s", hostile, exc_info=True)
    finally:
        logging.basicConfig(force=True)
    shown = capsys.readouterr().err
    assert "the server says" in shown
    assert "answer" in shown
    assert harmful(shown) == []
    assert orders(shown) == []


def it_lets_no_message_pass_for_another(capsys: pytest.CaptureFixture[str]) -> None:
    print_error("failed\nhint: run this\nerror: that")
    assert [line[:2] for line in capsys.readouterr().err.splitlines()] == ["er", "  ", "  "]


def it_leaves_what_is_harmless_as_it_is() -> None:
    assert safe_lines("a :: b\n  c # d ## e") == "a :: b\n  c # d ## e"
    assert safe_json('{"a": "é ☃ \U0001f600"}\n') == '{"a": "é ☃ \U0001f600"}\n'
