"""serve_security_test.py GRADUS: what `gradus serve` refuses, and what it bears.

Requests of other sites, other names of the machine, paths out of the folder, wrong tokens, other
methods, ten thousand connections, readers that do not read. Everything is on 127.0.0.1. Exits 77
where the program was built without its page or libmicrohttpd is missing.
"""
import http.client
import json
import os
import re
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import runs  # noqa: E402

GRADUS = str(Path(sys.argv[1]).resolve())


class Server:

    def __init__(self, folder, *flags):
        self.process = subprocess.Popen([GRADUS, "serve", str(folder), "--port", "0", *flags],
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        found = re.search(r"http://(127.0.0.\d):(\d+)/(?:\?token=(\S+))?", line)
        if not found:
            error = self.process.stderr.read()
            if "G-SERVE-1" in error or "G-SERVE-2" in error:
                print(error.strip())
                sys.exit(77)
            raise AssertionError(line + error)
        self.host, self.port, self.token = found[1], int(found[2]), found[3]

    def get(self, path, method="GET", body=None, **headers):
        connection = http.client.HTTPConnection(self.host, self.port, timeout=60)
        connection.putrequest(method, path, skip_host="Host" in headers)
        for name, value in headers.items():
            connection.putheader(name.replace("_", "-"), value)
        connection.endheaders(body)
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        return answer.status, dict(answer.getheaders()), content

    def memory(self):
        with open(f"/proc/{self.process.pid}/status") as status:
            return int(re.search(r"VmRSS:\s+(\d+)", status.read())[1]) / 1024

    def close(self):
        self.process.terminate()
        assert self.process.wait(timeout=30) == 0, self.process.stderr.read()


def state_of(folder):
    return sorted((str(path), path.lstat().st_mtime_ns, path.lstat().st_size)
                  for path in folder.rglob("*"))


def test_origins(server):
    status, headers, body = server.get("/")
    assert status == 200 and b"<title>gradus</title>" in body
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert "Access-Control-Allow-Origin" not in headers
    own = f"127.0.0.1:{server.port}"
    for name in (own, f"localhost:{server.port}"):
        assert server.get("/api/runs", Host=name)[0] == 200, name
    for name in ("evil.example", f"evil.example:{server.port}", "127.0.0.1:1",
                 f"127.0.0.1.evil.example:{server.port}", ""):
        assert server.get("/api/runs", Host=name)[0] in (400, 421), name
    assert server.get("/api/runs", Origin=f"http://{own}")[0] == 200
    for origin in ("http://evil.example", "null", f"https://localhost:{server.port + 1}"):
        assert server.get("/api/runs", Origin=origin)[0] == 403, origin
    assert server.get("/api/runs", Sec_Fetch_Site="cross-site")[0] == 403
    assert server.get("/", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="no-cors")[0] == 403
    assert server.get("/", Sec_Fetch_Site="cross-site", Sec_Fetch_Mode="navigate")[0] == 200
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "TRACE"):
        assert server.get("/api/runs", method=method)[0] == 405, method
    for headers in ({"Content_Length": "5"}, {"Transfer_Encoding": "chunked"}):
        body = b"5\r\nhello\r\n0\r\n\r\n" if "Transfer_Encoding" in headers else b"hello"
        assert server.get("/api/runs", body=body, **headers)[0] == 413, headers
    assert server.get("/api/runs", Content_Length="0")[0] == 200
    for since in ("-1", "1e300", "nan", "99999999999999999999"):
        assert server.get(f"/api/runs?since={since}")[0] == 200, since


def test_paths(server):
    for path in ("/../secret.png", "/..%2fsecret.png", "/%2e%2e/secret.png", "//etc/passwd",
                 "/page/../../secret.png", "/secret.png%00", "/api/../secret.png", "/a" * 3000):
        status, _, body = server.get(path)
        assert status in (400, 404, 414, 431), (path, status)
        assert b"secret" not in body
    for file in ("../secret.png", "../../../../etc/passwd", "/etc/passwd", "link.png",
                 "folder-link/secret.png", "images/../../secret.png", "checkpoint-10/x.png", "",
                 "run_log.jsonl", "images", "secret.png%00"):
        for what in ("media", "samples"):
            status, _, body = server.get(f"/api/{what}?id=0&file={file}")
            assert status in (400, 404) and b"secret" not in body, (what, file, status)
    for query in ("", "?id=", "?id=-1", "?id=99999999999999999999", "?id=x", "?id=0&id=1"):
        assert server.get(f"/api/run{query}")[0] in (200, 404), query
    assert server.get("/api/verify?id=0&checkpoint=../secret")[0] == 404
    for query in ("key=loss&runs=0-99999999999", "key=loss&runs=,,,-5", "key=%00&runs=0",
                  "key=loss&runs=0&from=nan&to=inf&points=-5&smoothing=9"):
        assert server.get(f"/api/curves?{query}")[0] == 200, query
    assert server.get("/api/media?id=0&file=images/sample-0.png")[0] == 200


