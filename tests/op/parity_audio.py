# SPDX-License-Identifier: Apache-2.0
"""The functions under ops on recordings against numpy, torch and torchaudio: spectra, mel filters, log-mel features,
resampling, trimming, pre-emphasis, normalising, masks, stacking. What librosa does is written again here; so are
the steps of the RNN-T reference (filterbank features of one recording at a time).

usage: parity_audio.py AUDIO_TOOL
"""
import subprocess
import sys

try:
    import numpy as np
    import torch
    import torchaudio
except ImportError as error:
    print("skip:", error)
    sys.exit(77)

RNNT = dict(mels=80, size=512, window=320, hop=160, rate=16000, low=0, high=8000, scale=0, even=1, periodic=0, center=1,
            hamming=0, floor=1e-20)


class Tool:
    def __init__(self, path):
        self.path, self.failed, self.checked = path, 0, 0

    def __call__(self, name, values, *args):
        data = np.ascontiguousarray(values, np.float32).tobytes()
        done = subprocess.run([self.path, name, *map(str, args)], input=data, stdout=subprocess.PIPE, check=True)
        return np.frombuffer(done.stdout, np.float32)

    def fits(self, size):
        """Powers of two always; others where the build has kissfft."""
        done = subprocess.run([self.path, "fits", str(size)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, check=True)
        return done.stdout == b"1\n"

    def near(self, what, got, want, within):
        self.checked += 1
        got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
        if got.size != want.size:
            self.failed += 1
            print(f"{what}: {got.size} numbers, wanted {want.size}")
            return
        off = np.abs(got.reshape(want.shape) - want)
        if not off.max(initial=0) <= within:
            self.failed += 1
            print(f"{what}: off by {off.max():.3g} at {np.unravel_index(off.argmax(), want.shape)}, within {within:g} is wanted")


def speech(rng, n, rate=16000):
    """Voiced sound that comes and goes, with some noise."""
    t = np.arange(n) / rate
    pitch = 120 + 30 * np.sin(2 * np.pi * 0.7 * t)
    phase = 2 * np.pi * np.cumsum(pitch) / rate
    voice = sum(np.sin(k * phase) / k for k in range(1, 12)) * np.clip(np.sin(2 * np.pi * 1.3 * t + 0.3), 0, 1)
    return (0.1 * voice + 0.002 * rng.standard_normal(n)).astype(np.float32)


def check_power(tool, rng):
    for size in filter(tool.fits, (8, 10, 16, 32, 64, 96, 400, 512, 1000, 2048, 4096)):
        frame = rng.standard_normal(size).astype(np.float32)
        want = np.abs(np.fft.rfft(frame.astype(np.float64))) ** 2
        tool.near(f"power of {size}", tool("power", frame) / want.max(), want / want.max(), 1e-6)


def mel_of(hz, scale):
    if scale:
        return 2595 * np.log10(1 + hz / 700)
    return np.where(hz < 1000, hz * 3 / 200, 15 + np.log(np.maximum(hz, 1000) / 1000) / (np.log(6.4) / 27))


def hz_of(mel, scale):
    if scale:
        return 700 * (10 ** (mel / 2595) - 1)
    return np.where(mel < 15, mel * 200 / 3, 1000 * np.exp(np.log(6.4) / 27 * (np.maximum(mel, 15) - 15)))


def filters(how):
    """librosa.filters.mel."""
    bins = np.arange(how["size"] // 2 + 1) * how["rate"] / how["size"]
    low, high = mel_of(np.float64(how["low"]), how["scale"]), mel_of(np.float64(how["high"]), how["scale"])
    corners = hz_of(np.linspace(low, high, how["mels"] + 2), how["scale"])
    ramps, steps = corners[:, None] - bins[None], np.diff(corners)
    weights = np.maximum(0, np.minimum(-ramps[:-2] / steps[:-1, None], ramps[2:] / steps[1:, None]))
    return weights * (2 / (corners[2:] - corners[:-2]))[:, None] if how["even"] else weights


def given(how):
    return [how[key] for key in ("mels", "size", "window", "hop", "rate", "low", "high", "scale", "even", "periodic", "center",
                                 "hamming", "floor")]


def variants():
    yield "RNN-T", RNNT
    yield "40 mels", dict(RNNT, mels=40, window=400)
    yield "htk", dict(RNNT, scale=1, even=0)
    yield "not centred, Hamming", dict(RNNT, center=0, hamming=1)
    yield "22,050 Hz, 128 mels", dict(RNNT, mels=128, size=2048, window=2048, hop=512, rate=22050, high=11025, periodic=1)
    yield "400 of 400", dict(RNNT, size=400, window=400, mels=23, low=20, high=7600)


def check_filters(tool):
    for name, how in variants():
        got = tool("filters", [], *given(how)).reshape(how["mels"], -1)
        want = filters(how)
        tool.near(f"filters, {name}", got / want.max(), want / want.max(), 1e-6)
        theirs = torchaudio.functional.melscale_fbanks(
            how["size"] // 2 + 1, how["low"], how["high"], how["mels"], how["rate"],
            "slaney" if how["even"] else None, "htk" if how["scale"] else "slaney").numpy().T
        tool.near(f"filters, {name}, torchaudio", got / want.max(), theirs / want.max(), 3e-5)


def log_mel(wave, how, weights):
    """The reference's features before normalising, in the precision of `weights`."""
    make = torch.hamming_window if how["hamming"] else torch.hann_window
    window = make(how["window"], periodic=bool(how["periodic"]), dtype=weights.dtype)
    spectrum = torch.stft(torch.from_numpy(wave).to(weights.dtype), how["size"], how["hop"], how["window"], window,
                          center=bool(how["center"]), return_complex=True)
    frames = -(-len(wave) // how["hop"]) if how["center"] else spectrum.shape[1]
    return torch.log(weights @ spectrum.abs().pow(2) + how["floor"]).T[:frames]


def check_log_mel(tool, rng):
    for name, how in variants():
        if not tool.fits(how["size"]):
            continue
        weights = torch.from_numpy(filters(how))
        for n in (how["size"] // 2 + 1, how["size"], 16000, 16001, 15999, 12345):
            if n < how["size"] and not how["center"]:
                continue
            wave = speech(rng, n, how["rate"])
            if how is RNNT:
                wave = np.concatenate([wave[:1], wave[1:] - np.float32(0.97) * wave[:-1]])
            got = tool("log_mel", wave, *given(how))
            tool.near(f"log_mel, {name}, {n}, exact", got, log_mel(wave, how, weights), 1e-4)
            tool.near(f"log_mel, {name}, {n}", got, log_mel(wave, how, weights.float()), 1e-4)
    silent = tool("log_mel", np.zeros(1600), *given(RNNT))
    tool.near("log_mel of silence", silent, np.full(800, np.log(1e-20)), 1e-5)


def check_torchaudio(tool, rng):
    """MelSpectrogram itself."""
    how = dict(RNNT, periodic=1)
    wave = speech(rng, 20000)
    theirs = torchaudio.transforms.MelSpectrogram(
        sample_rate=16000, n_fft=512, win_length=320, hop_length=160, n_mels=80, norm="slaney", mel_scale="slaney",
        window_fn=torch.hann_window)(torch.from_numpy(wave))
    tool.near("MelSpectrogram", tool("log_mel", wave, *given(how)), torch.log(theirs + 1e-20).T[:125], 1e-4)


def check_recipe(tool, rng):
    """Dither, pre-emphasis, features, normalising, masks, stacking in a row, as the reference does one recording."""
    wave, noise = speech(rng, 34567), rng.standard_normal(34567).astype(np.float32)
    x = torch.from_numpy(wave) + 1e-5 * torch.from_numpy(noise)
    x = torch.cat((x[:1], x[1:] - 0.97 * x[:-1]))
    x = log_mel(x.numpy(), RNNT, torch.from_numpy(filters(RNNT)).float()).T
    x = (x - x.mean(dim=1, keepdim=True)) / (x.std(dim=1, keepdim=True) + 1e-5)
    x[5:17] = 0
    x[:, 40:46] = 0
    x[:, 210:] = 0
    rows = [x] + [torch.cat((x[:, n:], torch.zeros(80, n)), dim=1) for n in (1, 2)]
    want = torch.cat(rows)[:, ::3].T
    got = tool("log_mel", tool("emphasize", wave + np.float32(1e-5) * noise, 0.97), *given(RNNT))
    got = tool("mask", tool("normalize", got, 80, 1e-5), 80, "cols", 5, 12, "rows", 40, 6, "rows", 210, 9)
    tool.near("the RNN-T recipe", tool("stack", got, 80, 3, 3), want, 1e-4)


def check_features(tool, rng):
    for rows, cols in ((2, 3), (100, 80), (333, 7)):
        x = (rng.standard_normal((rows, cols)) * rng.uniform(0.01, 20, cols) - 15).astype(np.float32)
        wide = torch.from_numpy(x.astype(np.float64))
        want = (wide - wide.mean(0)) / (wide.std(0) + 1e-5)
        tool.near(f"normalize {rows} x {cols}", tool("normalize", x, cols, 1e-5), want, 1e-6)
        for count, skip in ((1, 1), (3, 3), (3, 2), (2, 5), (8, 3)):
            padded = np.concatenate([x, np.zeros((count, cols), np.float32)])
            want = np.stack([padded[r:r + count].reshape(-1) for r in range(0, rows, skip)])
            tool.near(f"stack {count} by {skip}", tool("stack", x, cols, count, skip), want, 0)
    x = np.full((1, 4), 3, np.float32)
    tool.near("normalize one row", tool("normalize", x, 4, 1e-5), np.zeros((1, 4)), 0)
    x = rng.standard_normal((20, 6)).astype(np.float32)
    want = x.copy()
    want[17:] = want[:, :2] = 0
    tool.near("mask", tool("mask", x, 6, "rows", 17, 30, "cols", 0, 2, "rows", 3, 0, "cols", 6, 4), want, 0)
    wave = rng.standard_normal(1000).astype(np.float32)
    want = np.concatenate([wave[:1], wave[1:] - np.float32(0.97) * wave[:-1]])
    tool.near("emphasize", tool("emphasize", wave, 0.97), want, 1e-7)
    tool.near("emphasize one", tool("emphasize", wave[:1], 0.97), wave[:1], 0)


def check_resample(tool, rng):
    pairs = [(44100, 16000), (16000, 8000), (8000, 16000), (16000, 44100), (48000, 16000), (22050, 16000), (16000, 16000),
             (3, 2), (1, 7), (96000, 8000)]
    pairs += [(percent, 100) for percent in range(85, 116, 3)]
    for old, new in pairs:
        exact = torchaudio.transforms.Resample(old, new)
        for n in (1, 5, 100, 4000):
            wave = speech(rng, n)
            got = tool("resample", wave, old, new)
            tool.near(f"resample {old} to {new} of {n}", got, exact(torch.from_numpy(wave)), 1e-6)
            tool.near(f"resample {old} to {new} of {n}, functional", got,
                      torchaudio.functional.resample(torch.from_numpy(wave), old, new), 1e-5)


def trimmed(wave, top_db, frame, hop):
    """librosa.effects.trim."""
    padded = np.pad(wave.astype(np.float64), frame // 2)
    starts = range(0, len(padded) - frame + 1, hop)
    rms = np.sqrt([np.mean(padded[s:s + frame] ** 2) for s in starts])
    power = np.maximum(1e-10, rms ** 2)
    loud = np.flatnonzero(10 * np.log10(power) - 10 * np.log10(max(1e-10, rms.max() ** 2)) > -top_db)
    return (loud[0] * hop, min(len(wave), (loud[-1] + 1) * hop)) if len(loud) else (0, 0)


def check_trim(tool, rng):
    for case in range(40):
        n = int(rng.integers(1, 30000))
        wave = speech(rng, n)
        quiet = rng.integers(0, n + 1, 2)
        wave[:quiet[0]] *= 10 ** -rng.uniform(1, 5)
        wave[quiet[1]:] *= 10 ** -rng.uniform(1, 5)
        wave = (np.round(wave * 32768) / 32768).astype(np.float32)
        db, (frame, hop) = float(rng.choice([20, 40, 60])), ((2048, 512), (400, 160), (333, 100))[case % 3]
        want = trimmed(wave, db, frame, hop)
        for kind in ("f32", "i16"):
            tool.near(f"trim {n} {quiet} {db} {frame} {kind}", tool("trim", wave, db, frame, hop, kind), want, 0)
    tool.near("trim silence", tool("trim", np.zeros(5000), 60, 2048, 512, "f32"), (0, 5000), 0)
    tool.near("trim nothing", tool("trim", [], 60, 2048, 512, "f32"), (0, 0), 0)


def main():
    tool, rng = Tool(sys.argv[1]), np.random.default_rng(11)
    check_power(tool, rng)
    check_log_mel(tool, rng)
    check_torchaudio(tool, rng)
    check_recipe(tool, rng)
    check_filters(tool)
    check_features(tool, rng)
    check_resample(tool, rng)
    check_trim(tool, rng)
    print(f"{tool.checked} comparisons, {tool.failed} failed")
    return 1 if tool.failed or tool.checked < 200 else 0


if __name__ == "__main__":
    sys.exit(main())
