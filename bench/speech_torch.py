#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""The baseline of bench/speech.py: the features of the RNN-T reference by torch and torchaudio in PyTorch's DataLoader, in steady state.

One recording at a time, as a dataset's __getitem__ would: FLAC by soundfile or torchaudio, silence trimmed (librosa's rule, on tensors), speed
changed by torchaudio's resampling with its kernels kept, dither, pre-emphasis, MelSpectrogram, logarithm, normalising, SpecAugment, stacking; batches
are padded by pad_sequence. Prints one JSON line. WAV is read as it lies; where torchaudio is missing, the same by torch alone.

    speech_torch.py --data DIR --pipeline features|rnnt [--workers 2] [--seconds 15] [--decode soundfile|torchaudio|wav]
"""
import argparse
import glob
import json
import math
import os
import random
import sys
import time
import wave as wave_files

import torch

sys.dont_write_bytecode = True
import common
from torch_loader import Endless

try:
    import soundfile
except ImportError:  # no FLAC then
    soundfile = None
try:
    import torchaudio
except (ImportError, OSError):  # OSError: one that was built for another torch
    torchaudio = None

BATCH = 16


def trim(wave, top_db=60, frame=2048, hop=512):
    power = torch.nn.functional.pad(wave, (frame // 2, frame // 2)).unfold(0, frame, hop).square().mean(1).clamp(min=1e-10)
    loud = torch.nonzero(power > power.max() * 10 ** (-top_db / 10))
    return wave[int(loud[0]) * hop:(int(loud[-1]) + 1) * hop]


class PlainMel:
    """MelSpectrogram as it is called below, without torchaudio."""

    def __init__(self):
        hz = torch.linspace(0, 8000, 257)
        edges = torch.linspace(0, 15 + 27 * math.log(8) / math.log(6.4), 82)  # slaney's scale: linear to 1 kHz, then logarithmic
        edges = torch.where(edges < 15, edges * 200 / 3, 1000 * torch.exp(math.log(6.4) / 27 * (edges - 15)))
        wide = edges.diff()
        rising, falling = (hz[:, None] - edges[:-2]) / wide[:-1], (edges[2:] - hz[:, None]) / wide[1:]
        self.filters = (torch.minimum(rising, falling).clamp(min=0) * 2 / (edges[2:] - edges[:-2])).T
        self.window = torch.hann_window(320, periodic=False)

    def __call__(self, wave):
        spectrum = torch.stft(wave, 512, 160, 320, self.window, center=True, pad_mode="reflect", return_complex=True)
        return self.filters @ spectrum.abs().square()


class PlainResample:
    """torchaudio's Resample from one rate to another: a windowed sinc for each phase, kept."""

    def __init__(self, before, after, zeros=6, rolloff=0.99):
        common_rate = math.gcd(before, after)
        self.before, self.after = before // common_rate, after // common_rate
        base = min(self.before, self.after) * rolloff
        self.width = math.ceil(zeros * self.before / base)
        at = torch.arange(-self.width, self.width + self.before, dtype=torch.float64) / self.before
        at = ((at[None] - torch.arange(self.after, dtype=torch.float64)[:, None] / self.after) * base).clamp(-zeros, zeros)
        kernel = torch.sinc(at) * torch.cos(at * math.pi / zeros / 2) ** 2 * base / self.before
        self.kernel = kernel[:, None].float()

    def __call__(self, wave):
        padded_wave = torch.nn.functional.pad(wave, (self.width, self.width + self.before))
        made = torch.nn.functional.conv1d(padded_wave[None, None], self.kernel, stride=self.before)
        return made[0].T.reshape(-1)[:math.ceil(self.after * len(wave) / self.before)]


class Speech(torch.utils.data.Dataset):
    def __init__(self, root, pipeline, decode):
        ending = "wav" if decode == "wav" else "flac"
        self.files = sorted(glob.glob(os.path.join(root, "**", "*." + ending), recursive=True))
        self.texts = {}
        for path in glob.glob(os.path.join(root, "**", "*.trans.txt"), recursive=True):
            with open(path, encoding="utf-8") as handle:
                self.texts.update(line.rstrip("\n").split(" ", 1) for line in handle)
        self.full, self.decode = pipeline == "rnnt", decode
        self.mel = PlainMel() if torchaudio is None else torchaudio.transforms.MelSpectrogram(
            16000, n_fft=512, win_length=320, hop_length=160, n_mels=80, norm="slaney", mel_scale="slaney",
            window_fn=torch.hann_window, wkwargs={"periodic": False})
        self.resampler = PlainResample if torchaudio is None else torchaudio.transforms.Resample
        self.speeds = {}

    def __len__(self):
        return len(self.files)

    def load(self, path):
        if self.decode == "torchaudio":
            return torchaudio.load(path)[0][0]
        if self.decode == "wav":
            with wave_files.open(path) as handle:
                return torch.frombuffer(bytearray(handle.readframes(handle.getnframes())), dtype=torch.int16) / 32768
        return torch.from_numpy(soundfile.read(path, dtype="float32")[0])

    def speed(self, wave):
        percent = random.randint(85, 115)
        if percent == 100:
            return wave
        if percent not in self.speeds:
            self.speeds[percent] = self.resampler(percent, 100)
        return self.speeds[percent](wave)

    @staticmethod
    def augment(frames):
        features, length = frames.shape
        for _ in range(2):
            width = random.randint(0, 20)
            first = random.randrange(max(1, features - width))
            frames[first:first + width] = 0
        most = round(length * 0.03)
        for _ in range(10):
            width = random.randint(0, most)
            first = random.randrange(max(1, length - width))
            frames[:, first:first + width] = 0
        return frames

    def __getitem__(self, index):
        path = self.files[index]
        wave = self.load(path)
        if self.full:
            wave = self.speed(trim(wave))
        wave = wave + 1e-5 * torch.randn_like(wave)
        wave = torch.cat((wave[:1], wave[1:] - 0.97 * wave[:-1]))
        frames = torch.log(self.mel(wave) + 1e-20)[:, :-(-len(wave) // 160)]
        frames = (frames - frames.mean(1, keepdim=True)) / (frames.std(1, keepdim=True) + 1e-5)
        frames = self.augment(frames)
        frames = torch.nn.functional.pad(frames, (0, -frames.shape[1] % 3))
        return frames.T.reshape(-1, 240), self.texts[os.path.splitext(os.path.basename(path))[0]]


def padded(samples):
    frames, texts = zip(*samples)
    return torch.nn.utils.rnn.pad_sequence(frames, batch_first=True), torch.tensor([len(f) for f in frames]), texts


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--pipeline", choices=["features", "rnnt"], required=True)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--decode", choices=["soundfile", "torchaudio", "wav"], default="soundfile")
    args = parser.parse_args()
    torch.set_num_threads(1)
    data = Speech(args.data, args.pipeline, args.decode)
    loader = torch.utils.data.DataLoader(data, batch_size=BATCH, sampler=Endless(len(data)), num_workers=args.workers,
                                         collate_fn=padded, persistent_workers=True, prefetch_factor=4)
    batches, count = iter(loader), 0
    for _ in range(5 * args.workers):
        next(batches)
    start, cpu = time.perf_counter(), common.cpu_seconds()
    while time.perf_counter() - start < args.seconds:
        for _ in range(args.workers):
            count += len(next(batches)[0])
    elapsed = time.perf_counter() - start
    print(json.dumps({"samples_per_s": count / elapsed, "cpu_ms_a_sample": 1e3 * (common.cpu_seconds() - cpu) / count,
                      "torch": torch.__version__, "torchaudio": torchaudio and torchaudio.__version__}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
