# SPDX-License-Identifier: Apache-2.0
"""These tests need torch; no process of theirs may outlive them. PENSTOCK_LONG=1: those marked long too."""

import gc
import multiprocessing
import os

import pytest

torch = pytest.importorskip("torch")


def pytest_configure(config):
    config.addinivalue_line("markers", "long: only in the long suite")


def pytest_collection_modifyitems(items):
    for item in items:
        if item.get_closest_marker("long") and not os.environ.get("PENSTOCK_LONG"):
            item.add_marker(pytest.mark.skip(reason="long"))


@pytest.fixture(autouse=True)
def leaves_nothing():
    yield
    if multiprocessing.active_children():
        gc.collect()  # a cycle may keep a loader; slow where torch is loaded
    assert not multiprocessing.active_children()
