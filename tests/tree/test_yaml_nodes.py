from __future__ import annotations

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from lakeplan.limits import YAML_DEPTH
from lakeplan.tree.yaml import MapNode, Node, Problems, ScalarNode, parse_yaml, to_plain, walk
from tests.cpu import at_most_cpu_seconds

LOADERS = [yaml.SafeLoader, *([yaml.CSafeLoader] if hasattr(yaml, "CSafeLoader") else [])]


@pytest.fixture(params=LOADERS, ids=lambda loader: loader.__name__)
def loader(request: pytest.FixtureRequest) -> object:
    return request.param


def read(text: str, loader: object = None) -> tuple[Node | None, list[str]]:
    problems = Problems()
    node = parse_yaml(text, "f.yaml", problems, loader=loader)
    return node, [str(p) for p in problems]


def it_keeps_the_position_of_every_key_and_value(loader: object) -> None:
    node, problems = read("a:\n  b: [1, x]\nc: 'y'\n", loader)
    assert not problems
    places = {path: (n.source.line, n.source.column) for path, n in walk(node)} if node else {}
    assert places == {
        (): (1, 1),
        ("a",): (2, 3),
        ("a", "b"): (2, 6),
        ("a", "b", 0): (2, 7),
        ("a", "b", 1): (2, 10),
        ("c",): (3, 4),
    }
    assert isinstance(node, MapNode)
    assert (node.where("c").line, node.where("c").column) == (3, 1)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("21", 21),
        ("10_000_000", 10_000_000),
        ("-3", -3),
        ("0", 0),
        ("0x1F", 31),
        ("1.5", 1.5),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("2027-01-01", "2027-01-01"),
        ("1:30", "1:30"),
        ("yes", "yes"),
        ("Off", "Off"),
        ("7d", "7d"),
        ("1__0", "1__0"),
        (".nan", ".nan"),
        (".inf", ".inf"),
        ("1e999", "1e999"),
        ("'21'", "21"),
        ("!!str 21", "21"),
        ("9" * 40, "9" * 40),
    ],
)
def it_reads_plain_scalars_as_yaml_1_2_does(text: str, value: object, loader: object) -> None:
    node, problems = read(f"k: {text}\n", loader)
    assert not problems
    assert node is not None
    found = to_plain(node)["k"]
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("text", "line", "says"),
    [
        ("a: 1\na: 2\n", "f.yaml:2:1: a:", "appears twice; the first is on line 1"),
        ("a: 010\n", "f.yaml:1:4: a:", "without leading zeros"),
        ("yes: 1\n", "f.yaml:1:1:", "put it in quotes"),
        ("~: 1\n", "f.yaml:1:1:", "put it in quotes"),
        ("[a]: 1\n", "f.yaml:1:1:", "a key must be plain text"),
        ("a: &x {b: 1}\nc:\n  <<: *x\n", "f.yaml:3:3: c:", "use a profile"),
        ("a: !!python/object:os.system x\n", "f.yaml:1:4: a:", "is not supported"),
        ("a: !mine {b: 1}\n", "f.yaml:1:4: a:", "is not supported"),
        ("a: 1\n---\nb: 2\n", "f.yaml:2:1:", "a second one begins here"),
        ("", "f.yaml:1:1:", "the file is empty"),
        ("# nothing\n", "f.yaml:1:1:", "the file is empty"),
        ("a:\n\tb: 1\n", "f.yaml:2:1:", "YAML cannot be indented with tabs"),
        ("a: [1\nb: 2\n", "f.yaml:2:", "this is not valid YAML"),
        ("a: *gone\n", "f.yaml:1:4: a:", "there is no anchor &gone"),
        ("a: &x [*x]\n", "f.yaml:1:8: a[0]:", "is inside its own anchor"),
        ("a: 'b\x00c'\n", "f.yaml:1:6:", "is not allowed in a YAML file"),
        ("[" * 200, f"f.yaml:1:{YAML_DEPTH + 1}:", "levels"),
    ],
)
def it_reports_what_cannot_be_meant(text: str, line: str, says: str, loader: object) -> None:
    _, problems = read(text, loader)
    assert len(problems) == 1
    assert problems[0].startswith(line)
    assert says in problems[0]


def it_lets_an_alias_stand_for_its_anchor(loader: object) -> None:
    node, problems = read("a: &x [1, 2]\nb: *x\n", loader)
    assert not problems
    assert node is not None
    assert to_plain(node) == {"a": [1, 2], "b": [1, 2]}


def it_stops_at_a_billion_laughs(loader: object) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 10)]
    with at_most_cpu_seconds(2):
        node, problems = read("\n".join(lines), loader)
    assert node is None
    assert len(problems) == 1
    assert "with its aliases expanded" in problems[0]


def it_counts_levels_through_aliases(loader: object) -> None:
    lines = ["a0: &a0 x"]
    lines += [f"a{i}: &a{i} {'[' * 40}*a{i - 1}{']' * 40}" for i in range(1, 60)]
    node, problems = read("\n".join(lines), loader)
    assert node is None
    assert len(problems) == 1
    assert problems[0].startswith("f.yaml:3:")
    assert f"the limit of {YAML_DEPTH} levels" in problems[0]


def it_puts_an_empty_value_where_its_key_stands() -> None:
    node, _ = read("a:\n  b:\n")
    assert isinstance(node, MapNode)
    inner = node.items["a"]
    assert isinstance(inner, MapNode)
    empty = inner.items["b"]
    assert isinstance(empty, ScalarNode)
    assert (empty.value, empty.source.line, empty.source.column) == (None, 2, 3)


PACKETS = st.sampled_from(
    [
        "a",
        "b:",
        ": ",
        "- ",
        "\n",
        "  ",
        "\t",
        "{",
        "}",
        "[",
        "]",
        ",",
        "&x ",
        "*x",
        "!!str ",
        "!t ",
        "'",
        '"',
        "|\n",
        ">",
        "---\n",
        "...\n",
        "%YAML 1.2\n",
        "? ",
        "#",
        "\\UFFFFFFFF",
        "\\ud800",
        "é",
        "\u2028",
        "\r\n",
        "\ufeff",
        "<<",
        "010",
        "yes",
        "~",
        "1_0",
        "@",
        "`",
    ]
)


@settings(max_examples=400, deadline=None)
@given(st.one_of(st.text(), st.lists(PACKETS, max_size=30).map("".join)))
@pytest.mark.parametrize("kind", LOADERS, ids=lambda loader: loader.__name__)
def it_never_raises_and_every_position_is_inside_the_file(kind: object, text: str) -> None:
    problems = Problems()
    node = parse_yaml(text, "f.yaml", problems, loader=kind)
    assert node is not None or len(problems)
    lines = text.split("\n")
    places = [p.source for p in problems] + ([n.source for _, n in walk(node)] if node else [])
    for source in places:
        assert 1 <= source.line <= len(lines)
        assert 1 <= source.column <= len(lines[source.line - 1]) + 1
