from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from lakeplan.errors import LakeplanError
from lakeplan.values.local import SHARED, OutsideFolder, inside, refuse_links, write_file


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "checkout"
    folder.mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/secret").write_text("secret")
    monkeypatch.chdir(folder)
    return folder


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def it_writes_for_the_owner_alone_whatever_was_there(checkout: Path) -> None:
    (checkout / "plan.json").write_text("old")
    os.chmod(checkout / "plan.json", 0o644)
    for path in (Path("plan.json"), Path("new.json")):
        write_file(path, "new")
        assert (path.read_text(), mode_of(path)) == ("new", 0o600)
    write_file(Path("metrics.prom"), b"x", mode=SHARED)
    assert mode_of(Path("metrics.prom")) & 0o077
    assert sorted(p.name for p in checkout.iterdir()) == ["metrics.prom", "new.json", "plan.json"]


def it_replaces_a_link_and_leaves_alone_what_it_leads_to(checkout: Path) -> None:
    (checkout / "plan.json").symlink_to("../outside/secret")
    (checkout / "dangling.json").symlink_to("../outside/made")
    write_file(Path("plan.json"), "plan")
    write_file(checkout / "dangling.json", "plan")
    assert (checkout.parent / "outside/secret").read_text() == "secret"
    assert not (checkout.parent / "outside/made").exists()
    assert not Path("plan.json").is_symlink()


def it_refuses_links_on_the_way_in_the_current_folder(checkout: Path) -> None:
    (checkout / "reports").symlink_to("../outside")
    for path in (Path("reports/x"), checkout / "reports/x", Path("reports/../reports/x")):
        with pytest.raises(LakeplanError, match="reports is a symbolic link"):
            write_file(path, "x")
    with pytest.raises(LakeplanError, match="symbolic link"):
        refuse_links(checkout / "reports/x", below=checkout)
    assert list((checkout.parent / "outside").iterdir()) == [checkout.parent / "outside/secret"]


def it_writes_to_no_pipe_and_no_folder_of_the_current_folder(checkout: Path) -> None:
    os.mkfifo("pipe")
    Path("folder").mkdir()
    for name in ("pipe", "folder"):
        with pytest.raises(LakeplanError, match=r"not a regular file|directory"):
            write_file(Path(name), "x")


def it_writes_to_devices_that_the_user_names(checkout: Path) -> None:
    write_file(Path("/dev/null"), "x")
    assert Path("/dev/null").is_char_device()


def it_says_where_it_cannot_write(checkout: Path) -> None:
    with pytest.raises(LakeplanError, match="cannot write: No such file") as caught:
        write_file(Path("missing/plan.json"), "x")
    assert caught.value.where == "missing/plan.json"


@pytest.mark.parametrize("link", ["../outside", "/etc/passwd", "../outside/secret", ".."])
def it_knows_what_leads_out_of_a_folder(checkout: Path, link: str) -> None:
    (checkout / "link").symlink_to(link)
    with pytest.raises(OutsideFolder):
        inside(checkout, checkout / "link")


def it_takes_links_that_stay_inside(checkout: Path) -> None:
    (checkout / "a").write_text("a")
    (checkout / "b").symlink_to("a")
    assert inside(checkout, checkout / "b") == (checkout / "a").resolve()
