"""EleutherAI's programs to train large language models."""

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

# Packages that the code imports and its requirements.txt does not list.
IMPORTS = ("pyyaml", "requests", "tqdm")
# Its own code, or torch 2.0 and older, runs `from pkg_resources import packaging`. 70.0 lacks packaging there, 82 and
# later have no pkg_resources (each tested).
RESOURCES = "setuptools!=70.0.0,<82"
LOAD, EVAL = r"fused_kernels\.load(neox_args)", "^from eval_tasks import run_eval_harness$"
LAZY = r"try:\n    from eval_tasks import run_eval_harness\nexcept ImportError:\n    run_eval_harness = None"


class Revision(NamedTuple):
    """A commit, the version of DeeperSpeed that it requires, and its pins."""

    origin: str
    commit: str
    deeperspeed: str
    pins: tuple[str, ...]
    tag: str = ""
    sdists: tuple[str, ...] = ()  # of the pins and their requirements: those that the index has as source only


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
    """GPT-NeoX in /opt/gpt-neox, with the Python packages that its revision pins.

    Start it from that folder: ``python deepy.py train.py …``. Related layers: deeperspeed and neox-kernels, pdsh if
    deepy.py itself starts processes on other nodes, and lm-dataformat to prepare data sets.

    - `version`: ``ea7aefd`` (upstream in May 2026), ``66fe501`` (LambdaLabs' branch of 2023) or ``1.0``. The tag v2.0
      does not parse (an unterminated string in deepspeed_args.py).
    - `origin`, `commit`, `pins`: another revision, and the requirements of its requirements.txt without those that have
      a recipe.

    It differs from upstream's images:

    - protobuf is 3.20.1. Upstream's images install that last; a locked venv is installed in one step.
    - The C++ part of the data sets is compiled in the image, and make in a job has nothing to do.
    - With neox-kernels, ea7aefd does not compile the kernels again. Its initialize.py would do so in every job, for
      sm_70 first, and in this folder, which is read-only there.
    - lm_eval is left out, because it requires about forty packages, many of them as source only. The older revisions
      import it in the training code; here they do so only if it is installed (python-packages).
    - The requirements of 1-bit Adam (cupy for CUDA 11.1) and of sparse attention (triton 0.4.2 or 2.1.0) are left out,
      because they cannot be installed with another CUDA or torch.

    The hostfile (DLTS_HOSTFILE, or "hostfile" in the configuration) and NCCL_* belong to the job. local_setup.yml
    enables wandb; disable it on nodes without access to the internet.
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
            hint = "write both: 'pins' are the requirements of its requirements.txt"
            raise OptionError("'commit' and 'pins' require each other", hint)

    def faults(self) -> dict[str, Refusal]:
        if self.commit:
            return {}
        other = "for another revision write origin:, commit: and pins:"
        return unknown_words((self.version,), REVISIONS, "is not a known revision", other=other)

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
            found.append(Refusal("it trains with deepspeed, and the image has none", "add deeperspeed to the layers"))
        elif not self.commit and (not given or given.version != self.revision.deeperspeed):
            wanted = f"deeperspeed: {{version: {self.revision.deeperspeed}}}"
            why = f"{self.version} trains with deeperspeed {self.revision.deeperspeed}, and the image does not have it"
            found.append(Refusal(why, f"write {wanted}"))
        compiled = getattr(env.recipes.get("python-packages"), "compiled", ())
        if missing := [text for text in self.revision.sdists if text not in compiled]:
            write = f"python-packages: {{compiled: [{', '.join(missing)}]}}"
            found.append(Refusal("some of the packages that it pins are on the index as source only", f"write {write}"))
        return tuple(found)

    def matrix(self, env: RecipeEnv) -> Mapping[str, str]:
        # no fact covers a commit of the spec
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
            # compile_helper() runs make there in every job; upstream's Makefile needs a compiler and python3-config
            f"printf 'default: ;\\n' > {data}/Makefile",
        ]
        if self.commit:
            # either line may be missing: sed then changes nothing
            commands += [f"sed -i '/{LOAD}/d' {self.prefix}/megatron/initialize.py"] * env.has("neox-kernels")
            commands.append(f"sed -i '/{EVAL}/s//{LAZY}/' {self.prefix}/megatron/training.py")
        elif self.version == "ea7aefd":
            if env.has("neox-kernels"):
                commands += self.edit("megatron/initialize.py", LOAD, "d")
        else:
            commands += self.edit("megatron/training.py", EVAL, f"s//{LAZY}/")
        return [*source(self.git), comment("gpt-neox: its folder"), shell(commands=commands)]

    def edit(self, file: str, line: str, command: str) -> list[str]:
        """Return the commands that edit the lines of `file` that match `line`, and fail if there is none."""
        path = f"{self.prefix}/{file}"
        return [f"grep -q '{line}' {path}", f"sed -i '/{line}/{command}' {path}"]

    def runtime(self, env: RecipeEnv) -> Runtime:
        return Runtime(
            # megatron/neox_arguments runs git when it is imported;
            # prepare_data.py downloads data sets and vocabularies with wget
            debian=("git", "make", "wget"),
            python=(*self.revision.pins, *IMPORTS, RESOURCES, "protobuf==3.20.1"),
        )

    def verify(self, env: RecipeEnv) -> list[Check]:
        python = f"cd {self.prefix} && {VENV}/bin/python"
        # parses the configuration and computes the batch size, as deepy.py does before it starts processes
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
