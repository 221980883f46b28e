#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Holds decoded recordings against libsndfile's, number by number: every kind that decode_tool makes, and files that
libsndfile writes itself.

    tests/codec/parity_audio.py DECODE_TOOL
"""
import os
import subprocess
import sys
import tempfile

try:
    import numpy
    import soundfile
except ImportError as error:
    print("skip:", error)
    sys.exit(77)


class Tool:
    def __init__(self, path):
        self.process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def decode(self, path, mode):
        self.process.stdin.write(("%s\t%s\t0 0 0 0\n" % (path, mode)).encode())
        self.process.stdin.flush()
        head = self.process.stdout.readline().decode()
        if head.startswith("error"):
            return head
        rows, cols, channels, size, _damage, detail = head.split(maxsplit=5)
        count = int(rows) * int(cols) * int(channels)
        data = self.process.stdout.read(count * int(size))
        kind = {2: numpy.int16, 4: numpy.float32}[int(size)]
        return numpy.frombuffer(data, kind).reshape(int(rows), int(channels)), detail


def check(tool, path, complaints):
    want = soundfile.read(path, dtype="float64", always_2d=True)[0]
    for mode in ("wave", "wave-keep"):
        got = tool.decode(path, mode)
        if isinstance(got, str):
            complaints.append("%s %s: %s" % (os.path.basename(path), mode, got.strip()))
            continue
        values = got[0] / numpy.float64(32768) if got[0].dtype == numpy.int16 else got[0]
        expect = want if mode == "wave-keep" else want.mean(axis=1, keepdims=True)
        if values.shape != expect.shape or not numpy.array_equal(values, expect.astype(numpy.float32)):
            complaints.append("%s %s (%s): other numbers" % (os.path.basename(path), mode, got[1].strip()))


def write_all(folder):
    """Files of libsndfile's own."""
    rng = numpy.random.default_rng(5)
    forms = [("wav", s) for s in ("PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE")]
    forms += [("wavex", s) for s in ("PCM_16", "PCM_24", "FLOAT")] + [("flac", s) for s in ("PCM_S8", "PCM_16", "PCM_24")]
    for form, subtype in forms:
        for channels, frames, rate in ((1, 1, 8000), (1, 5000, 16000), (2, 4097, 44100), (5, 300, 48000)):
            wave = numpy.cumsum(rng.normal(0, 0.02, (frames, channels)), axis=0).clip(-1, 1)
            name = "own-%s-%s-%d-%d.%s" % (form, subtype, channels, frames, form[:3] if form[0] == "w" else form)
            soundfile.write(os.path.join(folder, name), wave, rate, subtype=subtype, format=form.upper())


def main():
    tool, complaints = Tool(sys.argv[1]), []
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.argv[1], "--make-audio", folder], check=True)
        write_all(folder)
        names = sorted(os.listdir(folder))
        for name in names:
            check(tool, os.path.join(folder, name), complaints)
    print("%d recordings, %d unlike libsndfile" % (len(names), len(complaints)))
    print("\n".join(complaints))
    return 1 if complaints or len(names) < 60 else 0


if __name__ == "__main__":
    sys.exit(main())
