"""A bucket of S3's interface on this machine, a real server behind a proxy that fails as networks do."""

import http.client
import http.server
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


class Proxy(http.server.ThreadingHTTPServer):
    """Passes requests on to the server. Those that read an object meet the next of `faults` before: "error", "cut",
    "slow", "drop", or "" for none."""

    daemon_threads = True
    request_queue_size = 1024

    def __init__(self, port: int) -> None:
        self.server_port_behind, self.faults, self.requests = port, iter(()), 0
        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def _pass_on(self):
        self.server.requests += 1
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        is_read = self.command == "GET" and "list-type" not in self.path and "." in self.path
        fault = next(self.server.faults, "") if is_read else ""
        if fault == "error":
            self.send_response(503)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if fault == "drop":
            self.close_connection = True
            self.connection.close()
            return
        if fault == "slow":
            time.sleep(0.5)
        behind = http.client.HTTPConnection("127.0.0.1", self.server.server_port_behind)
        behind.request(self.command, self.path, body, dict(self.headers))
        answer = behind.getresponse()
        content = answer.read()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                self.send_header(name, value)
        length = answer.getheader("Content-Length", "0") if self.command == "HEAD" else len(content)
        self.send_header("Content-Length", str(length))
        self.end_headers()
        self.wfile.write(content[: len(content) // 2] if fault == "cut" else content)
        if fault == "cut":
            self.close_connection = True

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _pass_on


def variables(url: str) -> dict[str, str]:
    """What sends S3's clients to a server."""
    return {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": url,
        "AWS_EC2_METADATA_DISABLED": "true",
    }


@contextmanager
def s3_bucket() -> Iterator[Proxy]:
    """`s3://bucket`, empty, behind a proxy."""
    import s3fs
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    # The servers of a process share their buckets, which outlive them.
    reset = http.client.HTTPConnection("127.0.0.1", server.get_host_and_port()[1])
    reset.request("POST", "/moto-api/reset")
    assert reset.getresponse().status == 200
    with pytest.MonkeyPatch.context() as patch:
        proxy = Proxy(server.get_host_and_port()[1])
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        for name, value in variables(proxy.url).items():
            patch.setenv(name, value)
        s3fs.S3FileSystem.clear_instance_cache()
        s3fs.S3FileSystem().mkdir("bucket")
        yield proxy
        proxy.shutdown()
        s3fs.S3FileSystem.clear_instance_cache()
    server.stop()


@contextmanager
def faults(bucket: Proxy, seed: int, share: float) -> Iterator[None]:
    draw = random.Random(seed)
    kinds = ("error", "cut", "drop", "slow")
    bucket.faults = (draw.choice(kinds) if draw.random() < share else "" for _ in iter(int, 1))
    yield
    bucket.faults = iter(())
