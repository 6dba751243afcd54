"""Says how Python's servers read requests; node.js has the form of the lines. Requests come to the parsers as WSGI has them: text in Latin-1."""
import base64, binascii, importlib.metadata, io, json, platform, re, sys
from http.cookies import CookieError, SimpleCookie

import django
from django.conf import settings

settings.configure()
from django.core.handlers.wsgi import WSGIRequest
from django.http.cookie import parse_cookie as django_cookies
from werkzeug.http import parse_cookie as werkzeug_cookies
from werkzeug.test import EnvironBuilder
from werkzeug.wrappers import Request


def texts(*values):
    return [t for v in values if isinstance(v, str) for t in (v, v.strip())]


def tokens(value):
    if value is None:
        return []
    found = [value, value.strip()]
    words = value.split()
    if len(words) == 2 and words[0].lower() in ("bearer", "token", "jwt"):  # Django REST framework, simplejwt
        found.append(words[1])
    scheme, _, rest = value.partition(" ")  # Werkzeug, FastAPI
    found += [rest, rest.strip()]
    m = re.search(r"Bearer\s+(\S+)", value)
    if m:
        found.append(m.group(1))
    for t in list(found):
        head, dot, signature = t.rpartition(".")
        if head.count(".") == 1:
            try:  # as PyJWT decodes it
                signature = base64.urlsafe_b64decode(signature.encode() + b"=" * (-len(signature) % 4))
                found.append(head + "." + base64.urlsafe_b64encode(signature).decode().rstrip("="))
            except (binascii.Error, ValueError):
                pass
    if scheme.lower() == "basic":
        try:
            found.append("user " + base64.b64decode(rest).decode("utf-8", "replace"))
        except (binascii.Error, ValueError):
            pass
    return found


def session(value):
    """As itsdangerous decodes the signature of Flask's sessions."""
    if isinstance(value, str) and value.count(".") == 2:
        head, _, signature = value.rpartition(".")
        try:
            signature = base64.urlsafe_b64decode(signature.encode("ascii", "ignore") + b"=" * (-len(signature) % 4))
            return texts(value, head + "." + base64.urlsafe_b64encode(signature).decode().rstrip("="))
        except (binascii.Error, ValueError):
            pass
    return texts(value)


def django_query(environ):
    try:
        return WSGIRequest(dict(environ)).GET  # of a copy: it changes what it is given
    except (LookupError, UnicodeError, ValueError):
        return WSGIRequest(environ | {"QUERY_STRING": ""}).GET


def simple(line):
    try:
        return {k: m.value for k, m in SimpleCookie(line).items()}
    except CookieError:
        return {}


print(json.dumps({"versions": ["Python " + platform.python_version(), "Django " + django.__version__, "Werkzeug " + importlib.metadata.version("werkzeug")]}), flush=True)
for line in sys.stdin:
    head = json.loads(line)["raw"].split("\r\n")
    target = head[0].split(" ")[1]
    path, _, query = target.partition("?")
    headers = {}
    for h in head[1:]:
        name, colon, value = h.partition(":")
        if not colon:
            continue
        name, value = name.upper().replace("-", "_"), value.strip(" \t")
        headers[name] = headers[name] + (";" if name == "COOKIE" else ",") + value if name in headers else value
    cookies = headers.get("COOKIE", "")
    common = {"x-api-key": texts(headers.get("X_API_KEY")), "authorization": tokens(headers.get("AUTHORIZATION")), "path": []}
    try:
        again = cookies.encode("latin-1").decode("utf-8", "replace")  # as Django has it from WSGI
    except UnicodeError:
        again = cookies
    environ = {"REQUEST_METHOD": "GET", "QUERY_STRING": query, "HTTP_COOKIE": cookies, "wsgi.url_scheme": "http", "SERVER_NAME": "a", "SERVER_PORT": "80", "PATH_INFO": path, "CONTENT_TYPE": headers.get("CONTENT_TYPE", ""), "wsgi.input": io.BytesIO()}
    q = django_query(environ)
    w = Request(environ)
    print(json.dumps({
        "Django": common | {"key": texts(*q.getlist("key")[-1:]), "q": texts(*q.getlist("q")[-1:]), "session": session(django_cookies(again).get("session"))},
        "Werkzeug": common | {"key": texts(w.args.get("key")), "q": texts(w.args.get("q")), "session": session(werkzeug_cookies(environ).get("session"))},
        "SimpleCookie": {"session": texts(simple(cookies).get("session"))},
    }), flush=True)
