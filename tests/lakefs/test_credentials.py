from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from lakeplan.errors import CredentialsError
from lakeplan.lakefs.credentials import (
    Approve,
    Credentials,
    LakectlSettings,
    Secret,
    check_binding,
    find_credentials,
)
from lakeplan.values.desired import ServerConfig, server_variable

SERVER = ServerConfig("eu-prod", "https://lakefs.example.com")
KEYS = {"LAKEPLAN_EU_PROD_ACCESS_KEY_ID": "the-key", "LAKEPLAN_EU_PROD_SECRET_ACCESS_KEY": "SECRET"}
BOUND = {**KEYS, "LAKEPLAN_EU_PROD_ENDPOINT_URL": "https://LAKEFS.example.com:443/api/v1/"}
LAKECTL = LakectlSettings(
    "https://lakefs.example.com/", Secret("lakectl-key"), Secret("lakectl-SECRET"), "~/.lakectl.yaml"
)


def find(
    environ: Mapping[str, str],
    lakectl: LakectlSettings | None = None,
    *,
    approve: Approve | None = None,
    only_server: bool = True,
) -> Credentials:
    lakectl = (lakectl or LakectlSettings()) if only_server else None
    return find_credentials(SERVER, environ, approve=approve, lakectl=lakectl)


class Asked:
    """A person at a terminal."""

    def __init__(self, answer: bool) -> None:
        self.answer = answer
        self.questions: list[tuple[str, str]] = []

    def __call__(self, what: str, url: str) -> bool:
        self.questions.append((what, url))
        return self.answer


class DescribeOrder:
    def it_takes_the_server_s_own_variables_first(self) -> None:
        found = find(BOUND, LAKECTL)
        assert (found.access_key_id, found.secret_access_key) == (Secret("the-key"), Secret("SECRET"))
        assert "LAKEPLAN_EU_PROD_ACCESS_KEY_ID" in found.source

    def it_then_takes_what_lakectl_has(self) -> None:
        found = find({}, LAKECTL)
        assert found == Credentials(Secret("lakectl-key"), Secret("lakectl-SECRET"), "~/.lakectl.yaml")

    def it_does_not_give_lakectl_s_to_one_server_of_several(self) -> None:
        with pytest.raises(CredentialsError, match="no credentials") as caught:
            find({}, LAKECTL, only_server=False)
        assert "lakectl" in caught.value.hint
        assert "LAKEPLAN_EU_PROD_ACCESS_KEY_ID" in caught.value.hint

    def it_says_what_to_set_when_there_are_none(self) -> None:
        with pytest.raises(CredentialsError, match="no credentials"):
            find({}, LakectlSettings())

    @pytest.mark.parametrize("name", KEYS)
    def it_does_not_mix_halves(self, name: str) -> None:
        with pytest.raises(CredentialsError, match="is not set") as caught:
            find({name: "SECRET"}, LAKECTL)
        assert "SECRET" not in caught.value.message.replace("SECRET_ACCESS_KEY", "")

    @pytest.mark.parametrize("missing", ["access_key_id", "secret_access_key"])
    def it_names_the_half_that_lakectl_lacks(self, missing: str) -> None:
        half = replace(LAKECTL, **{missing: None})
        with pytest.raises(CredentialsError, match=f"has no {missing}") as caught:
            find({}, half)
        assert f"Set LAKECTL_CREDENTIALS_{missing.upper()}, or correct {LAKECTL.source}." in caught.value.hint

    def it_takes_empty_variables_for_unset(self) -> None:
        assert find(dict.fromkeys(KEYS, ""), LAKECTL).access_key_id == Secret("lakectl-key")

    @pytest.mark.parametrize("text", ["SECRET\n", " SECRET", "SEC\tRET"])
    def it_says_that_a_line_end_was_copied_along(self, text: str) -> None:
        with pytest.raises(CredentialsError, match="whitespace"):
            find({**BOUND, "LAKEPLAN_EU_PROD_SECRET_ACCESS_KEY": text})


