"""The examples of docs/api.md run, on the quickstart's tree and its history in a sandbox."""

from __future__ import annotations

import doctest
import re
import shutil
from datetime import datetime, timezone
from pathlib import Path

import pytest

import lakeplan.api
from lakeplan.cli.main import run
from lakeplan.sandbox.seed import SeedClient, run_seed
from lakeplan.sandbox.seed_document import read_seed
from tests.sandboxes import start_sandbox

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/api.md"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


@pytest.fixture
def quickstart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that the page tells of: a tree, the server's folder, and a plan of the tree."""
    shutil.copytree(ROOT / "examples/quickstart", tmp_path / "quickstart")
    monkeypatch.chdir(tmp_path)
    seed = read_seed((tmp_path / "quickstart/history.yaml").read_text(), "history.yaml")
    with start_sandbox(tmp_path / "server") as handle:
        client = SeedClient(handle.endpoint_url, handle.access_key_id, handle.secret_access_key)
        as_of = int(datetime.now(timezone.utc).timestamp())
        run_seed(
            seed,
            client,
            as_of=as_of,
            namespace_prefix="local://",
            skip_existing=False,
            report=lambda _: None,
        )
        monkeypatch.setenv("LAKEPLAN_VAR_SANDBOX_URL", handle.endpoint_url)
        monkeypatch.setenv("LAKEPLAN_SANDBOX_ENDPOINT_URL", handle.endpoint_url)
        monkeypatch.setenv("LAKEPLAN_SANDBOX_ACCESS_KEY_ID", handle.access_key_id)
        monkeypatch.setenv("LAKEPLAN_SANDBOX_SECRET_ACCESS_KEY", handle.secret_access_key)
        # a plan has the server dump its refs, which is what read_refs reads
        assert run(["plan", "-C", "quickstart", "--out", "plan.json", "-q", "--cache", "off"]) == 4
    return tmp_path


def it_runs_every_example(quickstart: Path) -> None:
    text = "\n".join(BLOCK.findall(PAGE.read_text(encoding="utf-8")))
    test = doctest.DocTestParser().get_doctest(text, {}, "api.md", str(PAGE), 0)
    assert len(test.examples) > 30
    runner = doctest.DocTestRunner(optionflags=doctest.REPORT_NDIFF)
    said: list[str] = []
    runner.run(test, out=said.append)
    assert runner.failures == 0, "".join(said)


def it_shows_every_function() -> None:
    text = PAGE.read_text(encoding="utf-8")
    functions = [n for n in lakeplan.api.__all__ if n.islower()]
    assert functions
    assert [n for n in functions if f"`{n}`" not in text and f"{n}(" not in text] == []
