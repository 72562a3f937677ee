# SPDX-License-Identifier: Apache-2.0
"""Peers of the hand-over from step to step: prints one JSON object a line.

usage: peer.py reference|redis|shm|arrow|ray FOLDER
For redis, FOLDER has redis.sock. After a line that says that it is ready, each line on stdin is a JSON
object {"name", "allowance_ns"}: the value is handed over once, so long from now, and told: {"handed_ns",
"read_ns", "total", "fingerprint"} as of `values.taken`, or {"late"}.

redis: pickled (protocol 5) into Redis, whose consumer waits in `blpop`. shm: pickled with its buffers
beside it into a memfd, whose descriptor goes over a unix socket. arrow: the same, in Arrow's IPC format;
the consumer has it in hand when it has the mapped table, and makes frame or list of it to read that. What
is short goes without the detour over a memfd or a second key. All three are a pair of processes, forked
from this one. ray: two tasks.
reference: nothing is handed over; told are {"made_ns", "bytes", "total", "fingerprint"}.
"""

import json
import mmap
import os
import pickle
import socket
import sys
import time

import values

# What is shorter is sent by itself.
DIRECT_BYTES_MAX = 64 << 10
ALIGN = 64


# --------------------------------------------------------------------- ways


class Redis:
    """Values as pickles, through a database."""

    def __init__(self, folder):
        self.path = os.path.join(folder, "redis.sock")

    def open(self):
        import redis

        self.database = redis.Redis(unix_socket_path=self.path)

    def send(self, value):
        data = pickle.dumps(value, 5)
        if len(data) < DIRECT_BYTES_MAX:
            self.database.rpush("values", b"=" + data)
            return
        pipe = self.database.pipeline(transaction=False)
        pipe.set("value", data)
        pipe.rpush("values", b"@value")
        pipe.execute()

    def receive(self):
        _, told = self.database.blpop("values")
        return pickle.loads(memoryview(told)[1:] if told[:1] == b"=" else self.database.get("value"))

    def value(self, received):
        return received

    def forget(self):
        self.database.delete("value")


