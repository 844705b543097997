"""Third-party images: what is repaired for enroot, what is reported, and what is refused."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from envbuild.core.errors import InputError, VerifyError
from envbuild.export.enroot import configure
from envbuild.export.enroot_repair import ENV_FILE, repair
from envbuild.oci.config import ImageConfig
from envbuild.spec.enroot_rules import PATH_FILE
from envbuild.squashfs.write.merge import merge_packs
from tests.support.packs import file, folder, packs, symlink, tree
from tests.support.time_limit import ends_within

pytestmark = pytest.mark.unit

PROFILE = file(b"etc/profile", b"PATH=/bin\n")
PRINT = 'printf "%s" "$A"'
LOGIN = [PROFILE, folder(b"etc/profile.d")]  # as distributions have it
PLACE = "/a-folder-of-an-image"


def run_here(script, folder):
    """Return a script of an image, to run on this machine: PLACE is `folder`, which no image may have."""
    return script.replace(PLACE, str(folder))


def texts(additions):
    return {member.path.decode(): content.decode() for member, content in additions.extra if member.kind == "file"}


def folders(additions):
    return sorted(member.path.decode() for member, _ in additions.extra if member.kind == "dir")


def test_an_image_without_faults_is_configured_as_one_of_ours(tmp_path):
    config = ImageConfig(env={"PATH": "/opt/bin", "A": "b c"}, cmd=("sh",), labels={"a": "b"}, workdir="/new")
    layers = [*LOGIN, folder(b"root")]
    ours, theirs = (make(config, tree(tmp_path, *layers), 7) for make in (configure, repair))
    assert sorted(ours.extra, key=lambda item: item[0].path) == sorted(theirs.extra, key=lambda item: item[0].path)
    assert ours.messages == theirs.messages


def test_entrypoint_and_volumes(tmp_path):
    config = ImageConfig(
        entrypoint=("/init", "it's"), cmd=("serve", "-v"), volumes=("/a b", "/data", "rel"), env={"HOME": "/data"}
    )
    added = repair(config, tree(tmp_path, folder(b"data")), 0)
    assert "    exec '/init' 'it'\\''s' \"$@\"\n" in texts(added)["etc/rc"]
    assert "    exec '/init' 'it'\\''s' 'serve' '-v'\n" in texts(added)["etc/rc"]
    options = "none x-create=dir,bind,rw,nosuid,nodev"
    assert texts(added)["etc/fstab"] == (
        f"${{ENROOT_ROOTFS}}/a\\040b /a\\040b {options}\n"
        f"${{ENROOT_ROOTFS}}/data /data {options}\n"
        f"${{ENROOT_ROOTFS}}/rel /rel {options}\n"
    )
    assert folders(added) == ["a b", "rel"]
    assert [line.split(":")[0] for line in added.messages] == [
        "VOLUME '/a b'",
        "VOLUME 'rel'",
        "created the volume /a b",
        "created the volume /rel",
    ]
    empty = repair(ImageConfig(cmd=()), tree(tmp_path), 0)
    assert "    exec \"$@\"\nelse\n    exec '/bin/sh'\n" in texts(empty)["etc/rc"]
    only = repair(ImageConfig(entrypoint=("/init",), cmd=()), tree(tmp_path), 0)
    assert "    exec '/init' \"$@\"\nelse\n    exec '/init'\n" in texts(only)["etc/rc"]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("one\nPATH=/evil", "line break"),
        ("/x:${PATH}", "enroot would replace ${PATH}"),
        ('"quoted"', "strip the quotes"),
        ("'mixed\"  ", "strip the quotes"),
    ],
)
def test_values_that_etc_environment_cannot_hold(tmp_path, value, why):
    """They are set by the login shell, or where that reads no folder, by /etc/rc; to the letter."""
    config = ImageConfig(env={"A": value, "B": "1"}, workdir=PLACE, cmd=("sh", "-c", PRINT))
    for layers, place in ((LOGIN, ENV_FILE), ([], "etc/profile"), ([PROFILE], "etc/rc")):
        added = repair(config, tree(tmp_path, *layers), 0)
        assert texts(added)["etc/environment"] == "B=1\n"
        assert any(line.startswith(f"ENV A: set by /{place} instead") and why in line for line in added.messages)
        if shutil.which("dash"):
            (tmp_path / "profile").write_text(run_here(texts(added)[place], tmp_path))
            script = f'. "{tmp_path}/profile"; {PRINT}'  # /etc/rc continues to the command
            assert subprocess.check_output(["dash", "-c", script]).decode() == value


def test_path_where_the_profile_reads_no_folder(tmp_path):
    """An image's own /etc/profile that sets PATH, and no /etc/profile.d that it could read: /etc/rc comes after it."""
    added = repair(ImageConfig(env={"PATH": "/it's:/bin"}, labels={"a": "b"}), tree(tmp_path, PROFILE), 0)
    assert texts(added)["etc/rc"].startswith("# a b\n\nexport PATH='/it'\\''s:/bin'\nmkdir -p ")
    assert PATH_FILE not in texts(added)
    assert added.messages == ("PATH would be lost to /etc/profile: /etc/rc sets it again",)
    none = repair(ImageConfig(env={"PATH": "/bin"}), tree(tmp_path), 0)
    assert "export" not in texts(none)["etc/rc"] and not none.messages


