"""Logs of jobs: faults are recognised, and the network that was used."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from envbuild.doctor.job_log import LONGEST, bounded_lines, read_log, read_log_file
from envbuild.doctor.log_results import log_results
from envbuild.doctor.log_signs import SIGNS, Sign
from envbuild.doctor.model import FAIL, MINOR, NOT_RUN, PASS, Need, Result

pytestmark = pytest.mark.unit

IB = Need(source="h100-ib", fabric="infiniband")
PYXIS = "slurmstepd: error: pyxis:     "  # a line of enroot
NCCL = "n1:1:2 [0] NCCL "
LINES = {
    "completion-error-12": [
        NCCL + "WARN NET/IB : Got completion with error 12, opcode 0, len 0, vendor err 129",
        NCCL + "WARN NET/IB: Got completion from peer 10.0.0.2<1> with status=12 opcode=0 len=0 vendor err 129 (Send)",
        NCCL + "WARN NET/IB: Got completion from peer 10.0.0.2<1> with status=IBV_WC_RETRY_EXC_ERR(12) hca x",
    ],
    "completion-error": [
        NCCL + "WARN NET/IB: Got completion from peer 10.0.0.2<1> with status=5 opcode=0 len=0",
        NCCL + "WARN NET/IB: Got completion from peer 10.0.0.2<1> with status=IBV_WC_WR_FLUSH_ERR(5) hca x",
    ],
    "no-device": [NCCL + "INFO NET/IB : No device found."],
    "forced-network-missing": [
        NCCL + "WARN Error: network AWS Libfabric not found.", NCCL + "WARN Failed to initialize any NET plugin",
    ],
    "plugin-missing": [NCCL + "INFO NET/Plugin: Could not find: libnccl-net.so. Using internal network plugin."],
    "duplicate-gpu": [NCCL + "WARN Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1000"],
    "nvls-missing": [NCCL + "INFO NVLS multicast support is not available on dev 0"],
    "fabric-not-ready": ["RuntimeError: CUDA error: system not yet initialized"],
    "driver-too-old": [
        "RuntimeError: CUDA driver version is insufficient for CUDA runtime version",
        "RuntimeError: The NVIDIA driver on your system is too old (found version 12040).",
        PYXIS + "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=13.0, please update your driver",
    ],
    "ptx-too-new": [
        "RuntimeError: CUDA error: the provided PTX was compiled with an unsupported toolchain.",
        "CUDA_ERROR_UNSUPPORTED_PTX_VERSION",
    ],
    "disk-quota": [
        "OSError: [Errno 122] Disk quota exceeded: '/home/u/step-1000.pt'",
        "OSError: [Errno 28] No space left on device: '/scratch/u/step-1000.pt'",
    ],
    "ucx-device-missing": [
        "[1.0] [n1:1:0] ucp_context.c:1 UCX  WARN  network device 'mlx5_0:1' is not available, please use: lo",
        "[1.0] [n1:1:0] ucp_context.c:1 UCX  WARN  transport 'rc' is not available, please use one or more of: tcp",
    ],
    "ucx-tcp-alone": [
        "[1.0] [n1:1:0] ucp_worker.c:1 UCX  INFO    ep_cfg[0]: tag(tcp/lo tcp/eth0)",
        "[1.0] [n1:1:0] ucp_worker.c:1 UCX  INFO  0x5 inter-node cfg#2 tag(tcp/eth0)",
    ],
    "memlock": ["mlx5: ibv_reg_mr failed: Cannot allocate memory"],
    "shared-memory": ["Error while creating shared memory segment /dev/shm/nccl-a1 (size 9): No space left on device"],
    "queue-pair": [
        "[1] ib.c:1 UCX  ERROR ibv_create_ah(dlid=0 dgid=::ffff:10.0.0.18) on mlx5_0 failed: Connection timed out",
        "n1:1:2 [3] misc/ibvwrap.cc:284 NCCL WARN Call to ibv_modify_qp failed with error Invalid argument"],
    "port-event": [
        NCCL + "WARN NET/IB : mlx5_1:1 Got async event : port error",
        NCCL + "WARN NET/IB : mlx5_1:1 async fatal event on device: device fatal error",
        "[1.0] [n1:1:0] ib_device.c:1 UCX  DIAG  IB Async event on mlx5_0: port error on port 1",
    ],
    "collective-timeout": ["[rank3]:[E1 PG.cpp:685] [Rank 3] Watchdog caught collective operation timeout: W"],
    "socket": [
        "n1:1:1 [0] socket.cc:484 NCCL WARN socketStartConnect: Connect to 10.0.0.1<4> failed : Connection refused",
        "n1:1:1 [0] bootstrap.cc:77 NCCL WARN Bootstrap : no socket interface found",
    ],
    "nccl-remote-error": ["ncclRemoteError: A call failed possibly due to a network error or a remote process exiting"],
    "nccl-internal-error": ["ncclInternalError: Internal check failed."],
    "gpu-memory-error": ["RuntimeError: CUDA error: uncorrectable ECC error encountered"],
    "no-machine-code": ["RuntimeError: CUDA error: no kernel image is available for execution on the device"],
    "illegal-access": [
        "RuntimeError: CUDA error: an illegal memory access was encountered",
        "RuntimeError: CUDA error: device-side assert triggered",
    ],
    "no-gpu-visible": [
        "ImportError: libcuda.so.1: cannot open shared object file: No such file or directory",
        "RuntimeError: Found no NVIDIA driver on your system.", "RuntimeError: No CUDA GPUs are available",
    ],
    "registry-limit": [PYXIS + "[ERROR] URL https://r.example/v2/a returned error code: 429 Too Many Requests"],
    "enroot-folder": [PYXIS + "mkdir: cannot create directory '/run/enroot/user-1000': Permission denied"],
    "no-pyxis": [f"{name}: unrecognized option '--container-image=r.example#a:1'" for name in ("srun", "sbatch")],
    "nccl-cuda-error": ["torch.distributed.DistBackendError: ncclUnhandledCudaError: Call to CUDA function failed."],
    "nccl-system-error": ["RuntimeError: NCCL error in: a.cpp:1, unhandled system error, NCCL version 2.30.7"],
    "no-pmi": [
        "but OMPI was not built with SLURM's PMI support and therefore cannot", "PMI2_Init failed to initialize.",
        "srun: error: Couldn't find the specified plugin name for mpi/pmix looking at all files",
    ],
    "image-spelling": [
        PYXIS + "[ERROR] URL https://registry-1.docker.io/v2/nvcr.io/nvidia/a/manifests/1 returned error code: 401 X",
    ],
    "memory-registration": [NCCL + "WARN Call to ibv_reg_mr_iova2 failed with error Bad address"],
    "container-namespace": [
        PYXIS + "enroot-nsenter: failed to create user namespace: Permission denied",
        PYXIS + "enroot-mksquashovlfs: failed to unshare user namespace: Permission denied",
    ],
    "image-list": [PYXIS + "[ERROR] Could not process JSON input"],
    "container-toolkit": [PYXIS + "[ERROR] Command not found: nvidia-container-cli"],
    "nvlink-error": ["RuntimeError: CUDA error: uncorrectable NVLink error detected during the execution"],
    "node-hardware": [
        "mlx5_core 0000:4d:00.0: poll_health: device's health compromised - reached miss count",
        "mce: [Hardware Error]: CPU 1: Machine Check: 0 Bank 7", "nvme nvme0: controller is down; will reset",
        "pcieport 0000:4c:01.0: AER: Uncorrected (Fatal) error received: 0000:4d:00.0",
    ],
    "preempted": ["slurmstepd: error: *** STEP 1.0 ON dgx1 CANCELLED AT 2026-01-15T03:00:00 DUE TO PREEMPTION ***"],
    "step-refused": [
        "srun: error: Unable to create step for job 1: Invalid generic resource (gres) specification",
        "sbatch: error: Batch job submission failed: Invalid generic resource (gres) specification",
    ],
    "cancelled": ["slurmstepd: error: *** JOB 99 ON dgx1 CANCELLED AT 2026-11-24T10:00:00 ***"],
    "task-launch": ["srun: error: Task launch for StepId=1.0 failed on node dgx1: Communication connection failure"],
    "task-ended": [
        "srun: error: dgx1: task 3: Segmentation fault (core dumped)",
        "srun: error: dgx1: tasks 0-7: Exited with exit code 1",
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError:",
    ],
    "slurm-credential": ["srun: error: Task launch for StepId=1.0 failed on node n2: Invalid job credential"],
    "gpu-busy": ["RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable"],
    "nccl-versions": [NCCL + "WARN Mismatched NCCL version detected : rank 0 23004 rank 1 22705"],
    "torch-abi": ["ImportError: /opt/venv/a.so: undefined symbol: _ZN3c105ErrorC2E"],
    "port-in-use": ["RuntimeError: The server socket has failed to listen: errno: 98 - Address already in use"],
    "rendezvous": ["DistNetworkError: The client socket has timed out after 600000ms while trying to connect"],
    "image-credentials": [
        PYXIS + "[ERROR] URL https://r.example/auth?scope=repository:a:pull returned error code: 401 Unauthorized",
    ],
    "image-missing": [PYXIS + "[ERROR] URL https://r.example/v2/a/manifests/1 returned error code: 404 Not Found"],
    "image-unreachable": [PYXIS + "curl: (6) Could not resolve host: r.example"],
    "image-file-missing": [
        PYXIS + "[ERROR] No such file or directory: /scratch/a.sqsh",
        PYXIS + "[ERROR] Invalid image format: /scratch/a.tar",
    ],
    "container-mount": [
        "slurmstepd: error: pyxis: --container-mounts: invalid format: /data",
        PYXIS + "enroot-mount: failed to mount: /data at /run/x/data: No such file or directory",
    ],
    "container-disk": [PYXIS + "write: No space left on device"],
    "container-driver": [
        PYXIS + "nvidia-container-cli: initialization error: nvml error: driver not loaded",
        PYXIS + "[ERROR] /etc/enroot/hooks.d/98-nvidia.sh exited with return code 1",
    ],
    "container-workdir": ["slurmstepd: error: pyxis: couldn't chdir to /work: No such file or directory"],
    "pyxis": [
        "slurmstepd: error: pyxis: container start failed with error code: 1",
        "slurmstepd: error: pyxis: couldn't start container",
        "slurmstepd: error: pyxis: child 812 failed with error code: 1",
    ],
    "c-library": ["a.out: /lib/x86_64-linux-gnu/libc.so.6: version `GLIBC_2.38' not found (required by a.out)"],
    "other-architecture": ["slurmstepd: error: execve(): /a.out: Exec format error"],
    "program-missing": ["slurmstepd: error: execve(): a.out: No such file or directory"],
    "host-memory": [
        "slurmstepd: error: Detected 1 oom_kill event in StepId=7.0. Some of the step tasks have been OOM Killed.",
        "srun: error: n1: task 0: Out Of Memory", "Out of memory: Killed process 812 (python3)",
    ],
    "gpu-memory": ["torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."],
    "node-failed": [
        "srun: error: Node failure on n18",
        "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO NODE FAILURE ***",
    ],
    "time-limit": ["slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***"],
    "acs": [NCCL + "WARN ACS is enabled on some switches"],
    "efa-not-found": ["fi_getinfo: -61 (No data available)"],
    "pmix-gds": ["Framework: gds"],
    "ucc-reduce-op": ["RuntimeError: Not supported ReduceOp for UCC"],
    "ucc-data-type": ["RuntimeError: Not supported data type for UCC"],
    "ucc-full-tensor": ["RuntimeError: Backend ucc does not support allgather_into_tensor_coalesced"],
    "ucc-missing": ["RuntimeError: Distributed package was built without UCC"],
}  # fmt: skip


def results(lines: list[str], need: Need = IB) -> dict[str, Result]:
    return {one.check: one for one in log_results(read_log(lines), need)}


@pytest.mark.parametrize("name", LINES)
def test_a_line_is_recognised_by_one_sign(name: str) -> None:
    for line in LINES[name]:
        found = [sign.name for sign in SIGNS if sign.is_in(line.lower())]
        assert found == [name], line
        assert results(["other", line], Need())[name].status == FAIL


def test_every_sign_has_a_line_and_a_command() -> None:
    assert {sign.name for sign in SIGNS} == set(LINES)
    assert all(sign.fix and sign.meaning for sign in SIGNS)


def test_a_silent_fall_back_to_tcp_fails_where_the_target_has_a_fabric() -> None:
    lines = [NCCL + "INFO NET/Socket : Using [0]eth0:10.0.0.1<0>", NCCL + "INFO Using network Socket"]
    assert results(lines)["network"].status == FAIL
    assert results(lines, Need(source="cpu", fabric="ethernet"))["network"].status == PASS
    assert results([*lines, LINES["no-device"][0]], Need())["network"].status == FAIL


def test_tcp_without_a_target_is_not_judged() -> None:
    result = results([NCCL + "INFO Using network Socket"], Need())["network"]
    assert result.status == NOT_RUN
    assert "envbuild doctor TARGET --log FILE" in result.fix


def test_no_device_followed_by_infiniband_is_no_fault() -> None:
    found = results([LINES["no-device"][0], NCCL + "INFO Using network IB"])
    assert set(found) == {"network"}
    assert found["network"].status == PASS


def test_the_cause_of_a_container_that_did_not_start_is_reported_instead() -> None:
    lines = [LINES["pyxis"][2], LINES["image-credentials"][0], LINES["pyxis"][0]]
    assert [one.check for one in log_results(read_log(lines), Need()) if one.status == FAIL] == ["image-credentials"]
    assert log_results(read_log(LINES["pyxis"]), Need())[0].check == "pyxis"


def test_the_node_of_a_line_is_named() -> None:
    lines = [LINES["node-failed"][0], LINES["completion-error-12"][0], "srun: error: n3: task 0: Out Of Memory"]
    found = {one.check: one.detail for one in log_results(read_log(lines), Need())}
    assert "(n18, line 1)" in found["node-failed"] and "(n1, line 2)" in found["completion-error-12"]
    assert "(n3, line 3)" in found["host-memory"]


def test_a_missing_plugin_is_no_fault_of_a_job_that_used_infiniband() -> None:
    lines = [LINES["plugin-missing"][0], NCCL + "INFO Using network IB"]
    assert [one.status for one in log_results(read_log(lines), IB)] == [PASS]
    assert log_results(read_log(lines[:1]), IB)[0].check == "plugin-missing"


def test_a_log_that_ends_before_the_network_is_chosen_needs_no_other_setting() -> None:
    result = log_results(read_log([NCCL + "INFO Bootstrap : Using eth0"]), IB)[0]
    assert (result.status, result.fix) == (NOT_RUN, "")


def test_events_of_gpus_in_a_log_are_judged_as_in_that_of_the_kernel() -> None:
    bus = "NVRM: Xid (PCI:0000:3b:00): "
    worst = results(["epoch 1", f"[12.3] {bus}79, pid=1, GPU has fallen off the bus.", f"{bus}45, pid=1, Ch 00000008"])
    assert (worst["xid"].status, worst["xid"].severity) == (FAIL, "hardware")
    assert "XID 79 of 0000:3b:00" in worst["xid"].detail
    assert not worst["xid"].drains  # the log may be of other nodes
    assert results([f"{bus}94, pid=1, Contained: CE User Channel (0x9)"])["xid"].severity == MINOR


def test_standard_input_is_read() -> None:
    """``srun … 2>&1 | envbuild doctor --log -``."""
    lines = LINES["no-device"][0] + "\n" + NCCL + "INFO Using network Socket\n"
    code = "import sys; from envbuild.doctor.job_log import read_log_file; print(read_log_file('-').lines)"
    done = subprocess.run([sys.executable, "-c", code], input=lines, capture_output=True, text=True, check=True)
    assert done.stdout == "2\n"


def test_the_network_that_was_used_passes() -> None:
    lines = [
        NCCL + "INFO Using network IBext_v8",
        NCCL + "INFO Channel 00/0 : 1[1] -> 8[0] [receive] via NET/IB/0/GDRDMA",
    ]
    result = results(lines)["network"]
    assert (result.status, result.detail) == (PASS, "IBext_v8 (1); 1 channels with GPUDirect RDMA")
    efa = [
        NCCL + "INFO Using network Libfabric",
        NCCL + "INFO NET/OFI Selected provider is efa, fabric is efa (found 32 nics)",
    ]
    assert "efa, 32 devices" in results(efa, Need(fabric="efa"))["network"].detail


def test_channels_without_gpudirect_fail() -> None:
    lines = [NCCL + "INFO Using network IB", NCCL + "INFO Channel 00/0 : 1[1] -> 8[0] [send] via NET/IB/0"]
    assert results(lines)["network"].status == FAIL


def test_ranks_with_different_networks_fail() -> None:
    assert results([NCCL + "INFO Using network IB", NCCL + "INFO Using network Socket"])["network"].status == FAIL


@pytest.mark.parametrize("lines", [[], ["epoch 1 loss 2.0"]])
def test_a_log_without_a_known_line_is_not_run(lines: list[str]) -> None:
    assert [one.status for one in results(lines).values()] == [NOT_RUN]


@pytest.mark.parametrize("sign", SIGNS, ids=[sign.name for sign in SIGNS])
def test_a_long_line_of_a_stranger_takes_no_time(sign: Sign) -> None:
    """The words of a sign, many times, and without its end: 28 s for one line of 4,000 characters (bug)."""
    words = [word for line in LINES[sign.name] for word in line.split()]
    texts = ["tcp/x", "tcp/x ", "ibv_create_", "nccl-a", "got completion from peer ", " ", *words]
    began = time.process_time()
    for text in texts:
        for start in ("", ":", "UCX  INFO ep_cfg[0]: tag(", "NCCL INFO Using network "):
            read_log([(start + text * LONGEST)[:LONGEST]])
    assert time.process_time() - began < 0.05 * 4 * len(texts)


def test_of_a_long_line_the_first_characters_are_read() -> None:
    log = io.StringIO("a" * (3 * LONGEST) + "\n" + LINES["acs"][0] + "\nb")
    assert [len(line.rstrip()) for line in bounded_lines(log)] == [LONGEST, len(LINES["acs"][0]), 1]


def test_a_long_log_is_reported_also_if_it_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("envbuild.doctor.job_log.FIRST_WORD", -1.0)
    reports: list[str] = []
    list(bounded_lines(io.StringIO("a" * (1000 * LONGEST) + "\nb\n"), "job.log", reports.append))
    assert reports == ["reading job.log: 1 lines so far"]


@pytest.mark.parametrize("kind", ["FIFO", "device"])
def test_what_has_no_end_is_not_read(kind: str, tmp_path: Path) -> None:
    path = "/dev/zero"
    if kind == "FIFO":
        path = str(tmp_path / "log")
        os.mkfifo(path)
    with pytest.raises(OSError, match="not a regular file"):
        read_log_file(path)


def test_control_characters_of_a_log_are_not_printed() -> None:
    detail = results([NCCL + "INFO Using network IB\x1b[2J"])["network"].detail
    assert detail == "IB?[2J (1)"


def test_a_long_log_is_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("envbuild.doctor.job_log.FIRST_WORD", 0.0)
    lines: list[str] = []
    log = io.StringIO("".join(f"{number}\n" for number in range(2500)))
    assert len(list(bounded_lines(log, "job.log", lines.append))) == 2500
    assert lines == ["reading job.log: 1000 lines so far"]


def test_missing_multicast_is_minor_because_older_gpus_have_none() -> None:
    assert results(LINES["nvls-missing"])["nvls-missing"].severity == MINOR


@pytest.mark.parametrize("cut", ["", "/", "/GDR", "/GDRDMA"])
def test_a_channel_at_the_end_of_a_log_that_was_cut_decides_nothing(cut: str, tmp_path: Path) -> None:
    whole = NCCL + "Channel 00/0 : 8[0] -> 0[0] [send] via NET/IB/0/GDRDMA\n"
    (tmp_path / "log").write_text(whole + whole.partition("/GDRDMA")[0] + cut)
    found = read_log_file(str(tmp_path / "log"))
    assert (found.direct, sum(found.bounced.values())) == (1, 0)
