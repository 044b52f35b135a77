"""``--allow GATE`` and ``--allow REPOSITORY=GATE``, on every command that takes them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lakeplan.cli.main import run, whole_command
from tools.reference.commands import leaves

COMMANDS = {
    "plan": (),
    "apply": (),
    "branches run": (),
    "pins sync": (),
    "history rollback": ("x",),
    "sweep mark": (),
    "sweep approve": ("x", "--reason", "x"),
}
"""With what else each needs."""
WRITING = sorted(COMMANDS.keys() - {"plan", "history rollback"})

Refused = Callable[..., str]


@pytest.fixture
def refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Refused:
    """The message for wrong flags. The tree does not exist, so nothing was read before."""

    def said(name: str, *flags: str) -> str:
        given = [word for flag in flags for word in ("--allow", flag)]
        assert run([*name.split(), *COMMANDS[name], "-C", str(tmp_path / "none"), *given]) == 64
        return " ".join(capsys.readouterr().err.split())

    return said


def it_knows_every_command_that_takes_it() -> None:
    taking = {leaf.name for leaf in leaves(whole_command()) if any("--allow" in o.opts for o in leaf.options)}
    assert taking == set(COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize(
    ("flag", "says"),
    [
        ("tag-los", "unknown gate 'tag-los' Did you mean tag-loss?"),
        ("prod/analytics=tag-los", "unknown gate 'tag-los' Did you mean tag-loss?"),
        ("analytics=", "unknown gate ''"),
        ("tag-loss=analytics", "unknown gate 'analytics'"),
        ("prod/analytics", "unknown gate 'prod/analytics'"),
        ("=tag-loss", "'=tag-loss' has no repository before the equals sign"),
        ("*", "unknown gate '*'"),
        ("unread-neighbours", "cannot override the unread-neighbours gate"),
        ("analytics=unread-neighbours", "cannot override the unread-neighbours gate"),
    ],
)
def it_explains_a_flag_that_is_wrong(refused: Refused, name: str, flag: str, says: str) -> None:
    assert says in refused(name, flag).replace("hint: ", "")
    assert says in refused(name, "clear", flag).replace("hint: ", ""), "each flag is checked"


@pytest.mark.parametrize("name", WRITING)
@pytest.mark.parametrize("flag", ["tag-loss", "prod/analytics=tag-loss"])
def it_needs_a_terminal_where_something_is_written(refused: Refused, name: str, flag: str) -> None:
    assert "only at a terminal" in refused(name, flag)
