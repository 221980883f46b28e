#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the seeds of the fuzz corpora: small valid inputs and near misses, named seed-*. Inputs that fuzzing found lie beside
them under other names and are left alone. (States are made by the library itself: see make_states.c.)

    tests/fuzz/make_corpus.py
"""
import gzip
import io
import json
import os
import struct
import sys
import tarfile
import zlib

import numpy
import soundfile
from PIL import Image

HERE = os.path.dirname(os.path.abspath(__file__))


def put(target, name, data):
    folder = os.path.join(HERE, "corpus", target)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "seed-" + name), "wb") as handle:
        handle.write(data)


def pixels(rows, cols, channels):
    y, x = numpy.mgrid[0:rows, 0:cols]
    planes = [(x * 9 + y * 5 + 70 * c) % 256 for c in range(channels)]
    array = numpy.stack(planes, axis=2).astype(numpy.uint8)
    return array[:, :, 0] if channels == 1 else array


def saved(picture, form, **options):
    out = io.BytesIO()
    picture.save(out, form, **options)
    return out.getvalue()


def jpegs():
    colour, grey = Image.fromarray(pixels(19, 35, 3)), Image.fromarray(pixels(16, 24, 1))
    cmyk = Image.fromarray(pixels(9, 17, 4), "CMYK")
    plain = saved(colour, "JPEG", quality=60)
    exif = Image.Exif()
    exif[0x0112] = 6
    put("jpeg", "420", plain)
    put("jpeg", "444", saved(colour, "JPEG", quality=90, subsampling=0))
    put("jpeg", "422", saved(colour, "JPEG", quality=40, subsampling=1))
    put("jpeg", "progressive", saved(colour, "JPEG", quality=60, progressive=True))
    put("jpeg", "grey", saved(grey, "JPEG", quality=60))
    put("jpeg", "cmyk", saved(cmyk, "JPEG", quality=60))
    put("jpeg", "turned", saved(colour, "JPEG", quality=30, exif=exif))
    put("jpeg", "one", saved(Image.fromarray(pixels(1, 1, 3)), "JPEG"))
    put("jpeg", "cut", plain[:-40])
    put("jpeg", "no-end", plain[:-2])
    put("jpeg", "head-only", plain[:20])
    start = plain.index(b"\xff\xc0")
    put("jpeg", "bomb", plain[:start + 5] + b"\xff\xdc\xff\xdc" + plain[start + 9:])


def chunk(kind, body):
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def png(cols, rows, depth, colour, interlace, rows_bytes, extra=b""):
    head = struct.pack(">IIBBBBB", cols, rows, depth, colour, 0, 0, interlace)
    body = chunk(b"IHDR", head) + extra + chunk(b"IDAT", zlib.compress(rows_bytes)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


def pngs():
    for channels, mode in ((1, "L"), (2, "LA"), (3, "RGB"), (4, "RGBA")):
        put("png", mode.lower(), saved(Image.fromarray(pixels(11, 13, channels), mode), "PNG"))
    put("png", "palette", saved(Image.fromarray(pixels(11, 13, 3)).quantize(16), "PNG"))
    put("png", "1bit", saved(Image.fromarray(pixels(9, 21, 1)).convert("1"), "PNG"))
    put("png", "16bit", png(3, 2, 16, 0, 0, b"\0" + b"\x12\x34" * 3 + b"\x02" + b"\x01\x02" * 3))
    put("png", "16bit-rgb", png(2, 1, 16, 2, 0, b"\0" + b"\x12\x34" * 6))
    put("png", "interlaced", png(1, 1, 8, 2, 1, b"\0abc"))
    put("png", "transparent", png(2, 1, 8, 3, 0, b"\0\0\1", chunk(b"PLTE", b"abcdef") + chunk(b"tRNS", b"\x80")))
    put("png", "bomb", png(0x7fffffff, 0x7fffffff, 8, 2, 0, b"\0"))
    put("png", "short", png(9, 9, 8, 0, 0, b"\0abc"))
    whole = saved(Image.fromarray(pixels(11, 13, 3)), "PNG")
    put("png", "cut", whole[:len(whole) // 2])


def webps():
    colour, clear = Image.fromarray(pixels(19, 35, 3)), Image.fromarray(pixels(11, 13, 4), "RGBA")
    exif = Image.Exif()
    exif[0x0112] = 6
    for name, picture in (("rgb", colour), ("rgba", clear)):
        put("webp", "lossy-" + name, saved(picture, "WEBP", quality=60))
        put("webp", "lossless-" + name, saved(picture, "WEBP", lossless=True))
        put("webp", "moving-" + name, saved(picture, "WEBP", save_all=True, append_images=[picture.rotate(180)]))
    put("webp", "palette", saved(colour.quantize(5).convert("RGB"), "WEBP", lossless=True))
    put("webp", "grey", saved(Image.fromarray(pixels(7, 9, 1)).convert("RGB"), "WEBP", lossless=True))
    put("webp", "turned", saved(colour, "WEBP", quality=30, exif=exif))
    put("webp", "one", saved(Image.fromarray(pixels(1, 1, 3)), "WEBP"))
    whole = saved(colour, "WEBP", quality=60)
    put("webp", "cut", whole[:-40])
    put("webp", "head-only", whole[:12])
    put("webp", "bomb", whole[:26] + b"\xff\x3f\xff\x3f" + whole[30:])
    head = saved(clear, "WEBP", save_all=True, append_images=[clear.rotate(180)])
    put("webp", "huge-canvas", head[:24] + b"\xff\xff\x00\xff\xff\x00" + head[30:])


def nifti(version=1, order="<", code=4, dims=(3, 5, 4, 3), scaling=(0, 0), data=None, offset=None, magic=None):
    """A NIfTI file of two-byte numbers, or of the data given. dims: their number first."""
    two = version == 2
    head = bytearray(544 if two else 352)

    def put_in(at, form, *values):
        struct.pack_into(order + form, head, at, *values)
    put_in(0, "i", 540 if two else 348)
    at = 4 if two else 344
    head[at:at + 8] = (magic or (b"n+2\0\r\n\x1a\n" if two else b"n+1\0")).ljust(8, b"\0")
    head = head[:544 if two else 352]
    put_in(16 if two else 40, "%d%s" % (len(dims), "q" if two else "h"), *dims)
    put_in(12 if two else 70, "h", code)
    put_in(112 if two else 80, "3" + ("d" if two else "f"), 3, 0.78, 1.5)
    put_in(168 if two else 108, "q" if two else "f", len(head) if offset is None else offset)
    put_in(176 if two else 112, "2" + ("d" if two else "f"), *scaling)
    if data is None:
        data = numpy.arange(numpy.prod(dims[1:]), dtype=order + "i2").tobytes()
    return bytes(head) + data


def niftis():
    for version in (1, 2):
        put("nifti", "%d-little" % version, nifti(version))
        put("nifti", "%d-big" % version, nifti(version, ">"))
        put("nifti", "%d-scaled" % version, nifti(version, scaling=(0.5, -3)))
    for code, kind in ((2, "u1"), (256, "i1"), (512, "u2"), (768, "u4"), (8, "i4"), (1280, "u8"), (1024, "i8"), (16, "f4"),
                       (64, "f8")):
        put("nifti", "type-" + kind, nifti(code=code, data=numpy.arange(60).astype(kind).tobytes()))
    put("nifti", "rgb", nifti(code=128, data=bytes(180)))
    put("nifti", "rgba", nifti(code=2304, data=bytes(240)))
    put("nifti", "channels", nifti(dims=(4, 3, 2, 2, 3)))
    put("nifti", "line", nifti(dims=(1, 7)))
    put("nifti", "huge", nifti(dims=(3, 32767, 32767, 32767), data=b""))
    put("nifti", "huge-2", nifti(2, dims=(3, 2**62, 2**62, 2**62), data=b""))
    put("nifti", "negative", nifti(dims=(3, -5, 4, 3), data=b""))
    put("nifti", "offset", nifti(offset=1e30))
    put("nifti", "pair", nifti(magic=b"ni1\0"))
    put("nifti", "complex", nifti(code=32))
    put("nifti", "cut", nifti()[:-7])
    put("nifti", "head-only", nifti()[:348])
    put("nifti", "gzip", gzip.compress(nifti(), mtime=0))
    put("nifti", "gzip-two", gzip.compress(nifti()[:200], mtime=0) + gzip.compress(nifti()[200:], mtime=0) + b"\0" * 9)
    put("nifti", "gzip-cut", gzip.compress(nifti(), mtime=0)[:-5])
    put("nifti", "gzip-bomb", gzip.compress(nifti() + bytes(100000), mtime=0))


def npy(array, **options):
    out = io.BytesIO()
    numpy.save(out, array, **options)
    return out.getvalue()


def npys():
    volume = numpy.arange(60).reshape(3, 4, 5)
    for kind in ("|u1", "|i1", "<u2", ">i2", "<i4", "<u4", ">i8", "<u8", "<f2", "<f4", ">f8", "|b1"):
        put("npy", "type-" + ("big-" if kind[0] == ">" else "") + kind[1:], npy(volume.astype(kind)))
    put("npy", "fortran", npy(numpy.asfortranarray(volume)))
    put("npy", "channels", npy(volume.reshape(2, 3, 2, 5).astype("f4")))
    put("npy", "flat", npy(volume.ravel()))
    put("npy", "empty", npy(volume[:0]))
    put("npy", "objects", npy(numpy.array([None, 1], object), allow_pickle=True))
    put("npy", "record", npy(numpy.zeros(3, [("a", "<f4"), ("b", "<i2")])))
    put("npy", "cut", npy(volume)[:-3])
    put("npy", "long-head", b"\x93NUMPY\x02\0\xff\xff\xff\xff{'descr'")
    whole = npy(volume.astype("u1"))
    put("npy", "huge", whole.replace(b"(3, 4, 5)", b"(3000000, 4000000, 500000)"))


def npz(save, **arrays):
    out = io.BytesIO()
    save(out, **arrays)
    return out.getvalue()


def npzs():
    image, mask = numpy.arange(60, dtype="f4").reshape(3, 4, 5), numpy.ones((3, 4, 5), "u1")
    stored, packed = npz(numpy.savez, image=image, mask=mask), npz(numpy.savez_compressed, x=image, y=mask)
    put("npz", "stored", stored)
    put("npz", "packed", packed)
    put("npz", "alone", npz(numpy.savez, ct=image))
    put("npz", "nameless", npz(numpy.savez_compressed, arr_0=image, arr_1=mask))
    put("npz", "no-array", npz(numpy.savez, left=image, right=image))
    put("npz", "cut", stored[:-30])
    put("npz", "bad-sum", stored.replace(b"\0\0\x80?", b"\0\0\x80@", 1))
    put("npz", "empty", b"PK\5\6" + bytes(18))
    put("npz", "comment", stored[:-2] + b"\x05\0hello")
    entry = packed.index(b"PK\1\2")
    put("npz", "bomb", packed[:entry + 24] + b"\xff\xff\xff\x7f" + packed[entry + 28:])
    put("npz", "far", stored[:-6] + b"\xff\xff\xff\x7f\0\0")


def wave(frames, channels):
    i = numpy.arange(frames * channels).reshape(frames, channels)
    return numpy.sin(i * 0.3) * 0.5 + (i * 37 % 101 - 50) / 500


def recording(frames, channels, form, subtype):
    out = io.BytesIO()
    soundfile.write(out, wave(frames, channels), 16000, format=form, subtype=subtype)
    return out.getvalue()


def wavs():
    for subtype in ("PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "ULAW"):
        put("wav", subtype.lower(), recording(40, 1, "WAV", subtype))
        put("wav", subtype.lower() + "-3", recording(20, 3, "WAVEX", subtype))
    whole = recording(40, 1, "WAV", "PCM_16")
    put("wav", "cut", whole[:-7])
    put("wav", "head-only", whole[:12])
    put("wav", "open-end", whole[:40] + b"\xff\xff\xff\xff" + whole[44:])
    put("wav", "no-length", whole[:40] + b"\0\0\0\0" + whole[44:])
    put("wav", "bomb", whole[:40] + b"\xf0\xff\xff\xff" + whole[44:])
    put("wav", "chunks", whole[:12] + b"LIST\3\0\0\0abc\0" + whole[12:])
    put("wav", "no-channels", whole[:22] + b"\0\0" + whole[24:])


def flacs():
    for subtype in ("PCM_S8", "PCM_16", "PCM_24"):
        for channels in (1, 2, 5):
            put("flac", "%s-%d" % (subtype.lower(), channels), recording(300, channels, "FLAC", subtype))
    whole = recording(5000, 1, "FLAC", "PCM_16")
    start = whole.index(b"\xff\xf8")
    put("flac", "frames", whole)
    put("flac", "cut", whole[:-100])
    put("flac", "head-only", whole[:42])
    put("flac", "no-total", whole[:21] + bytes([whole[21] & 0xf0]) + b"\0\0\0\0" + whole[26:])
    put("flac", "bomb", whole[:21] + bytes([whole[21] | 15]) + b"\xff\xff\xff\xff" + whole[26:])
    put("flac", "rubbish", whole[:start] + b"rubbish" + whole[start:])
    put("flac", "silence", recording(1, 1, "FLAC", "PCM_16"))


def tar_of(members, form=tarfile.USTAR_FORMAT):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as archive:
        for name, data, kind in members:
            info = tarfile.TarInfo(name)
            info.size = len(data) if kind == tarfile.REGTYPE else 0
            info.type = kind
            info.linkname = "elsewhere" if kind in (tarfile.SYMTYPE, tarfile.LNKTYPE) else ""
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue().rstrip(b"\0") + b"\0" * 1024


def tars():
    regular = tarfile.REGTYPE
    pair = [("a/0001.jpg", b"\xff\xd8\xff\xd9", regular), ("a/0001.cls", b"7", regular),
            ("a/0001.json", b'{"width": 3}', regular), ("a/0002.jpg", b"x", regular), ("a/0002.txt", b"text", regular)]
    put("tar", "pairs", tar_of(pair))
    put("tar", "gnu-long-name", tar_of([("d" * 90 + "/" + "n" * 90 + ".jpg", b"x", regular)], tarfile.GNU_FORMAT))
    put("tar", "pax", tar_of([("d" * 90 + "/" + "ü" * 90 + ".jpg", b"x", regular)], tarfile.PAX_FORMAT))
    put("tar", "up-and-away", tar_of([("../x.jpg", b"x", regular), ("/etc/x.jpg", b"x", regular), ("a//b.jpg", b"", regular)]))
    put("tar", "links", tar_of([("a.jpg", b"", tarfile.SYMTYPE), ("b.jpg", b"", tarfile.LNKTYPE), ("c", b"", tarfile.FIFOTYPE)]))
    whole = tar_of(pair)
    put("tar", "cut", whole[:900])
    put("tar", "no-end", whole[:-1024])
    put("tar", "bad-sum", whole[:148] + b"0000000\0" + whole[156:])
    put("tar", "huge", whole[:124] + b"\x80\0\0\0\x7f\xff\xff\xff\xff\xff\xff\xff" + whole[136:])


def transcripts():
    put("trans", "plain", b"1-2-0000 HE SAID\n1-2-0001 AND SHE SAID\nx-2 SO\n")
    put("trans", "twice", b"1-2-0000 HE SAID\n1-2-0000 AGAIN\n")
    put("trans", "ends", b"\r\n\n1-2-0001\r\n x\nx-2 \xc3\xa9")
    put("trans", "no-text", b"1-2-0000 \xff\xfe\n\x00\n")


def listings():
    entry = b"<Contents><Key>%s</Key><LastModified>2026-01-31T12:34:56.000Z</LastModified><ETag>&quot;e&quot;</ETag><Size>%d</Size></Contents>"
    frame = b'<?xml version="1.0" encoding="UTF-8"?>\n<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">%s</ListBucketResult>'
    put("listing", "page", frame % (entry % (b"p/a.jpg", 1) + entry % (b"p/b%20c+d.jpg", 2)))
    put("listing", "more", frame % (b"<IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken>" + entry % (b"p", 0)))
    put("listing", "inside", entry % (b"p%0A", 1) + entry % (b"p%FF", 2))
    put("listing", "unsorted", entry % (b"pb", 1) + entry % (b"pa", 2))
    put("listing", "bomb", b'<!DOCTYPE r [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>' + frame % (entry % (b"p&b;", 1)))
    put("listing", "cut", (frame % (entry % (b"p/a.jpg", 1)))[:150])


def profiles():
    put("profile", "config", b"[default]\nregion = eu-west-1 # here\ns3 =\n  endpoint_url = http://h\n[profile  lab]\naws_access_key_id=AK\n")
    put("profile", "services", b"[services s]\ns3 =\n\tendpoint_url=http://h\r\n; end\n[default\nregion=\n")
    put("profile", "json", b'{"Code":"Success","AccessKeyId":"A\\/K","N":1,"Token":"t","Expiration":"2026-01-31T12:34:56.7Z"}')
    put("profile", "json-cut", b'{"AccessKeyId" : "AK", "Token":"')


def manifests():
    put("manifest", "tsv", b"key\tlabel\tsplit\na.jpg\t0\ttrain\nb/c.jpg\t12\tval\n")
    put("manifest", "tsv-more", b"key\tmask\tweight\tcaption\na.jpg\ta.png\t0.5\ttwo words\nb.jpg\tb.png\t-1e3\t\n")
    put("manifest", "tsv-crlf", b"key\tlabel\r\na.jpg\t3\r\n")
    put("manifest", "tsv-ragged", b"key\tlabel\na.jpg\nb.jpg\t1\t2\n")
    put("manifest", "tsv-evil", b"key\tlabel\n../../etc/passwd\t1\n/abs.jpg\t2\na\x01b.jpg\t3\n")
    lines = [{"key": "a.jpg", "label": 3, "split": "train"}, {"key": "b.jpg", "label": -1, "box": [1, 2.5, 3, 4]},
             {"key": "c.jpg", "caption": "zwölf \u0001", "nothing": None, "deep": {"a": [[]]}}]
    put("manifest", "jsonl", "\n".join(json.dumps(line) for line in lines).encode() + b"\n")
    put("manifest", "jsonl-cut", b'{"key": "a.jpg", "label": 1}\n{"key": "b')
    put("manifest", "jsonl-twice", b'{"key": "a.jpg", "key": "b.jpg", "label": 99999999999999999999}\n')
    put("manifest", "empty", b"")


PIPELINES = {
    "train": "decode | random_resized_crop(224) | hflip | normalize(imagenet)",
    "evaluate": "decode | resize(256) | center_crop(224) | normalize(imagenet)",
    "named": "decode | random_resized_crop(size=(128, 96), scale=(0.2, 1), ratio=(0.5, 2), interpolation=bicubic) | vflip(p=0.1)",
    "lists": "decode | pad((1, 2, 3, 4), fill=(10, 20, 30)) | random_crop(32) | normalize(mean=(0.5, 0.5, 0.5), std=(1, 1, 1))",
    "types": "decode | resize(32) | to(f16, nhwc)",
    "fields": "decode | resize(32) | image: normalize(half) | to(bf16); mask: to(i64)",
    "typo": "decode | resise(32)",
    "open": "decode | resize(",
    "numbers": "decode | resize(1e400, -0, 00007, .5)",
    "bars": "|| | ||",
    "deep": "decode | pad(((((((((((((((1)))))))))))))))",
}


def pipelines():
    for name, text in PIPELINES.items():
        put("pipeline", name, text.encode())
    put("pipeline", "bytes", b"decode | \xff\xfe\0resize(3)")


def cocos():
    images = [{"id": 1, "file_name": "a.jpg", "width": 8, "height": 6}, {"id": 0, "file_name": "b.jpg"}]
    categories = [{"id": 1, "name": "one"}, {"id": 90, "name": "\u00e9\U0001f600"}]
    polygon = {"id": 5, "image_id": 1, "category_id": 90, "bbox": [1.5, 2, 3, 4.25], "area": 3.5, "iscrowd": 0,
               "segmentation": [[1.25, 2, 4, 2.5, 3, 6], [0.1, 0.2, 0.123, 4, 5, 6]]}
    runs = dict(polygon, id=6, iscrowd=1, segmentation={"size": [6, 8], "counts": [3, 2, 43]})
    packed = dict(polygon, id=7, iscrowd=True, segmentation={"counts": "32[1", "size": [6, 8]})
    bare = {"id": 8.0, "image_id": 0, "category_id": 1, "bbox": [0, -1e3, 1e999, float("nan")], "segmentation": None}
    good = {"info": {"x": [[], {}]}, "images": images, "annotations": [polygon, runs, bare], "categories": categories}
    text = json.dumps(good)
    put("coco", "good", text.encode())
    put("coco", "indented", json.dumps(dict(reversed(list(good.items()))), indent=1).encode())
    put("coco", "packed", json.dumps(dict(good, annotations=[packed])).encode())
    put("coco", "no-objects", json.dumps({"images": images}).encode())
    put("coco", "stray", json.dumps(dict(good, annotations=[dict(polygon, image_id=77)])).encode())
    put("coco", "cut", text[:len(text) // 2].encode())
    put("coco", "twice", ("{\"images\": []," + text[1:]).encode())
    put("coco", "odd-polygon", text.replace("4, 2.5, 3, 6", "4, 2.5, 3").encode())
    put("coco", "long-runs", text.replace("[3, 2, 43]", "[3, 9223372036854775807, 43]").encode())
    put("coco", "deep", b"[" * 40)
    put("coco", "half-character", text.replace("one", "\\ud83d").encode())


def number(value):
    """Seven bits a byte, the lowest first."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out) + bytes([value])


