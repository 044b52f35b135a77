"""Pages of paths."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lakeplan.sandbox.messages import Request, page_of_paths

path_lists = st.lists(st.text("ab/é", min_size=1, max_size=6), unique=True).map(sorted)


def request(**query):
    values = {name: [str(value)] for name, value in query.items()}
    return Request("GET", "/x", values, {}, b"", "http://host")


@given(path_lists, st.integers(1, 4), st.sampled_from(["", "/"]), st.sampled_from(["", "a", "a/"]))
def test_pages_put_together_are_the_whole_list(paths, amount, delimiter, prefix):
    query = {"prefix": prefix, "delimiter": delimiter}
    whole = page_of_paths(request(**query), paths)
    assert not whole.has_more
    names, after = [], ""
    for _ in range(len(paths) + 1):
        page = page_of_paths(request(amount=amount, after=after, **query), paths)
        names.extend(page.names)
        after = page.next_offset
        if not page.has_more:
            break
    assert tuple(names) == whole.names


@given(path_lists)
def test_every_path_is_a_name_or_under_a_prefix(paths):
    page = page_of_paths(request(delimiter="/"), paths)
    for path in paths:
        assert (path in page.names) or any(path.startswith(p) for p in page.prefixes)
    assert list(page.names) == sorted(set(page.names))
