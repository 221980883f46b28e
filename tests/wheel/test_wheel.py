# SPDX-License-Identifier: Apache-2.0
"""The wheel alone is enough: built, looked into, installed by an ordinary user without a compiler, and trained with.

Building fetches its tools with pip; PENSTOCK_WHEEL names a wheel that is there already. numpy and torch come from the
system's packages, everything else from the wheel.
"""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

import pytest

ROOT = pathlib.Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "tests" / "python"), str(ROOT / "tools")]
import readme  # noqa: E402
import wheel_licences  # noqa: E402

NOBODY = 65534
MOST_BYTES = 20 << 20
# Part of every glibc system; zlib is CPython's own need and in manylinux's list.
OUTSIDE = re.compile(r"(linux-vdso|ld-linux-x86-64|libc|libm|libpthread|libresolv|libz)\.so(\.\d+)*")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> pathlib.Path:
    given = os.environ.get("PENSTOCK_WHEEL")
    if given:
        return pathlib.Path(given)
    out = tmp_path_factory.mktemp("dist")
    built = subprocess.run([ROOT / "tools" / "wheel.sh", out], capture_output=True, text=True, timeout=1200)
    assert built.returncode == 0, built.stdout + built.stderr
    (made,) = out.iterdir()
    return made


class User:
    """An ordinary user: a home, a virtual environment with the wheel, and no other program in PATH."""

    def __init__(self, home: pathlib.Path) -> None:
        self.home, self.venv = home, home / "venv"
        self.env = {"HOME": str(home), "PATH": str(self.venv / "bin"), "LC_ALL": "C.UTF-8"}

    def run(self, *command: object, check: bool = True) -> subprocess.CompletedProcess:
        drop = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if os.geteuid() == 0 else {}
        words = [str(word) for word in command]
        done = subprocess.run(words, env=self.env, cwd=self.home, capture_output=True, text=True, timeout=300, **drop)
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done

    def python(self, *args: object, check: bool = True) -> subprocess.CompletedProcess:
        return self.run(self.venv / "bin" / "python", *args, check=check)


@pytest.fixture(scope="module")
def user(wheel):
    home = pathlib.Path(tempfile.mkdtemp(prefix="penstock-user-"))
    try:
        shutil.copy(wheel, home)
        readme.make_photos(home / "photos")
        for path in (home, *home.rglob("*")):
            if os.geteuid() == 0:
                os.chown(path, NOBODY, NOBODY)
        made = User(home)
        made.run(sys.executable, "-m", "venv", "--system-site-packages", made.venv)
        made.python("-m", "pip", "install", "--no-index", "--disable-pip-version-check", home / wheel.name)
        yield made
    finally:
        shutil.rmtree(home)


def test_name_and_size(wheel):
    tag = f"cp3{sys.version_info.minor}-abi3-manylinux_2_\\d+_x86_64"
    assert re.fullmatch(rf"penstock-[\d.]+-{tag}\.whl", wheel.name), wheel.name
    assert wheel.stat().st_size < MOST_BYTES


def test_every_copied_library_has_its_licence(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = archive.read(next(name for name in names if name.endswith(".dist-info/METADATA"))).decode()
    libraries = [name for name in names if name.startswith("penstock.libs/") and ".so" in name]
    licences = [name.rsplit("/", 1)[1] for name in names if ".dist-info/licenses/" in name]
    packages = {wheel_licences.package_of(name.rsplit("/", 1)[1]) for name in libraries}
    assert len(libraries) >= 5 and set(licences) == {f"{package}.txt" for package in packages} | {"LICENSE"}
    assert all(f"License-File: {licence}\n" in metadata for licence in licences)


def test_the_user_is_ordinary_and_has_no_compiler(user):
    tools = ("cc", "gcc", "clang", "ld", "meson", "pkg-config")
    assert not any(shutil.which(word, path=user.env["PATH"]) for word in tools)
    assert user.python("-c", "import os; print(os.geteuid())").stdout.strip() != "0"


def test_nothing_is_loaded_from_outside_but_the_c_library(user):
    (module,) = user.venv.rglob("_penstock.abi3.so")
    shown = subprocess.run(["ldd", module], capture_output=True, text=True, check=True).stdout
    print(shown)
    inside = str(user.venv.resolve())
    for line in shown.splitlines():
        name, _, where = line.strip().partition(" => ")
        if not os.path.realpath(where.split(" ")[0]).startswith(inside + "/"):
            assert OUTSIDE.fullmatch(os.path.basename(name.split(" ")[0])), line


def test_the_module_comes_from_the_wheel(user):
    where = user.python("-c", "import penstock; print(penstock.__file__)").stdout.strip()
    assert where.startswith(str(user.venv))


def test_doctor_finds_nothing_bad(user):
    print(user.python("-m", "penstock", "doctor").stdout)


def test_the_readme_trains(user):
    if user.python("-c", "import torch", check=False).returncode != 0:
        pytest.skip("the system has no torch")
    done = user.python("-c", "import torch; torch.manual_seed(0)\n" + readme.program())
    print(done.stdout)
    readme.check_output(done.stdout)
    assert (user.home / "run.pt").exists()
