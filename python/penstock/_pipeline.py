# SPDX-License-Identifier: Apache-2.0
"""Looking at pipeline texts without running them."""

from . import _penstock


def check_pipeline(text: str) -> str:
    """The canonical form of a pipeline text; PipelineError names the wrong word and its place."""
    canonical, _ = _penstock.check_pipeline(text)
    return canonical