def difference(value):
    return number(2 * value if value >= 0 else -2 * value - 1)


def outline(form, parts, body):
    inside = bytes([form]) + number(parts) + body
    return number(len(inside)) + inside


def outlines():
    same = bytes([160, 128, 128, 128, 160, 128])
    points = [(100, 250), (3000, 250), (2875, 1999), (-500, 1333)]
    drawn, last = number(len(points)), (0, 0)
    for point in points:
        drawn += difference(point[0] - last[0]) + difference(point[1] - last[1])
        last = point
    whole = outline(1, 1, drawn)
    reals = outline(2, 1, number(3) + struct.pack("<6d", 0.5, 0.25, 1e5, 3, -7, 1e6))
    strange = outline(2, 1, number(3) + struct.pack("<6d", 0.5, float("nan"), 1e300, 3, -7, 1e6))
    runs = outline(3, 3, number(6) + number(5) + number(4) + number(20) + number(6))
    head = bytes([19, 30]) + same
    put("polygons", "polygon", head + whole)
    put("polygons", "several", head + whole + b"\0" + reals + runs)
    put("polygons", "turned", bytes([40, 40, 140, 180, 128, 70, 150, 200]) + whole + runs)
    put("polygons", "strange", head + strange)
    put("polygons", "flat", bytes([19, 30, 0, 0, 0, 0, 0, 0]) + runs + whole)
    put("polygons", "cut", (head + whole)[:-2])
    put("polygons", "many", head + outline(1, 1 << 40, drawn))
    put("polygons", "long-run", head + outline(3, 2, number(6) + number(5) + number(1) + number(1 << 62)))


