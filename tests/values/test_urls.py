from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakeplan.values.urls import BadUrl, parse_web_url, shown_url


@pytest.mark.parametrize(
    ("text", "origin", "parts"),
    [
        ("https://LakeFS.example.com/", "https://lakefs.example.com", ()),
        ("HTTPS://h:443/a%20b/c/", "https://h", ("a b", "c")),
        ("http://h:8000", "http://h:8000", ()),
        ("http://[::0001]:80/x", "http://[::1]", ("x",)),
        ("https://192.0.2.1/", "https://192.0.2.1", ()),
        ("https://xn--bcher-kva.example/", "https://xn--bcher-kva.example", ()),
    ],
)
def it_takes_a_url_apart(text: str, origin: str, parts: tuple[str, ...]) -> None:
    found = parse_web_url(text)
    assert (found.origin, found.parts) == (origin, parts)
    assert parse_web_url(found.url) == found


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("https://good\\@evil", "a backslash"),
        ("https://good .evil", "whitespace"),
        ("https://good\x7f", "a control character"),
        ("https://good\u202e", "a control character"),
        ("https://g\u043e\u043ed.example", "not ASCII"),
        ("https://good|evil", "character '|'"),
        ("https://u:p@h", "user or password"),
        ("https://h?x=SECRET", "query"),
        ("https://h#SECRET", "fragment"),
        ("https://h%2eevil", "percent-encoded"),
        ("https://h..evil", "empty parts"),
        ("https://-h", "characters"),
        ("https://3232235777", "a number"),
        ("https://0300.0250.1.1", "a number"),
        ("https://1.2.3.256", "a number"),
        ("https://0x7f000001", "a number"),
        ("https://[::1%25eth0]/", "percent-encoded"),
        ("https://[::g]", "IPv6"),
        ("https://[::1", "brackets"),
        ("https://h:0", "port"),
        ("https://h:65536", "port"),
        ("https://h:+1", "port"),
        ("https://h:", "port"),
        ("https://", "host is missing"),
        ("https:///x", "host is missing"),
        ("https:h", "scheme"),
        ("javascript://h", "scheme javascript"),
        ("https://h/a/../b", "'..'"),
        ("https://h/a/%2E%2e/b", "'..'"),
        ("https://h//b", "empty part"),
        ("https://h/%zz", "hexadecimal"),
        ("https://h/%ff", "UTF-8"),
        ("https://h/a%2fb", "a part of the path contains"),
        ("https://h/a%5cb", "a part of the path contains"),
        ("https://h/a%0ab", "a part of the path contains"),
        ("https://h/" + "a" * 20_000, "16,384 characters"),
    ],
)
def it_names_the_fault_and_not_the_url(text: str, fault: str) -> None:
    with pytest.raises(BadUrl) as caught:
        parse_web_url(text)
    assert fault in str(caught.value)
    assert "SECRET" not in str(caught.value)
    assert "evil" not in str(caught.value)


@given(st.text() | st.from_regex(r"https?://[^/]{0,20}(/[^/]{0,5}){0,3}", fullmatch=True))
def it_gives_one_reading_or_none(text: str) -> None:
    try:
        found = parse_web_url(text)
    except BadUrl:
        return
    assert parse_web_url(found.url) == found
    assert found.url.isascii()
    assert found.url.isprintable()


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://h:1/a/b", "https://h:1/a/b"),
        ("https://h/c?sig=SECRET", "https://h/c\u2026"),
        ("https://SECRET@h/c", "https://\u2026"),
        ("s3://K:SECRET@b/x", "s3://\u2026"),
        ("https://h\x1b[31m", "https://h\u2026"),
        ("SECRET", "a URL without a scheme"),
    ],
)
def it_shows_no_secret(url: str, shown: str) -> None:
    assert shown_url(url) == shown