def test_volumes_remain_in_the_root(tmp_path):
    names = ("/../../etc/vol", "/a/../b/", "rel/../../up", "//twice", "..")
    added = repair(ImageConfig(volumes=names), tree(tmp_path), 0)
    lines = [line.split()[:2] for line in texts(added)["etc/fstab"].splitlines()]
    assert lines == [[f"${{ENROOT_ROOTFS}}{path}", path] for path in ("/etc/vol", "/b", "/up", "/twice")]
    assert folders(added) == ["b", "etc/vol", "twice", "up"]


def test_volumes_where_enroot_mounts_something(tmp_path):
    """A line for one below the host's folders keeps a container from starting; one below an empty folder makes a folder
    of mode 000 in it."""
    names = ("/tmp", "/tmp/it's/x", "/run/x", "/var/run/y", "/dev/shm", "/sys/fs/cgroup", "/proc", "/device")
    layers = [folder(b"run"), symlink(b"var/run", b"../run")]
    added = repair(ImageConfig(volumes=tuple(sorted(names))), tree(tmp_path, *layers), 0)
    assert [line.split()[1] for line in texts(added)["etc/fstab"].splitlines()] == ["/device", "/tmp"]
    made = ["/run/x", "/tmp/it'\\''s/x", "/var/run/y"]
    first = "".join(f"mkdir -p '{name}' 2> /dev/null\n" for name in made)
    assert texts(added)["etc/rc"].startswith(f'{first}mkdir -p "/" ')
    assert folders(added) == ["device", "tmp"]
    assert list(added.messages[:-2]) == [
        "VOLUME '/dev/shm': left out, because the host's /dev is mounted there",
        "VOLUME '/proc': left out, because the host's /proc is mounted there",
        "VOLUME '/run/x': made by /etc/rc, because enroot mounts an empty /var/run over it",
        "VOLUME '/sys/fs/cgroup': left out, because the host's /sys is mounted there",
        'VOLUME "/tmp/it\'s/x": made by /etc/rc, because enroot mounts an empty /tmp over it',
        "VOLUME '/var/run/y': made by /etc/rc, because enroot mounts an empty /var/run over it",
    ]


@pytest.mark.parametrize("name", ["BAD-NAME", "1A", "", "ENROOT_DATA_PATH", "A B"])
def test_variables_that_enroot_drops(tmp_path, name):
    added = repair(ImageConfig(env={name: "1", "B": "2"}), tree(tmp_path), 0)
    assert texts(added)["etc/environment"] == "B=2\n"
    assert "left out, because enroot drops variables of such a name" in added.messages[0]


@pytest.mark.parametrize(
    ("home", "kept", "made"),
    [
        ("/root", True, ["root"]),
        ("/there", True, []),
        ("/", True, []),
        ("/tmp", True, []),
        ("relative", False, []),
        ("/bin/sh", False, []),
        ("/usr/bin/dash/x", False, []),
        ("/tmp/x", False, []),
        ("/dev/x", False, []),
        ("/a/" + "b" * 256, False, []),
        ("/a/" + "b" * 255, True, ["a/" + "b" * 255]),
    ],
)
def test_home(tmp_path, home, kept, made):
    added = repair(ImageConfig(env={"HOME": home}), tree(tmp_path, folder(b"there"), folder(b"tmp")), 0)
    assert texts(added)["etc/environment"] == (f"HOME={home}\n" if kept else "")
    assert folders(added) == made
    assert bool(added.messages) is (not kept or bool(made))


@pytest.mark.skipif(not shutil.which("dash"), reason="dash is not installed")
@pytest.mark.parametrize("name", ["a$(id)", "a`id`b", 'a"b', "a\\b", "it's", "with blank"])
def test_working_directories_that_a_shell_would_interpret(tmp_path, name):
    added = repair(ImageConfig(workdir=f"{PLACE}/{name}", cmd=("pwd",)), tree(tmp_path), 0)
    (tmp_path / "rc").write_text(run_here(texts(added)["etc/rc"], tmp_path))
    assert subprocess.check_output(["dash", str(tmp_path / "rc")], text=True) == f"{tmp_path}/{name}\n"
    assert any("is quoted in /etc/rc" in line for line in added.messages) is any(sign in name for sign in '$`"\\')


