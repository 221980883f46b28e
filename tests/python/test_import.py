# SPDX-License-Identifier: Apache-2.0
"""What importing needs, and what it gives."""

import pathlib
import subprocess
import sys

import penstock


def python(*args: str) -> str:
    return subprocess.run([sys.executable, *args], check=True, capture_output=True, text=True, timeout=60).stdout


def test_import_needs_neither_numpy_nor_torch():
    loaded = python("-c", "import sys, penstock; print(sorted({'numpy', 'torch'} & set(sys.modules)))")
    assert loaded.strip() == "[]"


def test_works_without_numpy_through_the_buffer_protocol(photos):
    script = (
        "import sys; sys.modules['numpy'] = None\n"
        "import penstock\n"
        f"batch = next(iter(penstock.Loader({str(photos)!r}, 'decode | center_crop(16)', 4)))\n"
        "view = memoryview(batch.image)\n"
        "print(view.shape, view.format, view.readonly, len(batch.keys))\n"
    )
    assert python("-c", script).strip() == "(4, 16, 16, 3) B True 4"


def test_main_prints_version_and_settings():
    lines = python("-m", "penstock").splitlines()
    assert lines[0] == f"penstock {penstock.__version__}"
    shown = dict(line.split(maxsplit=1) for line in lines[1:])
    assert int(shown["workers"]) >= 1
    assert int(shown["memory"]) >= 16 << 20


def test_package_is_typed_and_exports_what_it_lists():
    assert (pathlib.Path(penstock.__file__).parent / "py.typed").exists()
    assert all(hasattr(penstock, name) for name in penstock.__all__)


def test_extension_uses_the_stable_abi_alone():
    assert penstock._penstock.__file__.endswith(".abi3.so")


def test_objects_that_only_the_engine_makes_cannot_be_constructed():
    for kind in (penstock._penstock.Batch, penstock._penstock.View):
        try:
            kind()
        except TypeError:
            continue
        raise AssertionError(kind)


def test_check_pipeline_gives_the_canonical_text():
    assert penstock.check_pipeline("decode|hflip") == penstock.check_pipeline("  decode  |  hflip ")
