from __future__ import annotations

import os
import pickle
from types import SimpleNamespace

import pytest
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.storage.blob import BlobProperties, ContainerClient

from lakeplan.errors import StorageDenied, StorageError
from lakeplan.stores.azure_client import find_credential
from lakeplan.stores.open import (
    AzureLocation,
    ClassReader,
    NamespaceReader,
    RemnantReader,
    Remnants,
    open_namespace,
    parse_location,
)
from lakeplan.values.simulation import Amount
from tests.lakefs.conftest import Answer, Scripted
from tests.stores.storage_contract import Put, StorageContract


class DescribeAzureReader(StorageContract):
    @pytest.fixture
    def reader(self, azure_container: str) -> NamespaceReader:
        return open_namespace(f"{azure_container}/team/repo")

    @pytest.fixture
    def missing(self, azure_container: str) -> NamespaceReader:
        return open_namespace(f"{azure_container}-is-not-there/repo")

    @pytest.fixture
    def put(self, azure_container: str) -> Put:
        account, _, name = azure_container.rpartition("/")
        key = os.environ["AZURE_STORAGE_KEY"]

        def store(blob: str, data: bytes) -> None:
            full = f"team/{blob[3:]}" if blob.startswith("../") else f"team/repo/{blob}"
            with ContainerClient(account, name, credential=key) as client:
                client.upload_blob(full, data, overwrite=True)

        return store

    def it_counts_older_versions_and_what_is_softly_deleted(
        self, reader: NamespaceReader, put: Put, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The emulator keeps no versions: there the listing has current blobs alone. As the service lists
        them otherwise: the current version says so, others have only an id."""
        put("data/a", b"1")
        put("data/a", b"22")
        assert isinstance(reader, RemnantReader)
        assert reader.remnants() == Remnants(Amount(), None, None, None, complete=True)

        def blob(size: int, **more: object) -> BlobProperties:
            made = BlobProperties(**{"name": "team/repo/data/a", "Content-Length": size})
            for name, value in more.items():
                setattr(made, name, value)
            return made

        listed = [
            blob(1, version_id="1", is_current_version=None),
            blob(2, version_id="2", is_current_version=True),
            blob(4, deleted=True),
            blob(8),
            blob(16, version_id="3", metadata={"hdi_isfolder": "true"}),
        ]
        asked: list[object] = []

        def list_blobs(_: ContainerClient, **options: object) -> SimpleNamespace:
            asked.append(options["include"])
            return SimpleNamespace(by_page=lambda: iter([iter(listed[:2]), iter(listed[2:])]))

        monkeypatch.setattr(ContainerClient, "list_blobs", list_blobs)
        assert reader.remnants().noncurrent == Amount(2, 5)
        assert asked == [["metadata", "versions", "deleted"]]
        monkeypatch.setattr("lakeplan.stores.azure_client.REMNANT_PAGES", 0.002)
        assert reader.remnants() == Remnants(Amount(1, 1), None, None, None, complete=False)

    def it_names_access_tiers(self, azure_container: str, reader: NamespaceReader, put: Put) -> None:
        put("data/warm", b"1")
        put("data/cool", b"22")
        account, _, name = azure_container.rpartition("/")
        with ContainerClient(account, name, credential=os.environ["AZURE_STORAGE_KEY"]) as client:
            client.get_blob_client("team/repo/data/cool").set_standard_blob_tier("Cool")
        assert isinstance(reader, ClassReader)
        assert sorted(reader.list_classes()) == [("data/cool", 2, "Cool"), ("data/warm", 1, "Hot")]

    def it_does_not_list_folders_of_hierarchical_accounts(
        self, azure_container: str, reader: NamespaceReader, put: Put
    ) -> None:
        put("data/x", b"1")
        account, _, name = azure_container.rpartition("/")
        with ContainerClient(account, name, credential=os.environ["AZURE_STORAGE_KEY"]) as client:
            client.upload_blob("team/repo/data", b"", metadata={"hdi_isfolder": "true"})
        assert [o.key for o in reader.list_objects()] == ["data/x"]

    def it_pickles_no_credentials(self, reader: NamespaceReader, put: Put) -> None:
        put("x", b"1")
        reader.read("x")
        assert os.environ["AZURE_STORAGE_KEY"].encode() not in pickle.dumps(reader)

    def it_says_that_access_is_refused(
        self, reader: NamespaceReader, put: Put, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("AZURE_STORAGE_KEY", "bm90IHRoZSBrZXk=")
        with pytest.raises(StorageDenied):
            reader.read("x")

    def it_says_that_the_endpoint_cannot_be_reached(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AZURE_STORAGE_KEY", "bm90IHRoZSBrZXk=")
        monkeypatch.setattr("lakeplan.stores.azure_client.RETRIES", {"retry_total": 0})
        with pytest.raises(StorageError, match="cannot be reached"):
            open_namespace("http://127.0.0.1:1/account/container").read("x")

    def it_follows_no_redirect(self, monkeypatch: pytest.MonkeyPatch) -> None:
        store, elsewhere = Scripted(), Scripted()
        try:
            store.script = [Answer(307, b"", {"Location": f"{elsewhere.url}/account/container/x"})]
            elsewhere.script = [Answer(200, b"foreign")]
            monkeypatch.setenv("AZURE_STORAGE_SAS_TOKEN", "sv=1&sig=SECRET")
            with pytest.raises(StorageError):
                open_namespace(f"{store.url}/account/container").read("x")
            assert elsewhere.seen == []
            assert len(store.seen) == 1
        finally:
            store.stop()
            elsewhere.stop()


def location(url: str) -> AzureLocation:
    found = parse_location(url)
    assert isinstance(found, AzureLocation)
    return found


ACCOUNT = location("https://acme.blob.core.windows.net/c/p")


class DescribeFindCredential:
    def it_takes_key_and_sas_from_the_environment(self) -> None:
        assert isinstance(find_credential(ACCOUNT, {"AZURE_STORAGE_KEY": "a2V5"}), AzureNamedKeyCredential)
        named = {"AZURE_STORAGE_ACCOUNT": "acme", "AZURE_STORAGE_SAS_TOKEN": "sig=1"}
        assert isinstance(find_credential(ACCOUNT, named), AzureSasCredential)

    @pytest.mark.parametrize(
        "environ",
        [
            {"AZURE_STORAGE_SAS_TOKEN": "sig=SECRET"},
            {"AZURE_STORAGE_CONNECTION_STRING": "SharedAccessSignature=sig=SECRET"},
            {
                "AZURE_STORAGE_CONNECTION_STRING": "AccountName=acme;EndpointSuffix=core.chinacloudapi.cn;"
                "SharedAccessSignature=sig=SECRET"
            },
        ],
    )
    def it_sends_a_sas_only_to_the_account_that_it_is_for(self, environ: dict[str, str]) -> None:
        with pytest.raises(StorageDenied) as caught:
            find_credential(ACCOUNT, environ)
        assert "SECRET" not in f"{caught.value} {caught.value.hint}"

    def it_takes_a_connection_string_of_this_account(self) -> None:
        text = "AccountName=acme;AccountKey=a2V5==;EndpointSuffix=core.windows.net"
        found = find_credential(ACCOUNT, {"AZURE_STORAGE_CONNECTION_STRING": text})
        assert isinstance(found, AzureNamedKeyCredential)
        assert found.named_key.key == "a2V5=="
        sas = "BlobEndpoint=https://acme.blob.core.windows.net/;SharedAccessSignature=sv=1&sig=abc%3D"
        found = find_credential(ACCOUNT, {"AZURE_STORAGE_CONNECTION_STRING": sas})
        assert isinstance(found, AzureSasCredential)
        assert found.signature == "sv=1&sig=abc%3D"

    @pytest.mark.parametrize(
        "environ",
        [
            {"AZURE_STORAGE_CONNECTION_STRING": "AccountName=other;AccountKey=SECRET"},
            {
                "AZURE_STORAGE_CONNECTION_STRING": "BlobEndpoint=https://x.example;SharedAccessSignature=SECRET"
            },
            {"AZURE_STORAGE_CONNECTION_STRING": "AccountName=acme;Nothing=SECRET"},
            {"AZURE_STORAGE_ACCOUNT": "other", "AZURE_STORAGE_KEY": "SECRET"},
            {},
        ],
    )
    def it_sends_nothing_that_belongs_elsewhere(self, environ: dict[str, str]) -> None:
        with pytest.raises(StorageDenied) as caught:
            find_credential(ACCOUNT, environ)
        assert "SECRET" not in f"{caught.value} {caught.value.hint} {caught.value.detail}"

    def it_sends_a_sas_to_azure_s_addresses_only(self) -> None:
        stranger = location("https://203.0.113.7/acme/c/p")
        with pytest.raises(StorageDenied):
            find_credential(stranger, {"AZURE_STORAGE_SAS_TOKEN": "sig=1"})