def test_working_directories(tmp_path):
    added = repair(ImageConfig(workdir="work/dir"), tree(tmp_path), 0)
    assert 'cd "/work/dir"' in texts(added)["etc/rc"] and folders(added) == ["work/dir"]
    assert added.messages[0] == "WORKDIR: 'work/dir' is taken as '/work/dir'"
    assert folders(repair(ImageConfig(workdir="/tmp/x"), tree(tmp_path), 0)) == []  # /etc/rc makes it at start
    assert folders(repair(ImageConfig(workdir="/dev/shm"), tree(tmp_path), 0)) == []


@pytest.mark.parametrize(
    "config",
    [
        ImageConfig(workdir="/bin/sh"),
        ImageConfig(workdir="/bin/sh/below"),
        ImageConfig(workdir="/proc/x"),
        ImageConfig(workdir="/a\0b"),
        ImageConfig(workdir="/" + "a/" * 200_000),
        ImageConfig(workdir="/" + "a" * 4096),
        ImageConfig(workdir="/a/" + "é" * 128),
        ImageConfig(cmd=("a\0b",)),
        ImageConfig(entrypoint=("a\0b",)),
    ],
)
def test_images_that_could_not_start(tmp_path, config):
    with pytest.raises(InputError) as caught:
        repair(config, tree(tmp_path), 0)
    assert len(caught.value.findings) == 1 and "docker build" in caught.value.hint


def test_long_paths_and_many_volumes_take_little(tmp_path):
    """A path of 80 kB, some hundred bytes compressed, took 1.6 GB: each part was read from the root."""
    long = "/" + "a/" * 200_000
    config = ImageConfig(env={"HOME": long}, volumes=(long, *(f"/v{number}" for number in range(100_000))))
    with ends_within(60):
        added = repair(config, tree(tmp_path), 0)
    assert folders(added) == sorted(f"v{number}" for number in range(99))
    assert "VOLUME: only the first 100 of 100001 are mounted" in added.messages
    assert max(map(len, added.messages)) < 400


def test_every_finding_at_once(tmp_path):
    config = ImageConfig(workdir="/x/y", cmd=("\0",), entrypoint=("\0",))
    with pytest.raises(InputError) as caught:
        repair(config, merge_packs(packs(tmp_path, [file(b"x")])), 0)
    assert [finding.where for finding in caught.value.findings] == ["WORKDIR", "ENTRYPOINT", "CMD", "/bin/sh"]
    with pytest.raises(VerifyError, match="/bin/sh"):
        repair(ImageConfig(), merge_packs(packs(tmp_path, [file(b"x")])), 0)


def test_line_breaks_in_labels_cannot_leave_the_comment(tmp_path):
    labels = {"a": "1\nrm -rf /", "b\n": "2\r\n3", "c": "4"}
    added = repair(ImageConfig(labels=labels), tree(tmp_path), 0)
    assert texts(added)["etc/rc"].startswith("# a 1 rm -rf /\n# b  2 3\n# c 4\n\n")
    assert sum("line breaks became blanks" in line for line in added.messages) == 2


def test_faults_that_are_reported_and_not_repaired(tmp_path):
    config = ImageConfig(user="alice:users", env={"NVIDIA_VISIBLE_DEVICES": "all", "PATH": "/opt"})
    layers = [
        *LOGIN,
        file(b"etc/environment", b"OLD=1\n"),
        file(b"etc/fstab"),
        folder(b"tmp/empty"),
        file(b"var/lock/x", b"1"),
    ]
    added = repair(config, tree(tmp_path, *layers), 0)
    assert texts(added)["etc/environment"] == "NVIDIA_VISIBLE_DEVICES=all\nPATH=/opt\n" and PATH_FILE in texts(added)
    assert [line.split(" ")[0] for line in added.messages] == [
        "USER",
        "NVIDIA_DRIVER_CAPABILITIES",
        "replaced",
        "what",
        "PATH",
    ]
    assert "/etc/environment (6 bytes)" in added.messages[2] and "/var/lock is hidden" in added.messages[3]
    quiet = ImageConfig(user="0:0", env={"NVIDIA_VISIBLE_DEVICES": "void"})
    assert not repair(quiet, tree(tmp_path), 0).messages


def test_text_outside_utf_8_is_accepted(tmp_path):
    added = repair(ImageConfig(env={"A": "\ud800ü"}, workdir="/\udc80"), tree(tmp_path), 0)
    assert len(added.extra) == 5
