"""``lakeplan adopt``: repositories that a glob newly matches become entries that a pull request can show."""

from __future__ import annotations

import pytest

from lakeplan.cli.commands import claims

HEAD = "apiVersion: lakeplan/v1\n"


@pytest.fixture
def globbed(world):
    """Two repositories that a glob matches. An apply has recorded the first."""
    world.api.repository("team-1")
    world.write(
        "repositories/team.yaml", HEAD + "repositories:\n  team-*: {gc: {default_retention_days: 9}}\n"
    )
    world.override("adoption")
    assert world.lakeplan("apply", world.plan_file()).code == 0
    (world.tree / "repositories/overrides.yaml").unlink()
    world.api.repository("team-2")
    world.api.repository("other")
    return world


def it_writes_entries_after_which_the_plan_passes(globbed):
    assert globbed.lakeplan("plan").code == 4
    done = globbed.lakeplan("adopt")
    assert done.code == 0, done.err
    assert done.out == "Wrote 1 entry to repositories/adopted.yaml: prod/team-2\n"
    text = (globbed.tree / "repositories/adopted.yaml").read_text()
    assert text.endswith('repositories:\n  "team-2": {}\n')
    plan = globbed.lakeplan("plan", "--format", "json")
    assert plan.code == 0
    assert {r["name"]: r["action"] for r in plan.json["repositories"]} == {"team-1": "none", "team-2": "add"}
    assert globbed.api.rules("team-2") is None
    assert globbed.lakeplan("adopt").out == "No glob matches a new repository.\n"


def it_adds_to_its_file_and_keeps_what_people_wrote_there(globbed):
    globbed.lakeplan("adopt")
    file = globbed.tree / "repositories/adopted.yaml"
    file.write_text(file.read_text().replace('"team-2": {}', '"team-2": {owner: me}  # mine'))
    before = file.read_text()
    globbed.api.repository("team-3")
    assert globbed.lakeplan("adopt").code == 0
    assert file.read_text() == before + '  "team-3": {}\n'


def it_leaves_a_file_alone_that_it_cannot_add_to(globbed):
    text = HEAD + "repositories:\n  team-1: {}\noverrides: []\n"
    globbed.write("repositories/adopted.yaml", text)
    refused = globbed.lakeplan("adopt")
    assert refused.code == 1
    assert "last key" in refused.err
    assert (globbed.tree / "repositories/adopted.yaml").read_text() == text


@pytest.mark.parametrize("before", [None, HEAD + "repositories:\n  team-1: {}\n"])
def it_writes_no_entry_before_the_tree_was_checked(globbed, monkeypatch, before):
    file = globbed.tree / "repositories/adopted.yaml"
    if before is not None:
        file.write_text(before)
    load, seen = claims.load_tree, []

    def look(*arguments, **more):
        seen.append(file.read_text() if file.exists() else None)  # what a kill would leave now
        return load(*arguments, **more)

    monkeypatch.setattr(claims, "load_tree", look)
    assert globbed.lakeplan("adopt").code == 0
    assert seen == [before]
    assert '"team-2": {}' in file.read_text()


def it_keeps_what_a_person_saved_while_the_tree_was_checked(globbed, monkeypatch):
    load, mine = claims.load_tree, HEAD + "repositories:\n  team-1: {owner: me}\n"

    def save(*arguments, **more):
        globbed.write("repositories/adopted.yaml", mine)
        return load(*arguments, **more)

    monkeypatch.setattr(claims, "load_tree", save)
    refused = globbed.lakeplan("adopt")
    assert (refused.code, "was changed while the command was running" in refused.err) == (1, True)
    assert (globbed.tree / "repositories/adopted.yaml").read_text() == mine


def it_leaves_what_was_there_when_the_tree_would_not_load(globbed):
    text = HEAD + "repositories:\n   team-1: {}\n"
    globbed.write("repositories/adopted.yaml", text)
    assert globbed.lakeplan("adopt").code == 1
    assert (globbed.tree / "repositories/adopted.yaml").read_text() == text
    assert globbed.lakeplan("adopt", "--file", "elsewhere/a.yaml").code == 1
    assert not (globbed.tree / "elsewhere").exists()


def it_follows_no_link_out_of_the_tree(globbed):
    outside = globbed.folder / "outside"
    outside.mkdir()
    (globbed.tree / "repositories/sub").symlink_to(outside)
    assert globbed.lakeplan("adopt", "--file", "repositories/sub/a.yaml").code == 1  # the tree is not valid
    (globbed.tree / "repositories/sub").rename(globbed.tree / "sub")
    assert globbed.lakeplan("adopt", "--file", "sub/a.yaml").code == 64
    assert globbed.lakeplan("adopt", "--file", "../a.yaml").code == 64
    assert not list(outside.iterdir())


def it_writes_only_what_is_selected(globbed):
    globbed.api.repository("team-3")
    globbed.lakeplan("adopt", "--target", "team-3")
    assert '"team-2"' not in (globbed.tree / "repositories/adopted.yaml").read_text()
