# SPDX-License-Identifier: Apache-2.0
"""Help, version, and what is said to a wrong command line: exit 2, the nearest word, a way on."""
import pytest

COMMANDS = ["synth", "inspect", "run", "preview", "feed", "pull", "datasets", "evict", "bench", "ops", "settings"]


def test_version(penstock):
    assert penstock("--version").out.startswith("penstock 0.")


def test_help_lists_every_command(penstock):
    out = penstock("--help").out
    for name in COMMANDS:
        assert f"\n  {name} " in out
    assert "Examples" in out and "Exit codes" in out


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_help_with_examples(penstock, name):
    first, second = penstock(name, "--help").out, penstock("help", name).out
    assert first == second
    assert f"usage: penstock {name}" in first and "Examples" in first
    assert all(len(line) <= 130 for line in first.splitlines())


def test_no_command_shows_help_and_is_wrong_usage(penstock):
    done = penstock(check=False)
    assert done.code == 2 and "usage:" in done.out


WRONG = [
    (["fed", "x"], "did you mean feed?"),
    (["--frob"], "--frob"),
    (["inpsect", "x"], "did you mean inspect?"),
    (["zzzzzzzz"], "there is no command 'zzzzzzzz'"),
    (["feed"], "DATA is missing"),
    (["feed", "x"], "--pipeline TEXT is missing"),
    (["feed", "x", "--pipeline"], "--pipeline needs a value"),
    (["feed", "x", "--pipelin", "decode"], "did you mean --pipeline?"),
    (["feed", "x", "--pipeline", "decode", "--bach=3"], "did you mean --batch?"),
    (["feed", "x", "--pipeline", "decode", "--batch", "0"], "from 1 to 1048576"),
    (["feed", "x", "--pipeline", "decode", "--batch", "many"], "whole number"),
    (["feed", "x", "--pipeline", "decode", "--order", "redy"], "did you mean ready?"),
    (["feed", "x", "--pipeline", "decode", "--memory", "12Q"], "a size such as"),
    (["feed", "x", "--pipeline", "decode", "--step-ms", "-1"], "from 0"),
    (["feed", "x", "--pipeline", "decode", "--rank", "3"], "--rank takes R/W"),
    (["feed", "x", "--pipeline", "decode", "--rank", "3/3"], "from 0 to one less"),
    (["feed", "x", "--pipeline", "decode", "--on-error", "ignore"], "raise, skip:N, retry:N"),
    (["feed", "x", "--pipeline", "decode", "--json=yes"], "takes no value"),
    (["feed", "x", "y", "--pipeline", "decode"], "unexpected argument 'y'"),
    (["feed", "x", "-b", "3", "--pipeline", "decode"], "options are written --name value"),
    (["synth", "pictures", "x", "--count", "3"], "it makes: images, volumes, detection, speech"),
    (["synth", "images", "x"], "--count N is missing"),
    (["run", "x", "--pipeline", "decode"], "--npy OUT is missing"),
    (["help", "fed"], "did you mean feed?"),
]


@pytest.mark.parametrize("args, words", WRONG, ids=[" ".join(a) or "none" for a, _ in WRONG])
def test_wrong_usage(penstock, args, words):
    done = penstock(*args, check=False)
    assert done.code == 2, done.err
    assert done.err.startswith("penstock: ") and words in done.err
    assert "--help" in done.err


def test_values_may_follow_an_equals_sign_and_dashes_end_options(penstock, tmp_path):
    done = penstock("synth", "images", "--count=2", "--", tmp_path / "p")
    assert "2 photos" in done.out


@pytest.mark.parametrize("pipeline, word, nearest", [
    ("decode | ranom_crop(32)", "ranom_crop", "random_crop"),
    ("decode | resize(32, interpolaton=bilinear)", "interpolaton", "interpolation"),
    ("decoed", "decoed", "decode"),
])
def test_typo_in_the_pipeline_names_the_word_and_the_nearest(penstock, photos, pipeline, word, nearest):
    done = penstock("feed", photos, "--pipeline", pipeline, check=False)
    assert done.code == 1
    assert word in done.err and nearest in done.err
    mark = done.err.splitlines()[-1]
    assert mark.strip() == "^" and mark.index("^") == 4 + pipeline.index(word)


def test_ops_lists_parameters(penstock):
    out = penstock("ops").out
    for name in ["decode", "resize", "random_resized_crop", "hflip", "normalize", "to"]:
        assert f"{name}: " in out
    assert "scale" in penstock("ops", "random_resized_crop").out
    done = penstock("ops", "rezise", check=False)
    assert done.code == 1 and "resize" in done.err