def resps():
    slots = b"*2\r\n*3\r\n:0\r\n:8191\r\n*3\r\n$9\r\n127.0.0.1\r\n:7000\r\n$2\r\nid\r\n"
    slots += b"*4\r\n:8192\r\n:16383\r\n*2\r\n$-1\r\n:7001\r\n*2\r\n$0\r\n\r\n:7002\r\n"
    put("resp", "slots", slots)
    put("resp", "value", b"$5\r\nhello\r\n$-1\r\n$0\r\n\r\n")
    put("resp", "values", b"*2\r\n$5\r\nhello\r\n$32\r\n" + b"f" * 32 + b"\r\n*2\r\n$-1\r\n$-1\r\n")
    put("resp", "lines", b"+OK\r\n+PONG\r\n:42\r\n:-7\r\n*-1\r\n*0\r\n")
    put("resp", "errors", b"-MOVED 3999 127.0.0.1:6381\r\n-ASK 3999 [::1]:6381\r\n-LOADING\r\n-\r\n")
    put("resp", "huge", b"$9000000000000000000\r\nabc")
    put("resp", "many", b"*9223372036854775807\r\n:1\r\n")
    put("resp", "array", b"*16385\r\n" + b"*16385\r\n:1\r\n" * 40)
    put("resp", "deep", b"*1\r\n" * 20 + b":1\r\n")
    put("resp", "map", b"%4611686018427387904\r\n+a\r\n")
    put("resp", "third", b"*3\r\n,1.5\r\n#t\r\n%1\r\n+a\r\n+b\r\n_\r\n")
    put("resp", "negative", b"$-7\r\n")
    put("resp", "line", b"+" + b"a" * 3000)
    put("resp", "no-end", b"$5\r\nhelloXX+OK\r\n")


def main():
    jpegs()
    pngs()
    webps()
    niftis()
    npys()
    npzs()
    wavs()
    flacs()
    tars()
    manifests()
    listings()
    profiles()
    transcripts()
    cocos()
    outlines()
    pipelines()
    resps()
    return 0


if __name__ == "__main__":
    sys.exit(main())
