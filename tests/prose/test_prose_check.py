"""The prose check finds what it bans, and only there."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pytest
import yaml

sys.path.insert(0, str(Path(__file__).parent))  # the check is a program: it finds its modules beside itself
import banned_words
import check as prose_check

pytestmark = pytest.mark.unit


@pytest.fixture
def words(tmp_path: Path):
    """Return a function that writes a file and returns the (line, word) pairs that the check finds in it."""

    def found(path: str, text: str) -> list[tuple[int, str]]:
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(textwrap.dedent(text))
        return [(hit.line, hit.word) for hit in prose_check.check(file, tmp_path)]

    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The user is told.", "told"),
        ("The user is\ntold.", "told"),
        ("it cannot\nbe had", "cannot be had"),
        ("x is no image", "is no"),
        ("there is no image", None),
        ("it is no longer valid", None),
        ("Anybody's image", "Anybody's"),
        ("`it is told`", None),
        ("```\nit is told\n```", None),
        ("[a page](told.md)", None),
        ("a foretold word", None),
        ("a told-you-so", None),
    ],
)
def test_a_page(words, text: str, expected: str | None) -> None:
    found = [word for _, word in words("docs/page.md", text)]
    assert found == ([expected] if expected else [])


def test_lines_of_a_page(words) -> None:
    assert words("README.md", "a\n\n```\ntold\n```\nis asked\nagain, anew\n") == [(6, "asked"), (7, "anew")]


def test_docstrings_comments_and_messages(words) -> None:
    source = '''
        """What a module is."""

        LIMIT = 3  # the user is told


        def read(path: str) -> str:
            """The text of a file.

            Nobody reads it."""
            raise InputError(
                f"{path} cannot be read",
                hint=f"it cannot be had from {path}",
            )
    '''
    assert words("envbuild/room/module.py", source) == [
        (2, 'docstring starts with "What"'),
        (4, "told"),
        (8, 'docstring starts with "The"'),
        (10, "Nobody"),
        (13, "cannot be had"),
    ]


def test_comments_over_two_lines(words) -> None:
    assert words("envbuild/a.py", "# it cannot be\n# had\nx = 1  # it is\ny = 2\n") == [(1, "cannot be had")]


@pytest.mark.parametrize(
    "line",
    [
        'same = text == "it is told"',
        'pattern = re.compile("it is told")',
        'key = "told"',
        'text = "it is told"  # prose: keep (bytes of an image)',
        "value = b'it is told'",
    ],
)
def test_literals_that_are_not_prose(words, line: str) -> None:
    assert words("envbuild/a.py", f"import re\n{line}\n") == []


def test_a_marker_above_a_literal_of_several_lines(words) -> None:
    assert words("envbuild/a.py", '# prose: keep\ntext = """\nit is told\n"""\n') == []


@pytest.mark.parametrize("path", ["recipes/a.py", "envbuild/build/plan/a.py", "envbuild/build/blocks/a.py"])
def test_commands_of_units_are_not_prose_but_their_messages_are(words, path: str) -> None:
    source = 'step = Step("echo it is told")\nraise SpecError("it is asked", hint="wait till then")\n'
    assert words(path, source) == [(2, "asked"), (2, "till")]


FACTS = """
    # what nobody says
    schema: 1  # anew
    facts:
    - id: somebody.told
      because: "torch says # no"
      source: {where: it is told, how: read; it
        was asked}
      hint: |
        a # b
        till then
    - {because: not-told, note: "# not a comment"}
    # prose: keep (part of the lock)
    - reason: nobody
