"""Values of documents and their places."""

from __future__ import annotations

import pytest

from envbuild.oci.document import MAX_DOCUMENT, MAX_VALUES, InvalidDocumentError, Part, parse_json

pytestmark = pytest.mark.unit


def test_values_are_read_with_their_types() -> None:
    whole = parse_json(b'{"a": [{"b": "text", "c": null}], "d": {"e": 1}}')
    (first,) = whole.part("a").parts()
    assert first.part("b").text() == "text" and first.part("b").place == "a[0].b"
    assert first.part("c").text() == "" and first.part("c").optional("x").parts() == []
    assert whole.part("d").part("e").expect(int) == 1
    assert [(key, item.value) for key, item in whole.part("d").pairs()] == [("e", 1)]
    assert whole.part("d").texts() == ["e"] and Part(["x", None]).texts() == ["x", ""]


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"a": [1, {"b": 1}]}, "a[1].b is the number 1, not a text"),
        ({"a": [1, {"b": True}]}, "a[1].b is true, not a text"),
        ({"a": [1, {"b": {}}]}, "a[1].b is an object, not a text"),
        ({"a": [1, 2]}, "a[1] is the number 2, not an object"),
        ({"a": "x" * 100}, f"a is the text {'x' * 60!r}…, not a list"),
        ({}, "a is missing"),
        ([], "it is a list, not an object"),
        (None, "it is null, not an object"),
        ({"a": [0] * (MAX_VALUES + 1)}, f"a has more than {MAX_VALUES} values"),
    ],
)
def test_a_wrong_value_is_named_with_its_place(value: object, message: str) -> None:
    with pytest.raises(InvalidDocumentError) as caught:
        Part(value).part("a").parts(needed=True)[1].part("b").expect(str)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{", b"\xff", b"[" * 100_000, b"[" * 33 + b"]" * 33, b"9" * 5000, b"\xff\xfe\0\1",
        bytes(MAX_DOCUMENT + 1),
        # other texts and numbers for Go, which reads U+FFFD, or none
        b'["/bin/sh\\udc80"]', b'["/bin/sh\\uDC80"]', b'["/bin/sh\xed\xb2\x80"]', b"[NaN]", b"[-Infinity]",
        "[1]".encode("utf-16"),
    ],
)  # fmt: skip
def test_what_is_not_a_document_is_refused(content: bytes) -> None:
    with pytest.raises(InvalidDocumentError, match=r"^it "):
        parse_json(content)


def test_a_pair_of_surrogates_is_a_sign() -> None:
    assert parse_json(b'["\\ud83d\\ude00"]').texts() == ["\U0001f600"]
