#!/usr/bin/env python3
"""The times of other stacks for the same work, if they are installed: Bumble (Python) and tshark.

    peers.py bumble WORKLOADS ROW…    prints a JSON object per row; under a Python that has bumble
"""

import asyncio
import json
import os
import resource
import shutil
import statistics
import struct
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

ROUNDS = 5
MTU = 247


# bumble_link.py's rows: two hosts over TCP, on Bumble's controllers.
LINKS = ["x.bumble.link", "x.B7.tcp", "x.bumble.send", "x.bumble.receive"]


def measured(ids, work, peer_python, host_bench):
    """The rows of the installed peers, as they are measured."""
    if "x.B7.Host" in ids and host_bench:
        yield {"id": "x.B7.Host", "per_second": statistics.median(host_to_host(host_bench) for _ in range(ROUNDS))}
    links = [id for id in ids if id in LINKS]
    if links and peer_python and host_bench:
        program = [str(peer_python), str(Path(__file__).with_name("bumble_link.py"))]
        done = subprocess.run(
            [*program, "--ours", str(host_bench), "--acl", "251", "--json"], stdout=subprocess.PIPE, text=True
        )
        yield from (row for row in map(json.loads, done.stdout.splitlines()) if row["id"] in links)
        if done.returncode:
            print("Two hosts over TCP: a pair did not get through, or ours was not faster, see above", file=sys.stderr)
    bumble = [id for id in ids if id.startswith("x.bumble.") and id not in LINKS]
    if bumble and peer_python:
        command = [str(peer_python), __file__, "bumble", str(work / "workloads"), *bumble]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as program:
            yield from map(json.loads, program.stdout)
        if program.returncode:
            print("Bumble's rows end here: its program failed, see above", file=sys.stderr)
    if "x.tshark" in ids and shutil.which("tshark"):
        yield tshark(work)


# MARK: workloads, as Workloads/generate.py writes them


def load(path, has_kinds=False):
    data, at, items = path.read_bytes(), 4, []
    for _ in range(struct.unpack_from("<I", data)[0]):
        kind = data[at] if has_kinds else 0
        at += has_kinds
        length = struct.unpack_from("<H", data, at)[0]
        items.append((kind, data[at + 2 : at + 2 + length]))
        at += 2 + length
    return items


def host_to_host(program):
    """Notifications of 244 octets per second, SendPort to subscription, over the radio in the process, in real time."""
    done = subprocess.run([str(program), "memory", "5000"], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{program}: status {done.returncode}\n{done.stderr[-1500:]}")
    return int(done.stdout.split()[-1])


# MARK: tshark


def tshark(work):
    """Records per second of CPU time, a line of text per record; start-up drops out by the difference of two traces."""
    traces = {count: session(work, count) for count in (2, 12)}

    def seconds(trace):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = ["tshark", "-r", str(trace)]
        subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    few, many = (min(seconds(trace) for _ in range(3)) for trace, _ in traces.values())
    per_record = (many - few) / (traces[12][1] - traces[2][1])
    return {"id": "x.tshark", "ns": round(per_record * 1e9), "per_second": int(1 / per_record)}


def session(work, count):
    """A btsnoop trace: a client that sends the requests of B3, `count` times, and the server's answers."""
    requests, responses = (load(work / "workloads" / f"{name}_300.bin", name == "reqs") for name in ("reqs", "resp"))
    pairs = list(zip(requests, responses)) * count
    path, stamp = work / f"session-{count}.btsnoop", 0x00E03AB44A676000  # 2000-01-01, in microseconds since the year 0
    with path.open("wb") as file:
        file.write(b"btsnoop\0" + struct.pack(">II", 1, 1002))  # H4
        for index, ((_, request), (_, response)) in enumerate(pairs):
            for is_sent, pdu in ((True, request), (False, response)):
                frame = struct.pack("<HH", len(pdu), 0x0004) + pdu
                packet = b"\x02" + struct.pack("<HH", 0x0040 | (0 if is_sent else 0x2000), len(frame)) + frame
                head = struct.pack(">IIIIQ", len(packet), len(packet), 0 if is_sent else 1, 0, stamp + 1000 * index)
                file.write(head + packet)
    return path, 2 * len(pairs)


# MARK: Bumble, in a Python that has it


def bumble_rows(workloads, ids):
    for id in ids:
        run = decoding(workloads) if id == "x.bumble.decode" else answering(workloads, int(id[-1]))
        print(json.dumps({"id": id, "ns": round(asyncio.run(run))}), flush=True)


class Link:
    """The part of a connection that Bumble's server uses."""

    handle, att_mtu, is_encrypted, encryption, authenticated = 1, MTU, False, 0, False


async def decoding(workloads):
    """Nanoseconds per PDU of the corpus, bytes to objects."""
    from bumble import att

    pdus = [pdu for _, pdu in load(workloads / "corpus.bin")]

    def once():
        start = time.thread_time_ns()
        for pdu in pdus:
            att.ATT_PDU.from_bytes(pdu)
        return (time.thread_time_ns() - start) / len(pdus)

    return statistics.median(once() for _ in range(ROUNDS))


async def answering(workloads, kind):
    """Nanoseconds per request of the kind, bytes to bytes, on the database of 300 attributes."""
    from bumble import att, gatt, gatt_server
    from bumble.core import UUID

    responses = []
    server = gatt_server.Server(SimpleNamespace(send_l2cap_pdu=lambda handle, channel, pdu: responses.append(pdu)))
    server.add_services(benchmark_services(gatt, UUID))
    link = Link()
    requests = [pdu for its, pdu in load(workloads / "reqs_300.bin", has_kinds=True) if its == kind]

    async def once():
        responses.clear()
        start = time.thread_time_ns()
        for index, pdu in enumerate(requests):
            server.on_gatt_pdu(link, att.ATT_PDU.from_bytes(pdu))
            for _ in range(100):  # it answers from a task of its own
                if len(responses) > index:
                    break
                await asyncio.sleep(0)
            else:
                sys.exit(f"Bumble does not answer {pdu.hex()}")
        return (time.thread_time_ns() - start) / len(requests)

    return statistics.median([await once() for _ in range(ROUNDS)])


def benchmark_services(gatt, UUID):
    """The database that CBound/server.h builds."""

    def uuid(number, is_short):
        octets = struct.pack("<H", number)
        return UUID.from_bytes(octets if is_short else bytes(range(0xC0, 0xCC)) + octets + b"\x00\xd0")

    rights = gatt.Characteristic.Permissions.READABLE | gatt.Characteristic.Permissions.WRITEABLE
    properties = gatt.Characteristic.Properties
    services = []
    for s in range(10):
        characteristics = []
        for c in range(10):
            has = properties.READ | properties.WRITE | (properties.NOTIFY if c < 9 else properties(0))
            value = bytes([c]) * (20 if c < 9 else 200)
            characteristics.append(gatt.Characteristic(uuid(0xB000 + 16 * s + c, s % 2 == 0), has, rights, value))
        services.append(gatt.Service(uuid(0xA000 + s, s % 2 == 0), characteristics))
    return services


if __name__ == "__main__":
    if len(sys.argv) < 4 or sys.argv[1] != "bumble":
        sys.exit(__doc__)
    os.environ.setdefault("BUMBLE_LOGLEVEL", "ERROR")
    bumble_rows(Path(sys.argv[2]), sys.argv[3:])
