# SPDX-License-Identifier: Apache-2.0
"""The ops on recordings against torchaudio and numpy, as the pipeline runs them: from 16-bit samples and floats, in place
and not, with every level of kernels, which have to agree to the bit. The functions under them are checked more closely by
parity_audio.py, whose references these are.

usage: parity_audio_ops.py OP_TOOL [LEVEL ...]
"""
import sys

try:
    import numpy as np
    import torch
    import torchaudio
except ImportError as error:
    print("skip:", error)
    sys.exit(77)
from parity import Tool
from parity_audio import RNNT, filters, log_mel, speech, trimmed


class Ops:
    """The tool at every level."""

    def __init__(self, path, levels):
        self.tools = [Tool(path, level) for level in levels]
        self.checked = self.failed = 0

    def fail(self, what):
        self.failed += 1
        print(what)

    def __call__(self, name, array, axes="wave", rate=16000, seed=0, given=()):
        """The result, equal whatever the level and in place or not. given: the op's parameters."""
        given = dict(given)
        results = [tool.field(name, array, axes, "audio", (rate, 0, 0), how, seed, **given)
                   for tool in self.tools for how in ("plain", "inplace")]
        self.checked += 1
        for other, said in results[1:]:
            same = other is None if results[0][0] is None else other is not None and other.tobytes() == results[0][0].tobytes()
            if not same or said != results[0][1]:
                self.fail(f"{name} {given}: levels or places differ")
        self.said, self.drawn = results[0][1], self.tools[0].drawn
        return results[0][0]

    def near(self, what, got, want, within):
        self.checked += 1
        got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
        if got.shape != want.shape:
            self.fail(f"{what}: {got.shape}, wanted {want.shape}")
        elif not np.abs(got - want).max(initial=0) <= within:
            self.fail(f"{what}: off by {np.abs(got - want).max():.3g}, within {within:g} is wanted")

    def refuses(self, words, name, array, **how):
        got = self(name, array, **how)
        if got is not None or words not in self.said:
            self.fail(f"{name} {how}: {words!r} is wanted, got {self.said}")


def both(rng, n, rate=16000):
    """A recording as 16-bit numbers, and as the floats that they mean."""
    whole = np.round(speech(rng, n, rate) * 32768).astype(np.int16)
    return whole, whole.astype(np.float32) / 32768


def resampled(floats, old, new):
    return torchaudio.functional.resample(torch.from_numpy(floats), old, new)


def check_resample(ops, rng):
    for old, new in ((44100, 16000), (8000, 16000), (48000, 16000), (22050, 16000)):
        for n in (1, 4000, 12345):
            whole, floats = both(rng, n, old)
            for wave in (whole, floats):
                got = ops("resample", wave, rate=old, given={"rate": new})
                ops.near(f"resample {old} to {new} of {n}", got, resampled(floats, old, new), 1e-5)
                if ops.said["units"][0] != new:
                    ops.fail(f"resample to {new}: the rate is {ops.said['units']}")
    whole, _ = both(rng, 100)
    if ops("resample", whole, given={"rate": 16000}).tobytes() != whole.tobytes() or ops.said["act"]:
        ops.fail("resample acts at the same rate")
    ops.refuses("rate is not known", "resample", whole, rate=0, given={"rate": 16000})
    ops.refuses("2 channels", "resample", np.zeros((50, 2), np.int16), given={"rate": 8000})


def check_speed(ops, rng):
    seen = []
    whole, floats = both(rng, 3000)
    for seed in range(400):
        got = ops("speed", whole if seed % 2 else floats, seed=seed)
        old, new = (int(x) for x in ops.drawn[:2])
        seen.append(round(100 * old / new))
        if ops.said["act"] != (old != new) or ops.said["units"][0] != 16000:
            ops.fail(f"speed {old}/{new}: acted {ops.said['act']}, rate {ops.said['units']}")
        if ops.said["act"] and seed < 60:
            ops.near(f"speed {old}/{new}", got, resampled(floats, old, new), 1e-5)
    counts = np.bincount(seen, minlength=116)[85:]
    if counts.sum() != 400 or (counts == 0).any() or ((counts - 400 / 31) ** 2).sum() / (400 / 31) > 60:
        ops.fail(f"speeds drawn: {counts}")
    for seed in range(20):
        ops("speed", whole, seed=seed, given={"range": "0.9,1.1", "step": 0.1})
        if round(1000 * ops.drawn[0] / ops.drawn[1]) not in (900, 1000, 1100):
            ops.fail(f"speed in steps of 0.1: {ops.drawn}")


def check_trim(ops, rng):
    for case in range(12):
        n = int(rng.integers(2000, 30000))
        whole, _ = both(rng, n)
        edge = rng.integers(0, n + 1, 2)
        whole[:edge[0]] //= 1000
        whole[edge[1]:] //= 3000
        floats = whole.astype(np.float32) / 32768
        given = {"top_db": float(rng.choice([20, 40, 60]))} | ({} if case % 2 else {"frame": 400, "hop": 160})
        first, end = trimmed(floats, given["top_db"], given.get("frame", 2048), given.get("hop", 512))
        for wave in (whole, floats):
            got = ops("trim", wave, given=given)
            if got.dtype != wave.dtype or got.tobytes() != wave[first:end].tobytes():
                ops.fail(f"trim {n} {edge} {given}: {len(got)} samples, wanted {first}..{end}")
    ops.refuses("half of the frame", "trim", np.zeros(100, np.int16), given={"frame": 100, "hop": 51})


