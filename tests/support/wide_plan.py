"""A plan with every kind of unit."""

from __future__ import annotations

from envbuild.build.plan.units import Input, Plan, Product
from envbuild.core.store.store import Store
from tests.support import tiny_root as kit


def wide(store: Store) -> Plan:
    """Return a plan with every kind of unit: prefixes, a folder in two parts, wheels of two units, texts, a script."""
    texts = Input("texts", "text", texts=(("etc/made/by", "text\n"), ("opt/x", "x\n")))
    archive = kit.tar_bytes([(kit.entry("top/src/main", mode=0o755), b"int\n")], "w:gz")
    wheels = tuple(
        kit.unit(
            name,
            f"echo {name} > /run/envbuild/out/{name}-1-py3-none-any.whl; mkdir -p /opt/scratch; touch /opt/scratch/x",
            lowers=("base", "root", "one"),
            product=Product.WHEEL,
            in_image=False,
        )
        for name in ("apex", "flash")
    )
    return kit.plan(
        store,
        kit.unit(
            "debs",
            "echo 1 > /var/packages; rm /etc/other; rm -r /data; mkdir /data; echo 2 > /data/three; "
            "mkdir -p /usr/local/lib /usr/local/turned; echo 3 > /usr/local/lib/old; "
            "touch '/usr/local/li\nne' /usr/local/same",
        ),
        kit.unit("root", "echo gcc > /usr/bin/gcc; chmod 755 /usr/bin/gcc", in_image=False),
        kit.unit(
            "one",
            "test -x /usr/bin/gcc && mkdir -p /opt/one/bin && cp /run/envbuild/archive/src/main /opt/one/bin/",
            "env > /opt/one/env",
            "# the third\ncat > /opt/one/text <<'END'\nlines $HOME \"quoted\"\nEND\nln -s bin /opt/one/sbin; "
            "cp -p /opt/one/bin/main /opt/one/bin/hard; ln /opt/one/bin/hard /opt/one/bin/hard2; "
            "mkdir /opt/one/plug /opt/one/etc; echo old > /opt/one/plug/old; touch /opt/one/etc/one /etc/not-kept",
            lowers=("base", "root"),
            inputs=(Input("archive", "tree", (kit.add(store, "src.tar.gz", archive),)),),
            env={"QUOTED": 'a "b" $c \\d'},
            keep=("/opt/one",),
        ),
        kit.unit(
            "plug",  # in the folder of another unit, from which it deletes
            "rm /opt/one/plug/old; echo new > /opt/one/plug/new",
            lowers=("base", "root", "one"),
            keep=("/opt/one/plug",),
        ),
        kit.unit(
            "local",  # in a folder of Debian packages, from which it deletes
            "cd /usr/local; rm lib/old 'li\nne'; rmdir turned; ln -s lib turned; echo new > lib/new",
            lowers=("base", "debs"),
            keep=("/usr/local",),
        ),
        kit.unit(
            "inner",
            "mkdir -p /opt/deep/in; chmod 1777 /opt/deep/in; touch /opt/deep/in/a /opt/deep/in/b",
            keep=("/opt/deep/in",),
        ),
        kit.unit(
            "outer",  # around the folder of another unit, from which it deletes
            "rm /opt/deep/in/a; touch /opt/deep/c",
            lowers=("base", "inner"),
            keep=("/opt/deep",),
        ),
        kit.unit("spool", "mkdir /opt/spool; chown 7:8 /opt/spool; chmod 2751 /opt/spool", keep=("/opt/spool",)),
        kit.unit("within", "mkdir -p /opt/one/etc; touch /opt/one/etc/within", keep=("/opt/one/etc",)),  # saw no "one"
        *wheels,
        kit.unit("core", "mkdir /opt/venv; echo big > /opt/venv/torch; echo old > /opt/venv/old", keep=("/opt/venv",)),
        kit.unit(
            "venv",
            "rm /opt/venv/old; cat /run/envbuild/kernels/*.whl > /opt/venv/kernels; chown 7:8 /opt/venv/kernels",
            lowers=("base", "core"),
            inputs=(Input("kernels", "files", units=("apex", "flash")),),
            keep=("/opt/venv",),
        ),
        kit.unit(
            "devel",
            "mkdir -p /opt/tool/bin /opt/tool/include; echo same > /opt/tool/bin/same; echo h > /opt/tool/include/h",
            keep=("/opt/tool",),
            in_image=False,
        ),
        kit.unit(
            "tool",
            "cp -p /opt/tool/bin/same /tmp/same; cp -p /tmp/same /opt/tool/bin/same; ln -s same /opt/tool/bin/link",
            lowers=("base", "devel"),
            keep=("/opt/tool",),
            build_only=("devel",),
        ),
        kit.unit(
            "user",
            "mkdir /opt/user; cat /opt/tool/include/h /opt/tool/bin/link > /opt/user/seen",
            lowers=("base", "devel", "tool"),
            keep=("/opt/user",),
        ),
        kit.unit(
            "glue",
            "cp -r /run/envbuild/texts/. / && cat /opt/one/text /opt/venv/kernels /var/packages > /etc/all; "
            "find /opt/one/plug /opt/one/etc /opt/deep /usr/local | sort > /etc/found",
            lowers=(
                "base",
                "debs",
                "one",
                "plug",
                "local",
                "inner",
                "outer",
                "spool",
                "within",
                "core",
                "venv",
                "tool",
                "user",
            ),
            inputs=(texts,),
        ),
    )
