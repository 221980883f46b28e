# SPDX-License-Identifier: Apache-2.0
"""Functions of the user's inside a pipeline: penstock.python(fn)."""

import gc
import signal
import subprocess
import sys
import threading
import time
import traceback
import weakref

import numpy
import penstock
import pytest
from conftest import CROP
from penstock import ops
from test_loader import COUNT
from test_process import forks, in_child


def rows(loader):
    return [(int(i), image.tobytes()) for batch in loader for i, image in zip(batch.ids, batch.image)]


def invert(picture):
    """In place."""
    picture ^= 255
    return picture


def mirror(picture):
    """A view with a negative stride."""
    return picture[:, ::-1]


def noisy(picture, seed):
    return picture + numpy.random.default_rng(seed).integers(0, 50, picture.shape, dtype=numpy.uint8)


def test_the_bytes_are_the_functions(photos):
    plain = penstock.Loader(photos, "decode", 8, shuffle=False)
    both = penstock.Loader(photos, [ops.decode(), penstock.python(invert), penstock.python(mirror)], 8, shuffle=False)
    assert str(both.pipeline) == "decode | call(invert) | call(mirror)"
    for want, got in zip(plain, both):
        for before, after in zip(want.image, got.image):
            assert (after == (255 - before)[:, ::-1]).all()
    names = [name for name, _, _ in both.stats()["stages"]]
    assert names == ["read", "decode", "invert", "mirror", "finish"]


def test_one_works_among_ops_and_in_a_text(photos):
    ours = ops.decode() | penstock.python(invert) | "random_resized_crop(16)" | ops.hflip() | ops.normalize("imagenet")
    theirs = "decode | invert | random_resized_crop(16) | hflip | normalize(imagenet)"
    assert rows(penstock.Loader(photos, ours, 8, seed=2)) == rows(penstock.Loader(photos, theirs, 8, seed=2))


def test_what_a_function_gets(photos):
    seen = []

    def look(picture):
        seen.append((picture.dtype, picture.ndim, picture.flags.writeable, picture.flags.c_contiguous, type(picture)))
        return picture

    rows(penstock.Loader(photos, ops.decode() | penstock.python(look), 8, epochs=1))
    assert len(seen) == COUNT and set(seen) == {(numpy.dtype("uint8"), 3, True, True, numpy.ndarray)}


def test_a_kept_picture_stays_as_it_was(photos):
    kept = []

    def keep(picture):
        kept.append((picture, picture.copy()))
        return picture

    loader = penstock.Loader(photos, ops.decode() | penstock.python(keep), 8, epochs=1)
    rows(loader)
    loader.close()
    gc.collect()
    assert len(kept) == COUNT and all((a == b).all() for a, b in kept)


def test_seeds_are_the_samples_own(photos):
    def run(**options):
        chain = ops.decode() | penstock.python(noisy) | ops.random_crop(16)
        return rows(penstock.Loader(photos, chain, 8, **options))

    want = run(seed=1, workers=1)
    assert run(seed=1, workers=4) == want
    assert sorted(run(seed=1, workers=3, order="ready")) == sorted(want)
    assert run(seed=2) != want


@pytest.mark.parametrize(
    ("fn", "wanted"),
    [
        (lambda picture: picture, False),
        (lambda picture, strength=3: picture, False),
        (lambda picture, seed=0: picture, True),
        (lambda picture, other: picture, True),
        (numpy.ascontiguousarray, False),
        (type("Object", (), {"__call__": lambda self, picture, seed: picture})(), True),
    ],
)
def test_who_gets_a_seed(photos, fn, wanted):
    from penstock._calls import takes_seed

    assert takes_seed(fn) is wanted
    assert len(rows(penstock.Loader(photos, ops.decode() | penstock.python(fn), 8))) == COUNT


def boom(picture):
    raise ZeroDivisionError("not this one")