def check_samples(ops, rng):
    whole, floats = both(rng, 50001)
    for wave in (whole, floats):
        want = np.concatenate([floats[:1], floats[1:] - np.float32(0.97) * floats[:-1]])
        ops.near("preemphasis", ops("preemphasis", wave), want, 1e-7)
        noise = ops("dither", wave, seed=3, given={"amount": 0.25}) - floats
        if abs(noise.std() / 0.25 - 1) > 0.02 or abs(noise.mean()) > 0.005 or abs(np.corrcoef(noise[1:], noise[:-1])[0, 1]) > 0.02:
            ops.fail(f"dither: {noise.mean()} {noise.std()}")
        again = ops("dither", wave, seed=3, given={"amount": 0.25}) - floats
        other = ops("dither", wave, seed=4, given={"amount": 0.25}) - floats
        if again.tobytes() != noise.tobytes() or abs(np.corrcoef(noise, other)[0, 1]) > 0.02:
            ops.fail("dither: one seed, one noise")


def check_log_mel(ops, rng):
    for name, how, given in (
        ("the defaults", RNNT, {}),
        ("htk, 40", dict(RNNT, scale=1, even=0, mels=40, low=20, high=7600),
         {"mels": 40, "mel": "htk", "norm": "none", "fmin": 20, "fmax": 7600}),
        ("Hamming, not centred", dict(RNNT, center=0, hamming=1, periodic=1, size=400, window=400, floor=1e-6),
         {"center": "false", "window": "hamming", "periodic": "true", "n_fft": 400, "win": 400, "eps": 1e-6}),
    ):
        if ops("log_mel", np.zeros(4000, np.float32), given=given) is None:
            print(f"built without kissfft: log_mel, {name}, is not checked")
            continue
        for n in (16000, 12345):
            whole, floats = both(rng, n)
            want = log_mel(floats, how, torch.from_numpy(filters(how)))
            for wave in (whole, floats):
                ops.near(f"log_mel, {name}, {n}", ops("log_mel", wave, given=given), want, 1e-4)
                if ops.said["axes"] != "frames":
                    ops.fail(f"log_mel makes {ops.said['axes']}")
    short = np.zeros(256, np.float32)
    ops.refuses("needs 257", "log_mel", short)
    ops.refuses("rate is not known", "log_mel", short, rate=0)
    ops.refuses("put resample before", "log_mel", np.zeros(4000, np.float32), rate=8000, given={"fmax": 8000})
    ops.refuses("powers of two", "log_mel", short, given={"n_fft": 514})
    ops.refuses("more than the 512", "log_mel", short, given={"win": 600})


def check_frames(ops, rng):
    frames = (rng.standard_normal((101, 80)) * 3 - 12).astype(np.float32)
    wide = torch.from_numpy(frames.astype(np.float64))
    want = (wide - wide.mean(0)) / (wide.std(0) + 1e-5)
    ops.near("feature_norm", ops("feature_norm", frames, "frames"), want, 1e-6)
    padded = np.concatenate([frames, np.zeros((3, 80), np.float32)])
    for count, skip in ((3, 3), (1, 2), (2, 1)):
        want = np.stack([padded[r:r + count].reshape(-1) for r in range(0, 101, skip)])
        ops.near(f"stack {count} {skip}", ops("stack", frames, "frames", given={"frames": count, "subsample": skip}), want, 0)


def bands(hidden):
    """Lengths of the runs that are hidden."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], hidden.astype(int), [0]])))
    return edges[1::2] - edges[::2]


def check_spec_augment(ops, rng):
    """One band of each kind: its length is even over 0..most, and it lies anywhere; what is not hidden is as it was."""
    frames = rng.standard_normal((200, 80)).astype(np.float32)
    lengths = {"freq": [], "time": []}
    for seed in range(600):
        got = ops("spec_augment", frames, "frames", seed=seed, given={"freq_masks": 1, "freq": 20, "time_masks": 1, "time": 0.03})
        rows, cols = (got == 0).all(1), (got == 0).all(0)
        want = frames.copy()
        want[rows] = 0
        want[:, cols] = 0
        if got.tobytes() != want.tobytes() or len(bands(rows)) > 1 or len(bands(cols)) > 1:
            ops.fail(f"spec_augment {seed}: more than a band each")
        lengths["time"].append(rows.sum())
        lengths["freq"].append(cols.sum())
    for kind, most in (("time", 6), ("freq", 20)):
        counts = np.bincount(lengths[kind], minlength=most + 1)
        expected = 600 / (most + 1)
        if len(counts) != most + 1 or ((counts - expected) ** 2 / expected).sum() > 3 * most + 10:
            ops.fail(f"spec_augment: lengths of bands of {kind}: {counts}")
    most_seen = max(len(bands((ops("spec_augment", frames, "frames", seed=seed) == 0).all(1))) for seed in range(40))
    if not 5 <= most_seen <= 10:
        ops.fail(f"spec_augment: {most_seen} stretches at most")


def main():
    ops, rng = Ops(sys.argv[1], sys.argv[2:] or ["c"]), np.random.default_rng(12)
    check_log_mel(ops, rng)
    check_resample(ops, rng)
    check_speed(ops, rng)
    check_trim(ops, rng)
    check_samples(ops, rng)
    check_frames(ops, rng)
    check_spec_augment(ops, rng)
    print(f"{ops.checked} checks, {ops.failed} failed")
    return 1 if ops.failed or ops.checked < 1000 else 0


if __name__ == "__main__":
    sys.exit(main())
