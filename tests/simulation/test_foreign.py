"""What other repositories' ranges hold is read once, and only from files that are what their ids say."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from lakeplan.errors import FormatError, ServerUnreachable, StorageNotFound, WrongContent
from lakeplan.formats.range_arrays import odd_entries, pack_odd
from lakeplan.formats.ranges import read_range_arrays, write_metarange, write_range
from lakeplan.simulation.foreign import GONE, ForeignReader
from lakeplan.simulation.requests import ForeignRanges
from lakeplan.simulation.runners import Runners
from lakeplan.values.progress import Silent
from tests.simulation.worlds import Meant, inside, relative

PLAIN = (relative("a", "data/1", 1), relative("b", "data/2", 1))
ODD = (relative("c", "data/3", 1), inside("d", "data/4", 1))
MORE = (inside("e", "data/5", 1),)


@dataclass
class Neighbour:
    """Another repository: a metarange of each group of ranges."""

    files: dict[str, bytes] = field(default_factory=dict)
    ranges: list[str] = field(default_factory=list)
    metaranges: list[str] = field(default_factory=list)
    read: list[str] = field(default_factory=list)

    def add(self, *ranges: tuple[Meant, ...]) -> None:
        infos = []
        for entries in ranges:
            info, data = write_range([meant.entry for meant in entries])
            self.files[info.id] = data
            self.ranges.append(info.id)
            infos.append(info)
        id, data = write_metarange(infos)
        self.files[id] = data
        self.metaranges.append(id)

    def read_metadata(self, kind: str, id: str) -> bytes:
        self.read.append(id)
        if id not in self.files:
            raise StorageNotFound("does not exist", where=id)
        return self.files[id]

    @property
    def foreign(self) -> list[ForeignRanges]:
        return [ForeignRanges("prod/other", self, tuple(self.metaranges))]  # type: ignore[arg-type]


@pytest.fixture
def neighbour() -> Neighbour:
    found = Neighbour()
    found.add(PLAIN, ODD)
    return found


def reader() -> ForeignReader:
    return ForeignReader(Runners().open, Silent(), None)


def change(neighbour: Neighbour, id: str) -> None:
    data = neighbour.files[id]
    neighbour.files[id] = data[:9] + bytes((data[9] ^ 1,)) + data[10:]


def it_gives_what_holds_full_addresses_alone(neighbour: Neighbour) -> None:
    odd = neighbour.ranges[1]
    expected = pack_odd(odd_entries(read_range_arrays(neighbour.files[odd], name=odd)))
    assert [one.packed for one in reader().entries(neighbour.foreign)] == [expected]


def it_finds_nothing_in_a_repository_without_data() -> None:
    assert reader().entries(Neighbour().foreign) == []


def it_reads_each_file_once_for_all_marks_of_a_command(neighbour: Neighbour) -> None:
    neighbour.add(ODD)
    one = reader()
    first = one.entries(neighbour.foreign)
    assert one.entries(neighbour.foreign) == first
    assert sorted(neighbour.read) == sorted(neighbour.files)


@pytest.mark.parametrize("number", [0, 1])
def it_refuses_a_range_that_is_not_what_its_id_says(neighbour: Neighbour, number: int) -> None:
    change(neighbour, neighbour.ranges[number])
    with pytest.raises(FormatError, match=f"prod/other: range {neighbour.ranges[number]}"):
        reader().entries(neighbour.foreign)


def it_refuses_a_metarange_that_is_not_what_its_id_says(neighbour: Neighbour) -> None:
    change(neighbour, neighbour.metaranges[0])
    with pytest.raises(FormatError, match=f"prod/other: metarange {neighbour.metaranges[0]}"):
        reader().entries(neighbour.foreign)


@pytest.mark.parametrize("kind", ["ranges", "metaranges"])
def it_refuses_a_file_that_is_not_there(neighbour: Neighbour, kind: str) -> None:
    missing = getattr(neighbour, kind)[-1]
    del neighbour.files[missing]
    with pytest.raises(StorageNotFound, match="does not exist") as caught:
        reader().entries(neighbour.foreign)
    assert caught.value.hint == GONE


@pytest.mark.parametrize("kind", ["ranges", "metaranges"])
def it_reads_everything_else_beside_a_missing_file_that_the_tree_accepts(
    neighbour: Neighbour, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The file may be there again later, and other sweeps do not accept that it is missing."""
    alone = Neighbour()
    alone.add(ODD)
    neighbour.add(PLAIN, MORE)
    (strict,) = neighbour.foreign
    lax, one = replace(strict, may_lack=True), reader()
    whole = {found.packed for found in reader().entries([strict])}
    missing = getattr(neighbour, kind)[-1]
    data = neighbour.files.pop(missing)
    (found,) = one.entries([lax])
    assert {found.packed} == {each.packed for each in reader().entries(alone.foreign)}
    assert f"{missing}: does not exist; objects that only such files" in caplog.text
    with pytest.raises(StorageNotFound, match="does not exist"):
        one.entries([strict])
    neighbour.files[missing] = data
    assert {again.packed for again in one.entries([strict])} == whole


def it_does_not_use_what_was_read_beside_an_accepted_missing_file_after_another_error(
    neighbour: Neighbour, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next mark requests the same metaranges, but does not accept that the file is missing."""
    (strict,) = neighbour.foreign
    del neighbour.files[neighbour.ranges[-1]]
    one = reader()
    one.entries([replace(strict, may_lack=True)])

    def fail(kind: str, id: str) -> bytes:
        raise ServerUnreachable("the connection failed")

    with monkeypatch.context() as patched:
        patched.setattr(neighbour, "read_metadata", fail)
        with pytest.raises(ServerUnreachable):
            one.entries([strict])
    with pytest.raises(StorageNotFound, match="does not exist"):
        one.entries([strict])


def it_reads_everything_else_beside_a_metarange_that_none_can_be(neighbour: Neighbour) -> None:
    """Clients can create commits with any text as the id of the metarange, such as the id of a range."""
    whole = reader().entries(neighbour.foreign)
    for id in ("..", "a/b", "", "A" * 64, neighbour.ranges[0]):
        (strict,) = neighbour.foreign
        strict = replace(strict, metaranges=(id, *strict.metaranges))
        with pytest.raises(WrongContent) as caught:
            reader().entries([strict])
        assert caught.value.hint == GONE
        assert reader().entries([replace(strict, may_lack=True)]) == whole
    assert not {"..", "a/b"} & {*neighbour.read}
