# SPDX-License-Identifier: Apache-2.0
"""The receiving side of AWS signature version 4, as far as GET, HEAD and lists need it. Says why a request is refused."""
import datetime
import hashlib
import hmac
import urllib.parse

ALGORITHM = "AWS4-HMAC-SHA256"
SKEW_S = 15 * 60


def _hmac(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def canonical_query(query):
    pairs = urllib.parse.parse_qsl(query, keep_blank_values=True, encoding="utf-8", errors="surrogateescape")
    coded = [tuple(urllib.parse.quote(part, safe="-_.~", errors="surrogateescape") for part in pair) for pair in pairs]
    return "&".join("%s=%s" % pair for pair in sorted(coded))


def signature(secret, method, path, query, headers, signed, date, scope, payload):
    """headers: by lower-case name; signed: their names in order; scope: "DAY/REGION/SERVICE/aws4_request"."""
    uri = urllib.parse.quote(urllib.parse.unquote_to_bytes(path), safe="/-_.~")
    lines = "".join("%s:%s\n" % (name, " ".join(headers.get(name, "").split())) for name in signed)
    request = "\n".join([method, uri, canonical_query(query), lines, ";".join(signed), payload])
    text = "\n".join([ALGORITHM, date, scope, hashlib.sha256(request.encode("utf-8", "surrogateescape")).hexdigest()])
    day, region, service, end = scope.split("/")
    key = _hmac(_hmac(_hmac(_hmac(("AWS4" + secret).encode(), day), region), service), end)
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


def refusal(keys, method, path, query, headers, now=None):
    """None when the request is signed by one of keys ({access key: {"secret", "token"}}), else (status, code, message)."""
    authorization = headers.get("authorization", "")
    if not authorization.startswith(ALGORITHM + " "):
        return 403, "AccessDenied", "no signature"
    parts = dict(part.strip().partition("=")[::2] for part in authorization[len(ALGORITHM):].split(","))
    access, _, scope = parts.get("Credential", "").partition("/")
    if access not in keys:
        return 403, "InvalidAccessKeyId", "no such access key"
    if scope.count("/") != 3 or not scope.endswith("/s3/aws4_request"):
        return 400, "AuthorizationHeaderMalformed", "scope"
    token = keys[access].get("token")
    if (token or "") != headers.get("x-amz-security-token", ""):
        return 400, "ExpiredToken" if keys[access].get("expired") else "InvalidToken", "not the session's token"
    if keys[access].get("expired"):
        return 400, "ExpiredToken", "the session is over"
    date = headers.get("x-amz-date", "")
    try:
        when = datetime.datetime.strptime(date, "%Y%m%dT%H%M%SZ").replace(tzinfo=datetime.timezone.utc)
    except ValueError:
        return 403, "AccessDenied", "x-amz-date"
    now = now or datetime.datetime.now(datetime.timezone.utc)
    if abs((now - when).total_seconds()) > SKEW_S:
        return 403, "RequestTimeTooSkewed", "the clocks differ"
    signed = parts.get("SignedHeaders", "").split(";")
    must = {"host", "x-amz-date"} | ({"x-amz-security-token"} if token else set())
    if not must <= set(signed) or signed != sorted(signed):
        return 403, "AccessDenied", "signed headers"
    payload = headers.get("x-amz-content-sha256", "")
    wanted = signature(keys[access]["secret"], method, path, query, headers, signed, date, scope, payload)
    if not hmac.compare_digest(wanted, parts.get("Signature", "")):
        return 403, "SignatureDoesNotMatch", "the signature is another one"
    return None
