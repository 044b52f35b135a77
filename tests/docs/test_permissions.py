"""``docs/permissions.md``: the smallest policies for lakeFS, S3 and Azure, complete and fit to be pasted."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs/permissions.md").read_text(encoding="utf-8")
NAME = re.compile(r"\b(?:fs|retention|branches|pr|ci|auth):[A-Z][A-Za-z]+\b")
BLOCKS = re.findall(r"```json\n(.*?)```", TEXT, re.DOTALL)


def it_documents_every_permission_that_messages_name() -> None:
    sources = "\n".join(p.read_text(encoding="utf-8") for p in (ROOT / "lakeplan").rglob("*.py"))
    named = set(NAME.findall(sources))
    assert len(named) > 10
    assert named - set(NAME.findall(TEXT)) == set()


def it_has_policies_that_can_be_pasted() -> None:
    policies = [json.loads(block) for block in BLOCKS]
    lakefs = [p for p in policies if "statement" in p]
    s3 = [p for p in policies if "Statement" in p]
    assert len(lakefs) >= 2
    assert s3
    actions = {a for p in s3 for s in p["Statement"] for a in s["Action"]}
    assert {"s3:ListBucket", "s3:GetObject", "s3:PutObject", "s3:DeleteObject"} <= actions


@pytest.mark.parametrize("word", ["plan", "apply", "branches", "sweep", "Storage Blob Data Contributor"])
def it_says_what_each_command_needs(word: str) -> None:
    assert word in TEXT
