"""Code base of OPT."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from envbuild.sdk import VENV, Check, Git, Recipe, RecipeEnv, Refusal, Runtime, Sources, cubins, imports, python_wheel

F7FFA5F = "f7ffa5fd61cf90f498a36d365c13dd7f1a912ff7"  # upstream's last, 2023-06-08
RELEASE = "0.0.1"  # metaseq/version.txt
DATA = ("metaseq.data.data_utils_fast", "metaseq.data.token_block_utils_fast")
FUSED = "metaseq.modules.megatron.fused_kernels"
MEGATRON = (f"{FUSED}.scaled_masked_softmax_cuda", f"{FUSED}.scaled_upper_triang_masked_softmax_cuda")
APEX = ("amp_C", "fused_adam_cuda", "fused_dense_cuda", "fused_layer_norm_cuda")
# The part of install_requires that metaseq's own code imports, with setup.py's bounds. Left out: packages for tests and
# development (pytest, ipdb, pre-commit, sacrebleu, scikit-learn …). hydra-core 1.1 and omegaconf 2.1 belong
# together; the pair 1.0.7 and 2.0.6 of cyclecloud-llm is for an older metaseq.
NEEDS = (
    "Jinja2==3.1.1",
    "boto3",
    "fire",
    "flask>=2.2.5",
    "hydra-core>=1.1.0,<1.2",
    "markupsafe",
    "more_itertools",
    "numpy",
    "omegaconf<=2.1.1",
    "portalocker>=2.5",
    "protobuf==3.20.2",
    "regex",
    "requests",
    "six",  # of tensorboard 2.8.0, which imports and does not require it
    "tensorboard==2.8.0",
    "tokenizers",
    "tqdm",
    "typing_extensions",
)
# Its server imports pkg_resources. The TensorBoard writer of torch 1.10 needs distutils.version, which a later
# setuptools does not provide; no torch for Python 3.11 is that old.
SETUPTOOLS = ("setuptools<59.6; python_version < '3.11'", "setuptools<82; python_version >= '3.11'")
# Its launcher runs git (metaseq/launcher/slurm.py). It runs sbatch as well, and a task of a job on several nodes runs
# scontrol to find the first one (metaseq/distributed/utils.py): where there is none, as in upstream's image, the task
# takes MASTER_ADDR, and where scontrol finds no slurm.conf, or that of a newer release, the task ends.
PROGRAMS = ("git",)
ANTLR = "antlr4-python3-runtime==4.8"  # the version for hydra-core 1.1 and omegaconf 2.1; the index has its source only


@dataclass(frozen=True, kw_only=True)
class Metaseq(Recipe):
    """metaseq at upstream's last commit, with the kernels of its repository compiled for the target.

    - `apex`: whether to compile its copies of apex's kernels, which have apex's own module names, in addition to
      Megatron-LM's softmax. Write ``apex: false`` in an image with layer apex.
    - `commit`: another revision with the same kernels. Revisions before 2023-04-10 contain none and train with a fork
      of Megatron-LM whose commits are not available.

    The image has no Slurm client. ``opt-baselines`` submits only where the cluster's own is mounted, or outside of the
    container; with ``--local`` it starts one node. A task of a job takes the first node from MASTER_ADDR, which
    `envbuild launch` exports.

    Uploads of checkpoints (``--full-azure-upload-path``) run azcopy, which neither upstream's image nor this one has.

    apex itself is only needed for its FusedLayerNorm, or if fused_adam_cuda is missing. With torch 2.15 all kernels
    compile except fused_dense_cuda (it passes Tensor.type() to AT_DISPATCH).
    """

    wheel: ClassVar[bool] = True
    on_venv: ClassVar[bool] = True
    arch_specific: ClassVar[bool] = True
    after: ClassVar[tuple[str, ...]] = ("torch", "cuda", "nccl")
    requires: ClassVar[tuple[str, ...]] = ("torch", "cuda", "fairscale")
    memory_gb: ClassVar[float] = 2.8  # one nvcc job over torch's headers

    commit: str = F7FFA5F
    apex: bool = True

    @property
    def git(self) -> Git:
        return Git(
            "metaseq",
            "github:facebookresearch/metaseq",
            self.commit,
            submodules=False,
            left_out="CLIP and stable-diffusion are imported by scripts outside of the package",
        )

    def refusals(self, env: RecipeEnv) -> tuple[Refusal, ...]:
        apex = env.recipes.get("apex")
        if apex and (same := sorted(set(self.extensions()) & set(apex.extensions()))):
            return (
                Refusal(f"its copies of apex's kernels and apex both contain {', '.join(same)}", "write apex: false"),
            )
        return ()

    def matrix(self, env: RecipeEnv) -> Mapping[str, str]:
        return {"metaseq": "f7ffa5f"} if self.commit == F7FFA5F else {}

    def sources(self, env: RecipeEnv) -> Sources:
        return Sources(
            debian=("g++", "gcc", "libc6-dev", "python3-dev"),
            # its Cython sources are written for 0.29; setuptools before 64 takes no single --global-option
            python=("cython<3", "ninja", "numpy", "setuptools>=64,<82", "wheel"),
            sdists=(ANTLR,),
            git=(self.git,),
            gives=(f"metaseq=={RELEASE}",),
        )

    def build(self, env: RecipeEnv) -> list[Any]:
        return [
            *python_wheel("antlr4-python3-runtime"),
            *python_wheel(
                "metaseq",
                git=self.git,
                settings=() if self.apex else ("--global-option=--no_apex",),
                before=[
                    # setup_requires would be downloaded from an index
                    "sed -i '/setup_requires=\\[/,/\\],/d' setup.py",
                    # upstream installs it editable, and its wheels lack these files
                    "echo 'recursive-include metaseq *.html *.txt *.yaml' > MANIFEST.in",
                    "rm -r cpu_tests gpu_tests",  # the wheel would install them beside metaseq
                ],
                environment={
                    "CUDA_HOME": "/opt/cuda",
                    "TORCH_CUDA_ARCH_LIST": env.target.cuda_arch_list,
                    "MAX_JOBS": "$ENVBUILD_JOBS",
                },
            ),
        ]

    def runtime(self, env: RecipeEnv) -> Runtime:
        return Runtime(debian=PROGRAMS, python=(*NEEDS, *SETUPTOOLS))

    def extensions(self) -> tuple[str, ...]:
        return (*DATA, *MEGATRON, *(("apex_C", *APEX) if self.apex else ()))

    def verify(self, env: RecipeEnv) -> list[Check]:
        kernels = (*MEGATRON, *(APEX if self.apex else ()))
        program = (
            "from types import SimpleNamespace as N; from metaseq.distributed.utils import _infer_slurm_init as f; "
            "c = N(distributed_port=1); f(c); print(c.distributed_init_method)"
        )
        step = "SLURM_STEP_NODELIST=n[1-2] SLURM_NNODES=2 SLURM_NTASKS=2 SLURM_NTASKS_PER_NODE=1 SLURM_NODEID=0"
        options = f"{VENV}/bin/opt-baselines --help"
        return [
            imports("metaseq", ("metaseq.trainer", "metaseq.tasks")),
            imports("metaseq kernels", self.extensions()),
            cubins("metaseq", kernels, env),
            Check("metaseq: the launcher of the OPT baselines", options, "--benchmark"),
            Check(
                "metaseq: a task of a job takes the first node from MASTER_ADDR",
                f'{step} MASTER_ADDR=n1 {VENV}/bin/python -c "{program}"',
                r"://n1:1$",
            ),
        ]
