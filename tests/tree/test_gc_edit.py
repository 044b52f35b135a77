"""Edits of one gc block in the text of a file."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from lakeplan.tree.editing import add_entry, gc_lines, quoted, set_gc
from lakeplan.values.desired import BranchRule, Source
from lakeplan.values.rules import GcRules

TEXT = """\
# of the team
apiVersion: lakeplan/v1
repositories:
  one:                 # first
    owner: a
    gc:                # days
      default_retention_days: 21
      branches:
        - {branch_id: main, retention_days: 28}   # why

    # about the holds
    holds: [{prefix: audit/, until: 2027-01-01, reason: legal}]
  prod/two:
    use: [standard]
  three: {gc: {default_retention_days: 3}}
  four:
    gc: clear
"""


def it_replaces_the_block_and_leaves_everything_else():
    lines = gc_lines(GcRules(7, {"main": 1}), [BranchRule("r-*", True, 1, Source("a", 1, 1))])
    changed = set_gc(TEXT, "one", lines)
    assert changed == TEXT.replace(
        """    gc:                # days
      default_retention_days: 21
      branches:
        - {branch_id: main, retention_days: 28}   # why
""",
        """    gc:
      default_retention_days: 7
      branches:
        - {branch_id: main, retention_days: 1}
        - {pattern: "r-*", remove: true}   # why
""",
    )


def it_keeps_the_line_ends_of_the_file():
    text = TEXT.replace("\n", "\r\n")
    lines = gc_lines(GcRules(7, {"main": 1}))
    for change in (set_gc(text, "one", lines), set_gc(text, "prod/two", lines)):
        assert change is not None
        assert change.count("\n") == change.count("\r\n")
    for start in (text, "apiVersion: lakeplan/v1\r\n"):
        added = add_entry(start, "five", lines)
        assert added is not None
        assert added.count("\n") == added.count("\r\n")
        assert yaml.safe_load(added)["repositories"]["five"]["gc"]["default_retention_days"] == 7


def it_puts_a_block_first_where_there_is_none():
    changed = set_gc(TEXT, "prod/two", gc_lines(None))
    assert changed == TEXT.replace("    use: [", "    gc: clear\n    use: [")


def it_replaces_the_word_clear():
    assert set_gc(TEXT, "four", gc_lines(GcRules(5))) == TEXT.replace(
        "gc: clear", "gc:\n      default_retention_days: 5"
    )


@pytest.mark.parametrize("entry", ["three", "five", "on"])
def it_leaves_alone_what_it_cannot_edit(entry):
    assert set_gc(TEXT, entry, gc_lines(None)) is None


def it_leaves_a_block_alone_that_stands_elsewhere():
    text = "x: &days {default_retention_days: 3}\nrepositories:\n  one:\n    gc: *days\n"
    assert set_gc(text, "one", gc_lines(None)) is None


def it_adds_an_entry():
    text = add_entry(TEXT, "prod/six", gc_lines(GcRules(9)))
    assert yaml.safe_load(text)["repositories"]["prod/six"] == {"gc": {"default_retention_days": 9}}
    bare = add_entry("apiVersion: lakeplan/v1\n", "prod/six", gc_lines(GcRules(9)))
    assert yaml.safe_load(bare)["repositories"] == {"prod/six": {"gc": {"default_retention_days": 9}}}
    assert add_entry("repositories: {a: {gc: clear}}\n", "prod/six", gc_lines(None)) is None


NAMES = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)


@given(NAMES | st.sampled_from(["null", "On", "1e5", "a: b", "# a", ".inf", "0x1", "1_000", "~", "<<", "="]))
def it_quotes_every_text_so_that_it_is_read_back(text):
    assert yaml.safe_load(f"{quoted(text)}: [{quoted(text)}]") == {text: [text]}


@given(st.integers(1, 9), st.dictionaries(NAMES, st.integers(1, 9), max_size=4))
def it_writes_every_branch_name_so_that_it_is_read_back(default, branches):
    data = yaml.safe_load(set_gc(TEXT, "one", gc_lines(GcRules(default, branches))))
    expected = yaml.safe_load(TEXT)
    expected["repositories"]["one"]["gc"] = {"default_retention_days": default}
    if branches:
        expected["repositories"]["one"]["gc"]["branches"] = [
            {"branch_id": b, "retention_days": d} for b, d in sorted(branches.items())
        ]
    assert data == expected
