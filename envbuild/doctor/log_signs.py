"""Lines of logs that state a fault: what each means and what to do. A new one is one row of `SIGNS`."""
# ruff: noqa: E501 - a pattern on one line can be searched

from __future__ import annotations

import re
from typing import NamedTuple

from .model import ADMINISTRATOR, MINOR, USER


class Sign(NamedTuple):
    """A line, and what it means. `patterns`: alternatives; each is a row of texts that a line has one after another."""

    name: str
    patterns: tuple[tuple[re.Pattern[str], ...], ...]
    meaning: str
    severity: str
    fix: str

    def is_in(self, line: str) -> bool:
        """Return whether a line in small letters has the sign. Each text is searched once, after the one before: a line
        of any content takes a time that grows with its length alone, which one expression with ``.*`` does not."""
        return any(row[0].search(line) is not None and is_row(row, line) for row in self.patterns)


def is_row(row: tuple[re.Pattern[str], ...], line: str) -> bool:
    """Return whether a line has texts one after another."""
    at = 0
    for pattern in row:
        found = pattern.search(line, at)
        if not found:
            return False
        at = found.end()
    return True


def sign(name: str, patterns: str | tuple[str, ...], meaning: str, severity: str, fix: str) -> Sign:
    """Return a row. `patterns`: one or several; ``.*`` is between texts that follow each other."""
    rows = (patterns,) if isinstance(patterns, str) else patterns
    # In small letters, and not by re.IGNORECASE, with which each search takes three times as long.
    small = (re.sub(r"(?<!\\)[A-Z]", lambda letter: letter[0].lower(), row) for row in rows)
    compiled = (tuple(re.compile(part) for part in row.split(".*")) for row in small)
    return Sign(name, tuple(compiled), meaning, severity, fix)


