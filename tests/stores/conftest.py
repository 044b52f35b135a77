"""Stores, with credentials of the test alone."""

import pytest


@pytest.fixture(autouse=True)
def only_credentials_of_the_test(no_credentials_of_this_machine: None) -> None:
    """No test meets those of a person."""
