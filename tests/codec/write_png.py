# SPDX-License-Identifier: Apache-2.0
"""Writes PNGs of every colour type, bit depth and interlacing with zlib alone, and says what RGB they stand for."""
import struct
import zlib

import numpy

PASSES = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
TYPES = {0: ("grey", 1, (1, 2, 4, 8, 16)), 2: ("rgb", 3, (8, 16)), 3: ("palette", 1, (1, 2, 4, 8)),
         4: ("grey+alpha", 2, (8, 16)), 6: ("rgba", 4, (8, 16))}


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def pack_rows(samples, depth):
    """Rows of filter byte 0 and packed samples."""
    out = b""
    for row in samples:
        flat = row.reshape(-1)
        if depth == 16:
            packed = flat.astype(">u2").tobytes()
        elif depth == 8:
            packed = flat.astype(numpy.uint8).tobytes()
        else:
            bits = ((flat[:, None] >> numpy.arange(depth - 1, -1, -1)) & 1).astype(numpy.uint8)
            packed = numpy.packbits(bits.reshape(-1)).tobytes()
        out += b"\0" + packed
    return out


def encode(samples, color_type, depth, interlaced, palette, extra=b""):
    height, width = samples.shape[:2]
    if interlaced:
        parts = [samples[y::dy, x::dx] for x, y, dx, dy in PASSES]
        raw = b"".join(pack_rows(part, depth) for part in parts if part.size)
    else:
        raw = pack_rows(samples, depth)
    header = struct.pack(">IIBBBBB", width, height, depth, color_type, 0, 0, interlaced)
    plte = chunk(b"PLTE", palette.tobytes()) if palette is not None else b""
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + extra + plte + chunk(b"IDAT", zlib.compress(raw)) +
            chunk(b"IEND", b""))


def to_rgb(samples, color_type, depth, palette):
    if color_type == 3:
        return palette[samples[:, :, 0]]
    if depth == 16:
        levels = samples >> 8
    else:
        levels = samples * (255 // ((1 << depth) - 1))
    return (levels[:, :, :3] if levels.shape[2] >= 3 else levels[:, :, [0, 0, 0]]).astype(numpy.uint8)


def every_png(rng):
    """Yields (name, bytes, RGB array, whether it has 16 bits)."""
    for color_type, (name, channels, depths) in TYPES.items():
        for depth in depths:
            for interlaced in (0, 1):
                for _ in range(4):
                    gen = numpy.random.RandomState(rng.randrange(1 << 30))
                    shape = (rng.randint(1, 33), rng.randint(1, 33), channels)
                    samples = gen.randint(0, 1 << depth, shape)
                    palette = gen.randint(0, 256, (1 << depth, 3)).astype(numpy.uint8) if color_type == 3 else None
                    extra = chunk(b"zTXt", b"note\0\0" + zlib.compress(b"\0" * 100000))
                    data = encode(samples, color_type, depth, interlaced, palette, extra)
                    label = "%s %d-bit%s %dx%d" % (name, depth, " interlaced" if interlaced else "", shape[1], shape[0])
                    yield label, data, to_rgb(samples, color_type, depth, palette), depth == 16
