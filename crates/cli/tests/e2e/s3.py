# SPDX-License-Identifier: Apache-2.0
"""A server that speaks S3 and checks signatures, for the tests `s3` and `tier`: it says
where it is, and which keys it takes, and serves until its standard input ends.

arguments: the object's length, and where `versitygw` is; without, moto serves.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time

REGION = "eu-north-7"


def client(service, endpoint, access, secret):
    import boto3

    return boto3.client(
        service,
        endpoint_url=endpoint,
        region_name=REGION,
        aws_access_key_id=access,
        aws_secret_access_key=secret,
    )


def moto():
    """A mock, in this process."""
    # So many requests are taken as they come: those that make the user.
    os.environ["INITIAL_NO_AUTH_ACTION_COUNT"] = "3"
    from moto.iam.access_control import IAMRequestBase
    from moto.server import ThreadedMotoServer

    # The server checks signatures against queries whose slashes it has decoded, which no client signs so.
    signed = IAMRequestBase._create_aws_request

    def as_it_came(self):
        path, mark, query = self._path.partition("?")
        self._path = path + mark + query.replace("/", "%2F")
        return signed(self)

    IAMRequestBase._create_aws_request = as_it_came

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    iam = client("iam", f"http://{host}:{port}", "nobody", "nothing")
    iam.create_user(UserName="node")
    key = iam.create_access_key(UserName="node")["AccessKey"]
    everything = {"Effect": "Allow", "Action": "*", "Resource": "*"}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [everything]})
    iam.put_user_policy(UserName="node", PolicyName="all", PolicyDocument=policy)
    return f"{host}:{port}", key["AccessKeyId"], key["SecretAccessKey"], lambda: None


def versitygw(program):
    """A server for use, over a folder; a process of its own."""
    folder = tempfile.TemporaryDirectory(dir=os.path.dirname(program))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = "127.0.0.1:%d" % free.getsockname()[1]
    access, secret = "node", os.urandom(20).hex()
    said = open(os.path.join(folder.name, "said"), "wb")
    os.mkdir(os.path.join(folder.name, "buckets"))
    process = subprocess.Popen(
        [program, "--port", address, "--region", REGION, "posix", os.path.join(folder.name, "buckets")],
        env={**os.environ, "ROOT_ACCESS_KEY": access, "ROOT_SECRET_KEY": secret},
        stdin=subprocess.DEVNULL,
        stdout=said,
        stderr=said,
    )

    def end():
        process.kill()
        process.wait()
        folder.cleanup()

    until = time.monotonic() + 20
    while True:
        try:
            socket.create_connection(address.split(":")).close()
            return address, access, secret, end
        except OSError:
            if process.poll() is not None or time.monotonic() > until:
                print(json.dumps({"error": open(said.name).read()}), flush=True)
                end()
                sys.exit(1)
            time.sleep(0.02)


address, access, secret, end = versitygw(sys.argv[2]) if sys.argv[2:] else moto()
try:
    s3 = client("s3", f"http://{address}", access, secret)
    s3.create_bucket(Bucket="data", CreateBucketConfiguration={"LocationConstraint": REGION})
    data = bytes(at * 31 % 251 for at in range(int(sys.argv[1])))
    tag = s3.put_object(Bucket="data", Key="dir/a-b", Body=data)["ETag"]
    print(json.dumps({"address": address, "keys": f"{access} {secret}", "etag": tag}), flush=True)

    # Each line has the object written anew.
    for line in sys.stdin:
        s3.put_object(Bucket="data", Key="dir/a-b", Body=line.encode())
        print("written", flush=True)
finally:
    end()
os._exit(0)
