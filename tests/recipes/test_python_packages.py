"""Python packages: wheels of those that are source only."""

from __future__ import annotations

import pytest
import yaml

from envbuild.core.errors import SpecError
from tests.support.recipes import ROOT, SOURCE_ONLY, commands, image, recipe

pytestmark = pytest.mark.unit


def test_wheels_of_packages_that_are_source_only() -> None:
    made = recipe("python-packages", packages=["numpy"], **SOURCE_ONLY)
    env = image(made)
    assert made.builds and made.sources(env).sdists == tuple(SOURCE_ONLY["compiled"])
    assert made.runtime(env).python == ("numpy",)
    assert "uv" in commands(made, env).lower()
    plain = recipe("python-packages", packages=["numpy"])
    assert not plain.builds and not plain.build(env) and not plain.sources(env).sdists
    with pytest.raises(SpecError, match="names an address"):
        recipe("python-packages", compiled=["demo @ https://files.example/demo.tar.gz"])


COMMIT = "0123456789abcdef0123456789abcdef01234567"


def test_projects_of_repositories() -> None:
    texts = [
        "numpy",
        "./wheels/local_thing-0.3-py3-none-any.whl",
        "Acme_Tools @ git+https://github.com/acme/tools.git@v1.2#subdirectory=python/tools",
        f"other@git+https://git.example.org/a/b@{COMMIT}",
    ]
    made = recipe("python-packages", packages=texts)
    env = image(made, target="cpu")
    first, second = made.sources(env).projects
    assert (first.name, first.origin, first.ref, first.subfolder) == (
        "acme-tools",
        "github:acme/tools",
        "v1.2",
        "python/tools",
    )
    assert (first.file, first.tag_version) == ("acme-tools-v1.2.tar", "1.2")
    assert (second.origin, second.commit, second.tag, second.file) == (
        "git:git.example.org/a/b", COMMIT, "", f"other-{COMMIT[:12]}.tar",
    )  # fmt: skip
    assert made.builds and made.runtime(env).python == ("numpy",) and made.runtime(env).wheels == (texts[1],)
    text = commands(made, env)
    assert "archives/acme-tools-v1.2.tar" in text and 'SETUPTOOLS_SCM_PRETEND_VERSION="1.2"' in text
    assert len(made.verify(env)) == 2


@pytest.mark.parametrize(
    ("text", "because"),
    [
        ("-e ./acme", "editable"),
        ("--editable git+https://github.com/a/b@v1", "editable"),
        ("acme @ file:///home/me/acme-1-py3-none-any.whl", "path of this machine"),
        ("/home/me/acme-1-py3-none-any.whl", "path of this machine"),
        ("./acme", "path of this machine"),
        ("acme @ https://files.example/acme-1-py3-none-any.whl", "names an address"),
        ("git+https://github.com/a/b@v1", "does not name a project"),
        ("b @ git+https://github.com/a/b", "does not name a project"),
        ("b @ git+https://git.example/../../etc@v1", "names a repository that cannot be fetched"),
        ("b @ git+https://user:secret@github.com/a/b@v1", "has a login in its address"),
        ("b @ git+ssh://github.com/a/b@v1", "with https"),
        ("b @ git+file:///srv/b@v1", "with https"),
        ("b @ git+https://github.com/a/b@v1#egg=b", "#subdirectory"),
        ("b @ git+https://github.com/a/b@v1#subdirectory=../x", "#subdirectory"),
        ("b @ git+https://github.com/a/b@-v", "not allowed"),
        ("b[fast] @ git+https://github.com/a/b@v1", "does not name a project"),
    ],
)
def test_packages_that_are_refused(text: str, because: str) -> None:
    with pytest.raises(SpecError) as caught:
        recipe("python-packages", packages=[text])
    assert because in str(caught.value) and text[:16] in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "package"), [("h100-megatron", "tensorboard"), ("lambda-neox-20b", "tensorboard==2.5.0")]
)
def test_images_of_programs_that_log_to_tensorboard_contain_it(name: str, package: str) -> None:
    """Without it they print a warning and write nothing."""
    listed = yaml.safe_load((ROOT / "images" / f"{name}.yaml").read_text())["layers"]["python-packages"]
    assert package in (listed["packages"] if isinstance(listed, dict) else listed)