class Shared:
    """Values as pickles, with their buffers beside them, through memory that two processes map."""

    def __init__(self, _folder):
        self.producer, self.consumer = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for end in (self.producer, self.consumer):
            end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * DIRECT_BYTES_MAX)

    def open(self):
        pass

    def send(self, value):
        buffers = []
        rest = pickle.dumps(value, 5, buffer_callback=buffers.append)
        self.send_parts([rest, *(buffer.raw() for buffer in buffers)])

    def send_parts(self, parts):
        """A head with the parts' lengths, and the parts behind it, or in a memfd, each at a multiple of 64 bytes."""
        lengths = [memoryview(part).nbytes for part in parts]
        head = json.dumps(lengths).encode() + b"\n"
        if sum(lengths) + len(head) < DIRECT_BYTES_MAX:
            self.producer.sendmsg([head, *parts])
            return
        descriptor = os.memfd_create("value")
        size = sum(aligned(length) for length in lengths)
        os.ftruncate(descriptor, size)
        with mmap.mmap(descriptor, size) as target:
            at = 0
            for part, length in zip(parts, lengths):
                target[at : at + length] = part
                at += aligned(length)
        socket.send_fds(self.producer, [head], [descriptor])
        os.close(descriptor)

    def receive_parts(self):
        data, descriptors, _, _ = socket.recv_fds(self.consumer, 2 * DIRECT_BYTES_MAX, 1)
        head, _, rest = data.partition(b"\n")
        lengths = json.loads(head)
        step = aligned
        if descriptors:
            # Private: whoever is given a value may change it.
            rest = mmap.mmap(descriptors[0], 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
            os.close(descriptors[0])
        else:
            rest, step = bytearray(rest), int
        view, at, parts = memoryview(rest), 0, []
        for length in lengths:
            parts.append(view[at : at + length])
            at += step(length)
        return parts

    def receive(self):
        rest, *buffers = self.receive_parts()
        return pickle.loads(rest, buffers=buffers)

    def value(self, received):
        return received

    def forget(self):
        pass


class Arrow(Shared):
    """Frames and lists as Arrow has them, through the same memory."""

    def open(self):
        import pyarrow

        self.arrow = pyarrow

    def send(self, value):
        import pandas

        if isinstance(value, pandas.DataFrame):
            table = self.arrow.Table.from_pandas(value)
        else:
            table = self.arrow.table({"list": self.arrow.array(value)})
        sink = self.arrow.BufferOutputStream()
        with self.arrow.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
        self.send_parts([memoryview(sink.getvalue())])

    def receive(self):
        return self.arrow.ipc.open_stream(self.arrow.py_buffer(self.receive_parts()[0])).read_all()

    def value(self, received):
        if received.column_names == ["list"]:
            return received["list"].to_pylist()
        return received.to_pandas()


def aligned(length):
    return (length + ALIGN - 1) // ALIGN * ALIGN


# -------------------------------------------------------------------- peers


class Reference:
    """What the others' values are compared with."""

    def hand(self, name, _allowance_ns):
        begun = time.monotonic_ns()
        value = values.make(name)
        made_ns = time.monotonic_ns() - begun
        told = values.taken(value, begun, begun)
        buffers = []
        size = len(pickle.dumps(value, 5, buffer_callback=buffers.append))
        size += sum(buffer.raw().nbytes for buffer in buffers)
        return {"made_ns": made_ns, "bytes": size, "total": told["total"], "fingerprint": told["fingerprint"]}


class Pair:
    """A process that makes values, and one that takes them."""

    def __init__(self, way):
        self.way = way
        self.producer = self.start(self.produce)
        self.consumer = self.start(self.consume)

    def start(self, serve):
        """A process that answers lines; the end of its input is its own."""
        ours, theirs = socket.socketpair()
        if os.fork() == 0:
            ours.close()
            self.way.open()
            file = theirs.makefile("rw")
            for line in file:
                file.write(json.dumps(serve(**json.loads(line))) + "\n")
                file.flush()
            os._exit(0)
        theirs.close()
        return ours.makefile("rw")

    def produce(self, name, moment_ns):
        try:
            value = values.made_at(name, moment_ns)
        except values.Late as error:
            self.way.send("late")
            return {"late": str(error)}
        self.way.send(value)
        return {}

    def consume(self, name, moment_ns):
        received = self.way.receive()
        in_hand_ns = time.monotonic_ns()
        if isinstance(received, str) and received == "late":
            return {"late": name}
        told = values.taken(self.way.value(received), moment_ns, in_hand_ns)
        del received
        self.way.forget()
        return told

    def hand(self, name, allowance_ns):
        order = json.dumps({"name": name, "moment_ns": time.monotonic_ns() + allowance_ns}) + "\n"
        for file in (self.consumer, self.producer):
            file.write(order)
            file.flush()
        made, told = json.loads(self.producer.readline()), json.loads(self.consumer.readline())
        return made if "late" in made else told


class Ray:
    """Two tasks, of which one is given what the other returns."""

    def __init__(self):
        import ray

        self.ray = ray
        ray.init(num_cpus=os.cpu_count(), include_dashboard=False, log_to_driver=False, configure_logging=False)

        @ray.remote
        def make(name, moment_ns):
            return values.made_at(name, moment_ns)

        @ray.remote
        def take(value, moment_ns):
            return values.taken(value, moment_ns, time.monotonic_ns())

        self.make, self.take = make, take

    def hand(self, name, allowance_ns):
        moment_ns = time.monotonic_ns() + allowance_ns
        try:
            return self.ray.get(self.take.remote(self.make.remote(name, moment_ns), moment_ns))
        except values.Late as error:
            return {"late": str(error)}


def main():
    kind, folder = sys.argv[1:3]
    ways = {"redis": Redis, "shm": Shared, "arrow": Arrow}
    peers = {"reference": Reference, "ray": Ray}
    peer = Pair(ways[kind](folder)) if kind in ways else peers[kind]()
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        told = json.loads(line)
        print(json.dumps(peer.hand(told["name"], told["allowance_ns"])), flush=True)


main()
