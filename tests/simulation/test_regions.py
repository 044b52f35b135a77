"""Regions against plain closure: ranges that share an end are joined, through others too."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lakeplan.simulation.inputs import Regions

Span = tuple[bytes, bytes]
spans = st.lists(
    st.tuples(st.binary(max_size=1), st.binary(max_size=1)).map(lambda s: (min(s), max(s))),
    max_size=12,
    unique=True,
)


def closure(given_spans: list[Span]) -> list[set[Span]]:
    regions: list[set[Span]] = []
    for span in given_spans:
        near = [r for r in regions if any(span[0] == s[0] or span[1] == s[1] for s in r)]
        regions = [r for r in regions if r not in near]
        regions.append({span}.union(*near))
    return regions


@given(spans)
def test_ranges_that_share_an_end_are_one_region_named_by_its_least_key(given_spans: list[Span]) -> None:
    regions = Regions(given_spans)
    for region in closure(given_spans):
        assert {regions.key(first) for first, _ in region} == {min(first for first, _ in region)}
    names = [regions.key(min(first for first, _ in region)) for region in closure(given_spans)]
    assert len(set(names)) == len(names)


@given(spans, st.permutations(range(12)))
def test_the_order_of_ranges_does_not_matter(given_spans: list[Span], order: list[int]) -> None:
    other = Regions([given_spans[n] for n in order if n < len(given_spans)])
    regions = Regions(given_spans)
    assert [regions.key(first) for first, _ in given_spans] == [other.key(first) for first, _ in given_spans]


def it_keeps_both_sides_of_a_split_together() -> None:
    regions = Regions([(b"a", b"z"), (b"a", b"k"), (b"m", b"z"), (b"zz", b"zzz")])
    assert regions.key(b"m") == regions.key(b"a") == b"a"
    assert regions.key(b"zz") == b"zz"