@pytest.mark.parametrize("fixed", [False, True])
def test_an_exception_tells_where_it_was_raised(photos, fixed):
    loader = penstock.Loader(photos, ops.decode() | penstock.python(boom, fixed=fixed), 8, shuffle=False)
    with pytest.raises(penstock.DataError) as caught:
        rows(loader)
    error = caught.value
    assert error.stage == "boom" and error.id == 0 and error.code == penstock.CODES["ECALL"]
    assert error.key.endswith(".jpg") and "ZeroDivisionError: not this one (" in str(error)
    line = boom.__code__.co_firstlineno + 1
    assert f"test_call.py:{line})" in str(error)
    assert isinstance(error.__cause__, ZeroDivisionError)
    assert traceback.extract_tb(error.__cause__.__traceback__)[-1].name == "boom"


def test_a_failing_function_is_subject_to_the_policy(photos):
    def fussy(picture):
        if picture.shape[0] == 20:
            raise ValueError("too small")
        return picture

    every = [image.shape[0] for batch in penstock.Loader(photos, "decode", 8) for image in batch.image]
    loader = penstock.Loader(photos, ops.decode() | penstock.python(fussy), 8, on_error="skip:20")
    assert 0 < len(rows(loader)) == sum(height != 20 for height in every) < COUNT
    assert all("ValueError: too small" in str(bad) for bad in loader.engine.bad())
    with pytest.raises(penstock.Error, match="too small|more samples are bad"):
        rows(penstock.Loader(photos, ops.decode() | penstock.python(fussy), 8, on_error="skip:1"))


@pytest.mark.parametrize(
    ("fn", "options", "says"),
    [
        (lambda picture: picture[:4], {}, r"a picture of 4 x \d+ x 3 .* and \d+ x \d+ x 3 is expected"),
        (lambda picture: picture[..., :1], {}, r"x 1 \(rows, columns, channels\), and "),
        (lambda picture: picture[:8, :9], {"shape": (8, 8)}, "8 x 9 x 3 .* 8 x 8 x 3 is expected"),
        (lambda picture: picture[:, :, 0], {}, "an array with 2 dimensions"),
        (lambda picture: picture / 2, {}, "values of type float64"),
        (lambda picture: None, {}, "gave None"),
        (lambda picture: "text", {}, "TypeError"),
        (lambda picture: picture[:0], {"shape": "any"}, "0 x .* which is empty"),
        (lambda picture: picture[..., :2], {"shape": "any"}, "3 channels are expected"),
    ],
)
def test_wrong_results(photos, fn, options, says):
    loader = penstock.Loader(photos, ops.decode() | penstock.python(fn, name="cut", **options), 8)
    with pytest.raises(penstock.DataError, match=says) as caught:
        rows(loader)
    assert caught.value.stage == "cut"


