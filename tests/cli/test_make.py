"""The sentence: an image that is up to date, one that is made, and one that is built twice."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from envbuild import make as sentence
from envbuild.build.cache import unit_supply
from envbuild.build.engines.base import BuildOptions
from envbuild.cli.make import make_command
from envbuild.core.console import SilentReporter
from envbuild.core.errors import ConflictError, DamagedLayerError, Finding, SpecError
from envbuild.core.store.store import Store
from envbuild.lock import required_lock
from envbuild.make import LockRule, Options, make, make_twice
from envbuild.net.unit_caches import UnitCache
from envbuild.publish import make_and_share

pytestmark = pytest.mark.unit
# Imported before a step is replaced: they would take the replaced one as their own for the rest of the run.
IMPORTED = (unit_supply, required_lock)


class Steps:
    """The steps, which record their calls instead of working."""

    def __init__(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[str] = []
        self.engines: list[str] = []
        self.seen: list[str] = []  # engines whose records were read
        self.record: Any = None
        self.built = SimpleNamespace(
            engine="embedded",
            layers=(SimpleNamespace(diff_id="sha256:1"),),
            built=("base",),
            reused=("venv",),
            caches=(),
        )
        self.workspace: Any = SimpleNamespace(
            project=None,
            site=SimpleNamespace(engine="buildah", compiler_cache=False, caches=()),
            store=store,
            reporter=SilentReporter(),
        )
        lock = SimpleNamespace(image="app", base_image=None)
        resolution = SimpleNamespace(target=None, contents=(), spec=SimpleNamespace(name="app", base="debian:13"))
        artifact = SimpleNamespace(path="/app.sqsh", sha256="ab", messages=("note",), stamp=None)
        request = SimpleNamespace(source_places=lambda: {}, folder="", contents=())
        step = self.step
        for name, value in {
            "envbuild.make.load_image_spec": step("load", resolution.spec),
            "envbuild.make.resolve_as_locked": step("", resolution),
            "envbuild.make.resolve_in": step("resolve", resolution),
            "envbuild.make.resolve_image": step("resolve", resolution),
            "envbuild.make.check_machine": step("", None),
            "envbuild.make.read_image_record": self.read,
            "envbuild.lock.lock_record.read_marks": step("", []),
            "envbuild.make.key_of_lock": step("", SimpleNamespace(lock=b"", path=Path("key.json"))),
            "envbuild.make.write_image_record": step("record", None),
            "envbuild.lock.update.ensure_lock": step("lock", lock),
            "envbuild.lock.update.current_lock": step("", lock),
            "envbuild.build.engines.select.choose_engine": self.choose,
            "envbuild.lock.fetch.fetch": step("fetch again", None),
            "envbuild.build.cache.unit_supply.inputs_to_fetch": step("", []),
            "envbuild.build.cache.unit_supply.UnitSupply.check": step("check", None),
            "envbuild.build.cache.unit_supply.fetch": step("fetch", None),
            "envbuild.lock.request.lock_request": step("", request),
            "envbuild.lock.model.lock_digest": step("", "sha256:2"),
            "envbuild.build.plan.planner.make_plan": step("plan", SimpleNamespace(image="app", units=("base", "venv"))),
            "envbuild.export.project_image.write_artifact": step("export", artifact),
            "envbuild.make.link_by_name": step("link", None),
            "envbuild.verify.verify.verify": step("verify", ("/app.evidence.json", None)),
            "envbuild.verify.provenance.image_documents": step("documents", None),
            "envbuild.verify.provenance.write_documents": step("", None),
            "envbuild.build.reproducibility.rebuild_and_compare": self.rebuild,
        }.items():
            monkeypatch.setattr(name, value)

    def step(self, name: str, value: Any) -> Any:
        def run(*_: Any, **__: Any) -> Any:
            self.calls += [name] if name else []
            return value

        return run

    def read(self, *_: Any, **options: Any) -> Any:
        self.options = options
        self.seen.append(options.get("engine", ""))
        return self.record

    def choose(self, name: str, *_: Any) -> Any:
        self.engines.append(name)
        missing = self.step("", ("base", "venv"))
        return SimpleNamespace(name=name, caches=False, missing=missing, build=self.step("build", self.built))

    def rebuild(self, plan: Any, layers: Any, engine: Any, *_: Any) -> None:
        self.calls.append(f"again with {engine.name}")
        assert layers == ("sha256:1",)


@pytest.fixture
def steps(store: Store, monkeypatch: pytest.MonkeyPatch) -> Steps:
    return Steps(store, monkeypatch)


def test_the_steps_in_their_order(steps: Steps) -> None:
    made = make("app", steps.workspace, Options())
    assert steps.calls == [
        "load", "resolve", "lock", "plan", "check", "fetch", "build", "export", "verify", "documents",
        "link", "record",
    ]  # fmt: skip
    assert (made.image, made.artifact, made.sha256, made.lock) == ("app", "/app.sqsh", "ab", "sha256:2")
    assert (made.engine, made.layers, made.messages) == ("embedded", ("sha256:1",), ("note",))
    assert (made.built, made.reused, made.evidence) == (("base",), ("venv",), "/app.evidence.json")
    assert steps.options["key"].path == Path("key.json")  # files may have changed since the begin


def test_an_image_that_is_up_to_date_needs_no_step(steps: Steps) -> None:
    steps.record = SimpleNamespace(image="app", artifact="/app.sqsh", lock="", layers=(), caches=())
    assert make("app", steps.workspace, Options(engine="embedded", verify=False)) is steps.record
    assert steps.calls == ["load", "link"] and steps.engines == []
    assert steps.options == {"engine": "embedded", "verified": False}


def test_recipes_are_loaded_again_after_a_base_was_compared(steps: Steps, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes minutes for a large archive, in which a recipe may be edited."""
    steps.record = SimpleNamespace(image="app", artifact="/app.sqsh", lock="", layers=(), caches=())
    monkeypatch.setattr("envbuild.make.check_base", lambda *_: True)
    lock = SimpleNamespace(image="app", base_image=None)
    monkeypatch.setattr("envbuild.lock.update.renew_lock", steps.step("renew", lock))
    make("app", steps.workspace, Options(engine="embedded", lock=LockRule.RENEW))
    assert steps.calls[:3] == ["load", "load", "resolve"]


