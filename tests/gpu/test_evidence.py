"""Evidence of one run: it arrives whole, has no secrets, and is refused when it is truncated or changed."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envbuild.gpu.allowed import allowed_variables, allowed_words
from envbuild.gpu.model import FAIL, GPU, PASS, Curve, Figure, Job, Outcome, job_data, read_job
from envbuild.gpu.parts import LENGTH, part_lines, read_parts
from envbuild.gpu.sealed import RefusedError, checksum, evidence_document, read_document
from tests.support.gpu_bench import job

pytestmark = pytest.mark.unit

OUTCOMES = (
    Outcome(
        "one", GPU, PASS, "x", figures=(Figure("host_device_bandwidth", 55.0, "GB/s"),), transport={"networks": {}}
    ),
    Outcome("two", GPU, FAIL, "y", "do z", 1.5),
    Outcome("three", GPU, PASS, "z", curves=(Curve("all_reduce", "GB/s", ((8, 0.5), (16, 1.0))),)),
)


FIGURE = {"name": "x", "tier": "gpu", "status": "pass", "detail": ""}
CURVE = {"title": "x", "unit": "GB/s", "points": [[8, 0.5], [16, 1.0]]}
POINTS: list[Any] = [
    7, [], [7], [[8]], [[8, "1"]], [[0, 1.0]], [[8, 1.0], [8, 1.0]], [[16, 1.0], [8, 1.0]], [[8.5, 1.0]],
    [[8, float("nan")]], [[8, 1e300]], [[10**400, 1.0]], [[size, 1.0] for size in range(1, 66)],
]  # fmt: skip


def document(**changes: Any) -> str:
    """Return a document; with changes its checksum is made again."""
    value = evidence_document(job(), OUTCOMES, "2026-01-02T03:04:05Z", "envbuild 0.1", {"gpus": ["H100"]})
    value.pop("checksum")
    value |= changes
    return json.dumps({**value, "checksum": checksum(value)}, indent=1, sort_keys=True) + "\n"


def test_a_document_is_read_as_it_was_written() -> None:
    found, outcomes = read_document(document())
    assert outcomes == OUTCOMES and found["lock"] == job().lock


def test_a_curve_is_read_as_it_was_written() -> None:
    _, outcomes = read_document(document(results=[{**FIGURE, "curves": [CURVE]}]))
    assert outcomes[0].curves == (Curve("x", "GB/s", ((8, 0.5), (16, 1.0))),)


def test_a_document_truncated_at_any_line_is_refused() -> None:
    lines = document().splitlines(keepends=True)
    for number in range(len(lines)):
        with pytest.raises(RefusedError):
            read_document("".join(lines[:number]))


@pytest.mark.parametrize(
    ("before", "after"), [('"fail"', '"pass"'), ("55.0", "65.0"), ("H100", "H200"), ('"y"', '"Y"'), ("03:04", "03:05")]
)
def test_a_changed_document_is_refused(before: str, after: str) -> None:
    assert before in document()
    with pytest.raises(RefusedError, match="checksum"):
        read_document(document().replace(before, after, 1))


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "evidence"},
        {"schema": 2},
        {"lock": None},
        {"lock": "sha256:../../../x"},
        {"target": "../../x"},
        {"image": "/etc/x.sqsh"},
        {"tier": "../x"},
        {"tier": "run"},
        {"results": [{**FIGURE, "figures": [{"test": "x", "value": float("inf"), "unit": "GB/s"}]}]},
        {"results": [{**FIGURE, "figures": [{"test": "x", "value": float("nan"), "unit": "GB/s"}]}]},
        {"date": "yesterday"},
        {"place": []},
        {"place": {"gpus": {"a": 1}}},
        {"place": {"gpus": 7}},
        {"place": {"gpus": [7]}},
        {"place": {"driver": 7}},
        {"results": []},
        {"results": {}},
        {"results": ["x"]},
        {"results": [{"name": "x"}]},
        {"results": [{"name": "x", "tier": "gpu", "status": "good", "detail": ""}]},
        {"results": [{"name": "x", "tier": "run", "status": "pass", "detail": ""}]},
        {"results": [FIGURE, {**FIGURE, "tier": "fabric"}]},
        {"results": [{**FIGURE, "figures": [{"test": "x", "value": 1, "unit": "GB/s", "size": 0.5}]}]},
        {"results": [{**FIGURE, "figures": [{"test": "x", "value": 1, "unit": "m/s"}]}]},
        {"results": [{**FIGURE, "curves": [{**CURVE, "unit": "m/s"}]}]},
        {"results": [{**FIGURE, "seconds": "long"}]},
        {"results": [{**FIGURE, "curves": [{"title": "x", "unit": "GB/s"}]}]},
        *({"results": [{**FIGURE, "curves": [{**CURVE, "points": points}]}]} for points in POINTS),
        {"results": [{**FIGURE, "curves": [{**CURVE, "title": 7}]}]},
        {"results": [{**FIGURE, "figures": [{"test": "x", "value": 1, "unit": "GB/s", "size": 10**400}]}]},
        {"results": [{"name": 1, "tier": "gpu", "status": "pass", "detail": ""}]},
        {"results": [{"name": "x", "tier": "gpu", "status": "pass", "detail": "", "more": 1}]},
        {"results": [{"name": "x", "tier": "gpu", "status": "pass", "detail": "", "figures": [{"test": "x"}]}]},
        {
            "results": [
                {
                    "name": "x",
                    "tier": "gpu",
                    "status": "pass",
                    "detail": "",
                    "figures": [{"test": "x", "value": "480", "unit": "GB/s"}],
                }
            ]
        },
    ],
)
def test_what_is_not_well_formed_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(RefusedError):
        read_document(document(**changes))


@pytest.mark.parametrize("text", ["", "[]", "null", "1", '"x"', "{}", "[" * 100_000])
def test_any_other_json_is_refused(text: str) -> None:
    with pytest.raises(RefusedError):
        read_document(text)


def test_values_that_are_nested_deeply_are_refused() -> None:
    """There is a depth that can be read, and not written again."""
    for depth in range(700, 1010):
        with pytest.raises(RefusedError):
            read_document(f'{{"kind": "gpu-evidence", "schema": 1, "x": {"[" * depth + "]" * depth}}}')


def test_a_job_passes_through_json() -> None:
    own = job(checks=({"name": "a", "command": "b", "expect": "c", "tier": "gpu"},))
    assert read_job(json.loads(json.dumps(job_data(own)))) == own
    assert read_job({}) == Job()


RANKS = 16  # of the job


@given(st.lists(st.text(), max_size=5), st.randoms(use_true_random=False))
def test_documents_of_ranks_arrive_in_any_order(texts: list[str], order: random.Random) -> None:
    values = {rank: {"text": text, "more": "x" * 3000} for rank, text in enumerate(texts)}
    lines = [line for rank, value in values.items() for line in part_lines(rank, value)]
    lines += ["0: another line", "NCCL INFO"]
    order.shuffle(lines)
    found, others = read_parts("\n".join(lines), RANKS)
    assert found == values
    assert sorted(filter(None, others.splitlines())) == ["0: another line", "NCCL INFO"]


def test_a_document_of_which_any_line_is_missing_or_changed_did_not_arrive() -> None:
    value = {"text": "".join(random.Random(1).choices("abcdefghij", k=9000))}
    lines = list(part_lines(3, value))
    assert len(lines) > 3 and max(map(len, lines)) < LENGTH + 60
    assert read_parts("\n".join(lines), RANKS)[0] == {3: value}
    for number, line in enumerate(lines):
        for changed in ([], [line[:-1]], [line[:-3] + ("AA." if not line.endswith("AA.") else "BB.")]):
            assert read_parts("\n".join([*lines[:number], *changed, *lines[number + 1 :]]), RANKS)[0] == {}


@pytest.mark.parametrize(
    ("content", "count"), [(b"[" * 3000, 1), (b"[]", 9_999_999), (b"[" * (17 << 20), 1), (b'"' + b'\\"' * 2_000_000, 1)]
)
def test_parts_of_a_hostile_image_are_no_document(content: bytes, count: int) -> None:
    data = base64.b64encode(zlib.compress(content)).decode()
    name = hashlib.sha256(data.encode()).hexdigest()[:16]
    assert read_parts(f"envbuild-part 0 1/{count} {name} {data}.", RANKS) == ({}, "")


def hostile_part(rank: int, content: bytes) -> str:
    data = base64.b64encode(zlib.compress(content)).decode()
    return f"envbuild-part {rank} 1/1 {hashlib.sha256(data.encode()).hexdigest()[:16]} {data}."


def test_ranks_that_the_job_does_not_have_are_not_read() -> None:
    lines = [hostile_part(rank, b'["x"]') for rank in (0, 1, RANKS, 9_999_999)]
    assert read_parts("\n".join(lines), RANKS)[0] == {0: ["x"], 1: ["x"]}
    assert read_parts("\n".join(lines), 1)[0] == {0: ["x"]}


def test_a_document_of_many_values_is_none() -> None:
    """4 MiB of empty lists take 100 MB once they are read."""
    assert read_parts(hostile_part(0, b"[" + b",".join([b"[]"] * 15_000) + b"]"), RANKS)[0] == {}
    assert read_parts(hostile_part(0, json.dumps(["[],{" * 50_000, '"\\"']).encode()), RANKS)[0] != {}


def test_all_documents_have_one_limit() -> None:
    text = "\n".join(hostile_part(rank, json.dumps("x" * 3_000_000).encode()) for rank in range(2))
    assert list(read_parts(text, 2)[0]) == [0]
    assert list(read_parts(text, 4)[0]) == [0, 1]


def test_a_newline_may_arrive_after_the_line_of_another_rank() -> None:
    values = {rank: {"text": "x" * 3000, "rank": rank} for rank in range(3)}
    text = "".join("\n".join(part_lines(rank, value)) for rank, value in values.items())
    assert read_parts(f"{text}\n\n\n", RANKS) == (values, "\n" * text.count("\n") + "\n\n\n")


def test_lines_may_have_labels() -> None:
    assert read_parts("\n".join(f"12: {line}" for line in part_lines(1, ["x"])), RANKS)[0] == {1: ["x"]}


def test_only_variables_of_the_list_are_written() -> None:
    environ = {
        "NCCL_NET": "IB",
        "SLURM_JOB_ID": "7",
        "PATH": "/bin",
        "HOME": "/home/me",
        "HF_TOKEN": "secret",
        "NVIDIA_API_KEY": "secret",
        "SLURM_JOB_USER": "me",
        "SLURM_JOB_ACCOUNT": "secret",
        "UCX_PASSWORD": "secret",
        "PMIX_SERVER_URI2": "secret",
        "AWS_SECRET_ACCESS_KEY": "secret",
    }
    assert allowed_variables(environ) == {"NCCL_NET": "IB", "SLURM_JOB_ID": "7"}


WORDS = {
    "env NCCL_NET=IB train -b 8 --lr=1": "env NCCL_NET=IB train -b 8 --lr=1",
    "HF_TOKEN=abc DB=x": "HF_TOKEN=… DB=…",
    "--api-key=abc --token abc -b": "--api-key=… --token … -b",
}


@pytest.mark.parametrize("words", WORDS)
def test_words_of_commands_have_no_secrets(words: str) -> None:
    assert " ".join(allowed_words(words.split())) == WORDS[words]


@pytest.mark.parametrize("head", ["0 1/99999999999999", "0 1/9999999", f"{'1' * 5000} 1/1", "0 1/0", "0 0/1"])
def test_a_line_that_promises_more_than_arrives_is_no_document(head: str) -> None:
    """Each program of an image can print one: a count without a limit took all memory."""
    assert read_parts(f"envbuild-part {head} 0123456789abcdef AAAA.\n", RANKS)[0] == {}