def test_declared_and_open_sizes(photos):
    top = penstock.python(lambda picture: picture[: 3 + len(picture) // 2], name="top", shape="any")
    for batch in penstock.Loader(photos, ops.decode() | top, 8):
        assert isinstance(batch.image, list) and len({image.shape for image in batch.image}) > 1
    for batch in penstock.Loader(photos, ops.decode() | top | ops.random_crop(12), 8):
        assert batch.image.shape[1:] == (12, 12, 3)
    grey = penstock.python(lambda picture: picture[:9, :7, :1], name="grey", shape=(9, 7, 1))
    for batch in penstock.Loader(photos, ops.decode() | grey, 8):
        assert batch.image.shape[1:] == (9, 7, 1)


def test_a_fixed_function_runs_once_with_the_cache(photos):
    calls = []

    def halve(picture):
        calls.append(1)
        return picture >> 1

    chain = ops.decode() | penstock.python(halve, fixed=True) | ops.random_crop(16)
    results = []
    for cache in (0, 64 << 20):
        calls.clear()
        with penstock.Engine(workers=2, cache=cache) as engine:
            # One loader for each epoch: in one of them a sample may be on its way for both at once.
            result = []
            for epoch in range(2):
                loader = penstock.Loader(photos, chain, 8, seed=3, engine=engine, epochs=epoch + 1)
                loader.set_epoch(epoch)
                result += rows(loader)
                loader.close()
        results.append((result, len(calls)))
    assert results[0][0] == results[1][0]
    assert results[0][1] >= 2 * COUNT and results[1][1] == COUNT


def test_strict_order_waits_for_a_slow_function(photos):
    gate = threading.Event()

    def slow(picture):
        if picture.shape[0] == 20:
            gate.wait(30)
        return picture

    plain = rows(penstock.Loader(photos, "decode", 8, seed=1))
    loader = penstock.Loader(photos, ops.decode() | penstock.python(slow), 8, seed=1, workers=3)
    threading.Timer(0.2, gate.set).start()
    assert rows(loader) == plain


def test_other_names(photos):
    name = lambda fn: next(iter(penstock.python(fn).calls))  # noqa: E731

    def outer():
        def inner(picture):
            return picture

        return inner

    assert name(lambda picture: picture) == "lambda" and name(outer()) == "inner"
    assert name(type("My-Op", (), {"__call__": lambda self, picture: picture})()) == "My-Op"
    assert len(name(type("x" * 50, (), {"__call__": lambda self, picture: picture})())) == 31
    chain = ops.decode() | penstock.python(invert, name="two words")
    assert str(chain) == 'decode | call("two words")' and len(rows(penstock.Loader(photos, chain, 8))) == COUNT


def test_one_name_stands_for_one_function(photos):
    first, second = (lambda picture: picture), (lambda picture: picture)
    with pytest.raises(penstock.SettingError, match="two functions are called 'lambda'"):
        ops.decode() | penstock.python(first) | penstock.python(second)
    with pytest.raises(penstock.SettingError, match="two functions"):
        ops.choice((1, penstock.python(first)), (1, penstock.python(second)))
    twice = ops.decode() | penstock.python(invert) | penstock.python(invert)
    assert rows(penstock.Loader(photos, twice, 8)) == rows(penstock.Loader(photos, "decode", 8))


def test_what_is_refused(photos):
    with pytest.raises(penstock.PipelineError, match=r"call\(foo\) needs a program that provides it"):
        penstock.Loader(photos, "decode | call(foo)", 8)
    with pytest.raises(penstock.SettingError, match="no seed"):
        penstock.python(noisy, fixed=True)
    with pytest.raises(penstock.SettingError, match="'any'"):
        penstock.python(invert, shape="all")
    with pytest.raises(penstock.PipelineError, match="any or fixed"):
        penstock.Loader(photos, ops.decode() | penstock.python(invert, shape="any", fixed=True), 8)
    with pytest.raises(penstock.PipelineError, match="cannot come after normalize"):
        penstock.Loader(photos, ops.decode() | ops.normalize("imagenet") | penstock.python(invert), 8)
    with pytest.raises(TypeError):
        penstock.python("invert")
    with penstock.Engine(workers=1) as engine:
        data = penstock._penstock.Dataset(str(photos))
        for calls in ({"f": 3}, {3: invert}, [invert]):
            with pytest.raises(TypeError):
                penstock._penstock.Job(engine, data, "decode | call(f)", 8, calls=calls)


def test_a_state_knows_the_name(photos):
    one, other = (ops.decode() | penstock.python(noisy, name=name) | ops.random_crop(16) for name in ("one", "other"))
    whole = rows(penstock.Loader(photos, one, 8, seed=1))
    loader = penstock.Loader(photos, one, 8, seed=1)
    turn = iter(loader)
    next(turn), next(turn)
    state = loader.state_dict()
    again = penstock.Loader(photos, one, 8, seed=1)
    again.load_state_dict(state)
    assert rows(again) == whole[16:]
    with pytest.raises(penstock.StateError):
        penstock.Loader(photos, other, 8, seed=1).load_state_dict(state)


def test_functions_go_with_their_loader(photos):
    def local(picture):
        return picture

    loader = penstock.Loader(photos, ops.decode() | penstock.python(local), 8)
    rows(loader)
    gone = weakref.ref(local)
    loader.close()
    del loader, local
    gc.collect()
    assert gone() is None


def test_a_loader_dropped_inside_a_function(photos):
    """A garbage collection on a worker must not wait for that worker."""

    class Holder:
        pass

    def collect(picture):
        gc.collect()
        return picture

    with penstock.Engine(workers=2) as engine:
        for _ in range(5):
            holder = Holder()
            holder.self = holder
            holder.loader = penstock.Loader(photos, ops.decode() | penstock.python(collect), 8, engine=engine)
            next(iter(holder.loader))
            del holder
        assert len(rows(penstock.Loader(photos, ops.decode() | penstock.python(collect), 8, engine=engine))) == COUNT


def test_closing_from_within_is_refused(photos):
    said = []
    made = threading.Event()  # workers begin before the caller has the loader in its hands

    def suicide(picture):
        assert made.wait(60)
        try:
            loader.close()
        except penstock.Error as error:
            said.append(str(error))
        return picture

    loader = penstock.Loader(photos, ops.decode() | penstock.python(suicide), 8, epochs=1)
    made.set()
    assert len(rows(loader)) == COUNT and "cannot be closed from within" in said[0]


def test_ctrl_c_in_the_middle_of_an_epoch(photos):
    hold = threading.Event()

    def wait(picture):
        hold.wait(30)
        return picture

    loader = penstock.Loader(photos, ops.decode() | penstock.python(wait), 8)
    threading.Timer(0.2, lambda: signal.raise_signal(signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        next(iter(loader))
    hold.set()
    begin = time.monotonic()
    loader.close()
    assert time.monotonic() - begin < 5


EXIT = """
import sys, time, penstock
from penstock import ops
def slow(picture):
    time.sleep(0.01)
    return picture
loader = penstock.Loader(sys.argv[1], ops.decode() | penstock.python(slow), 4)
for batch in loader:
    {end}
"""


@pytest.mark.parametrize("end", ["break", "sys.exit(0)", "loader.close(); break", "kept = iter(loader); break"])
def test_the_interpreter_ends_in_the_middle_of_an_epoch(photos, end):
    done = subprocess.run(
        [sys.executable, "-c", EXIT.format(end=end), str(photos)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0 and done.stderr == ""


@forks
def test_a_forked_child_may_have_functions_of_its_own(photos):
    loader = penstock.Loader(photos, ops.decode() | penstock.python(noisy), 8, seed=1)
    turn = iter(loader)
    next(turn)

    def check():
        with pytest.raises(penstock.Error):
            next(turn)
        own = penstock.Loader(photos, ops.decode() | penstock.python(noisy), 8, seed=1)
        return 0 if len(rows(own)) == COUNT else 3

    assert in_child(check) == 0
    assert sum(len(batch.ids) for batch in turn) == COUNT - 8


def test_a_pipeline_that_is_not_ours_is_left_alone(photos):
    """Jobs with and without functions share an engine."""
    with penstock.Engine(workers=2) as engine:
        one = penstock.Loader(photos, CROP, 8, engine=engine)
        two = penstock.Loader(photos, ops.decode() | penstock.python(mirror), 8, engine=engine)
        assert len([*zip(one, two)]) == -(-COUNT // 8)


def test_a_function_that_does_not_return_is_named(photos, monkeypatch, capfd):
    """Whoever waits is told what for, as by all notices of the library."""
    monkeypatch.setenv("PENSTOCK_NOTICE_S", "0.3")
    go = threading.Event()

    def dawdles(picture):
        go.wait(60)
        return picture

    loader = penstock.Loader(photos, [ops.decode(), penstock.python(dawdles)], 8, shuffle=False, workers=1)
    batches = iter(loader)
    waits = threading.Thread(target=lambda: next(batches))
    waits.start()
    said, deadline = "", time.monotonic() + 60
    while "is in stage dawdles" not in said and time.monotonic() < deadline:
        time.sleep(0.05)
        said += capfd.readouterr().err
    go.set()
    waits.join(60)
    assert "no batch came for" in said and "is in stage dawdles" in said and ".jpg" in said
