"""A plan by hand with one unit of every kind, for the text of its Containerfile."""

from __future__ import annotations

from envbuild.build.plan.units import Blob, Input, Plan, Product, Unit
from envbuild.build.steps import Step
from envbuild.oci.config import ImageConfig

EPOCH = 1_700_000_000


def blob(name: str) -> Blob:
    return Blob(name, f"{sum(name.encode()):064x}", len(name))


def small_plan() -> Plan:
    """Return a plan of base, Debian packages, a build root, a prefix, two wheels, a venv in two parts, glue."""

    def unit(name: str, *steps: Step, **rest: object) -> Unit:
        return Unit(name, f"the unit {name}", steps, epoch=EPOCH, **rest)  # type: ignore[arg-type]

    def debs(*names: str) -> tuple[Input, ...]:
        return (Input("debs", "debian", tuple(blob(f"{name}_1_amd64.deb") for name in names)),)

    python = Input("python", "files", (blob("torch-1-py3-none-any.whl"),))
    units = (
        unit(
            "base", Step("dpkg --install *.deb", "the base"), inputs=debs("dash", "libc6"), seed=("dash_1_amd64.deb",)
        ),
        unit(
            "debian",
            Step("apt-get update && \\\n    apt-get install -y libnuma1"),
            lowers=("base",),
            inputs=debs("numa"),
        ),
        unit("root-build-ucx", Step("apt-get install -y gcc"), lowers=("base",), inputs=debs("gcc"), in_image=False),
        unit(
            "ucx",
            Step("cd /run/envbuild/archives && \\\n    make", "UCX"),
            Step("make install\nldconfig # of the build root", "two\nlines"),
            lowers=("base", "root-build-ucx"),
            inputs=(Input("archives", "tree", (blob("ucx.tar.gz"),)),),
            keep=("/opt/ucx",),
            env={"CFLAGS": '-g0 -DNAME="x y" -DPRICE=$1'},
        ),
        unit("venv-core", Step("uv pip install torch"), lowers=("base",), inputs=(python,), keep=("/opt/venv",)),
        *(
            unit(
                name,
                Step(f"uv build {name}"),
                lowers=("base", "venv-core", "ucx"),
                product=Product.WHEEL,
                in_image=False,
            )
            for name in ("apex", "flash-attn")
        ),
        unit(
            "venv",
            Step("uv pip install --no-index --find-links /run/envbuild/kernels"),
            lowers=("base", "venv-core"),
            inputs=(Input("kernels", "files", units=("apex", "flash-attn")),),
            keep=("/opt/venv",),
        ),
        unit(
            "glue",
            Step("cp -r /run/envbuild/files/. /"),
            lowers=("base", "debian", "ucx", "venv-core", "venv"),
            inputs=(Input("files", "text", texts=(("etc/x", "y\n"),)),),
        ),
    )
    config = ImageConfig(
        env={"PATH": "/opt/venv/bin:/usr/bin", "PRICE": '$5 "net"'},
        cmd=("/bin/bash", "-c", 'echo "hi"'),
        workdir="/workspace",
        labels={"org.opencontainers.image.title": "small", "note": "back\\slash"},
    )
    return Plan("small", units, config, EPOCH)


KEYS = small_plan().keys()
