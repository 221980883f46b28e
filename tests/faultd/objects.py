# SPDX-License-Identifier: Apache-2.0
"""The buckets of faultd: folders, or keys that are made up; their listings, and the lies a listing may tell.

Keys are text with surrogate escapes for bytes that are no UTF-8, and are listed in the order of their bytes.
"""
import base64
import bisect
import hashlib
import os
import urllib.parse
import xml.sax.saxutils
import zlib

KEPT_FROM, KEPT_MOST = 1 << 20, 16
ENTITY_BOMB = ('<!DOCTYPE l [<!ENTITY a "ha">'
               + "".join('<!ENTITY %s "%s">' % (name, ("&%s;" % before) * 10) for before, name in zip("abcdefgh", "bcdefghi"))
               + "]>")


def as_bytes(key):
    return key.encode("utf-8", "surrogateescape")


def _table(polynomial):
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (polynomial if value & 1 else 0)
        table.append(value)
    return table


CRC32C, CRC64 = _table(0x82F63B78), _table(0x9A6C9329AC4BC9B5)


def _crc(table, width, data):
    mask = (1 << width) - 1
    value = mask
    for byte in data:
        value = table[(value ^ byte) & 255] ^ value >> 8
    return (value ^ mask).to_bytes(width // 8, "big")


CHECKSUMS = {
    "crc32": lambda data: zlib.crc32(data).to_bytes(4, "big"),
    "crc32c": lambda data: _crc(CRC32C, 32, data),
    "crc64nvme": lambda data: _crc(CRC64, 64, data),
    "sha1": lambda data: hashlib.sha1(data).digest(),
    "sha256": lambda data: hashlib.sha256(data).digest(),
}


class Bucket:
    """Contents that were put in the way of the real ones (`replace`) are kept here for both kinds of bucket."""

    def __init__(self, options):
        self.checksum = options.get("checksum", "crc32")
        self.listing = options.get("listing", {})
        self.other = {}
        self.sums = {}

    def replace(self, key, content):
        self.other[key] = content
        self.sums.pop((key, "etag"), None)
        self.sums.pop((key, "sum"), None)

    def read(self, key):
        """The content, or None."""
        return self.other[key] if key in self.other else self.read_own(key)

    def etag(self, key, content):
        """Quoted, an MD5 as of an object that was put in one piece."""
        return self.remembered(key, content, "etag", lambda: '"%s"' % hashlib.md5(content).hexdigest())

    def checksum_of(self, key, content):
        return self.remembered(key, content, "sum", lambda: base64.b64encode(CHECKSUMS[self.checksum](content)).decode())

    def version(self, key):
        """Something that is another one when the content is another one; replace() forgets by itself."""
        return 1 if key in self.other else 0

    def remembered(self, key, content, kind, make):
        version = self.version(key)
        if self.sums.get((key, kind), (None,))[0] != version:
            self.sums[(key, kind)] = (version, make())
        return self.sums[(key, kind)][1]

    def list_etag(self, key):
        known = self.sums.get((key, "etag"))
        if known and known[0] == self.version(key):
            return known[1]
        content = self.read(key)
        return self.etag(key, content) if content is not None else '""'


class Folder(Bucket):
    def __init__(self, options):
        super().__init__(options)
        self.root = options["folder"]
        self.known = None
        self.kept = {}  # large files, which are asked for in parts

    def read_own(self, key):
        if key.startswith("/") or any(part in ("", ".", "..") for part in key.split("/")):
            return None
        version = self.version(key)
        if key in self.kept and self.kept[key][0] == version:
            return self.kept[key][1]
        try:
            with open(os.path.join(self.root, key), "rb") as handle:
                content = handle.read()
        except (OSError, ValueError):
            return None
        if len(content) >= KEPT_FROM:
            while len(self.kept) >= KEPT_MOST:
                del self.kept[next(iter(self.kept))]
            self.kept[key] = (version, content)
        return content

    def version(self, key):
        if key in self.other:
            return 1
        try:
            stat = os.stat(os.path.join(self.root, key))
        except (OSError, ValueError):
            return None
        return stat.st_mtime_ns, stat.st_size, stat.st_ino

    def keys(self, again):
        """The folder is walked anew each time a listing begins."""
        if again and self.known is not None:
            return self.known
        found = []
        for at, folders, files in os.walk(self.root):
            folders.sort()
            inside = os.path.relpath(at, self.root)
            found += [name if inside == "." else inside + "/" + name for name in files]
        self.known = sorted(found, key=as_bytes)
        return self.known

    def size(self, key):
        return len(self.other[key]) if key in self.other else os.stat(os.path.join(self.root, key)).st_size


class Synthetic(Bucket):
    """`count` keys by a format of i and of c (i modulo `classes`), or the `keys` themselves; content from a file, or bytes
    that hang on the key."""

    def __init__(self, options):
        super().__init__(options)
        count, classes = options.get("count", 0), options.get("classes", 1)
        form = options.get("format", "class{c:04d}/{i:08d}.jpg")
        made = [form.format(i=number, c=number % classes) for number in range(count)]
        self.sizes = options.get("size", 1000)
        self.all = sorted(made + options.get("keys", []), key=as_bytes)
        self.have = set(self.all)
        self.content = None
        if options.get("content"):
            with open(options["content"], "rb") as handle:
                self.content = handle.read()

    def keys(self, again):
        return self.all

    def size(self, key):
        return len(self.read(key)) if key in self.other or self.content is not None else self.sizes

    def read_own(self, key):
        if key not in self.have:
            return None
        if self.content is not None:
            return self.content
        seed = hashlib.md5(as_bytes(key)).digest()
        return (seed * (self.sizes // 16 + 1))[:self.sizes]

    def list_etag(self, key):
        """A hundred thousand contents are not hashed for a listing: as of an object that was put in parts."""
        return super().list_etag(key) if key in self.other else '"%s-2"' % hashlib.md5(as_bytes(key)).hexdigest()

    def etag(self, key, content):
        return super().etag(key, content) if key in self.other else self.list_etag(key)


def make_bucket(options):
    return Folder(options) if "folder" in options else Synthetic(options)


def _written(key, coded):
    if coded:
        return urllib.parse.quote(as_bytes(key), safe="/-_.~")
    return xml.sax.saxutils.escape(key)


def _page(bucket, keys, query):
    """The keys and common prefixes of one page, and the token of the next or None. Lies are told by bucket.listing."""
    lies = bucket.listing
    prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
    start, after = query.get("continuation-token"), query.get("start-after", "")
    first = int(start.split("-")[0]) if start else bisect.bisect_left([as_bytes(k) for k in keys], as_bytes(prefix))
    page = min(int(query.get("max-keys", 1000)), lies.get("page", 1000))
    found, folders, at = [], [], first
    while at < len(keys) and keys[at].startswith(prefix) and len(found) + len(folders) < page:
        rest = keys[at][len(prefix):]
        if delimiter and delimiter in rest:
            folder = prefix + rest[:rest.index(delimiter) + len(delimiter)]
            if not folders or folders[-1] != folder:
                folders.append(folder)
            while at < len(keys) and keys[at].startswith(folder):
                at += 1
            continue
        if as_bytes(keys[at]) > as_bytes(after):
            found.append(keys[at])
        at += 1
    more = at < len(keys) and keys[at].startswith(prefix)
    token = "%d-%s" % (at, hashlib.md5(b"%d" % at).hexdigest()[:16]) if more else None
    pages_before = (first // page) if page else 0
    if "loop_after" in lies and pages_before >= lies["loop_after"]:
        token = start or token or "0-loop"
    if "unsorted_page" in lies and pages_before == lies["unsorted_page"]:
        found.reverse()
    if "duplicate_page" in lies and pages_before == lies["duplicate_page"] and found:
        found.insert(1, found[0])
    if lies.get("same_page_again") and pages_before >= 1:
        found = keys[:page]
    return found, folders, token


def list_xml(name, bucket, query):
    """The answer to ListObjectsV2 as bytes."""
    lies = bucket.listing
    if "raw" in lies:
        return lies["raw"].encode("utf-8", "surrogateescape")
    found, folders, token = _page(bucket, bucket.keys(again="continuation-token" in query), query)
    coded = query.get("encoding-type") == "url" and not lies.get("never_coded")
    out = ['<?xml version="1.0" encoding="UTF-8"?>\n']
    if lies.get("entity_bomb"):
        out.append(ENTITY_BOMB)
    out.append('<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>%s</Name><Prefix>%s</Prefix>'
               % (name, "&i;" if lies.get("entity_bomb") else _written(query.get("prefix", ""), coded)))
    if coded and not lies.get("coding_last"):
        out.append("<EncodingType>url</EncodingType>")
    out.append("<KeyCount>%d</KeyCount><MaxKeys>1000</MaxKeys><IsTruncated>%s</IsTruncated>"
               % (len(found) + len(folders), "true" if token else "false"))
    if token and not lies.get("no_token"):
        out.append("<NextContinuationToken>%s</NextContinuationToken>" % token)
    for key in found:
        out.append("<Contents><Key>%s</Key><LastModified>2026-01-02T03:04:05.000Z</LastModified><ETag>%s</ETag>"
                   "<Size>%d</Size><StorageClass>STANDARD</StorageClass></Contents>"
                   % (_written(key, coded), bucket.list_etag(key).replace('"', "&quot;"), bucket.size(key)))
    for folder in folders:
        out.append("<CommonPrefixes><Prefix>%s</Prefix></CommonPrefixes>" % _written(folder, coded))
    out.append("<EncodingType>url</EncodingType></ListBucketResult>" if coded and lies.get("coding_last") else "</ListBucketResult>")
    return "".join(out).encode("utf-8", "surrogateescape")
