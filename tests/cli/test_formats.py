"""Every format in the register can be made, and every kind of document in it is some command's."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from pathlib import Path

import pytest

import lakeplan.cli.commands
from lakeplan.cli.formats import FORMATS, RenderContext, formats_of, load_renderer, texts_of

RENDERERS = [(f.name, kind, r) for f in FORMATS for kind, r in f.renderers.items()]


@pytest.mark.parametrize(("format", "kind", "renderer"), RENDERERS, ids=[f"{f}-{k}" for f, k, _ in RENDERERS])
def it_names_a_function_and_knows_what_that_takes(format: str, kind: str, renderer: str) -> None:
    parameters = list(inspect.signature(load_renderer(renderer)).parameters.values())
    needed = {p.name for p in parameters[1:] if p.default is p.empty}
    assert needed <= {field.name for field in fields(RenderContext)}
    assert format in formats_of(kind)
    assert set(texts_of(kind, {}, RenderContext())) == set(formats_of(kind)) - {"rich", "json"}


def it_has_the_kinds_that_commands_give() -> None:
    commands = Path(lakeplan.cli.commands.__file__).parent
    sources = "".join(path.read_text() for path in commands.glob("*.py"))
    given = set(re.findall(r'(?:documents|formats_of)\("([a-z-]+)"\)|kind="([a-z-]+)"', sources))
    assert {kind for _, kind, _ in RENDERERS} <= {one or other for one, other in given}


def it_gives_every_document_the_rich_form_and_json() -> None:
    assert formats_of("explain") == ("rich", "json")
    assert formats_of("plan") == ("rich", "json", "markdown", "github", "junit", "openmetrics")
    assert formats_of("curve") == ("rich", "json", "svg")