def test_versions_of_a_lock_that_do_not_fit_the_spec_any_more_are_for_the_lock_to_renew(
    steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> Any:
        raise ConflictError("torch 2.15 is incompatible with the new target")

    monkeypatch.setattr("envbuild.make.resolve_as_locked", refuse)
    steps.record = SimpleNamespace(image="app", artifact="/app.sqsh", lock="", layers=(), caches=())
    assert make("app", steps.workspace, Options()) is not steps.record
    assert steps.calls[:3] == ["load", "resolve", "lock"]


@pytest.mark.parametrize("rule", LockRule)
def test_the_rule_decides_which_step_returns_the_lock(
    steps: Steps, monkeypatch: pytest.MonkeyPatch, rule: LockRule
) -> None:
    lock = SimpleNamespace(image="app", base_image=None)
    monkeypatch.setattr("envbuild.lock.update.renew_lock", steps.step("renew", lock))
    monkeypatch.setattr("envbuild.lock.required_lock.require_lock", steps.step("require", lock))
    monkeypatch.setattr("envbuild.lock.update.current_lock", steps.step("current", lock))
    make("app", steps.workspace, Options(lock=rule))
    assert steps.calls[2] == {"make": "lock", "renew": "renew", "require": "require", "present": "current"}[rule]


def test_an_image_with_units_of_a_cache_that_is_not_used_is_made_again(steps: Steps) -> None:
    steps.record = SimpleNamespace(image="app", artifact="/app.sqsh", lock="", layers=(), caches=("quay.io/a/cache",))
    steps.workspace.site.caches = (UnitCache("quay.io/a/cache"),)
    assert make("app", steps.workspace, Options()) is steps.record
    assert make("app", steps.workspace, Options(caches=())) is not steps.record
    steps.workspace.site.caches = ()
    assert make("app", steps.workspace, Options()) is not steps.record


def test_an_image_without_verification_is_linked_without_evidence(steps: Steps) -> None:
    made = make("app", steps.workspace, Options(verify=False))
    assert "verify" not in steps.calls and "link" in steps.calls and made.evidence == ""


def test_a_second_command_waits_while_the_file_is_written_and_verified(
    steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would replace the file that the first one verifies, which ends with the error of a damaged image."""
    taken: list[str] = []

    def raise_busy() -> None:
        raise BlockingIOError

    def taken_by_another(*_: Any) -> Any:
        with pytest.raises(BlockingIOError), steps.workspace.store.lock("image-app-2", raise_busy):
            pass
        taken.append(steps.calls[-1])
        return "/app.evidence.json", None

    monkeypatch.setattr("envbuild.verify.verify.verify", taken_by_another)
    make("app", steps.workspace, Options())
    assert taken == ["export"]
    with steps.workspace.store.lock("image-app-2", raise_busy):  # free again
        pass


def test_a_file_that_another_command_has_made_meanwhile_is_not_written_again(
    steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    meanwhile = SimpleNamespace(path="/other.sqsh", sha256="cd", messages=(), stamp=None)
    monkeypatch.setattr("envbuild.export.built_image.find_unchanged_file", lambda *_: meanwhile)
    records = iter([None, SimpleNamespace(lock="sha256:2")])
    monkeypatch.setattr("envbuild.make.read_image_record", lambda *_, **__: next(records))
    assert make("app", steps.workspace, Options()).sha256 == "cd"
    assert "export" not in steps.calls and "verify" in steps.calls


def test_an_image_of_any_engine_is_up_to_date_where_none_is_named(steps: Steps) -> None:
    """`publish` and `export` take what was made and tested; the command `make` names the engine of the site."""
    make("app", steps.workspace, Options())
    make("app", steps.workspace, Options(engine="buildah"))
    assert steps.seen == ["", "", "buildah", ""]


@pytest.mark.parametrize(("option", "wanted"), [("", "buildah"), ("embedded", "embedded")])
def test_the_command_names_the_engine_of_the_site(
    option: str, wanted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An image that another engine has made is made again."""
    (tmp_path / "images").mkdir()
    (tmp_path / "images/x.yaml").write_text("schema: 1\ntarget: cpu\nbase: debian:13\nlayers: {}\n")
    (tmp_path / "site.yaml").write_text("schema: 1\nengine: buildah\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ENVBUILD_STORE", str(tmp_path / "store"))
    seen: list[str] = []

    def stop(kind: Any, name: str, workspace: Any, options: Options, **_: Any) -> None:
        seen.append(options.engine)
        raise SpecError("enough")

    monkeypatch.setattr(make_and_share, "make_and_share", stop)
    with pytest.raises(SpecError, match="enough"):
        make_command(["x"], engine=option)
    assert seen == [wanted]


def test_the_engine_is_that_of_the_option_or_else_of_the_site(steps: Steps) -> None:
    make("app", steps.workspace, Options())
    make("app", steps.workspace, Options(engine="embedded", build=BuildOptions(jobs=1)))
    assert steps.engines == ["buildah", "embedded"]


def test_the_second_build_is_by_the_engine_of_the_first(steps: Steps) -> None:
    make_twice("app", steps.workspace, Options())
    assert steps.calls[-1] == "again with embedded" and steps.engines == ["buildah", "embedded"]
    assert steps.workspace.reporter.lines[-1].startswith("app: 2 units")
    assert sentence.counted(1, "unit") == "1 unit"


def test_a_layer_that_is_found_damaged_is_built_again(steps: Steps, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(*_: Any) -> Any:
        steps.calls.append("export")
        if steps.calls.count("export") == 1:
            raise DamagedLayerError.of([Finding("the layer 1 is damaged"), Finding("the layer 2 is damaged")])
        return SimpleNamespace(path="/app.sqsh", sha256="ab", messages=(), stamp=None)

    monkeypatch.setattr("envbuild.export.project_image.write_artifact", write)
    make("app", steps.workspace, Options())
    assert [name for name in steps.calls if name in ("build", "export")] == ["build", "export"] * 2
    assert [line.split(":")[0] for line in steps.workspace.reporter.lines] == [
        f"the layer {number} is damaged" for number in (1, 2)
    ]
