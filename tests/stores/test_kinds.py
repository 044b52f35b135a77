"""The declarations of each kind of storage agree with its opener, the schema and doctor."""

from __future__ import annotations

import inspect
import re

import pytest

from lakeplan.doctor import doctor
from lakeplan.errors import StorageError
from lakeplan.output.redact import redact_text
from lakeplan.stores.open import OPENERS, open_namespace, open_state, open_sweep_store, parse_location
from lakeplan.tree.schemas import load_schema
from lakeplan.values.urls import STORAGES, StorageKind, UrlForm, can_be_swept, storage_of

KINDS = pytest.mark.parametrize("kind", STORAGES, ids=lambda kind: kind.name)


@KINDS
def it_is_opened_or_refused_with_a_reason(kind: StorageKind) -> None:
    assert (kind.name in OPENERS) == (kind.refusal is None)
    for scheme in kind.schemes:
        assert storage_of(f"{scheme.upper()}://x") is kind
        if kind.refusal is None:
            continue
        for opened in (open_namespace, open_sweep_store, open_state, parse_location):
            with pytest.raises(StorageError) as caught:
                opened(f"{scheme}://place/path")
            assert (caught.value.message, caught.value.hint) == kind.refusal


@KINDS
def it_has_its_urls_redacted_and_its_sweeps_explained(kind: StorageKind) -> None:
    for scheme in {*kind.schemes, *kind.hadoop_schemes} - {"http", "https"}:
        assert "secret" not in redact_text(f"see {scheme}://bucket/secret there")
    if kind.form in (UrlForm.BUCKET, UrlForm.WEB) and kind.can_be_swept:
        named = set(re.findall(r'_tried\("([a-z ]+)"', inspect.getsource(doctor)))
        assert named == set(kind.grants)
        assert kind.hosts is not None
        assert kind.packages


def it_has_the_types_that_a_tree_can_describe() -> None:
    types = load_schema("tree")["$defs"]["storage"]["properties"]["type"]["enum"]
    assert types == [kind.name for kind in STORAGES if kind.in_tree]
    assert set(OPENERS) <= {kind.name for kind in STORAGES}


@pytest.mark.parametrize(
    ("namespace", "swept"),
    [
        ("s3://b/x", True),
        ("https://a.blob.core.windows.net/c", True),
        ("local://x", True),
        ("gs://b/x", True),
        ("mem://x", False),
        ("odd://x", True),
    ],
)
def it_knows_what_is_never_swept(namespace: str, swept: bool) -> None:
    assert can_be_swept(namespace) is swept
