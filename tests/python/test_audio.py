# SPDX-License-Identifier: Apache-2.0
"""Recordings: from files to padded batches with lengths."""

import wave

import numpy
import penstock
import pytest

SPEECH = "decode | trim | speed | dither | preemphasis | log_mel(40) | feature_norm | spec_augment | stack"
COUNT = 24


def samples_of(number):
    """A tone that comes and goes, silent at both ends; 0.2 to 0.7 s."""
    rng = numpy.random.default_rng(number)
    n = 3200 + number * 331
    t = numpy.arange(n) / 16000
    tone = 9000 * numpy.sin(2 * numpy.pi * (150 + 10 * number) * t) * numpy.sin(2 * numpy.pi * 3 * t) ** 2
    tone[:500] = tone[-700:] = 0
    return (tone + rng.normal(0, 2, n)).astype(numpy.int16)


def write(path, samples, rate=16000, channels=1):
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(samples.tobytes())


@pytest.fixture(scope="module")
def sounds(tmp_path_factory):
    """24 recordings in 2 classes; not to be changed."""
    root = tmp_path_factory.mktemp("sounds")
    for number in range(COUNT):
        folder = root / ("no", "yes")[number % 2]
        folder.mkdir(exist_ok=True)
        write(folder / f"{number:02}.wav", samples_of(number))
    return root


def number_of(key):
    return int(key.rsplit("/", 1)[-1].split(".")[0])


def test_samples_come_as_floats_padded_with_lengths(sounds):
    seen = []
    for batch in penstock.Loader(sounds, "decode", 5, fields={"audio": "padded", "label": ""}):
        assert batch.audio.dtype == numpy.float32 and batch.audio.ndim == 2
        lengths = batch.lengths("audio")
        for row, n, key in zip(batch.audio, numpy.ravel(lengths), batch.keys):
            want = samples_of(number_of(key)) / numpy.float32(32768)
            assert n == len(want) and (row[:n] == want).all() and not row[n:].any()
            seen.append(number_of(key))
    assert sorted(seen) == list(range(COUNT))


def test_without_padding_recordings_are_a_list(sounds):
    batch = next(iter(penstock.Loader(sounds, "decode", 5)))
    assert isinstance(batch.audio, list) and {len(a) for a in batch.audio} != {len(batch.audio[0])}


def test_features_are_frames_by_features(sounds):
    log_mel = penstock.ops.decode() | penstock.ops.log_mel(40, hop=160)
    for batch in penstock.Loader(sounds, log_mel, 6, fields={"audio": "padded"}):
        longest = max(len(samples_of(number_of(key))) for key in batch.keys)
        assert batch.audio.shape == (6, -(-longest // 160), 40) and numpy.isfinite(batch.audio).all()


@pytest.mark.parametrize("options", [{"workers": 1}, {"workers": 3}, {"workers": 2, "memory": "128M", "cache": "32M"}])
def test_whoever_makes_them_features_are_the_same(sounds, options):
    def epochs(**how):
        loader = penstock.Loader(sounds, SPEECH, 5, seed=3, fields={"audio": "padded"}, **how)
        return [[(batch.keys, batch.audio.tobytes()) for batch in loader] for _ in range(2)]

    wanted = epochs()
    assert wanted[0] != wanted[1]
    assert epochs(**options) == wanted


def test_a_state_goes_on_with_the_same_features(sounds):
    def loader():
        return penstock.Loader(sounds, SPEECH, 5, seed=3, fields={"audio": "padded"})

    wanted = [batch.audio.copy() for batch in loader()]
    first = loader()
    batches = iter(first)
    for _ in range(2):
        next(batches)
    state = first.state_dict()
    again = loader()
    again.load_state_dict(state)
    assert all((a == b.audio).all() for a, b in zip(wanted[2:], again, strict=True))


def test_a_recording_too_short_for_a_frame_is_a_bad_sample(tmp_path):
    for number in range(4):
        write(tmp_path / f"{number}.wav", samples_of(number)[: 200 if number == 2 else 4000])
    with pytest.raises(penstock.Error, match=r"2\.wav.*needs 257 at least"):
        list(penstock.Loader(tmp_path, "decode | log_mel(40)", 2, fields={"audio": "padded"}))
    loader = penstock.Loader(tmp_path, "decode | log_mel(40)", 2, fields={"audio": "padded"}, on_error="skip:1")
    assert sum(len(batch.ids) for batch in loader) == 3


def test_other_rates_and_channels_are_brought_to_one(tmp_path):
    write(tmp_path / "a.wav", samples_of(1), rate=8000)
    write(tmp_path / "b.wav", numpy.repeat(samples_of(1), 2), rate=8000, channels=2)
    batch = next(iter(penstock.Loader(tmp_path, "decode | resample(16000)", 2, fields={"audio": "padded"})))
    assert batch.audio.shape == (2, 2 * len(samples_of(1))) and (batch.audio[0] == batch.audio[1]).all()


def padding(loader):
    """What share of the batches is padding, and the ids that came."""
    room, used, ids = 0, 0, []
    for batch in loader:
        room += batch.audio.size
        used += int(batch.lengths("audio").sum())
        ids += batch.ids.tolist()
    return 1 - used / room, sorted(ids)


@pytest.mark.parametrize("order", ["strict", "ready"])
def test_buckets_leave_less_padding(sounds, order):
    def loader(**how):
        return penstock.Loader(sounds, "decode", 3, fields={"audio": "padded"}, order=order, **how)

    plain, ids = padding(loader())
    keys = sorted(path.relative_to(sounds).as_posix() for path in sounds.rglob("*.wav"))
    sizes = [len(samples_of(number_of(key))) for key in keys]
    for buckets in ("bytes:4", [(n - 3200) * 4 // (24 * 331) for n in sizes]):
        less, again = padding(loader(buckets=buckets))
        assert less < 0.6 * plain and ids == again == list(range(COUNT))


def test_buckets_that_do_not_fit_are_refused(sounds):
    cases = ("bytes", "how many"), ("length:3", "no such field"), ([0] * 5, "5 buckets for"), ([99] * COUNT, "bucket 99")
    for buckets, words in cases:
        with pytest.raises((penstock.Error, ValueError), match=words):
            penstock.Loader(sounds, "decode", 3, buckets=buckets)
