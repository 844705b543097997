"""Python packages that need no recipe of their own: of the package index, of a repository, wheels of the project."""

import re
from dataclasses import dataclass
from typing import Any, ClassVar

from envbuild.sdk import (
    INPUTS,
    PYTHON,
    VENV,
    Check,
    GitProject,
    Recipe,
    RecipeEnv,
    Refusal,
    Runtime,
    Sources,
    comment,
    git_origin,
    python_wheel,
    shell,
)

# The form of most requirements. Only the others need `packaging`, whose import takes longer than the rest of a command
# that has nothing to do.
PLAIN = (
    r"[A-Za-z0-9]+([._-]+[A-Za-z0-9]+)*(((==|>=|<=|!=|<|>)[0-9]+(\.[0-9]+)*)(,(==|>=|<=|!=|<|>)[0-9]+(\.[0-9]+)*)*)?"
)

WHEEL = re.compile(r"\.{1,2}/.+\.whl")  # a wheel of the project, relative to the folder of the spec
GIT = re.compile(
    r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)\s*@\s*git\+(?P<address>[^@\s#]+)@(?P<ref>[^@\s#]+)(?P<rest>#\S*)?"
)
SUBFOLDER = re.compile(r"#subdirectory=(?P<folder>[A-Za-z0-9_][A-Za-z0-9._-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*)*)")
REF = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._/+-]*")
EXAMPLE = "NAME @ git+https://HOST/REPOSITORY@TAG-OR-COMMIT"


class ProjectError(ValueError):
    """A requirement does not name a project in a repository. The text is the cause; `package_fault` adds the hint."""


@dataclass(frozen=True, kw_only=True)
class PythonPackages(Recipe):
    """Python packages: ``python-packages: [transformers, "datasets>=4"]``.

    - `packages`: requirements (PEP 508), resolved together with everything else in the venv; wheels of the project
      (``./wheels/acme-1.0-py3-none-any.whl``, relative to the spec); projects in repositories
      (``acme @ git+https://HOST/REPOSITORY@TAG-OR-COMMIT``), which are locked to a commit with its submodules. Their
      wheels are built here, without network. A GPU extension needs a recipe.
    - `compiled`: pure Python packages that the index has as source only (``ftfy==6.0.1``). Their wheels are built here,
      with setuptools. Their own requirements are not known before that: add them to `packages`.
    """

    shorthand: ClassVar[str] = "packages"
    wheel: ClassVar[bool] = True  # of those in `compiled`; see `builds`

    packages: tuple[str, ...] = ()
    compiled: tuple[str, ...] = ()

    @property
    def builds(self) -> bool:
        return bool(self.compiled or self.projects)

    @property
    def wheels(self) -> tuple[str, ...]:
        return tuple(text for text in self.packages if WHEEL.fullmatch(text))

    @property
    def projects(self) -> tuple[GitProject, ...]:
        return tuple(parse_project(text) for text in self.packages if is_project(text))

    def faults(self) -> dict[str, Refusal]:
        found = {text: package_fault(text) for text in self.packages if not re.fullmatch(PLAIN, text)}
        found |= {text: requirement_fault(text) for text in self.compiled if not re.fullmatch(PLAIN, text)}
        return {text: refusal for text, refusal in found.items() if refusal}

    def sources(self, env: RecipeEnv) -> Sources:
        tools = ("setuptools", "wheel") if self.compiled else ()
        return Sources(python=tools, sdists=self.compiled, projects=self.projects)

    def build(self, env: RecipeEnv) -> list[Any]:
        found = [step for project in self.projects for step in project_wheel(project)]
        if not self.compiled:
            return found
        make = f'"$UV" build --wheel --no-build-isolation --python {VENV}/bin/python --out-dir {INPUTS}/out "$sdist"'
        return [
            *found,
            comment("wheels of packages that the index has as source only"),
            shell(commands=[f"mkdir -p {INPUTS}/out", f"for sdist in {INPUTS}/sdists/*; do {make} || exit 1; done"]),
        ]

    def runtime(self, env: RecipeEnv) -> Runtime:
        elsewhere = {*self.wheels, *(text for text in self.packages if is_project(text))}
        names = tuple(text for text in self.packages if text not in elsewhere)
        return Runtime(python=names, wheels=self.wheels)

    def verify(self, env: RecipeEnv) -> list[Check]:
        program = "import importlib.metadata, sys; print(importlib.metadata.version(sys.argv[1]))"
        return [
            Check(
                f"python-packages: {project.name} of {project.origin}@{project.ref} is installed",
                f'{PYTHON} -c "{program}" {project.name}',
                r"^\d",
            )
            for project in self.projects
        ]


def project_wheel(project: GitProject) -> list[Any]:
    """Return the steps that build the wheel of a project."""
    # setuptools-scm and what is built on it read the version of a history, which a tarball has not
    variables = {"SETUPTOOLS_SCM_PRETEND_VERSION": project.tag_version} if project.tag_version else {}
    return python_wheel(project.name, git=project, environment=variables, subfolder=project.subfolder)


def is_project(text: str) -> bool:
    return "git+" in text and GIT.fullmatch(text) is not None


def parse_project(text: str) -> GitProject:
    """Return the project that a requirement names. Raises ProjectError."""
    found = GIT.fullmatch(text)
    if re.search(r"git\+https?://[^/]*@", text):
        raise ProjectError("has a login in its address, which belongs into ~/.netrc")
    if not found:
        raise ProjectError("does not name a project, its repository and a commit or a tag")
    below = SUBFOLDER.fullmatch(found["rest"] or "")
    if found["rest"] and not below:
        raise ProjectError(f"ends with {found['rest']}, and #subdirectory=FOLDER alone may follow")
    if not REF.fullmatch(found["ref"]):
        raise ProjectError("names a tag with characters that are not allowed")
    if not found["address"].startswith("https://"):
        raise ProjectError("names a repository that is not one of an address with https")
    try:
        origin = git_origin(found["address"])
    except ValueError as error:
        raise ProjectError(f"names a repository that cannot be fetched: {error}") from None
    name = re.sub(r"[-_.]+", "-", found["name"]).lower()
    return GitProject(name, origin, found["ref"], below["folder"] if below else "")


def package_fault(text: str) -> Refusal | None:
    """Return the reason why `text` is neither a requirement, nor a project, nor a wheel, or None."""
    wheel = "write the path of a wheel relative to the spec: ./wheels/NAME-VERSION-py3-none-any.whl"
    if WHEEL.fullmatch(text):
        return None
    if re.match(r"(-e|--editable)\b", text):
        return Refusal(
            "is an editable install: a folder of this machine, which an image does not have", f"write {EXAMPLE}"
        )
    if "git+" in text:
        try:
            parse_project(text)
        except ProjectError as error:
            return Refusal(str(error), f"write {EXAMPLE}")
        return None
    if "file:" in text or text.startswith(("/", "./", "../", "~")):
        return Refusal("is a path of this machine, or of no wheel", wheel)
    return requirement_fault(text)


def requirement_fault(text: str) -> Refusal | None:
    """Return the reason why `text` is not a requirement by name (PEP 508), or None."""
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        address = Requirement(text).url
    except InvalidRequirement as error:
        return Refusal(f"is not a Python requirement: {str(error).splitlines()[0]}")
    if not address:
        return None
    return Refusal(
        f"names an address, and a lock contains packages of an index: write its name and version, or {EXAMPLE}"
    )