class DescribeBinding:
    def it_requires_one_without_a_terminal(self) -> None:
        with pytest.raises(CredentialsError, match="nothing was sent") as caught:
            find(KEYS)
        assert "LAKEPLAN_EU_PROD_ENDPOINT_URL" in caught.value.hint

    def it_asks_at_a_terminal(self) -> None:
        person = Asked(True)
        assert find(KEYS, approve=person).access_key_id == Secret("the-key")
        assert person.questions == [("server eu-prod", "https://lakefs.example.com")]
        with pytest.raises(CredentialsError, match="was not approved, so nothing was sent"):
            find(KEYS, approve=Asked(False))

    def it_asks_nothing_where_the_credentials_are_bound(self) -> None:
        person = Asked(False)
        assert find(BOUND, approve=person).access_key_id == Secret("the-key")
        assert find({}, LAKECTL, approve=person).access_key_id == Secret("lakectl-key")
        assert person.questions == []

    @pytest.mark.parametrize("approve", [None, Asked(True)])
    @pytest.mark.parametrize(
        "endpoint",
        [
            "https://other.example.com",
            "http://lakefs.example.com",
            "https://lakefs.example.com:8443",
            "https://lakefs.example.com/other",
            "https://lakefs.example.com.evil.com",
        ],
    )
    def it_sends_nothing_elsewhere(self, endpoint: str, approve: Approve | None) -> None:
        with pytest.raises(CredentialsError, match="nothing was sent"):
            find({**KEYS, "LAKEPLAN_EU_PROD_ENDPOINT_URL": endpoint}, approve=approve)
        lakectl = LakectlSettings(endpoint, Secret("k"), Secret("s"), "~/.lakectl.yaml")
        with pytest.raises(CredentialsError, match="nothing was sent"):
            find({}, lakectl, approve=approve)

    def it_binds_lakectl_s_by_either_endpoint_and_by_both(self) -> None:
        without = LakectlSettings(None, Secret("k"), Secret("s"), "env")
        with pytest.raises(CredentialsError, match="nothing was sent"):
            find({}, without)
        endpoint = {"LAKEPLAN_EU_PROD_ENDPOINT_URL": "https://lakefs.example.com"}
        assert find(endpoint, without).access_key_id == Secret("k")
        other = LakectlSettings("https://other", Secret("k"), Secret("s"), "env")
        with pytest.raises(CredentialsError, match="nothing was sent"):
            find(endpoint, other)

    def it_does_not_bind_own_variables_by_lakectl_s_endpoint(self) -> None:
        with pytest.raises(CredentialsError, match="nothing was sent"):
            find(KEYS, LAKECTL)

    def it_refuses_an_endpoint_that_hides_another(self) -> None:
        tricky = ServerConfig("eu-prod", "https://lakefs.example.com@evil.example.com")
        with pytest.raises(CredentialsError) as caught:
            find_credentials(tricky, BOUND, approve=Asked(True), lakectl=LakectlSettings())
        assert "SECRET" not in str(caught.value)


class DescribeCheckBinding:
    """State and storage URLs."""

    def check(self, url: str | None, bound: str | None, *, approve: Approve | None = None) -> None:
        check_binding("state", url, bound, variable="LAKEPLAN_STATE_URL", approve=approve)

    @pytest.mark.parametrize("url", [None, "file://.lakeplan", "file:///x", "/x"])
    def it_needs_none_where_no_credentials_go(self, url: str | None) -> None:
        self.check(url, None)

    def it_takes_the_same_place(self) -> None:
        self.check("s3://ops/lakeplan", "s3://ops/lakeplan/")
        self.check("https://Acme.blob.core.windows.net/c/p", "https://acme.blob.core.windows.net:443/c/p/")

    @pytest.mark.parametrize(
        ("url", "bound"),
        [
            ("s3://ops/lakeplan", "s3://ops/other"),
            ("s3://evil/lakeplan", "s3://ops/lakeplan"),
            ("s3://ops/Lakeplan", "s3://ops/lakeplan"),
            ("https://evil.blob.core.windows.net/c", "https://acme.blob.core.windows.net/c"),
            ("s3://ops/lakeplan", None),
        ],
    )
    def it_refuses_another_place(self, url: str, bound: str | None) -> None:
        with pytest.raises(CredentialsError, match="nothing was sent") as caught:
            self.check(url, bound)
        assert caught.value.where == "state"

    def it_leaves_an_unbound_place_to_a_person(self) -> None:
        person = Asked(True)
        self.check("s3://ops/lakeplan/", None, approve=person)
        assert person.questions == [("state", "s3://ops/lakeplan")]
        with pytest.raises(CredentialsError):
            self.check("s3://evil/lakeplan", "s3://ops/lakeplan", approve=person)

    def it_takes_one_of_several_places(self) -> None:
        for url in ("https://a.example.com", "https://b.example.com/"):
            self.check(url, "https://a.example.com, https://b.example.com")
        with pytest.raises(CredentialsError, match="nothing was sent"):
            self.check("https://c.example.com", "https://a.example.com https://b.example.com")

    def it_shows_no_secret_of_a_url(self) -> None:
        for url in ("s3://K:SECRET@b/x", "https://h/c?sig=SECRET"):
            with pytest.raises(CredentialsError) as caught:
                self.check(url, None)
            assert "SECRET" not in f"{caught.value} {caught.value.hint}"
        with pytest.raises(CredentialsError) as caught:
            self.check("s3://K:SECRET@b/x", "s3://b/x")
        assert "SECRET" not in f"{caught.value} {caught.value.hint}"


class DescribeNames:
    def it_makes_variables_of_names(self) -> None:
        assert server_variable("eu-prod", "ACCESS_KEY_ID") == "LAKEPLAN_EU_PROD_ACCESS_KEY_ID"


class DescribeSecret:
    def it_shows_nothing(self) -> None:
        found = find(BOUND)
        assert "SECRET" not in repr(found).replace("SECRET_ACCESS_KEY", "")
        assert "the-key" not in repr(found)
        assert f"{Secret('x')}" == "***"
        assert Secret("x") == Secret("x")
        assert Secret("x") != Secret("y")
        assert len({Secret("x"), Secret("x")}) == 1
