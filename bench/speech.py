#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Features of speech beside torch and torchaudio in PyTorch's DataLoader (bench/speech_torch.py), on recordings of
LibriSpeech's lengths made by `penstock synth speech`, files in the page cache.

    bench/speech.py --build build [--count 300] [--pairs 5] [--seconds 15] [--only features,rnnt] [--out FILE]

features: FLAC, dither, pre-emphasis, log-mel, normalise, SpecAugment, stacking by three, batches of 16 padded, with
transcripts; rnnt: the same after trimming and a random speed. Both give torch tensors on the CPU, with two workers; torch
reads with soundfile or with torchaudio, whichever was faster in a first run. They take turns; a ratio is taken within a
pair of runs, and the median of the pairs counts.
"""
import os
import sys

sys.dont_write_bytecode = True
import beside_torch

FEATURES = "dither | preemphasis | log_mel(80) | feature_norm | spec_augment | stack(3)"
OURS = {"features": f"decode | {FEATURES}", "rnnt": f"decode | trim(60) | speed((0.85, 1.15)) | {FEATURES}"}
BATCH = 16


def feed(name, args):
    import penstock

    loader = penstock.Loader(args.data, OURS[name], BATCH, fields={"audio": "padded", "text": ""}, device="cpu",
                             workers=args.workers, cache=0, seed=1)

    def batches():
        while True:
            yield from loader

    return loader, batches(), lambda taken: len(taken.audio)


if __name__ == "__main__":
    sys.exit(beside_torch.main(beside_torch.Bench(
        file=os.path.abspath(__file__), text=__doc__, names=list(OURS), synth=["speech"], more=[], count=300,
        theirs="speech_torch.py", decodes=["soundfile", "torchaudio"], feed=feed)))
