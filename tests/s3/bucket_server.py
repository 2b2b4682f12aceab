"""An S3 server for tests: moto, which checks every request's signature, with pages of three names, and faults on demand.

Runs in the environment `moto` of tools/bootstrap. Prints one line of JSON, {"AWS_...": value} that lets a client in, and
serves until its standard input ends. PUT /faults with {"every": N, "kind": "503" | "drop" | "slow" | "change", "method": "" |
"PUT" | ..., "key": ""} makes each Nth request of the method for this object, or any, fail so, or none with N = 0; the answer
is how many have failed since the last time. "slow" answers late, "change" replaces the object before it is answered.
"""

import json
import os
import socket
import sys
import threading
import time

os.environ.update(INITIAL_NO_AUTH_ACTION_COUNT="3", MOTO_S3_DEFAULT_MAX_KEYS="3", MOTO_IAM_LOAD_MANAGED_POLICIES="false")

import boto3  # noqa: E402
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app  # noqa: E402
from werkzeug.serving import WSGIRequestHandler, make_server  # noqa: E402

BUCKETS = ("bucket", "other.bucket")
ALL = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
UNAVAILABLE = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"


class Faults:
    """Fails some of the requests on their way to the application."""

    def __init__(self, application):
        self.application, self.rule = application, {"every": 0}
        self.seen = self.failed = 0
        self.lock = threading.Lock()
        self.store = None  # a client, for changes

    def replace(self, path):
        _, bucket, key = path.split("/", 2)
        self.store.put_object(Bucket=bucket, Key=key, Body=b"something else")

    def set(self, body):
        with self.lock:
            failed, self.seen, self.failed, self.rule = self.failed, 0, 0, json.loads(body)
        return str(failed).encode()

    def strikes(self, method, path):
        with self.lock:
            if not self.rule["every"] or self.rule.get("method", "") not in ("", method):
                return False
            if not path.endswith(self.rule.get("key", "")):
                return False
            self.seen += 1
            strikes = self.seen % self.rule["every"] == 0
            self.failed += strikes
            return strikes

    def __call__(self, request, start):
        if request["PATH_INFO"] == "/faults":
            body = self.set(request["wsgi.input"].read(int(request["CONTENT_LENGTH"])))
            start("200 OK", [("Content-Length", str(len(body)))])
            return [body]
        path, rule = request["PATH_INFO"], self.rule
        if request["REQUEST_METHOD"] == "PUT" and rule["kind" if rule["every"] else "every"] == "change":
            return self.application(request, start)
        if not self.strikes(request["REQUEST_METHOD"], path):
            return self.application(request, start)
        if rule["kind"] == "slow":
            time.sleep(0.5)
            return self.application(request, start)
        if rule["kind"] == "change":
            self.replace(path)
            return self.application(request, start)
        if self.rule["kind"] == "drop":
            request["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            raise ConnectionResetError("dropped, as was asked for")
        start("503 Slow Down", [("Content-Type", "application/xml"), ("Content-Length", str(len(UNAVAILABLE)))])
        return [UNAVAILABLE]


class Quiet(WSGIRequestHandler):
    protocol_version = "HTTP/1.1"  # connections stay open

    def log(self, *_):
        pass


def allow_one_user(endpoint):
    """The only one who is let in: a new user's key, and the buckets that he made."""
    nobody = {"endpoint_url": endpoint, "region_name": "us-east-1", "aws_access_key_id": "none",
              "aws_secret_access_key": "none"}
    users = boto3.client("iam", **nobody)
    users.create_user(UserName="user")
    key = users.create_access_key(UserName="user")["AccessKey"]
    users.put_user_policy(UserName="user", PolicyName="all", PolicyDocument=json.dumps(ALL))
    access = {"aws_access_key_id": key["AccessKeyId"], "aws_secret_access_key": key["SecretAccessKey"]}
    store = boto3.client("s3", **{**nobody, **access})
    for bucket in BUCKETS:
        store.create_bucket(Bucket=bucket)
    return store, {"AWS_ACCESS_KEY_ID": key["AccessKeyId"], "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"],
            "AWS_ENDPOINT_URL": endpoint, "AWS_REGION": "us-east-1"}


def main():
    faults = Faults(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, faults, threaded=True, request_handler=Quiet)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    faults.store, access = allow_one_user(f"http://127.0.0.1:{server.server_port}")
    print(json.dumps(access), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
