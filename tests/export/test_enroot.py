"""Files of an image for enroot, and what is refused before it is written."""

import shutil
import subprocess

import pytest

from envbuild.core.errors import SpecError, VerifyError
from envbuild.export.enroot import configure, start_script
from envbuild.oci.config import ImageConfig
from envbuild.spec.enroot_rules import PATH_FILE, shell_quote
from envbuild.squashfs.write.merge import merge_packs
from tests.support.packs import file, folder, packs, symlink, tree

pytestmark = pytest.mark.unit

RC = """\
# org.example.lock sha256:12
# org.example.title it's a $title

mkdir -p "/opt/my app" 2> /dev/null
cd "/opt/my app" && unset OLDPWD || exit 1

if [ -s /etc/rc.local ]; then
    . /etc/rc.local
fi

if [ $# -gt 0 ]; then
    exec "$@"
else
    exec 'python' '-c' 'print('\\''it works'\\'')'
fi
"""


def texts(additions):
    return {member.path.decode(): content.decode() for member, content in additions.extra}


def test_files_as_an_import_writes_them(tmp_path):
    config = ImageConfig(
        env={"PATH": "/opt/bin:/bin", "A": "b c", "EMPTY": "", "JSON": '{"a": "$b"}'},
        cmd=("python", "-c", "print('it works')"),
        workdir="/opt/my app",
        labels={"org.example.title": "it's a $title", "org.example.lock": "sha256:12"},
    )
    added = configure(config, tree(tmp_path, folder(b"opt/my app"), file(b"etc/profile", b"PATH=/bin")), 77)
    assert texts(added) == {
        "etc/rc": RC,
        "etc/rc.local": "# Sourced by /etc/rc before the command runs.\n# pyxis replaces this file.\n",
        "etc/environment": 'PATH=/opt/bin:/bin\nA=b c\nEMPTY=\nJSON={"a": "$b"}\n',
        "etc/fstab": "",
        PATH_FILE: "# A login shell gets another PATH from /etc/profile: this is the image's.\n"
        "export PATH='/opt/bin:/bin'\n",
    }
    assert all((member.mode, member.mtime, member.size) == (0o644, 77, len(content)) for member, content in added.extra)
    assert added.messages == (f"PATH would be lost to /etc/profile: added /{PATH_FILE}",)


def test_path_file_only_where_a_login_shell_would_reset_path(tmp_path):
    config = ImageConfig(env={"PATH": "/opt/bin"})
    assert PATH_FILE not in texts(configure(config, tree(tmp_path), 0))
    assert PATH_FILE not in texts(configure(ImageConfig(), tree(tmp_path, file(b"etc/profile")), 0))


def test_workdir_is_created(tmp_path):
    added = configure(ImageConfig(workdir="/old/../new//dir/"), tree(tmp_path), 0)
    assert [member.path for member, _ in added.extra if member.kind == "dir"] == [b"new/dir"]
    assert added.messages == ("created the working directory /new/dir",)
    assert not configure(ImageConfig(), tree(tmp_path), 0).messages


@pytest.mark.skipif(not shutil.which("dash"), reason="dash is not installed")
def test_start_script_runs_in_a_plain_shell(tmp_path):
    """With a command it runs that, without one the image's own; words arrive as they are."""
    place = tmp_path / "it's here"
    script = start_script(
        ImageConfig(workdir=str(place), cmd=("printf", "%s|", "a 'b' \"c\" $HOME `id`", "line\nbreak"))
    )
    (tmp_path / "rc").write_text(script)
    run = ["dash", str(tmp_path / "rc")]
    assert subprocess.check_output(run) == b"a 'b' \"c\" $HOME `id`|line\nbreak|"
    assert subprocess.check_output([*run, "pwd"]).decode() == f"{place}\n"
    assert subprocess.check_output(["dash", "-c", f"printf %s {shell_quote(chr(39) * 3)}"]) == b"'''"


@pytest.mark.parametrize(
    "config,where",
    [
        (ImageConfig(env={"A": "1\nB=2"}), "ENV A"),
        (ImageConfig(env={"BAD-NAME": "1"}), "ENV 'BAD-NAME'"),
        (ImageConfig(env={"NAME\n": "1"}), "ENV"),
        (ImageConfig(env={"ENROOT_DATA_PATH": "/x"}), "ENV ENROOT_DATA_PATH"),
        (ImageConfig(env={"A": "/x:${PATH}"}), "ENV A"),
        (ImageConfig(env={"A": '"quoted"'}), "ENV A"),
        (ImageConfig(env={"A": "'mixed\"  "}), "ENV A"),
        (ImageConfig(env={"HOME": "/home/nobody"}), "ENV HOME"),
        (ImageConfig(env={"HOME": "root"}), "ENV HOME"),
        (ImageConfig(env={"HOME": "/bin/sh"}), "ENV HOME"),
        (ImageConfig(labels={"a": "1\nrm -rf /"}), "LABEL a"),
        (ImageConfig(labels={"a\nb": "1"}), "LABEL"),
        (ImageConfig(workdir="/a$(id)"), "WORKDIR"),
        (ImageConfig(workdir="/a`id`"), "WORKDIR"),
        (ImageConfig(workdir='/a"b'), "WORKDIR"),
        (ImageConfig(workdir="/a\\"), "WORKDIR"),
        (ImageConfig(workdir="relative"), "WORKDIR"),
        (ImageConfig(workdir="/bin/sh"), "WORKDIR"),
        (ImageConfig(workdir="/dev/shm"), "WORKDIR"),
    ],
)
def test_refused(tmp_path, config, where):
    with pytest.raises(SpecError) as caught:
        configure(config, tree(tmp_path), 0)
    assert len(caught.value.findings) == 1 and caught.value.where.startswith(where) and caught.value.hint


@pytest.mark.parametrize("value", ["${X:-d}", "$X", '"', "a\"b'", "'open", " # ", "$(id)", "\\n", "ü"])
def test_values_that_arrive_as_they_are(tmp_path, value):
    assert texts(configure(ImageConfig(env={"A": value}), tree(tmp_path), 0))["etc/environment"] == f"A={value}\n"


def test_every_finding_at_once(tmp_path):
    config = ImageConfig(env={"A": "1\n2", "B-": "${C}"}, workdir="x", labels={"l": "1\n"})
    with pytest.raises(SpecError) as caught:
        configure(config, merge_packs(packs(tmp_path, [file(b"x")])), 0)
    assert [finding.where for finding in caught.value.findings] == [
        "ENV A",
        "ENV 'B-'",
        "ENV 'B-'",
        "LABEL l",
        "WORKDIR",
        "/bin/sh",
    ]


@pytest.mark.parametrize(
    "layer",
    [
        [file(b"a")],
        [folder(b"bin/sh")],
        [symlink(b"bin/sh", b"none")],
        [symlink(b"bin/sh", b"sh")],
        [file(b"bin/sh", b"#", 0o644)],
    ],
)
def test_no_shell(tmp_path, layer):
    with pytest.raises(VerifyError, match="/bin/sh"):
        configure(ImageConfig(), merge_packs(packs(tmp_path, layer)), 0)
