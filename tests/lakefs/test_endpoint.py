from __future__ import annotations

import pytest

from lakeplan.errors import CredentialsError
from lakeplan.lakefs.credentials import normalise_endpoint


@pytest.mark.parametrize(
    "url",
    [
        "https://lakefs.example.com",
        "https://lakefs.example.com/",
        "https://LakeFS.Example.com:443/api/v1",
        "HTTPS://lakefs.example.com/api/v1/",
        " https://lakefs.example.com. ",
    ],
)
def it_has_one_form_for_one_server(url: str) -> None:
    assert normalise_endpoint(url) == "https://lakefs.example.com"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://127.0.0.1:8000/api/v1", "http://127.0.0.1:8000"),
        ("http://h:80", "http://h"),
        ("https://h:80", "https://h:80"),
        ("https://h/lakefs/api/v1/", "https://h/lakefs"),
        ("https://h/LakeFS", "https://h/LakeFS"),
        ("http://[::1]:8000", "http://[::1]:8000"),
        ("https://h/my-api/v1", "https://h/my-api/v1"),
    ],
)
def it_keeps_what_makes_a_difference(url: str, expected: str) -> None:
    assert normalise_endpoint(url) == expected


@pytest.mark.parametrize(
    "url",
    [
        "", "lakefs.example.com", "ftp://h", "https://", "https://h:port", "s3://b",
        "https://me:SECRET@h", "https://SECRET@h", "https://h?token=SECRET", "https://h#SECRET",
        "https://good.example.com@evil.example.com", "https://[h",
    ],
)  # fmt: skip
def it_refuses_what_is_no_endpoint_and_does_not_repeat_it(url: str) -> None:
    with pytest.raises(CredentialsError) as caught:
        normalise_endpoint(url)
    assert "SECRET" not in f"{caught.value} {caught.value.where} {caught.value.hint} {caught.value.detail}"
