"""``apply --sweep`` under ``sweep.automatic``: only objects that the plan named are deleted by themselves."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from lakeplan.sweep.service import AutomaticEnd, sweep_marks
from lakeplan.values.plan import Bit
from lakeplan.values.shown_records import Digests, Records, object_digests, packed
from tests.sweeping.lake import LakeRepository
from tests.sweeping.world import SweepWorld

KEY = "prod/repo1"


def named(addresses: Iterable[str], key: str = KEY, bit: Bit = Bit.NOW) -> dict[str, Digests]:
    records = Records(packed([(object_digests(key, addresses), int(bit))]))
    return {KEY: records.of(Bit.NOW | Bit.BACKLOG)}


def automatic(world: SweepWorld, shown: dict[str, Digests]) -> AutomaticEnd:
    return sweep_marks(
        world.mark_all(),
        world.tree(),
        world.ports(),
        shown=shown,
        overrides=world.gate_overrides,
        new_run=world.run_of,
        new_official_id=lambda: "official",
    )


@pytest.fixture(autouse=True)
def is_automatic(world: SweepWorld) -> None:
    world.sweep["automatic"] = True


@pytest.fixture
def expired(world: SweepWorld, repo: LakeRepository) -> set[str]:
    """The objects that a mark would delete."""
    return set(world.going(world.mark()))


def it_deletes_what_the_plan_named(world: SweepWorld, repo: LakeRepository, expired: set[str]) -> None:
    end = automatic(world, named({*expired, "data/another"}, bit=Bit.BACKLOG))
    assert (end.waiting, end.failed) == ({}, {})
    assert not expired & repo.stored()


@pytest.mark.parametrize(
    "other", ["as many others", "all but one", "another repository's", "the week's", "none"]
)
def it_waits_for_a_person_when_one_object_was_not_named(
    world: SweepWorld, repo: LakeRepository, expired: set[str], other: str
) -> None:
    """The counts are those of the plan, or larger."""
    some = sorted(expired)[1:]
    shown = {
        "as many others": named(f"data/other-{n}" for n in range(len(expired))),
        "all but one": named([*some, *(f"data/other-{n}" for n in range(20))]),
        "another repository's": named(expired, key="prod/repo2"),
        "the week's": named(expired, bit=Bit.WEEK),
        "none": {},
    }[other]
    end = automatic(world, shown)
    shown_of_them = len(expired) - 1 if other == "all but one" else 0
    assert f", but the plan showed only {shown_of_them} of them." in end.waiting[KEY]
    assert end.swept == []
    assert expired <= repo.stored()


def it_never_deletes_what_was_never_committed(
    world: SweepWorld, repo: LakeRepository, expired: set[str]
) -> None:
    """Even an edited set that names it."""
    world.sweep["never_committed"] = "collect"
    address = repo.upload("lost.bin", b"lost")
    repo.delete("lost.bin")
    repo.touch(address, age_hours=100)
    end = automatic(world, named({*expired, address}))
    assert "never committed" in end.waiting[KEY]
    assert {*expired, address} <= repo.stored()


def it_fails_one_repository_whose_part_was_changed(
    world: SweepWorld, repo: LakeRepository, expired: set[str]
) -> None:
    report = world.mark_all()
    (mark,) = report.marks
    for part in mark.marked.going:
        (file,) = repo.folder.rglob(part.name.rpartition("/")[2])
        file.write_bytes(b"PAR1")
    end = sweep_marks(
        report,
        world.tree(),
        world.ports(),
        shown=named(expired),
        overrides=world.gate_overrides,
        new_run=world.run_of,
        new_official_id=lambda: "official",
    )
    assert "checksum does not match" in str(end.failed[KEY])
    assert expired <= repo.stored()
