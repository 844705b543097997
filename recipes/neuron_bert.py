"""AWS's pretraining of BERT-Large on Trainium, repaired for containers under Slurm."""

import shlex
from dataclasses import dataclass
from typing import Any, ClassVar

from envbuild.sdk import VENV, Check, Git, Recipe, RecipeEnv, Runtime, Sources, comment, folder, shell, source, written

FOLDER = "torch-neuronx/training/dp_bert_hf_pretrain"
SAMPLES = Git("aws-neuron-samples", "github:aws-neuron/aws-neuron-samples", "2015d650cd89e4c671ae5bd1b5f1d4499d94d4dd")
# requirements.txt of the sample without its test runner; and what tensorboard 2.14.0 needs besides: six, which it
# imports and does not require, names that NumPy 2 removed (np.string_, in its program), and pkg_resources, which
# setuptools 82 and later do not have.
NEEDS = (
    "accelerate",
    "datasets==2.19.1",
    "evaluate",
    "graphviz",
    "h5py",
    "huggingface-hub==0.24.5",
    "numpy<2",
    "pillow",
    "requests==2.31.0",
    "sentencepiece==0.2.0",
    "setuptools<82",
    "six",
    "tensorboard==2.14",
    "transformers==4.44.0",
)
PORT = 48620  # of the Neuron runtime between nodes
# Prints the first host of Slurm's list of hosts (man scontrol: node[003-016,020],login). `scontrol show hostnames` does
# so too, but its program must be of the cluster's release and read the cluster's slurm.conf.
FIRST = r"""#!/bin/sh
printf '%s\n' "$1" | sed -E 's/^([^[,]*)\[([0-9]+)[^]]*\]([^,[]*).*/\1\2\3/; t; s/,.*//'
"""
RESERVED = (
    f"grep -qs {PORT} /proc/sys/net/ipv4/ip_local_reserved_ports || "
    f'echo "warning: port {PORT} is not reserved on $(hostname); on the host run: '
    f'sysctl -w net.ipv4.ip_local_reserved_ports={PORT}" >\\&2'
)
NO_CACHE = (
    '    echo "error: NEURON_COMPILE_CACHE_URL is not set; name a folder that outlives the container and that all '
    'nodes see" >\\&2; exit 1'
)
NO_FOLDER = (
    'if [ "$PWD" = / ]; then echo "error: the results would be in /, which ends with the container; start in a folder '
    'that outlives it and that all nodes see" >\\&2; exit 1; fi'
)
REMOVED = ("pip3 list |", "sudo modprobe ", "export NEURON_CC_FLAGS=")


@dataclass(frozen=True, kw_only=True)
class NeuronBert(Recipe):
    """The programs of dp_bert_hf_pretrain of aws-neuron-samples, with their requirements, in /opt/neuron-bert.

    The scripts are those of the sample with these changes:

    - They run no sudo. An unprivileged container cannot change the host's settings, and the sample ends there. The
      script warns if port 48620 is not reserved; reserving it (sysctl) and loading the driver (modprobe) are steps of
      the host.
    - The first node comes from SLURM_JOB_NODELIST without scontrol, which needs the cluster's slurm.conf.
    - Under Slurm they require NEURON_COMPILE_CACHE_URL. The sample takes $HOME, which ends with the container.
    - They find their program in this folder, so the job's folder can be another one; results are written there. They
      refuse /, where a container starts.
    - The checkpoint with which phase 1 ends and phase 2 begins is in the job's folder. The sample has it in the folder
      above, which in a container is rarely one that outlives it.

    Under enroot mount the devices (/dev/neuron*, EFA's uverbs), the data set and the cache.
    """

    prefix: ClassVar[str] = "/opt/neuron-bert"
    programs: ClassVar[tuple[str, ...]] = ("bin",)
    requires: ClassVar[tuple[str, ...]] = ("neuron",)

    def sources(self, env: RecipeEnv) -> Sources:
        return Sources(git=(SAMPLES,))

    def build(self, env: RecipeEnv) -> list[Any]:
        return [
            *source(SAMPLES),
            comment("the programs of the sample"),
            shell(
                commands=[
                    f"mkdir -p {self.prefix}/bin",
                    f"cp {folder(SAMPLES)}/{FOLDER}/*.py {folder(SAMPLES)}/{FOLDER}/*LICENSES.txt {self.prefix}/",
                    f"cp {folder(SAMPLES)}/{FOLDER}/run_*.sh {self.prefix}/bin/",
                    written(f"{self.prefix}/bin/first-node", FIRST),
                    f"chmod 755 {self.prefix}/bin/*",
                    *self.repairs(),
                ]
            ),
        ]

    def repairs(self) -> tuple[str, ...]:
        """Return the commands that change the scripts, and that fail if a line to change is missing in one of them."""
        scripts = f"{self.prefix}/bin/run_*.sh"
        edits = (
            *(f"/^ *{line.replace('|', '[|]')}/d" for line in REMOVED),
            f"s#^sudo sysctl .*#{RESERVED}#",
            r's#^( *)MASTER_ADDR=.*#\1MASTER_ADDR=$(first-node "$SLURM_JOB_NODELIST")#',
            f"s#^ *CACHE_DIR=.*#    {NO_CACHE}#",
            f"s# dp_bert_large_hf_pretrain_hdf5.py # {self.prefix}/dp_bert_large_hf_pretrain_hdf5.py #",
            rf"s#^(mkdir -p \$OUTPUT_DIR)$#{NO_FOLDER}\n\1#",
            r"s#(--resume_ckpt_path )\.\./#\1#; s#(cp -f \$OUTPUT_DIR/ckpt_\S+) \.\./#\1 .#",
        )
        words = " ".join(f"-e {shlex.quote(edit)}" for edit in edits)
        kept = (
            "ip_local_reserved_ports",
            "first-node",
            "NEURON_COMPILE_CACHE_URL is not set",
            f" {self.prefix}/dp_",
            "the results would be in /",
        )
        present = " && ".join(f'grep -qF {shlex.quote(text)} "$script"' for text in kept)
        return (
            f"sed -E -i {words} {scripts}",
            f"! grep -nE 'sudo|scontrol|HOME/neuron_cache|[.][.]/ckpt|ckpt.* [.][.]/' {scripts}",
            f'for script in {scripts}; do bash -n "$script" && {present} || exit 1; done',
        )

    def runtime(self, env: RecipeEnv) -> Runtime:
        return Runtime(debian=("curl", "jq", "rsync"), python=NEEDS)

    def verify(self, env: RecipeEnv) -> list[Check]:
        modules = (
            "import h5py, transformers, transformers.modeling_utils; "
            "from torch.utils.tensorboard import SummaryWriter; print('imported')"
        )
        return [
            Check(
                "neuron-bert: the first node of a job",
                'first-node "compute1-st-queue1-i1-[1-16]"',
                "^compute1-st-queue1-i1-1$",
            ),
            Check(
                "neuron-bert: no script needs rights on the host",
                f"! grep -n sudo {self.prefix}/bin/run_*.sh && echo none",
                "^none$",
            ),
            Check("neuron-bert: TensorBoard starts", f"{VENV}/bin/tensorboard --version", r"^2\.14\."),
            Check("neuron-bert: its requirements import", f'{VENV}/bin/python -c "{modules}"', "^imported$"),
        ]
