"""The tiers gpu and fabric of verify: jobs are started, their results compared with floors, and the evidence stored."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from envbuild import __version__
from envbuild.core.errors import EnvbuildError, SpecError
from envbuild.gpu.fabric_checks import Step, fabric_steps, judge_step
from envbuild.gpu.model import FABRIC, FAIL, GPU, NOT_RUN, Job, Outcome
from envbuild.gpu.node_checks import BEYOND_ONE_GPU, BEYOND_ONE_NODE, node_checks
from envbuild.gpu.script import single_file
from envbuild.gpu.sealed import RefusedError, evidence_document, is_place, read_document
from envbuild.launch.clients import DIGESTS, older
from envbuild.launch.compared_tag import check_tag
from envbuild.launch.engine_image import engine_image
from envbuild.launch.fabric import find_devices
from envbuild.launch.image_sources import REGISTRY
from envbuild.launch.launch import Prepared, prepare_launch
from envbuild.launch.model import LaunchImage, Request
from envbuild.launch.nodes_path import check_copy
from envbuild.launch.programs import has_mpi
from envbuild.launch.registry_image import without_tag
from envbuild.launch.trial import FORMS, Ended, Trial, choose_form, node_trial, run_trial, step_trial
from envbuild.spec.target import Target, load_target
from envbuild.spec.workspace import Workspace
from envbuild.verify.gpu_image import GpuImage, read_gpu_image
from envbuild.verify.measured import Measured

TASK = "verify"


@dataclass(frozen=True, slots=True)
class TierRequest:
    """The request: a tier, nodes, the form of the job (empty: what is installed), and whether jobs are only printed."""

    tier: str
    nodes: int = 1
    form: str = ""
    dry_run: bool = False


def is_root() -> bool:
    """Return whether jobs are started by root, who is root in their containers, too."""
    return os.geteuid() == 0


def check_request(request: TierRequest) -> None:
    """Raise SpecError for a request that contradicts its tier."""
    if request.form and request.form not in FORMS:
        raise SpecError(f"--as {request.form}: these checks start with {' or '.join(FORMS)}", f"--as {FORMS[0]}")
    if request.tier == GPU and request.nodes != 1:
        raise SpecError("--tier gpu checks one node", hint="leave out -N, or type --tier fabric")
    if request.tier == FABRIC and request.nodes < 2:
        raise SpecError("--tier fabric checks two nodes or more", hint="type --tier fabric -N 2")
    if request.tier == FABRIC and request.form == "docker":
        raise SpecError("--tier fabric starts its jobs with Slurm: docker knows no other node", hint="--as srun")


def job_form(request: TierRequest) -> str:
    """Return the form that starts the jobs of a tier here; empty: none is installed."""
    return choose_form(request.form, FORMS if request.tier == GPU else ("srun",))


def prepare_tier(name: str, request: TierRequest, workspace: Workspace) -> tuple[Job, Prepared]:
    """Return the job and its launch. Raises SpecError, LockError, and as `prepare_launch`."""
    check_request(request)
    image = read_gpu_image(name, workspace)
    if image.target and not load_target(image.target, workspace.project).gpu:
        raise SpecError(
            f"target '{image.target}' has no accelerator", "these tiers are for images of targets with gpu:"
        )
    form = job_form(request) or FORMS[0]
    prepared = prepare_launch(name, form, Request(("own",), nodes=request.nodes), workspace)
    return make_job(image, prepared.target, request.tier, prepared.image.layers, prepared.image.versions), prepared


def make_job(image: GpuImage, target: Target, tier: str, layers: Sequence[str], versions: Any) -> Job:
    """Return what the program needs about an image and the nodes of its target."""
    return Job(
        image=image.name,
        lock=image.lock,
        target=target.name,
        tier=tier,
        gpu=target.gpu,
        sm=target.sm,
        gpus=target.gpus,
        fabric=target.fabric,
        nics=target.nics.count if target.nics else 0,
        efa=target.efa,
        versions=dict(versions),
        layers=tuple(layers),
        checks=tuple(check for check in image.checks if check["tier"] == tier),
    )


def dry_run_text(job: Job, prepared: Prepared, request: TierRequest, workspace: Workspace) -> str:
    """Return the jobs as they would start; the program is their standard input."""
    if request.tier == GPU:
        trial = trial_of(None, prepared, request, workspace, set())
        return f"# all checks of one node; standard input: the program\n{trial.text}"
    blocks = []
    reported: set[str] = set()
    for step in steps_of(job, prepared, request, workspace):
        if step.reason:
            blocks.append(f"# {step.name}: not run: {step.reason}\n")
        else:
            text = trial_of(step, prepared, request, workspace, reported).text
            blocks.append(f"# {step.name}; standard input: the program\n{text}")
    return "\n".join(blocks)


def trial_of(
    step: Step | None, prepared: Prepared, request: TierRequest, workspace: Workspace, reported: set[str]
) -> Trial:
    """Return the job of a step, or of all checks of one node, and report the warnings of its launch, each once.

    reported: those of earlier steps, to which these are added.
    """
    if step is None:
        trial = node_trial(prepared, workspace.site, root=is_root())
    else:
        trial = step_trial(step, prepared, workspace.site, request.nodes, root=is_root())
    for line in trial.plan.warnings:
        if line not in reported:
            workspace.reporter.warn(line)
        reported.add(line)
    return trial


def steps_of(job: Job, prepared: Prepared, request: TierRequest, workspace: Workspace) -> list[Step]:
    """Return the steps of the tier fabric."""
    devices = find_devices(prepared.target, workspace.site.nodes_of(prepared.target.name))
    device = devices.nics[0] if devices.nics else ""
    return fabric_steps(job, request.nodes, device, mpi=has_mpi(prepared.image))


def run_tier(job: Job, prepared: Prepared, request: TierRequest, workspace: Workspace) -> Measured:
    """Start the jobs; return the evidence. A check whose job does not start did not run. Raises as `check_image`."""
    if not prepared.image.built:
        raise EnvbuildError(f"{prepared.image.name} is not built", hint=f"envbuild make {prepared.image.name}")
    workspace.reporter.start(TASK, f"verify {job.image}: tier {request.tier}")
    try:
        form = job_form(request)
        check = partial(check_image, prepared.image, form, workspace, prepared.clients.slurm.enroot)
        installed = shutil.which(form) is not None
        image = check() if installed else prepared.image
        run = run_node if request.tier == GPU else run_fabric
        found = run(job, replace(prepared, image=image), request, workspace)
        if installed and not names_content(image, form):  # jobs wait, and a tag or a file may be another one meanwhile
            check()
        return found
    finally:
        workspace.reporter.finish(TASK)


def check_image(image: LaunchImage, form: str, workspace: Workspace, enroot: str = "") -> LaunchImage:
    """Return an image whose jobs start what is built here: results of another one would be evidence of it. It has the
    digest for a release of `enroot` that pulls it, and the digest or the id for Docker, whose engine may have another
    image under the tag. Raises EnvbuildError, InputError, EngineError."""
    if not image.sha256:  # not of the project
        return image
    if form == "docker" and not image.reference:
        return replace(image, docker=engine_image(image))
    if form != "docker" and image.squashfs:
        workspace.reporter.note(TASK, f"reading {image.squashfs}")
        check_copy(image)
        return image
    if not image.reference:
        return image
    by_tag = form != "docker" and (not enroot or older(enroot, DIGESTS))
    named = f"{without_tag(image.reference)}@{check_tag(image, workspace, by_tag=by_tag)}"
    return replace(image, reference=image.reference if by_tag else named, docker=named.removeprefix(REGISTRY))


def names_content(image: LaunchImage, form: str) -> bool:
    """Return whether jobs start an image by a digest or an id (`check_image`), which names one content for ever."""
    return form == "docker" or (not image.squashfs and "@" in image.reference)


def run_node(job: Job, prepared: Prepared, request: TierRequest, workspace: Workspace) -> Measured:
    """Run the checks of one node."""
    form = job_form(request)
    ended = Ended({}, f"neither {' nor '.join(FORMS)} is installed here")
    if form:
        trial = trial_of(None, prepared, request, workspace, set())
        ended = run_trial(trial, form, single_file(job, __version__), partial(workspace.reporter.note, TASK))
    if 0 in ended.documents:
        try:
            found = Measured(*read_document(json.dumps(ended.documents[0])))
            if [found.document[key] for key in ("image", "lock", "target", "tier")] != [
                job.image,
                job.lock,
                job.target,
                job.tier,
            ]:  # a program of the image printed it
                raise RefusedError("it is of another image, target or tier")
            return found
        except RefusedError as error:
            ended = Ended({}, f"the answer of the job is refused: {error}")
    names = [*(check.name for check in node_checks(job)), *BEYOND_ONE_GPU, *BEYOND_ONE_NODE]
    return measured(job, [Outcome(name, GPU, NOT_RUN, ended.fault) for name in names], {"nodes": 1})


def run_fabric(job: Job, prepared: Prepared, request: TierRequest, workspace: Workspace) -> Measured:
    """Run the steps of several nodes, one job after another."""
    form, outcomes, place = job_form(request), [], {"nodes": request.nodes}
    program, reported = single_file(job, __version__), set[str]()
    for step in steps_of(job, prepared, request, workspace):
        reason = step.reason or ("" if form else "srun is not installed here")
        if reason:
            outcomes.append(Outcome(step.name, FABRIC, NOT_RUN, reason))
            continue
        workspace.reporter.note(TASK, step.name)
        trial = trial_of(step, prepared, request, workspace, reported)
        net = next((item.value for item in trial.plan.env if item.name == "NCCL_NET"), "")
        ended = run_trial(trial, form, program, partial(workspace.reporter.note, TASK))
        if not ended.documents:
            outcomes.append(Outcome(step.name, FABRIC, NOT_RUN, ended.fault))
            continue
        try:
            outcome = judge_step(step, ended.documents, replace(job, net=net), trial.ranks, request.nodes)
            place.update(rank_place(ended))
        except (AttributeError, LookupError, TypeError, ValueError) as error:  # a program of the image printed it
            fault = f"the report of a rank is not well-formed: {type(error).__name__}: {str(error)[:100]}"
            outcome = Outcome(step.name, FABRIC, FAIL, fault)
        outcomes.append(outcome)
    return measured(job, outcomes, place)


def rank_place(ended: Ended) -> dict[str, Any]:
    """Return the facts of the node of the first rank that answered."""
    first = ended.documents[min(ended.documents)]
    devices = first["devices"]
    gpus = [gpu["name"] for gpu in devices["gpus"]]
    place = {"driver": devices["driver"], "cuda": devices["cuda"], "gpus": gpus, "environment": first["environment"]}
    if not is_place(place):
        raise ValueError("not a node")
    return place


def measured(job: Job, outcomes: Sequence[Outcome], place: dict[str, Any]) -> Measured:
    """Return evidence that was collected here."""
    date = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return Measured(evidence_document(job, outcomes, date, f"envbuild {__version__}", place), tuple(outcomes))
