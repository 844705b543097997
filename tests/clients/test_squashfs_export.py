"""From packs to an image that starts: its own start script and shell, run in a chroot."""

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

from envbuild.build.plan.units import Plan
from envbuild.core.console import SilentReporter
from envbuild.core.errors import EnvbuildError, SpecError
from envbuild.core.store.store import Store
from envbuild.export.options import ExportOptions
from envbuild.export.project_image import write_squashfs
from envbuild.export.squashfs_image import export_squashfs
from envbuild.lock.lockfile import read_lock
from envbuild.lock.model import lock_digest
from envbuild.oci.config import ImageConfig
from envbuild.oci.tar.member import Kind
from envbuild.squashfs.read.superblock import describe_superblock
from tests.support.squashfs_snapshot import EPOCH, file, folder, gone, make_packs, special, symlink, unpack
from tests.support.stored_layers import layer

pytestmark = [
    pytest.mark.clients,
    pytest.mark.skipif(not shutil.which("unsquashfs"), reason="unsquashfs is not installed"),
    pytest.mark.skipif(os.geteuid() != 0, reason="chroot needs root"),
]

CONFIG = ImageConfig(
    env={"PATH": "/opt/tool/bin:/usr/bin:/bin", "LANG": "C.UTF-8"},
    cmd=("/bin/sh", "-c", "echo started in $(pwd)"),
    workdir="/workspace",
    labels={"org.example.lock": "sha256:00"},
)


def shell_layer():
    """dash of this machine with its libraries, below a merged /usr, and a profile that sets PATH as Debian's does."""
    dash = shutil.which("dash")
    if not dash:
        pytest.skip("dash is not installed")
    needed = [Path(word) for word in subprocess.check_output(["ldd", dash], text=True).split() if word.startswith("/")]
    profile = b"PATH=/usr/local/bin:/usr/bin:/bin\nexport PATH\nfor i in /etc/profile.d/*.sh; do . $i; done\n"
    layer = [symlink(b"bin", b"usr/bin"), symlink(b"lib", b"usr/lib"), symlink(b"lib64", b"usr/lib64")]
    layer += [
        file(b"etc/profile", profile),
        file(b"usr/bin/dash", Path(dash).read_bytes(), 0o755),
        symlink(b"usr/bin/sh", b"dash"),
    ]
    for path in needed:
        place = str(path) if str(path).startswith("/usr") else f"/usr{path}"
        layer.append(file(place.strip("/").encode(), path.read_bytes(), 0o755))
    return layer


def paths(layers, tmp_path):
    return [pack.path for pack in make_packs(tmp_path, layers)]


def test_the_image_starts(tmp_path):
    written = export_squashfs(paths([shell_layer()], tmp_path), CONFIG, tmp_path / "image.sqsh", epoch=EPOCH)
    root = tmp_path / "root"
    found = unpack(written.path, root)
    assert found[b"workspace"]["kind"] == "dir" and found[b"workspace"]["mtime"] == EPOCH
    assert (root / "etc/environment").read_text() == "PATH=/opt/tool/bin:/usr/bin:/bin\nLANG=C.UTF-8\n"
    run = [
        "chroot",
        root,
        "/bin/sh",
        "-l",
        "/etc/rc",
    ]  # as enroot: a login shell, then the script with the command as arguments
    assert subprocess.check_output(run, text=True) == "started in /workspace\n"
    assert subprocess.check_output([*run, "sh", "-c", 'echo "$0|$1"', "a b", "c"], text=True) == "a b|c\n"
    path = subprocess.check_output(["chroot", root, "/bin/sh", "-l", "-c", "echo $PATH"], text=True)
    assert path == CONFIG.env["PATH"] + "\n"
    assert len(written.messages) == 2
    assert describe_superblock(written.path)["inodes"] == written.inodes == len(found)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.pack", "image.sqsh", "root"]


def test_files_of_the_image_are_replaced_and_evidence_is_added(tmp_path):
    layers = [
        shell_layer(),
        [
            file(b"etc/environment", b"OLD=1\n", 0o600),
            symlink(b"etc/fstab", b"/etc/passwd"),
            folder(b"etc/rc"),
            file(b"etc/rc/x"),
        ],
        [special(b"dev/null", Kind.CHAR, (1, 3)), file(b"workspace/data", b"1", 0o000)],
    ]
    extra = [file(b"etc/envbuild/lock.yaml", b"schema: 1\n")]
    written = export_squashfs(paths(layers, tmp_path), CONFIG, tmp_path / "image", epoch=EPOCH, extra=extra)
    root = tmp_path / "root"
    found = unpack(written.path, root)
    assert {found[name.encode()]["kind"] for name in ("etc/rc", "etc/fstab", "etc/environment", "etc/rc.local")} == {
        "file"
    }
    assert (root / "etc/fstab").read_bytes() == b"" and (root / "etc/envbuild/lock.yaml").read_bytes() == b"schema: 1\n"
    assert b"dev/null" not in found and found[b"workspace/data"]["mode"] == 0o400
    assert [message.split(":")[0] for message in written.messages][1:] == [
        "dropped what is below /dev (the host's /dev is mounted there)",
        "made files readable for their owner",
    ]
    assert b"OLD=1" not in written.path.read_bytes()


