"""The facts of facts/derived/torch.yaml, from what `envbuild.matrix.collect.torch_wheels` read of the wheels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from envbuild.core.errors import InputError
from envbuild.matrix.collect import torch_rows
from envbuild.matrix.collect.fact_writer import Derived, DerivedFact, DerivedRow, FlowNode
from envbuild.matrix.collect.torch_rows import LIBRARY, TorchRelease

COLLECTOR = "collector torch 1"
PATTERN = "torch-VERSION-cpXY-cpXY-manylinux*_{x86_64,aarch64}.whl"
READ_MEMBERS = "METADATA of every wheel, markers evaluated for each machine and Python; the sha256 is of METADATA"


@dataclass(frozen=True, slots=True)
class Rule:
    """One fact of the file: `rows` returns its rows for a release, `what` is the part of a wheel that they are from.
    The other fields are those of a fact."""

    id: str
    kind: str
    scope: str
    rows: Callable[[TorchRelease], list[DerivedRow]]
    what: str
    because: str
    question: str = ""
    strength: str = "hard"
    type: str = "metadata"
    how: str = READ_MEMBERS
    default: bool = False

    def fact(self, releases: Iterable[TorchRelease]) -> DerivedFact:
        """Return the fact with its rows for all releases."""
        return DerivedFact(
            id=f"torch.{self.id}",
            question=self.question,
            kind=self.kind,
            scope=self.scope,
            strength=self.strength,
            type=self.type,
            where=f"{PATTERN}: {self.what}",
            how=f"{COLLECTOR}; {self.how}",
            because=self.because,
            default=self.default,
            rows=tuple(row for release in releases for row in self.rows(release)),
        )


RULES = (
    Rule(
        "channel-index",
        "provides",
        "install",
        torch_rows.index_rows,
        "file names",
        "torch=={torch} without a label is the package index's own wheel",
        how="the index lists it",
        default=True,  # who names another channel means a build from there
    ),
    Rule(
        "label-elsewhere",
        "forbids",
        "install",
        torch_rows.unlabelled_rows,
        "file names",
        "torch=={torch} without a label is not a build of {channel}",
        how="builds of other channels have a local label, which distinguishes them",
    ),
    Rule(
        "wheel-machine",
        "requires",
        "install",
        torch_rows.machine_rows,
        "platform tags",
        "torch=={torch} has wheels for no other machine than these",
        question="torch-arch",
        how="platform tags of its Linux wheels",
    ),
    Rule(
        "python-tags",
        "requires",
        "install",
        torch_rows.python_rows,
        "interpreter and ABI tags",
        "torch=={torch}'s wheels are not built for Python {python}",
        question="torch-python",
        how="tags of its Linux wheels, not Requires-Python, which is weaker",
    ),
    Rule(
        "cuda-runtime",
        "provides",
        "runtime",
        partial(torch_rows.cuda_rows, cpu=False),
        "torch/version.py",
        "torch=={torch}'s index wheel is built for CUDA {torch-cuda}",
        question="torch-cuda-runtime",
        how="cuda in torch/version.py of every wheel; the sha256 is of that file",
        type="measured",
    ),
    Rule(
        "cpu-only",
        "limits",
        "runtime",
        partial(torch_rows.cuda_rows, cpu=True),
        "torch/version.py",
        "torch=={torch}'s index wheel for {arch} is built without CUDA",
        question="torch-cuda-runtime",
        how="cuda is None in torch/version.py; the sha256 is of that file",
        type="measured",
    ),
    Rule(
        "wheel-arch",
        "limits",
        "runtime",
        torch_rows.architecture_rows,
        LIBRARY,
        "torch=={torch}'s wheel contains no code for {sm}",
        question="torch-sm",
        how="architecture string of the library, one wheel for each release and machine; the sha256 is of the library",
        type="measured",
    ),
    Rule(
        "process-groups",
        "forbids",
        "runtime",
        torch_rows.missing_backend_rows,
        LIBRARY,
        "torch=={torch}'s index wheel has no ucc back end built in",
        how="a class name that does not occur in the library cannot be built in; the sha256 is of the library",
        type="measured",
    ),
    *(
        Rule(
            component,
            "provides",
            "install",
            partial(torch_rows.pin_rows, component=component),
            "METADATA",
            f"torch=={{torch}}'s wheel pins {component} {{row.{component}}}",
        )
        for component in ("cudnn", "nccl", "nvshmem")
    ),
    Rule(
        "triton",
        "requires",
        "install",
        partial(torch_rows.pin_rows, component="triton"),
        "METADATA",
        "torch=={torch}'s wheel requires triton {row.triton}",
        question="torch-triton",
    ),
    Rule(
        "triton-left-out",
        "limits",
        "install",
        partial(torch_rows.missing_pin_rows, component="triton"),
        "METADATA",
        "torch=={torch}'s wheel requires no triton on Python {python}",
        strength="warn",
        how=f"{READ_MEMBERS}; it requires triton on other Pythons",
    ),
    Rule(
        "toolkit-pin",
        "limits",
        "install",
        torch_rows.toolkit_rows,
        "METADATA",
        "torch=={torch}'s wheel pins cuda-toolkit, and one environment holds one version of it",
    ),
)


def make_facts(known: Iterable[TorchRelease]) -> Derived:
    """Return the content of the file, from what was read. Raise InputError for a wheel that contradicts itself."""
    releases = list(known)
    for one in releases:
        _check(one)
    found = (rule.fact(releases) for rule in RULES)
    return Derived(make_components(releases), {}, tuple(fact for fact in found if fact.rows))


def make_components(releases: Sequence[TorchRelease]) -> dict[str, Mapping[str, FlowNode]]:
    """Return the values that the file adds to torch, and the component that only this file names."""
    return {
        "torch": {"values": [one.version for one in releases]},
        "cuda-from": {
            "kind": "name",
            "about": "where the CUDA toolkit of the image comes from",
            "hidden": True,
            "rank": 14,
            "values": ["wheels", "apt", "debian", "base"],
        },
    }


def _check(one: TorchRelease) -> None:
    """Raise InputError for a CUDA build without architectures, or the other way round: wheels have changed."""
    for (arch, _), build in one.release.wheels.items():
        if bool(one.seen[build.file.name].cuda) != bool(one.code[arch].architectures):
            raise InputError(
                f"{build.file.name}: torch/version.py and {LIBRARY} contradict each other about CUDA",
                "adapt the collector to the new wheels: envbuild/matrix/collect/torch_wheels.py",
            )
