from __future__ import annotations

from pathlib import Path

import pytest

from lakeplan.errors import CredentialsError
from lakeplan.lakefs.credentials import LakectlSettings, Secret, read_lakectl

FILE = """
server:
  endpoint_url: {url}
credentials:
  access_key_id: key-of-{url}
  secret_access_key: secret-of-{url}
metastore: {{anything: else}}
"""


def write(path: Path, url: str) -> Path:
    path.write_text(FILE.format(url=url))
    return path


def it_has_nothing_where_nothing_is(tmp_path: Path) -> None:
    assert read_lakectl({"HOME": str(tmp_path)}) == LakectlSettings()
    assert read_lakectl({}) == LakectlSettings()


def it_prefers_the_given_file_then_the_variable_then_the_home(tmp_path: Path) -> None:
    write(tmp_path / ".lakectl.yaml", "https://home")
    named = write(tmp_path / "named.yaml", "https://variable")
    given = write(tmp_path / "given.yaml", "https://given")
    environ = {"LAKECTL_CONFIG_FILE": str(named), "HOME": str(tmp_path)}
    assert read_lakectl({"HOME": str(tmp_path)}).endpoint_url == "https://home"
    assert read_lakectl(environ).endpoint_url == "https://variable"
    assert read_lakectl(environ, given).endpoint_url == "https://given"
    assert read_lakectl({"HOME": str(tmp_path)}).source == "~/.lakectl.yaml"


def it_lets_the_environment_override_each_value(tmp_path: Path) -> None:
    write(tmp_path / ".lakectl.yaml", "https://home")
    home = {"HOME": str(tmp_path)}
    found = read_lakectl({"LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY": "other", **home})
    assert found.endpoint_url == "https://home"
    assert found.access_key_id == Secret("key-of-https://home")
    assert found.secret_access_key == Secret("other")
    assert "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY" in found.source
    found = read_lakectl(
        {"LAKECTL_SERVER_ENDPOINT_URL": "https://env", "LAKECTL_CREDENTIALS_ACCESS_KEY_ID": "k", **home}
    )
    assert (found.endpoint_url, found.access_key_id) == ("https://env", Secret("k"))


def it_takes_keys_in_any_case_and_empty_files(tmp_path: Path) -> None:
    (tmp_path / ".lakectl.yaml").write_text("Server: {Endpoint_URL: https://h}\ncredentials:\n")
    assert read_lakectl({"HOME": str(tmp_path)}) == LakectlSettings("https://h", source="~/.lakectl.yaml")
    (tmp_path / ".lakectl.yaml").write_text("")
    assert read_lakectl({"HOME": str(tmp_path)}).endpoint_url is None


def it_says_that_a_named_file_is_missing(tmp_path: Path) -> None:
    with pytest.raises(CredentialsError, match="does not exist"):
        read_lakectl({"LAKECTL_CONFIG_FILE": str(tmp_path / "no"), "HOME": str(tmp_path)})


@pytest.mark.parametrize(
    "text",
    [
        "credentials: {secret_access_key: SECRET",
        "credentials: {secret_access_key: [SECRET]}",
        "credentials: {access_key_id: 0123}",
        "credentials: SECRET",
        "- SECRET",
        "SECRET",
        "a: !!python/object/apply:os.system [SECRET]",
        b"\xff\xfeSECRET".decode("latin1"),
    ],
)
def it_refuses_other_files_and_quotes_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / ".lakectl.yaml").write_text(text, encoding="latin1")
    with pytest.raises(CredentialsError) as caught:
        read_lakectl({"HOME": str(tmp_path)})
    assert "SECRET" not in f"{caught.value} {caught.value.hint} {caught.value.detail}"
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


@pytest.mark.parametrize("text", ["[" * 20_000, "a: 2020-99-99", "x" * 70_000])
def it_refuses_a_file_that_cannot_be_held(tmp_path: Path, text: str) -> None:
    file = tmp_path / "lakectl.yaml"
    file.write_text(text)
    with pytest.raises(CredentialsError):
        read_lakectl({}, file)