SIGNS = (
    # IBV_WC_RETRY_EXC_ERR of <infiniband/verbs.h>; NCCL writes "with error", "with status=", or status=NAME(12)
    # (NVIDIA/nccl@v2.30.7-1 src/transport/net_ib/p2p.cc), UCX names it
    sign(
        "completion-error-12", r"got completion (?:from peer \S+ )?with (?:error |status=)(?:\w+\()?12\b|transport retry count exceeded",
        "the other node does not answer: completion error 12, the retries of InfiniBand are used up", ADMINISTRATOR,
        "check the link of both nodes: envbuild doctor; RoCE: NCCL_IB_GID_INDEX, or UCX_IB_GID_INDEX, and the switch's PFC; a busy fabric: NCCL_IB_TIMEOUT=22",
    ),
    sign(
        "completion-error", r"got completion (?:from peer \S+ )?with (?:error |status=)(?!(?:\w+\()?12\b)(?:\w+\()?\d+",
        "a transfer over InfiniBand failed", ADMINISTRATOR, "check both nodes: envbuild doctor; envbuild doctor --gather DIR",
    ),
    sign(
        "no-device", r"NET/IB : No device found",
        "NCCL finds no InfiniBand device and takes TCP, unless NCCL_NET forbids it", USER,
        "in the container: ls /dev/infiniband; MELLANOX_VISIBLE_DEVICES=all; docker run --device=/dev/infiniband; NCCL_IB_HCA must match a device",
    ),
    sign(
        "forced-network-missing", (r"Error: network .* not found", r"Failed to initialize any NET plugin"),
        "the network of NCCL_NET is missing, so NCCL stopped", USER,
        "IB: envbuild doctor in the container; Libfabric: the plugin aws-ofi-nccl must be in the image; NCCL_NET_PLUGIN must not name another one",
    ),
    sign(
        "plugin-missing", r"NET/Plugin: Could not find: |No plugin found \(",
        "NCCL finds no network plugin: EFA, and SHARP of HPC-X, need one", MINOR,
        "InfiniBand without SHARP needs none; EFA: use an image with aws-ofi-nccl; unset NCCL_NET_PLUGIN",
    ),
    sign(
        "duplicate-gpu", r"Duplicate GPU detected",
        "two ranks use one GPU", USER, "srun --ntasks-per-node=N --gpus-per-node=N; set the device by LOCAL_RANK",
    ),
    sign(
        "nvls-missing", r"NVLS multicast support is not available",
        "NVSwitch multicast is not available, as always on GPUs before H100", MINOR, "H100 and newer: envbuild doctor shows the state of the fabric; without jobs on the node: systemctl restart nvidia-fabricmanager",
    ),
    sign(
        "fabric-not-ready", r"system not yet initialized|CUDA_ERROR_SYSTEM_NOT_READY|cudaErrorSystemNotReady",
        "CUDA error 802: the GPUs are not registered with the fabric manager", ADMINISTRATOR,
        "systemctl start nvidia-fabricmanager, of the driver's version",
    ),
    sign(
        "driver-too-old", r"CUDA driver version is insufficient|forward compatibility was attempted on non supported|unsatisfied condition: (?:cuda|driver)|NVIDIA driver on your system is too old",
        "the driver is too old for the CUDA of the image, or its compat libraries are not for this GPU", ADMINISTRATOR,
        "envbuild doctor --image NAME, on that node, names the driver that it needs; an older CUDA: envbuild check driver=VERSION gpu=MODEL torch",
    ),
    # CUDA's error 222, by its name in both interfaces and by its text (driver_types.h)
    sign(
        "ptx-too-new", r"PTX was compiled with an unsupported toolchain|cudaErrorUnsupportedPtxVersion|CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
        "a library has no machine code for this GPU but PTX, and that of a newer CUDA than the driver compiles", ADMINISTRATOR,
        "a newer driver: envbuild doctor --image NAME, on that node, names it; or machine code: envbuild check NAME gpu=MODEL; TORCH_CUDA_ARCH_LIST where the job compiles kernels",
    ),
    sign(
        "ucx-device-missing", r"UCX +WARN +(?:network device|transports?) .*(?:is|are) not available",
        "UCX does not have a device or transport of UCX_NET_DEVICES or UCX_TLS, and continues without it, often over TCP", USER,
        "ucx_info -d | grep Device; set UCX_NET_DEVICES to the names of this node",
    ),
    sign(
        # of UCX since 1.18 the second (openucx/ucx@v1.20.1 src/ucp/core/ucp_ep.c, ucp_ep_config_name)
        "ucx-tcp-alone", (r"UCX +INFO .*ep_cfg\[\d+\]: \w+\((?:tcp/[^\s)]+ )*tcp/[^\s)]+\)", r"UCX +INFO .*inter-node cfg#\d+ \w+\((?:tcp/[^\s)]+ )*tcp/[^\s)]+\)"),
        "UCX uses TCP alone for a connection", MINOR, "UCX_TLS=rc,sm,self with InfiniBand; ucx_info -d lists what UCX can use here",
    ),
    sign(
        "memlock", (r"Cannot allocate memory.*(?:ibv_|mlx5|memlock)", r"(?:ibv_reg_mr|ibv_create_|fi_mr_reg).*(?:Cannot allocate memory|errno 12|ENOMEM)", r"locked memory limit(?!:? *unlimited)"),
        "memory cannot be registered: the limit of locked memory", ADMINISTRATOR,
        "ulimit -l unlimited; docker run --ulimit memlock=-1; slurmd.service: LimitMEMLOCK=infinity",
    ),
    sign(
        "memory-registration", r"ibv_reg_mr\w*.*(?:Bad address|Invalid argument)",
        "the adapter cannot register this memory: for memory of a GPU the driver has no GPUDirect", ADMINISTRATOR,
        "as root: modprobe nvidia-peermem, or the open kernel module with a kernel that has DMA-BUF; until then: NCCL_NET_GDR_LEVEL=LOC",
    ),
    sign(
        "shared-memory", (r"No space left on device.*/dev/shm", r"/dev/shm.*No space left on device", r"Bus error.*shared memory", r"insufficient shared memory \(shm\)"),
        "/dev/shm is full", USER, "docker run --ipc=host, or --shm-size=8g; with Slurm /dev/shm is the node's: ls -l /dev/shm, and remove what jobs left that have ended",
    ),
    # ibv_modify_qp and events of ports: NVIDIA/nccl@v2.30.7-1 src/misc/ibvwrap.cc and src/transport/net_ib
    sign(
        "queue-pair", (r"Call to ibv_modify_qp failed", r"ibv_create_ah.*(?:timed out|failed)"),
        "InfiniBand or RoCE cannot connect two nodes: the address that was chosen (GID) does not reach the other one", ADMINISTRATOR,
        "ibv_devinfo -v | grep GID; RoCE: NCCL_IB_GID_INDEX, UCX_IB_GID_INDEX, NCCL_IB_ADDR_FAMILY; NCCL_IB_HCA must not name ports of another network",
    ),
    sign(
        "port-event", (r"NET/IB.*async (?:fatal |non-fatal )?event.*port error|device fatal|local catastrophic", r"UCX +\w+ .*async event on .*port error|PORT_ERR|device fatal"),
        "a port or an adapter failed while the job ran", ADMINISTRATOR, "on that node: envbuild doctor; ibstat; mlxlink -d DEVICE",
    ),
    # torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp; NVIDIA/nccl src/misc/socket.cc, src/bootstrap.cc
    sign(
        "collective-timeout", r"Watchdog caught collective operation timeout",
        "a rank waited in a collective operation until its time limit: another rank ended, hangs or is far behind", USER,
        "the first error of any other rank is the cause; a rank that hangs: py-spy dump --pid PID on its node; the network: envbuild doctor --gather DIR",
    ),
    sign(
        "socket", (r"Bootstrap : no socket interface found", r"NCCL WARN socket.*(?:Connection refused|failed|No route to host|timed out)"),
        "ranks do not reach each other over TCP, with which NCCL starts", USER,
        "NCCL_SOCKET_IFNAME=INTERFACE, one that all nodes share: not lo, not docker0 (ip -brief address); or the first rank ended",
    ),
    sign(
        "nccl-remote-error", r"ncclRemoteError|remote process exited or there was a network error",
        "another rank ended first, or the network failed", USER, "the first error of any other rank is the cause; none: envbuild doctor --gather DIR",
    ),
    sign(
        "nccl-internal-error", r"ncclInternalError",
        "NCCL ended by an error of its own; the cause is in a line of the same rank before, with NCCL_DEBUG=WARN or INFO", USER,
        "export NCCL_DEBUG=INFO; run the job again",
    ),
    # the texts of cudaGetErrorString (CUDA's driver_types.h), and torch's own
    sign(
        "gpu-memory-error", r"uncorrectable ECC error encountered|cudaErrorECCUncorrectable|CUDA_ERROR_ECC_UNCORRECTABLE",
        "memory of a GPU has failed", ADMINISTRATOR, "on that node: nvidia-smi -q -d ECC,ROW_REMAPPER; drain it; a reset or a reboot remaps the memory",
    ),
    sign(
        "nvlink-error", r"uncorrectable NVLink error|cudaErrorNvlinkUncorrectable|CUDA_ERROR_NVLINK_UNCORRECTABLE",
        "an NVLink has failed", ADMINISTRATOR, "on that node: envbuild doctor; nvidia-smi nvlink --status; drain it, then reboot; again: replace the GPU or its board",
    ),
    # of the kernel: drivers/net/ethernet/mellanox/mlx5/core/health.c, drivers/pci/pcie/aer.c, drivers/nvme/host/pci.c
    sign(
        "node-hardware", (r"mlx5_core .*health compromised", r"AER: .*Uncorrect.*Fatal", r"mce: \[Hardware Error\]", r"nvme .*controller is down"),
        "the kernel reports hardware of that node", ADMINISTRATOR, "on that node: dmesg --level=emerg,alert,crit,err; drain it",
    ),
    sign(
        "no-machine-code", r"no kernel image is available for execution|cudaErrorNoKernelImageForDevice|CUDA_ERROR_NO_BINARY_FOR_GPU",
        "a library of the image has no machine code for this GPU", USER, "envbuild check NAME gpu=MODEL; another target for the image; TORCH_CUDA_ARCH_LIST where the job compiles kernels",
    ),
    sign(
        "illegal-access", r"an illegal memory access was encountered|unspecified launch failure|device-side assert triggered|cudaErrorIllegalAddress|CUDA_ERROR_ILLEGAL_ADDRESS",
        "a kernel read or wrote memory that is not its own: in most cases a program's fault", USER, "CUDA_LAUNCH_BLOCKING=1 names the kernel; compute-sanitizer PROGRAM; on one node alone: envbuild doctor there",
    ),
    sign(
        "no-gpu-visible", r"libcuda\.so\.1: cannot open shared object file|Found no NVIDIA driver on your system|No CUDA GPUs are available|no CUDA-capable device is detected",
        "the program sees no GPU, or no driver", USER,
        "in the job: nvidia-smi -L; srun --gpus-per-node=N; in a container: NVIDIA_VISIBLE_DEVICES=all, docker run --gpus all; on the node: envbuild doctor",
    ),
    sign(
        "nccl-cuda-error", r"ncclUnhandledCudaError|unhandled cuda error",
        "NCCL ended because CUDA failed; the cause is in a line of the same rank before, with NCCL_DEBUG=WARN or INFO", USER,
        "export NCCL_DEBUG=INFO; run the job again; a GPU that failed: envbuild doctor on the node",
    ),
    sign(
        "nccl-system-error", r"ncclSystemError|unhandled system error",
        "NCCL ended because a call of the system failed; the cause is in a line of the same rank before, with NCCL_DEBUG=WARN or INFO", USER,
        "export NCCL_DEBUG=INFO; run the job again; often: /dev/shm, the limit of locked memory, NCCL_SOCKET_IFNAME",
    ),
    # Open MPI's help texts (show_help) and Slurm's plugins
    sign(
        "no-pmi", (r"OMPI was not built with SLURM|PMI support", r"PMIX? was (?:unable|not able) to", r"PMI2?_Init failed|PMIx_Init failed", r"srun: error: .*cannot find mpi plugin|Couldn't find the specified plugin name for mpi"),
        "MPI does not find the process manager that started it", USER,
        "srun --mpi=pmix, which srun --mpi=list must name; the form for MPI: envbuild launch NAME -- CMD",
    ),
    # enroot 3.4 and 4.1 print what curl answers: "URL https://… returned error code: 401 Unauthorized" (NVIDIA/enroot,
    # src/common.sh); enroot-mount names the entry of fstab(5) that it could not mount (bin/enroot-mount.c)
    sign(
        "image-spelling", r"pyxis: .*https://registry-1\.docker\.io/v2/\w[\w-]*\.[\w.-]+/.*returned error code: 40[134]",
        "the image is spelled with a slash after its registry, so that enroot takes Docker Hub for it", USER,
        "REGISTRY#REPOSITORY:TAG: srun --container-image=nvcr.io#nvidia/pytorch:25.10-py3",
    ),
    sign(
        "image-credentials", r"pyxis: .*https://(?!registry-1\.docker\.io/v2/\w[\w-]*\.[\w.-]+/)\S+ returned error code: 40[13]",
        "the registry refuses the image: it wants a login, or has no such repository", USER,
        "machine REGISTRY login USER password TOKEN, in the file $ENROOT_CONFIG_PATH/.credentials or ~/.config/enroot/.credentials of the job's node",
    ),
    sign(
        "image-missing", r"pyxis: .*https://(?!registry-1\.docker\.io/v2/\w[\w-]*\.[\w.-]+/)\S+ returned error code: 404",
        "the registry has no such image or tag", USER, "spell it REGISTRY#REPOSITORY:TAG: srun --container-image=nvcr.io#nvidia/pytorch:25.10-py3",
    ),
    sign(
        "registry-limit", r"pyxis: .*returned error code: 429",
        "the registry takes no more requests from this site for a while", USER,
        "a login has a higher limit (~/.config/enroot/.credentials); one copy for all nodes: envbuild export docker://IMAGE -o FOLDER/",
    ),
    sign(
        "enroot-folder", r"pyxis: .*mkdir: cannot create directory",
        "enroot cannot make its folder on that node", ADMINISTRATOR,
        "enroot.conf: ENROOT_RUNTIME_PATH, ENROOT_CACHE_PATH and ENROOT_DATA_PATH where the user may write, or a prolog that makes them",
    ),
    sign(
        "no-pyxis", r"(?:srun|sbatch|salloc): unrecognized option '--container-",
        "Slurm of the machine that submits has no pyxis", ADMINISTRATOR, "on that machine: srun --help | grep container; plugstack.conf must name spank_pyxis.so (for sbatch with sbatch_support=1); envbuild doctor",
    ),
    sign(
        "image-unreachable", r"pyxis: .*(?:Could not resolve host|Failed to connect|Connection timed out|returned error code: 5\d\d)",
        "the node cannot reach the registry, or that does not answer", USER,
        "write the image to a folder that the nodes read: envbuild export NAME -o FOLDER/, srun --container-image=FOLDER/NAME.sqsh; or a proxy: https_proxy",
    ),
    sign(
        "image-file-missing", (r"pyxis: .*No such file or directory: .*\.sqsh", r"pyxis: .*Invalid image (?:path|format)"),
        "that node has no image file of this name, or the file is not squashfs", USER,
        "srun -w NODE ls -l FILE; a folder that all nodes read: images: in site.yaml, envbuild export NAME -o FOLDER/",
    ),
    sign(
        "container-mount", r"pyxis: .*(?:enroot-mount|failed to mount|--container-mounts: )",
        "a folder or file of --container-mounts is missing on that node, cannot be mounted, or is not spelled SOURCE:TARGET", USER,
        "srun -w NODE ls -d SOURCE; SOURCE:TARGET with whole paths",
    ),
    # enroot-nsenter and others (NVIDIA/enroot, bin/) end with the text of unshare(2): ENOSPC is its limit, no disk
    sign(
        "container-namespace", r"enroot-\w+: failed to (?:create|unshare) user namespace",
        "a user of that node may not make a user namespace, or there are too many", ADMINISTRATOR,
        "on that node: sysctl user.max_user_namespaces kernel.apparmor_restrict_unprivileged_userns kernel.unprivileged_userns_clone; as the user: envbuild doctor",
    ),
    sign(
        "image-list", r"pyxis: .*Could not process JSON input",
        "enroot cannot read what the registry answers: a list that it does not know, or a page that requires a login", USER,
        "a newer enroot; a login in ~/.config/enroot/.credentials; or a file: envbuild export docker://IMAGE -o FOLDER/",
    ),
    sign(
        "container-disk", r"pyxis: .*No space left on device",
        "the disk of that node is full, on which enroot unpacks images", USER,
        "srun -w NODE enroot list; srun -w NODE enroot remove NAME; srun -w NODE df -h",
    ),
    sign(
        "container-toolkit", r"Command not found: nvidia-container-cli",
        "that node has no nvidia-container-cli, which enroot needs for GPUs", ADMINISTRATOR, "on that node: envbuild doctor names the package",
    ),
    sign(
        "container-driver", (r"pyxis: .*nvidia-container-cli: (?!requirement error)", r"pyxis: .*98-nvidia\.sh exited with return code"),
        "the driver could not be put into the container", ADMINISTRATOR, "on that node: nvidia-smi; envbuild doctor",
    ),
    sign(
        "container-workdir", r"pyxis: couldn't chdir to",
        "the image has no folder of the name that --container-workdir has", USER, "srun --container-workdir=/; or mount a folder there: --container-mounts=SOURCE:FOLDER",
    ),
    sign(
        "pyxis", r"pyxis: (?:container start|couldn't start container|child \d+ failed|failed to|couldn't (?!chdir))",
        "pyxis or enroot did not start the container; the lines after it are enroot's log", USER,
        "on that node: envbuild doctor; df -h for enroot's data path; envbuild verify FILE",
    ),
    # texts of EDQUOT and ENOSPC, the second as Python prints it
    sign(
        "disk-quota", (r"Disk quota exceeded", r"\[Errno 28\] No space left on device(?!: '/dev/shm)"),
        "a file cannot be written: the quota of the user or the file system is used up", USER,
        "of the folder that the line names: df -h FOLDER; df -i FOLDER; quota -s; Lustre: lfs quota -u $USER FOLDER; or write to another folder",
    ),
    sign(
        "slurm-credential", r"Munge decode failed|Invalid job credential|Expired credential",
        "a node does not accept what another one signed: its clock or its munge.key is another", ADMINISTRATOR,
        "on that node: timedatectl; systemctl restart munge; munge -n | ssh OTHER_NODE unmunge",
    ),
    sign(
        "gpu-busy", r"CUDA-capable device\(s\) is/are busy or unavailable|all CUDA-capable devices are busy",
        "another process has the GPU, in exclusive mode, or a process that ended left it", USER,
        "on that node: nvidia-smi lists the processes; nvidia-smi -c DEFAULT (as root); srun --gpus-per-task=1",
    ),
    sign(
        "nccl-versions", r"Mismatched NCCL version detected",
        "ranks use different versions of NCCL", USER, "one image for all ranks; unset LD_PRELOAD and LD_LIBRARY_PATH of the job: envbuild launch NAME -- CMD",
    ),
    sign(
        "torch-abi", r"undefined symbol: _ZN(?:K?3c10|2at|5torch)",
        "an extension was compiled for another version of torch", USER, "compile it against the image's torch; envbuild verify NAME; nothing of ~/.local: PYTHONNOUSERSITE=1",
    ),
    sign(
        # other programs of a job take another port by themselves
        "port-in-use", (r"(?:c10d|TCPStore|DistNetworkError|server socket|NCCL|torch|rendezvous).*(?:EADDRINUSE|Address already in use)", r"(?:EADDRINUSE|Address already in use).*(?:c10d|TCPStore|server socket)"),
        "the port of the rendezvous is in use on that node", USER, "MASTER_PORT=ANOTHER; torchrun --rdzv-endpoint=HOST:0; which process has it, on that node: ss -ltnp | grep :PORT",
    ),
    sign(
        "rendezvous", r"The client socket has (?:timed out|failed to connect)",
        "a rank does not reach the first node, at MASTER_ADDR", USER, "MASTER_ADDR is a name or address that all nodes resolve; the first rank has ended, or started late: its log",
    ),
    # of the loader (ld.so), the kernel's ENOEXEC, and slurmstepd
    sign(
        "c-library", r"version `?'?GLIBC_\d\S* not found",
        "a program or a library needs a newer C library than the one that it found", USER, "what the host has runs outside of the image, and the other way round: mount no libraries of the host into it",
    ),
    sign(
        "other-architecture", r"exec format error",
        "the program is for another CPU architecture, or a script without its first line (#!)", USER, "file PROGRAM; uname -m; envbuild make NAME --target TARGET, one of this architecture",
    ),
    sign(
        "program-missing", r"execve\(\): .*No such file or directory",
        "the program is not in the image, or not on that node", USER, "envbuild run NAME -- which PROGRAM; srun with the whole path",
    ),
    sign(
        "host-memory", r"Detected [1-9]\d* oom[-_]kill|oom-kill:constraint|invoked oom-killer|Out of memory: Killed process|task \d+: Out Of Memory|Exceeded job memory limit",
        "the kernel ended a process: the memory of the node or of the job is used up", USER,
        "more memory for the job: sbatch --mem=SIZE; fewer workers of the data loader",
    ),
    sign(
        "gpu-memory", r"CUDA out of memory(?:[.:]|\s*$)|Cuda failure 2 'out of memory'|torch\.OutOfMemoryError|CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation",
        "the memory of a GPU is used up", USER, "a smaller batch; PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True; nvidia-smi lists other programs on the GPU",
    ),
    sign(
        "node-failed", (r"DUE TO NODE (?:\S+ )?FAILURE", r"srun: error: Node failure on"),
        "Slurm ended the job because a node failed", ADMINISTRATOR, "sinfo -R; on that node: envbuild doctor",
    ),
    sign(
        "preempted", r"DUE TO (?:PREEMPTION|JOB REQUEUE)", "Slurm ended the job for another one, or starts it again", USER,
        "sbatch --requeue, with checkpoints; scontrol show job JOBID",
    ),
    sign(
        "step-refused", (r"Unable to create step for job", r"Invalid generic resource \(gres\)"),
        "a job or its step requests devices or processors that the partition or the job does not have", USER,
        "sinfo -o '%P %c %G'; srun with not more than sbatch requested: --ntasks-per-node, --cpus-per-task, --gpus-per-node",
    ),
    sign(
        "task-launch", r"Task launch for StepId=.*failed on node \S+: (?!Invalid job credential)", "a node did not start its tasks", ADMINISTRATOR,
        "on that node: systemctl status slurmd; journalctl -u slurmd; envbuild doctor",
    ),
    sign(
        "cancelled", r"\*\*\* (?:JOB|STEP) .*CANCELLED AT \S+ \*\*\*",
        "the job was cancelled: by scancel, or because one of its tasks ended", USER, "sacct -j JOBID --format=JobID,State,ExitCode; the first error in the lines before",
    ),
    sign(
        # of srun and of a shell: the end of a rank
        "task-ended", (r"srun: error: .*task.*(?:Exited with exit code|Killed|Segmentation fault|Bus error|Aborted)", r"Segmentation fault(?: \(core dumped\)|: address)", r"ChildFailedError"),
        "a rank ended with an error", USER, "the first error of that rank, in the lines before; srun --label names the rank of each line",
    ),
    sign(
        "time-limit", r"DUE TO TIME LIMIT", "Slurm ended the job at its time limit", USER, "sbatch --time=HH:MM:SS; a job that hangs: export NCCL_DEBUG=INFO",
    ),
    sign(
        "acs", r"ACS is enabled", "PCI access control (ACS) is on: GPUs and NICs reach each other through the CPU alone", ADMINISTRATOR,
        "turn ACS off in the firmware, or by setpci on each PCI bridge",
    ),
    sign(
        "efa-not-found", (r"fi_getinfo.*-61|No data available", r"NET/OFI.*Failed to initialize|No eligible providers"),
        "libfabric finds no EFA device", USER, "envbuild doctor p5-efa in the job's container; mount /dev/infiniband; ulimit -l unlimited",
    ),
    sign(
        "pmix-gds", r"PMIX ERROR: ERROR in file gds_|Framework:\s+gds\b|Component:\s+ds(?:12|21)\b",
        "Slurm's PMIx names storage that the image's PMIx does not have", MINOR, "export PMIX_MCA_gds=hash",
    ),
    # the process group of UCC in torch (ProcessGroupUCC.cpp), and FSDP over it
    sign(
        "ucc-reduce-op", (
            r"Not supported ReduceOp for UCC|Cannot use ReduceOp\.AVG with boolean",
            r"\[UCC\].*avg.*not supported|unsupported", r"UCC.*reduce_scatter.*not supported", r"ProcessGroupUCC.*Operation is not supported",
        ),
        "UCC does not have this reduction: FSDP2 averages gradients, which UCC cannot on CPU tensors", USER,
        "module.set_force_sum_reduction_for_comms(True); or init_process_group('cpu:gloo,cuda:ucc')",
    ),
    sign(
        "ucc-data-type", (r"Not supported data type for UCC", r"ec_cpu.*unsupported (?:reduction|data) ?type", r"unsupported reduction type \(float16\)"),
        "UCC cannot reduce this data type in CPU memory; float16 there even ends without an error, with the input unchanged", USER,
        "init_process_group('cpu:gloo,cuda:ucc')",
    ),
    sign(
        "ucc-full-tensor", (
            r"full_tensor.*UCC",
            r"ProcessGroupUCC.*all_gather_into_tensor|allgather_into_tensor_coalesced.*not (?:implemented|supported)", r"Backend ucc does not support \w",
        ),
        "the process group of UCC does not have this operation: DTensor.full_tensor() fails over it", USER,
        "gather over gloo: init_process_group('cpu:gloo,cuda:ucc'), or save sharded checkpoints",
    ),
    sign(
        "ucc-missing", (r"built without UCC|UCC is not available|ucc_context_create failed", r"TL_NCCL.*failed|error"),
        "the process group of UCC cannot start", USER,
        "envbuild doctor --image FILE; in the container: ucc_info -s, which lists cuda=… and nccl=… on a node with GPUs",
    ),
)  # fmt: skip