def test_the_same_packs_give_the_same_bytes(tmp_path):
    packs = paths([shell_layer(), [gone(b"etc/profile")]], tmp_path)
    images = [export_squashfs(packs, CONFIG, tmp_path / name, epoch=EPOCH).path.read_bytes() for name in "ab"]
    assert images[0] == images[1]
    assert export_squashfs(packs, CONFIG, tmp_path / "c", epoch=EPOCH + 1).path.read_bytes() != images[0]


def test_an_image_that_cannot_start_is_not_written(tmp_path):
    packs = paths([[file(b"a", b"1")]], tmp_path)
    with pytest.raises(SpecError) as caught:
        export_squashfs(packs, ImageConfig(env={"HOME": "/none"}), tmp_path / "image", epoch=EPOCH)
    assert len(caught.value.findings) == 2
    with pytest.raises(EnvbuildError, match="cannot be written: No such file"):
        export_squashfs(paths([shell_layer()], tmp_path), CONFIG, tmp_path / "no" / "image", epoch=EPOCH)
    assert [path.name for path in tmp_path.iterdir()] == ["0.pack"]


def test_packs_on_another_file_system(tmp_path):
    """Where the kernel cannot copy between the two, the data is read and written."""
    if not Path("/dev/shm").is_dir() or Path("/dev/shm").stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("/dev/shm is not a file system of its own")
    layer = [*shell_layer(), file(b"big", os.urandom(3_000_000))]
    with tempfile.TemporaryDirectory(dir="/dev/shm") as place:
        far = export_squashfs(paths([layer], Path(place)), CONFIG, tmp_path / "far", epoch=EPOCH).path.read_bytes()
    near = export_squashfs(paths([layer], tmp_path), CONFIG, tmp_path / "near", epoch=EPOCH).path.read_bytes()
    assert far == near


def test_an_export_killed_midway_leaves_the_old_image(tmp_path):
    packs = paths([shell_layer()], tmp_path)
    image = export_squashfs(packs, CONFIG, tmp_path / "image", epoch=EPOCH).path
    before = image.read_bytes()
    data = packs[0].read_bytes()
    packs[0].write_bytes(data[: len(data) // 2])
    with pytest.raises(EnvbuildError, match="damaged"):
        export_squashfs(packs, CONFIG, image, epoch=EPOCH)
    assert image.read_bytes() == before


def test_an_image_of_the_project_in_another_compression(tmp_path):
    """Its layers are packed again, and the file records its compression."""
    store = Store.open(tmp_path / "store")

    def fill(tree):
        for member, content in shell_layer():
            place = tree / member.path.decode()
            place.parent.mkdir(parents=True, exist_ok=True)
            if member.kind is Kind.SYMLINK:
                place.symlink_to(member.link.decode())
            else:
                place.write_bytes(content)
                place.chmod(member.mode)

    record = layer(store, "base", fill)
    lock = read_lock(Path(__file__).parents[2] / "images/cpu-ucx.lock")
    plan = Plan("own", (), CONFIG, EPOCH)
    files = {}
    lz4 = ExportOptions(compression="lz4", level=0, block="1M", jobs=2, sha256=True)
    for options in (ExportOptions(jobs=1, sha256=True), ExportOptions(jobs=3, sha256=True), lz4):
        form = options.pack_format
        out = tmp_path / f"{form.codec}.sqsh"
        artifact = write_squashfs(plan, [record], lock, store, SilentReporter(), out, options)
        files.setdefault(form.codec, set()).add(artifact.sha256)
        assert describe_superblock(out)["codec"] == form.codec and describe_superblock(out)["block"] == form.block
        shutil.rmtree(tmp_path / "root", ignore_errors=True)
        unpack(out, tmp_path / "root")
        document = json.loads((tmp_path / "root/etc/envbuild/export.json").read_text())
        assert document["image"]["lock"] == lock_digest(lock) and document["image"]["layers"] == [record.diff_id]
        assert document["compression"]["codec"] == form.codec and document["repairs"] == list(artifact.messages)
    assert {codec: len(found) for codec, found in files.items()} == {"zstd": 1, "lz4": 1}
