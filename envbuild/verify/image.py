"""Verify a finished image: ask the artifact itself, compare with the lock, run the recipes' lines, write evidence."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envbuild.lock.lockfile import Lock, lock_digest
from envbuild.plan.units import Plan, Product
from envbuild.resolve import Resolution
from envbuild.verify.audit import Expectations, audit
from envbuild.verify.evidence import Evidence, document, raise_for, summary, write
from envbuild.verify.look import look
from envbuild.verify.run import run_checks

if TYPE_CHECKING:
    from envbuild.engines.base import Built
    from envbuild.export import Artifact
    from envbuild.image import Image
    from envbuild.workspace import Workspace


def verify(
    artifact: Artifact, plan: Plan, built: Built, resolution: Resolution, lock: Lock, workspace: Workspace
) -> Path:
    """Run the audit and run tiers on the squashfs file and write the evidence beside it; returns its path.

    Raises VerifyError with every failure, after the evidence is written.
    """
    layers = tuple(layer.diff_id for layer in built.layers)
    evidence = examine(artifact.path, artifact.sha256, artifact.messages, layers, plan, resolution, lock, workspace)
    path = write(evidence, artifact.path.parent)
    raise_for(evidence)
    return path


def verify_made(image: Image, workspace: Workspace) -> tuple[Path, Evidence, dict[str, Any]]:
    """The same of an image that was made before: path of the evidence, the evidence, its document."""
    path = Path(image.made.artifact)
    layers = tuple(layer.diff_id for layer in image.layers)
    messages = image.made.messages
    evidence = examine(path, image.made.sha256, messages, layers, image.plan, image.resolution, image.lock, workspace)
    return write(evidence, path.parent), evidence, document(evidence)


def examine(
    path: Path,
    sha256: str,
    messages: Sequence[str],
    layers: tuple[str, ...],
    plan: Plan,
    resolution: Resolution,
    lock: Lock,
    workspace: Workspace,
) -> Evidence:
    """All tiers that can run here, on the file itself."""
    from envbuild.engines.embedded import run_in

    def run(argv: Sequence[str]) -> tuple[int, str]:
        code, output = run_in(
            path, argv, env=plan.config.env, store=workspace.store, interactive=False, capture=True, timeout=900
        )
        return code, output.decode(errors="replace")

    workspace.talk.start("verify", f"verify {plan.image}")
    results = audit(look(run), expectations(plan, resolution, lock))
    env = planned_env(resolution, lock)
    checks = [check for name in resolution.order for check in resolution.spec.recipes[name].verify(env)]
    results += run_checks(checks, run)
    evidence = Evidence(lock.image, lock_digest(lock), layers, f"sha256:{sha256}", tuple(messages), tuple(results))
    workspace.talk.finish("verify", "\n".join(f"verify {line}" for line in summary(evidence)))
    return evidence


def planned_env(resolution: Resolution, lock: Lock) -> Any:
    from envbuild.plan.planner import recipe_env

    return recipe_env(resolution, lock)


def expectations(plan: Plan, resolution: Resolution, lock: Lock) -> Expectations:
    """What the lock and the recipes promise to be inside."""
    in_image = {"base", "debian", "venv", "venv-core"}
    units = [unit for name, unit in lock.units.items() if name in in_image]
    wheels = {
        file for unit in plan.units if unit.product is Product.WHEEL for file in lock.units[f"build-{unit.name}"].sdists
    }
    debs = [lock.debian[file] for unit in units for file in unit.debian]
    packages = [lock.python_files[file] for file in {*(file for unit in units for file in unit.python), *wheels}]
    recipes = resolution.recipes
    return Expectations(
        debian={deb.name: deb.version for deb in debs},
        python={package.name: package.version for package in packages},
        sm=resolution.target.sm_arch,
        arch_files=tuple(f"dist:{recipe.name}" for recipe in recipes if recipe.arch_specific and recipe.wheel),
        modules=tuple(module for recipe in recipes for module in recipe.extensions()),
    )
