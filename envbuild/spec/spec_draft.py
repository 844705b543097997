"""The nodes of a spec, merged over those of the specs that it extends."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from envbuild.core.errors import SpecError
from envbuild.core.yaml_nodes import Node, Scalar, Table
from envbuild.core.yaml_reader import Reader, did_you_mean, short
from envbuild.matrix.facts.waiver import Waiver
from envbuild.spec.project import Project, is_valid_name

KEYS = (
    "schema", "description", "extends", "target", "base", "python", "distribution", "layers", "dev", "env", "waivers",
)  # fmt: skip


@dataclass
class SpecDraft:
    """Nodes of a spec, merged over those of the specs that it extends: key → (place of the key, value).

    dev_folder: where the paths of `dev` begin: the folder of the file that has it. files: all of them, its own last."""

    top: dict[str, tuple[str, Node]]
    layers: dict[str, tuple[str, Node]]
    env: dict[str, tuple[str, Node]]
    waivers: dict[str, Waiver]
    where: str
    text: str
    dev_folder: Path = Path()
    files: tuple[Path, ...] = ()


def read_draft(path: Path, project: Project, reader: Reader, chain: tuple[Path, ...]) -> SpecDraft:
    """Return the nodes of one file, merged over those of the file that it extends."""
    project.check_file(path)
    top = reader.load(path)
    reader.schema(top, "spec")
    nodes = reader.table(top, KEYS, "spec", "a spec")
    chain = (*chain, path.resolve())
    draft = SpecDraft({}, {}, {}, {}, top.where, "")
    if "extends" in nodes and (other := reader.text(nodes["extends"], "extends")) is not None:
        draft = _parent(other, path, nodes["extends"].where, project, reader, chain)
        draft.where = top.where
        draft.text += "---\n"
    draft.files += (path,)
    draft.text += top.text if top.text.endswith("\n") else f"{top.text}\n"
    for key, (place, node) in top.entries.items():
        if key in KEYS and key not in ("schema", "extends", "layers", "env", "waivers"):
            draft.top[key] = (place.where, node)
            draft.dev_folder = path.parent if key == "dev" else draft.dev_folder
    for kind, merged in (("layers", draft.layers), ("env", draft.env)):
        for key, (place, node) in reader.entries(nodes[kind], kind).items() if kind in nodes else ():
            if "extends" in nodes and isinstance(node, Scalar) and node.kind == "null":
                if key not in merged:
                    hint = did_you_mean(key, merged, "it has")
                    reader.wrong(
                        place.where,
                        f"'{short(key)}' is not in the spec that this one extends, so it cannot be removed",
                        hint,
                    )
                merged.pop(key, None)
            else:
                merged[key] = (place.where, node)
    for waiver in _waivers(reader, nodes["waivers"]) if "waivers" in nodes else ():
        draft.waivers[waiver.fact] = waiver
    return draft


def _parent(other: str, path: Path, where: str, project: Project, reader: Reader, chain: tuple[Path, ...]) -> SpecDraft:
    beside = path.parent / f"{other}.yaml"
    try:
        found = beside if is_valid_name(other) and beside.is_file() else project.find_image(other)
    except SpecError as error:
        raise SpecError(f"'extends': {error.message}", error.hint, where) from None
    if not found.is_file():
        raise SpecError(f"'extends': no such file: {short(other)}", where=where)
    if found.resolve() in chain:
        names = [item.stem for item in (*chain[chain.index(found.resolve()) :], found)]
        hint = "remove one 'extends'" if len(names) > 2 else "name another spec, or rename this file"
        raise SpecError(f"'extends' forms a cycle: {' → '.join(names)}", hint, where)
    return read_draft(found, project, reader, chain)


def _waivers(reader: Reader, node: Node) -> list[Waiver]:
    waivers = []
    for item in reader.items(node, "waivers"):
        fields = reader.table(item, ("fact", "reason"), "waivers", "a waiver")
        read = {key: reader.text(fields[key], key, folded=True) for key in fields}
        missing = [key for key in ("fact", "reason") if key not in read or read[key] == ""]
        if isinstance(item, Table) and missing:
            hint = "write - {fact: ID, reason: who tested it, where and when}"
            reader.wrong(item.where, f"a waiver needs a {' and a '.join(missing)}", hint)
        fact, reason = read.get("fact"), read.get("reason")
        if fact and reason:
            waivers.append(Waiver(fact, reason, item.where))
    return waivers