"""


def test_comments_and_sentences_of_facts_images_and_targets(words) -> None:
    expected = [(2, "nobody"), (2, "says"), (3, "anew"), (6, "says"), (8, "asked"), (11, "till")]
    assert words("envbuild/matrix/data/a.yaml", FACTS) == words("images/a.yaml", FACTS) == expected
    assert words("tests/a.yaml", FACTS) == []


def test_a_noun_describes_classes_and_properties(words) -> None:
    source = '''
        class Lock:
            """A lock."""

            @property
            def digest(self) -> str:
                """The digest of its inputs."""

            def read(self) -> str:
                """Reads the file."""
    '''
    assert words("envbuild/a.py", source) == [(10, 'docstring starts with "Reads"')]


def test_names(words) -> None:
    source = "class StandIn: ...\ndef tell_kept(heard): ...\nlooked = [untold for untold in ()]\n_carry = 1\n"
    expected = [(1, "StandIn"), (2, "heard"), (2, "tell_kept"), (3, "looked"), (4, "_carry")]
    assert words("envbuild/a.py", source) == expected
    assert words("tests/room/test_a.py", source) == expected
    assert words("docs/a.md", "`StandIn` and `read_lock()`, `a told word`\n") == [(1, "StandIn")]


@pytest.mark.parametrize("path", ["tests/room/test_a.py", "benchmarks/a.py"])
def test_strings_of_tests_and_benchmarks_are_not_prose(words, path: str) -> None:
    source = '"""It is told."""\n\nassert x == "it is told"  # nobody\n'
    assert words(path, source) == [(1, "told"), (3, "nobody")]


def test_names_of_tests_have_words_of_their_own(words) -> None:
    source = "def test_what_is_asked(): ...\ndef test_a_mend(): ...\ndef test_a_task(): ...\nasks = 1\n"
    assert words("tests/test_a.py", source) == [(1, "test_what_is_asked"), (2, "test_a_mend")]


def test_a_docstring_of_a_test_may_explain_its_rule(words) -> None:
    source = '''
        """What is tested."""


        def test_a() -> None:
            """A reason."""


        def helper() -> str:
            """A value."""
    '''
    expected = [(2, 'docstring starts with "What"'), (10, 'docstring starts with "A"')]
    assert words("tests/test_a.py", source) == expected


def test_modules(words) -> None:
    assert words("envbuild/quickly.py", "x = 1\n") == [(1, "envbuild.quickly")]
    source = (
        "from envbuild.oci.intake import a\nfrom envbuild.oci.intake_rules import b\nfrom envbuild.lock import given\n"
    )
    assert words("tests/test_a.py", source) == [(1, "envbuild.oci.intake")]
    page = "See `squashfs/mend.py`, `envbuild/heard.py` and `build/plan/units.py`. A plan, a copy, copies/pasted.\n"
    assert words("docs/a.md", page) == [(1, "envbuild/heard"), (1, "squashfs/mend.py")]


def test_every_word_of_the_list_is_found(words) -> None:
    """A typing error in a pattern would go unnoticed."""
    for group, write in yaml.safe_load(banned_words.WORDS.read_text())["phrases"].items():
        assert isinstance(write, str), group
        for word in group.split("|") if "(" not in group else ():
            assert words("docs/a.md", f"one {word} two\n"), word


def test_summary(words) -> None:
    hits = [
        prose_check.Hit(path, 1, "told", "report", kind)
        for path, kind in [("envbuild/a/b.py", "phrase"), ("docs/a.md", "name")]
    ]
    lines = [line.split() for line in prose_check.summary(hits).splitlines()]
    assert lines == [
        ["room", "phrases", "openers", "names", "modules", "all"],
        ["envbuild/a", "1", "0", "0", "0", "1"],
        ["docs", "0", "0", "1", "0", "1"],
        ["all", "1", "0", "1", "0", "2"],
    ]


def test_names_in_backticks_of_docstrings(words) -> None:
    source = '''def export() -> None:
    """Export.

    Raises what `carry` raises; see `carry_on`, not ``carry``."""
'''
    assert words("envbuild/a/b.py", source) == [(4, "carry"), (4, "carry_on")]
    kept = 'class A:\n    """`shown` is a key."""\n\n    shown: str  # prose: keep\n'
    assert words("envbuild/a/b.py", kept) == []
