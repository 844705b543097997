"""An image whose shell is the running program itself (CVE-2019-5736 of runc) reaches no file of the machine."""

from __future__ import annotations

import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from envbuild.core.store.store import Store
from tests.support import tiny_root as kit
from tests.support.programs import importing

pytestmark = pytest.mark.engine

# In the place of the dynamic loader: changes the file of each program that the kernel starts with it.
# Without a C library, which would set up the program itself.
LOADER = """
static void call(long number, long a, const char *b, long c) {
#ifdef __x86_64__
  __asm__ volatile("syscall" : "+a"(number) : "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
#else
  register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x2 __asm__("x2") = c;
  register const char *x1 __asm__("x1") = b;
  __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
#endif
}
#ifdef __x86_64__
enum { FCHMODAT = 268, EXIT = 60 };
#else
enum { FCHMODAT = 53, EXIT = 93 };
#endif
void _start(void) {
  call(FCHMODAT, -100L, "/proc/self/exe", 04777L);
  call(EXIT, 11, 0, 0);
}
"""
# Arguments: the store, trees. Runs the image's /bin/sh.
RUN = """
import sys
from pathlib import Path
from tests.support.captured_run import run_captured
from envbuild.core.store.store import Store
done = run_captured([Path(tree) for tree in sys.argv[2:]], ["/bin/sh", "-c", "true"], env={},
                   store=Store.open(Path(sys.argv[1])), timeout=60.0)
print(*done)
"""


@pytest.mark.parametrize("shell", ["script", "link"])
def test_the_interpreter_of_the_machine_is_out_of_reach(shell: str, store: Store, tmp_path: Path) -> None:
    for tool in ("gcc", "readelf"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    interpreter = tmp_path / "python"  # a copy: the machine's own must not be at risk
    shutil.copy2(Path(sys.executable).resolve(), interpreter)
    interpreter.chmod(0o755)
    headers = subprocess.run(["readelf", "-l", str(interpreter)], capture_output=True, text=True, check=True).stdout
    loader = headers.partition("Requesting program interpreter: ")[2].partition("]")[0]
    over = tmp_path / "over"
    place = over / loader.removeprefix("/")
    for folder in (over, over / "bin", place.parent):
        folder.mkdir(parents=True, exist_ok=True)
    (tmp_path / "loader.c").write_text(LOADER)
    subprocess.run(
        ["gcc", "-nostdlib", "-static-pie", "-fPIE", "-o", str(place), str(tmp_path / "loader.c")], check=True
    )
    if shell == "link":
        (over / "bin/sh").symlink_to("/proc/self/exe")
    else:
        (over / "bin/sh").write_text("#!/proc/self/exe\n")
        (over / "bin/sh").chmod(0o755)
    trees = [str(store.layer_tree(kit.build(store).layers[0].diff_id)), str(over)]
    command = [str(interpreter), "-c", RUN, str(store.root), *trees]
    home = {"PYTHONHOME": sys.base_prefix, **importing()}
    home["PYTHONPATH"] = ":".join([home.get("PYTHONPATH", ""), *sys.path])
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=home)
    assert (done.returncode, done.stdout) == (0, "126 b''\n"), done.stderr
    assert stat.S_IMODE(interpreter.stat().st_mode) == 0o755
