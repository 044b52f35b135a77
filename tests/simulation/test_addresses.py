from __future__ import annotations

import pytest

from lakeplan.model.objects import AddressType
from lakeplan.simulation.addresses import Addresses, known_as

FULL, RELATIVE = AddressType.FULL, AddressType.RELATIVE


class DescribeAKnownNamespace:
    known = known_as("file:///copy/ns/", "s3://bucket/ns")

    @pytest.mark.parametrize("url", ["s3://bucket/ns/data/p/1", "file:///copy/ns/data/p/1"])
    def it_takes_both_urls_for_inside(self, url: str) -> None:
        assert self.known.inside(url, FULL) == "data/p/1"

    def it_leaves_a_neighbour_outside_and_guesses_nothing(self) -> None:
        assert self.known.inside("s3://bucket/ns-2/data/p/1", FULL) is None
        assert self.known.aliases("s3://bucket/ns-2/data/p/1") == []


class DescribeANamespaceWhoseServersUrlIsNotKnown:
    known = known_as("file:///copy/ns", None)

    def it_keeps_relative_addresses_as_they_are(self) -> None:
        assert self.known.inside("data/p/1", RELATIVE) == "data/p/1"

    @pytest.mark.parametrize(
        ("address", "keys"),
        [
            ("s3://any/where/data/p/1", ["data/p/1"]),
            ("s3://any/data/x/data/p/1", ["data/p/1"]),
            ("s3://any/ns/rootkey", ["rootkey"]),
            ("s3://any/ns/data/p/1", ["data/p/1"]),
            ("s3://any/ns/deeper/key", []),
            ("s3://any/ns/dummy", []),
            ("s3://any/where/data/", []),
            ("s3://any/where/else", []),
        ],
    )
    def it_lists_the_keys_an_address_elsewhere_may_mean(self, address: str, keys: list[str]) -> None:
        assert self.known.aliases(address) == keys

    def it_guesses_nothing_by_an_empty_name(self) -> None:
        assert Addresses(("file://",), alias_base="").aliases("s3://x//rootkey") == []
