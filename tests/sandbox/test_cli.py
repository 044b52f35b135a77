"""``lakeplan sandbox up`` and ``sandbox seed``."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys

import pytest
import requests

from lakeplan.cli.commands.sandbox import seed_target
from lakeplan.cli.main import run
from lakeplan.errors import ExitCode, UsageError
from lakeplan.sandbox.service import Options
from tests.sandboxes import start_sandbox

PUBLIC = ("sandbox", "sandbox-secret")
KEYS = {"LAKEPLAN_SANDBOX_ACCESS_KEY_ID": "real", "LAKEPLAN_SANDBOX_SECRET_ACCESS_KEY": "real-secret"}
LAKECTL = {
    "LAKECTL_SERVER_ENDPOINT_URL": "https://l.example/api/v1",
    "LAKECTL_CREDENTIALS_ACCESS_KEY_ID": "lakectl",
    "LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY": "lakectl-secret",
}
NAMED = {
    "LAKEPLAN_SANDBOX_ENDPOINT_URL": "https://a.example",
    "LAKEPLAN_SANDBOX_ACCESS_KEY_ID": "real",
    "LAKEPLAN_SANDBOX_SECRET_ACCESS_KEY": "real-secret",
}
SEED = "repositories:\n  - name: one\n    steps:\n      - tag: {name: v1, ref: main}\n"


@pytest.fixture
def seed_file(tmp_path):
    file = tmp_path / "seed.yaml"
    file.write_text(SEED)
    return file


@pytest.fixture
def up():
    """Starts ``sandbox up`` as a separate process; (process, endpoint)."""
    started = []

    def start(*arguments):
        command = [sys.executable, "-m", "lakeplan", "sandbox", "up", "--port", "0", *arguments]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        started.append(process)
        line = process.stdout.readline()
        return process, re.search(r"http://127\.0\.0\.1:\d+", line)[0]

    yield start
    for process in started:
        process.kill()
        process.communicate()


class DescribeUp:
    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    def it_serves_until_it_is_asked_to_stop(self, up, tmp_path, number):
        process, endpoint = up("--dir", str(tmp_path / "d"))
        auth = ("sandbox", "sandbox-secret")
        assert requests.get(f"{endpoint}/api/v1/repositories", auth=auth, timeout=60).status_code == 200
        os.kill(process.pid, number)
        out, err = process.communicate(timeout=60)
        assert process.returncode == ExitCode.OK, err
        assert "sandbox-secret" not in out + err
        assert (tmp_path / "d" / ".sandbox" / "state.db").is_file()

    def it_takes_flavour_and_credentials(self, up):
        process, endpoint = up("--flavor", "enterprise", "--access-key", "me", "--secret-key", "hush-hush")
        answer = requests.get(f"{endpoint}/api/v1/config/version", auth=("me", "hush-hush"), timeout=60)
        assert answer.json()["version_context"] == "lakeFS-Enterprise"
        process.terminate()
        out, err = process.communicate(timeout=60)
        assert "hush-hush" not in out + err

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--flavor", "cloud"], "unknown flavor 'cloud'"),
            (["--port", "70000"], "'--port'"),
            (["--port", "x"], "'--port'"),
            (["--access-key", ""], "access key or its secret is empty"),
            (["--access-key", "a:b"], "contains a colon"),
            (["--secret-key", ""], "access key or its secret is empty"),
            (["--log-level", "loud"], "unknown log level"),
            (["--nothing"], "No such option"),
            (["extra"], "unexpected extra argument"),
        ],
    )
    def it_refuses_what_cannot_be_meant(self, capsys, arguments, message):
        assert run(["sandbox", "up", *arguments]) == ExitCode.USAGE
        assert message in capsys.readouterr().err

    def it_refuses_a_port_that_is_taken(self, sandbox, capsys):
        assert run(["sandbox", "up", "--port", str(sandbox.port)]) == ExitCode.USAGE
        assert f"cannot listen on port {sandbox.port}" in capsys.readouterr().err

    def it_refuses_a_folder_that_another_one_uses(self, sandbox, tmp_path, capsys):
        arguments = ["sandbox", "up", "--port", "0", "--dir", str(tmp_path / "sandbox")]
        assert run(arguments) == ExitCode.USAGE
        assert "Another sandbox may be running in this one" in capsys.readouterr().err


class DescribeSeed:
    def it_makes_the_repositories(self, sandbox, call, seed_file, capsys):
        assert run(["sandbox", "seed", str(seed_file), "--endpoint", sandbox.endpoint_url]) == ExitCode.OK
        assert "created 1 repository" in capsys.readouterr().out
        assert call("GET", "/repositories/one/tags/v1").status_code == 200

    def it_seeds_the_server_that_the_environment_names(self, sandbox, call, seed_file, monkeypatch, capsys):
        monkeypatch.setenv("LAKEPLAN_SANDBOX_ENDPOINT_URL", sandbox.endpoint_url)
        assert run(["sandbox", "seed", str(seed_file)]) == ExitCode.OK
        assert sandbox.endpoint_url in capsys.readouterr().out
        monkeypatch.setenv("LAKEPLAN_SANDBOX_ACCESS_KEY_ID", "another")
        assert run(["sandbox", "seed", str(seed_file), "--skip-existing"]) == ExitCode.ERROR
        assert "refused the credentials" in capsys.readouterr().err

    @pytest.mark.parametrize(
        ("given", "environ", "expected"),
        [
            ((None, None, None), {}, ("http://127.0.0.1:8000", "sandbox", "sandbox-secret")),
            ((None, "k", "s"), {}, None),
            ((None, None, "s"), {}, None),
            ((None, None, None), NAMED, ("https://a.example", "real", "real-secret")),
            (("https://a.example/", None, None), NAMED, ("https://a.example/", "real", "real-secret")),
            (("https://b.example", None, None), NAMED, ("https://b.example", "sandbox", "sandbox-secret")),
            (
                (None, None, None),
                {"LAKEPLAN_SANDBOX_ACCESS_KEY_ID": "real"},
                ("http://127.0.0.1:8000", *PUBLIC),
            ),
            (("https://b.example", "k", "s"), NAMED, ("https://b.example", "k", "s")),
            (("https://b.example", None, None), KEYS, ("https://b.example", "real", "real-secret")),
            (("https://l.example", None, None), LAKECTL, ("https://l.example", "lakectl", "lakectl-secret")),
            (("https://l.example", "k", "s"), LAKECTL, ("https://l.example", "k", "s")),
            (
                ("https://l.example", None, None),
                {**LAKECTL, **KEYS},
                ("https://l.example", "real", "real-secret"),
            ),
            (("https://b.example", None, None), LAKECTL, ("https://b.example", *PUBLIC)),
            # Nobody named lakectl's server: it may hold real data.
            ((None, None, None), LAKECTL, ("http://127.0.0.1:8000", *PUBLIC)),
            (
                (None, None, None),
                {**LAKECTL, "LAKECTL_SERVER_ENDPOINT_URL": "http://127.0.0.1:8000"},
                ("http://127.0.0.1:8000", *PUBLIC),
            ),
        ],
    )
    def it_sends_a_key_only_where_it_belongs(self, given, environ, expected):
        if expected is None:
            with pytest.raises(UsageError, match="no endpoint was specified"):
                seed_target(*given, environ)
            return
        target = seed_target(*given, environ)
        assert (target.endpoint, target.access_key, target.secret_key) == expected
        assert "secret_key" not in repr(target)

    def it_says_nothing_when_quiet(self, sandbox, seed_file, capsys):
        assert run(["sandbox", "seed", str(seed_file), "--endpoint", sandbox.endpoint_url, "-q"]) == 0
        captured = capsys.readouterr()
        assert captured.out + captured.err == ""

    def it_refuses_repositories_that_exist(self, sandbox, seed_file, capsys):
        arguments = ["sandbox", "seed", str(seed_file), "--endpoint", sandbox.endpoint_url]
        assert run(arguments) == ExitCode.OK
        assert run(arguments) == ExitCode.USAGE
        assert "--skip-existing" in capsys.readouterr().err
        assert run([*arguments, "--skip-existing"]) == ExitCode.OK

    def it_tells_every_mistake_of_the_file(self, sandbox, tmp_path, capsys):
        file = tmp_path / "bad.yaml"
        file.write_text(SEED + "      - tga: {}\n      - tag: {name: v1}\n")
        assert run(["sandbox", "seed", str(file), "--endpoint", sandbox.endpoint_url]) == ExitCode.ERROR
        error = re.sub(r"\s+", " ", capsys.readouterr().err)
        assert "did you mean `tag`?" in error
        assert "`ref` is missing" in error
        assert sandbox.faults.requests == ()

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ([], "Missing argument"),
            (["/nothing/here.yaml"], "cannot read the seed file"),
            (["{file}", "--as-of", "tomorrow"], "is not a valid time"),
            (["{file}", "--endpoint"], "requires an argument"),
        ],
    )
    def it_refuses_what_cannot_be_meant(self, seed_file, capsys, arguments, message):
        given = [a.format(file=seed_file) for a in arguments]
        assert run(["sandbox", "seed", *given]) == ExitCode.USAGE
        assert message in capsys.readouterr().err

    def it_refuses_a_file_that_is_no_text(self, tmp_path, capsys):
        file = tmp_path / "seed.yaml"
        file.write_bytes(b"\xff\xfe")
        assert run(["sandbox", "seed", str(file)]) == ExitCode.USAGE
        assert "not UTF-8" in capsys.readouterr().err

    def it_reports_a_server_that_does_not_answer(self, seed_file, capsys):
        assert run(["sandbox", "seed", str(seed_file), "--endpoint", "http://127.0.0.1:1"]) == ExitCode.ERROR
        assert "does not respond" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["up", "--help"], ["seed", "--help"], ["--help"]])
def it_has_help(arguments, capsys):
    code = run(["sandbox", *arguments])
    assert code == (ExitCode.OK if arguments else ExitCode.USAGE)
    captured = capsys.readouterr()
    assert "Usage: lakeplan sandbox" in captured.out + captured.err


class DescribeItsDocumentation:
    """What docs/sandbox.md says of credentials, on a sandbox with keys of its own."""

    @pytest.fixture
    def own(self, tmp_path, monkeypatch):
        for name in [n for n in os.environ if n.startswith(("LAKEPLAN_", "LAKECTL_"))]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("HOME", str(tmp_path))
        options = Options(access_key_id="mine", secret_access_key="my-secret")
        with start_sandbox(tmp_path / "own", options=options) as handle:
            yield handle

    def lakectl(self, own, monkeypatch, end=""):
        monkeypatch.setenv("LAKECTL_SERVER_ENDPOINT_URL", own.endpoint_url + end)
        monkeypatch.setenv("LAKECTL_CREDENTIALS_ACCESS_KEY_ID", "mine")
        monkeypatch.setenv("LAKECTL_CREDENTIALS_SECRET_ACCESS_KEY", "my-secret")

    @pytest.mark.parametrize("end", ["", "/api/v1"])
    def it_takes_what_lakectl_is_set_up_with(self, own, seed_file, tmp_path, monkeypatch, end):
        self.lakectl(own, monkeypatch, end)
        assert run(["sandbox", "seed", str(seed_file), "--endpoint", own.endpoint_url, "-q"]) == 0
        tree = ["-C", str(tmp_path / "tree")]
        assert run(["import", *tree, "-q"]) == 0
        assert run(["plan", *tree, "-q"]) == 0

    def it_takes_the_variables_of_the_server_sandbox(self, own, seed_file, tmp_path, monkeypatch):
        monkeypatch.setenv("LAKEPLAN_SANDBOX_ACCESS_KEY_ID", "mine")
        monkeypatch.setenv("LAKEPLAN_SANDBOX_SECRET_ACCESS_KEY", "my-secret")
        assert run(["sandbox", "seed", str(seed_file), "--endpoint", own.endpoint_url, "-q"]) == 0
        monkeypatch.setenv("LAKEPLAN_SANDBOX_ENDPOINT_URL", own.endpoint_url)
        assert run(["sandbox", "seed", str(seed_file), "--skip-existing", "-q"]) == 0
        tree = ["-C", str(tmp_path / "tree")]
        assert run(["import", *tree, "--endpoint", f"sandbox={own.endpoint_url}", "-q"]) == 0
        assert run(["plan", *tree, "-q"]) == 0
