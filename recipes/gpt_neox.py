"""GPT-NeoX."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from envbuild.sdk import (
    VENV,
    Check,
    Git,
    OptionError,
    Recipe,
    RecipeEnv,
    Refusal,
    Runtime,
    Sources,
    comment,
    folder,
    shell,
    source,
    unknown_words,
)

# What the code itself imports beside its requirements.txt.
IMPORTS = ("pyyaml", "requests", "tqdm")
# `from pkg_resources import packaging` in its own code, or in torch 2.0 and before: absent in 70.0, and from 82 on
# there is no pkg_resources (each tried).
RESOURCES = "setuptools!=70.0.0,<82"
LOAD, EVAL = r"fused_kernels\.load(neox_args)", "^from eval_tasks import run_eval_harness$"
LAZY = r"try:\n    from eval_tasks import run_eval_harness\nexcept ImportError:\n    run_eval_harness = None"


class Revision(NamedTuple):
    """A commit; the version of DeeperSpeed that it asks for; its pins."""

    origin: str
    commit: str
    deeperspeed: str
    pins: tuple[str, ...]
    tag: str = ""
    sdists: tuple[str, ...] = ()  # of the pins and of what they ask for: those that the index has as source only


# requirements.txt and requirements-wandb.txt of each, without what has a recipe (DeeperSpeed, lm_dataformat, mpi4py)
# and without lm_eval.
OLD = (
    "einops==0.3.0",
    "ftfy==6.0.1",
    "huggingface_hub==0.11.0",
    "numpy==1.22.0",
    "regex",
    "sentencepiece",
    "shortuuid",
    "six",
    "tokenizers==0.12.1",
    "transformers~=4.24.0",
    "wandb==0.10.28",
)
OLD_SDISTS = ("ftfy==6.0.1", "pathtools==0.1.2", "promise==2.3", "subprocess32==3.5.4")
NEW = (
    "ftfy>=6.0.1",
    "huggingface_hub>=0.11.0",
    "regex",
    "sentencepiece",
    "six",
    "tiktoken>=0.1.2",
    "tokenizers>=0.12.1",
    "wandb>=0.10.28",
)
ELEUTHER, LAMBDA = "github:EleutherAI/gpt-neox", "github:LambdaLabsML/gpt-neox"
REVISIONS = {
    "ea7aefd": Revision(
        ELEUTHER,
        "ea7aefd8f8e183256992d9fede4d7c71a46d67a5",
        "3.0",
        (*NEW, "jinja2==3.1.4", "numpy<2.0", "transformers==4.38.0"),
    ),
    "66fe501": Revision(LAMBDA, "66fe5013f9eecb289ec3e66665b6b10a9bebe9d4", "eb7f5cff", OLD, sdists=OLD_SDISTS),
    "1.0": Revision(
        ELEUTHER,
        "71df4d5017f9f4919566a11454fe3a507ffdc632",
        "eb7f5cff",
        (*OLD, "tiktoken==0.1.2"),
        "v1.0",
        OLD_SDISTS,
    ),
}


@dataclass(frozen=True, kw_only=True)
class GptNeox(Recipe):
    """GPT-NeoX in /opt/gpt-neox, to be started from there (``python deepy.py train.py …``), with the Python packages
    that this revision pins.

    `version` is ``ea7aefd`` (upstream in May 2026), ``66fe501`` (LambdaLabs' branch of 2023) or ``1.0``; the tag v2.0
    does not parse (an open string in deepspeed_args.py). Another revision is an `origin`, a `commit` and `pins`, what
    its requirements.txt asks for but for what has a recipe. The layers beside it: deeperspeed, neox-kernels, pdsh for
    deepy.py's own way to other nodes, and lm-dataformat where data sets are prepared.

    - protobuf is 3.20.1, which upstream's images install last; in a locked venv there is no last.
    - The C++ part of the data sets is compiled here; the job's own make finds nothing to do.
    - With neox-kernels the kernels of ea7aefd are not compiled again in the job, as its initialize.py would: for sm_70
      first, in this folder, which is read-only there.
    - lm_eval is left out: it pulls in some forty packages, many as source only. The older revisions import it in the
      training code; here they do so if it is there (python-packages).
    - The requirements for 1-bit Adam (cupy for CUDA 11.1) and sparse attention (triton 0.4.2 or 2.1.0) are left out:
      beside another CUDA or torch they cannot be installed.

    The hostfile (DLTS_HOSTFILE, or "hostfile" in the configuration) and NCCL_* belong to the job; local_setup.yml turns
    on wandb, which a node without a way out has to turn off.
    """

    prefix: ClassVar[str] = "/opt/gpt-neox"
    requires: ClassVar[tuple[str, ...]] = ("torch",)
    meets: ClassVar[tuple[str, ...]] = ("gpt-neox.deeperspeed", "gpt-neox.triton", "gpt-neox.onebitadam")

    version: str = "ea7aefd"
    origin: str = ELEUTHER
    commit: str = ""
    pins: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if bool(self.commit) != bool(self.pins):
            raise OptionError("'commit' and 'pins' go together", "write pins: what its requirements.txt asks for")

    def faults(self) -> dict[str, Refusal]:
        if self.commit:
            return {}
        other = "any other is an origin, a commit and pins"
        return unknown_words((self.version,), REVISIONS, "is no revision that is known here", other=other)

    @property
    def revision(self) -> Revision:
        return Revision(self.origin, self.commit, "", self.pins) if self.commit else REVISIONS[self.version]

    @property
    def git(self) -> Git:
        return Git("gpt-neox", self.revision.origin, self.revision.commit, self.revision.tag)

    def refusals(self, env: RecipeEnv) -> tuple[Refusal, ...]:
        found = []
        given = env.recipes.get("deeperspeed")
        if self.commit and not given and not env.has("deepspeed"):
            found.append(
                Refusal("it trains with deepspeed, which the image has not got", "add under layers: deeperspeed: {}")
            )
        elif not self.commit and (not given or given.version != self.revision.deeperspeed):
            wanted = f"deeperspeed: {{version: {self.revision.deeperspeed}}}"
            found.append(Refusal(f"{self.version} trains with another deepspeed", f"write {wanted}"))
        compiled = getattr(env.recipes.get("python-packages"), "compiled", ())
        if missing := [text for text in self.revision.sdists if text not in compiled]:
            write = f"python-packages: {{compiled: [{', '.join(missing)}]}}"
            found.append(Refusal("the index has packages that it pins as source only", f"write {write}"))
        return tuple(found)

    def matrix(self, env: RecipeEnv) -> Mapping[str, str]:
        # of a commit of the spec's own no fact can speak
        return {**({} if self.commit else {"gpt-neox": self.version}), "protobuf": "==3.20.1"}

    def sources(self, env: RecipeEnv) -> Sources:
        return Sources(debian=("g++", "libc6-dev", "pybind11-dev", "python3-dev"), git=(self.git,))

    def build(self, env: RecipeEnv) -> list[Any]:
        data = f"{self.prefix}/megatron/data"
        commands = [
            f"mkdir -p {self.prefix}",
            f"cp -r {folder(self.git)}/. {self.prefix}",
            f"g++ -O3 -Wall -shared -std=c++17 -fPIC -s -I/usr/include/python{env.python} {data}/helpers.cpp "
            f'-o {data}/helpers"$(python3-config --extension-suffix)"',
            # compile_helper() runs make there in every job; its own Makefile needs a compiler and python3-config
            f"printf 'default: ;\\n' > {data}/Makefile",
        ]
        if self.commit:
            # which of the two lines it has is not known, and neither has to be there
            commands += [f"sed -i '/{LOAD}/d' {self.prefix}/megatron/initialize.py"] * env.has("neox-kernels")
            commands.append(f"sed -i '/{EVAL}/s//{LAZY}/' {self.prefix}/megatron/training.py")
        elif self.version == "ea7aefd":
            if env.has("neox-kernels"):
                commands += self.edit("megatron/initialize.py", LOAD, "d")
        else:
            commands += self.edit("megatron/training.py", EVAL, f"s//{LAZY}/")
        return [*source(self.git), comment("gpt-neox: its folder"), shell(commands=commands)]

    def edit(self, file: str, line: str, command: str) -> list[str]:
        """Commands that edit the lines of `file` that match `line`, and fail where there is none."""
        path = f"{self.prefix}/{file}"
        return [f"grep -q '{line}' {path}", f"sed -i '/{line}/{command}' {path}"]

    def runtime(self, env: RecipeEnv) -> Runtime:
        return Runtime(
            debian=("make",),
            python=(*self.revision.pins, *IMPORTS, RESOURCES, "protobuf==3.20.1"),
        )

    def verify(self, env: RecipeEnv) -> list[Check]:
        python = f"cd {self.prefix} && {VENV}/bin/python"
        # parses the configuration and works out the batch size, as deepy.py does before it starts anything
        arguments = (
            "from megatron.neox_arguments import NeoXArgs; "
            "files = ['configs/2-7B.yml', 'configs/local_setup.yml']; "
            "args = NeoXArgs.from_ymls(files, overwrite_values={'global_num_gpus': 8}); "
            "print('layers', args.num_layers, 'batch', args.train_batch_size)"
        )
        imports = "import megatron.training; from megatron.data import helpers; print('imported')"
        protobuf = "from importlib.metadata import version; print(version('protobuf'))"
        return [
            Check("gpt-neox: the training code and its C++ part import", f'{python} -c "{imports}"', "imported"),
            Check("gpt-neox: 2.7B on 8 GPUs", f'{python} -c "{arguments}"', "layers 32 batch 32"),
            Check("gpt-neox: protobuf is the pinned one", f'{python} -c "{protobuf}"', r"^3\.20\.1$"),
            Check("gpt-neox: make has nothing to compile", f"make -C {self.prefix}/megatron/data"),
        ]
