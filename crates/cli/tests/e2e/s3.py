# SPDX-License-Identifier: Apache-2.0
"""A server that speaks S3 and checks signatures, for the test `s3`: it says where it
is, and which keys it takes, and serves until its standard input ends."""

import json
import os
import sys

# So many requests are taken as they come: those that make the user.
os.environ["INITIAL_NO_AUTH_ACTION_COUNT"] = "3"

import boto3
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
endpoint = f"http://{host}:{port}"


def client(service, access, secret):
    return boto3.client(
        service,
        endpoint_url=endpoint,
        region_name="eu-north-7",
        aws_access_key_id=access,
        aws_secret_access_key=secret,
    )


iam = client("iam", "nobody", "nothing")
iam.create_user(UserName="node")
key = iam.create_access_key(UserName="node")["AccessKey"]
everything = {"Effect": "Allow", "Action": "*", "Resource": "*"}
policy = json.dumps({"Version": "2012-10-17", "Statement": [everything]})
iam.put_user_policy(UserName="node", PolicyName="all", PolicyDocument=policy)

s3 = client("s3", key["AccessKeyId"], key["SecretAccessKey"])
s3.create_bucket(Bucket="data", CreateBucketConfiguration={"LocationConstraint": "eu-north-7"})
data = bytes(at * 31 % 251 for at in range(int(sys.argv[1])))
tag = s3.put_object(Bucket="data", Key="dir/a-b", Body=data)["ETag"]
keys = f"{key['AccessKeyId']} {key['SecretAccessKey']}"
print(json.dumps({"address": f"{host}:{port}", "keys": keys, "etag": tag}), flush=True)

# Each line has the object written anew.
for line in sys.stdin:
    s3.put_object(Bucket="data", Key="dir/a-b", Body=line.encode())
    print("written", flush=True)