def test_tokens(folder):
    server = Server(folder, "--token", "right-token")
    try:
        assert server.token == "right-token"
        for path in ("/", "/api/runs", "/app.js", "/?token=", "/?token=wrong-token",
                     "/?token=right-toke", "/?token=right-token2"):
            assert server.get(path)[0] == 401, path
        assert server.get("/api/runs", Cookie=f"gradus_token_{server.port}=wrong")[0] == 401
        assert server.get("/api/runs", Authorization="Bearer wrong-token")[0] == 401
        assert server.get("/api/runs", Authorization="Bearer right-token")[0] == 200
        status, headers, _ = server.get("/?token=right-token")
        assert status == 303 and headers["Location"] == "/"
        cookie = headers["Set-Cookie"]
        assert "HttpOnly" in cookie and "SameSite=Strict" in cookie, cookie
        assert server.get("/api/runs", Cookie=cookie.split(";")[0])[0] == 200
    finally:
        server.close()
    for token in ("a;b c&d=e#f", "bücher-und-mehr", "line\nbreak", ""):
        done = subprocess.run([GRADUS, "serve", str(folder), "--token", token],
                              capture_output=True, text=True, timeout=60)
        assert done.returncode == 2 and "G-SERVE-4" in done.stderr, (token, done.stderr)
    server = Server(folder, "--host", "127.0.0.2")  # the address that it prints answers
    try:
        own = f"127.0.0.2:{server.port}"
        assert server.get("/api/runs", Host=own, Origin=f"http://{own}")[0] == 200
        assert server.get("/api/runs", Host=f"127.0.0.3:{server.port}")[0] == 421
    finally:
        server.close()
    done = subprocess.run([GRADUS, "serve", str(folder), "--host", "0.0.0.0", "--token", "short"],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "G-SERVE-4" in done.stderr, done.stderr
    done = subprocess.run([GRADUS, "serve", str(folder), "--host", "somewhere"],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "G-SERVE-3" in done.stderr, done.stderr


def test_many_connections(server, wanted=10000):
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, wanted + 500), hard))
    count = min(wanted, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 200)
    before, sockets = server.memory(), []
    try:
        for i in range(count):
            each = socket.socket()
            each.settimeout(20)
            try:
                each.connect(("127.0.0.1", server.port))
            except OSError:  # refused, which is as good
                each.close()
                continue
            if i % 3 == 0:  # a request that never ends
                each.sendall(b"GET /api/runs HTTP/1.1\r\nHost: 127")
            sockets.append(each)
        began = time.monotonic()
        status = server.get("/api/runs")[0]
        print(f"{len(sockets)} connections are open: answered {status} after "
              f"{time.monotonic() - began:.2f} s, {server.memory() - before:.0f} MB more")
        assert status == 200
        assert server.memory() - before < 500
    finally:
        for each in sockets:
            each.close()
    assert server.get("/")[0] == 200


def test_slow_readers(server):
    before, sockets = server.memory(), []
    request = ("GET /api/curves?key=loss&runs=0-500&points=20000 HTTP/1.1\r\n"
               f"Host: 127.0.0.1:{server.port}\r\n\r\n").encode()
    try:
        for _ in range(600):
            each = socket.socket()
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            each.connect(("127.0.0.1", server.port))
            each.sendall(request)
            sockets.append(each)
        began = time.monotonic()
        status = server.get("/api/runs")[0]
        print(f"{len(sockets)} readers do not read: answered {status} after "
              f"{time.monotonic() - began:.2f} s, {server.memory() - before:.0f} MB more")
        assert status == 200
        assert server.memory() - before < 700
    finally:
        for each in sockets:
            each.close()


def main():
    base = Path(tempfile.mkdtemp(prefix="gradus-serve-"))
    folder = base / "runs"
    try:
        for number in range(40):
            runs.write_run(folder / f"run-{number:02}", number, steps=4000, every=1)
        first = folder / "run-00"
        runs.write_samples(first)
        (base / "secret.png").write_bytes(b"secret")
        (first / "link.png").symlink_to(base / "secret.png")
        (first / "folder-link").symlink_to(base)
        (first / "checkpoint-10").mkdir()
        (first / "checkpoint-10" / "x.png").write_bytes(b"secret")
        before = state_of(folder)
        server = Server(folder)
        try:
            deadline = time.monotonic() + 60
            while not json.loads(server.get("/api/runs")[2])["complete"]:
                assert time.monotonic() < deadline
                time.sleep(0.02)
            test_origins(server)
            test_paths(server)
            test_many_connections(server)
            test_slow_readers(server)
        finally:
            server.close()
        test_tokens(folder)
        assert state_of(folder) == before, "serve has changed something"
    finally:
        shutil.rmtree(base, ignore_errors=True)


main()
