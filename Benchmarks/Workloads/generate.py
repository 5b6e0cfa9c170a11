#!/usr/bin/env python3
"""Makes the seeded workloads in the folder given: the same bytes on every machine.

corpus.bin       B1, B2: 10,000 ATT PDUs, all 31 opcodes, a third each for MTU 23, 247, 517, in random order.
reqs_300.bin     B3: 1,780 requests (K0 to K8, see PERFORMANCE) against a database of 10 services, 300 attributes.
reqs_3000.bin    B3: the same against 100 services, 3,000 attributes.
capture.btsnoop  B6: the PDUs of corpus.bin on one link, in ACL packets of at most 251 octets, with the events of its credits.

All numbers little-endian. corpus: count (4), then per PDU length (2), octets. requests: count (4), then per request
kind (1), length (2), octets. The order of the calls to the generator is part of the format: do not reorder.
"""

import hashlib
import random
import struct
import sys
from pathlib import Path

SEED = 20240601
PDUS = 10_000
# How often each opcode occurs: reads, writes and notifications are what a link carries.
WEIGHTS = {
    0x1B: 20, 0x52: 8, 0x0A: 6, 0x0B: 6, 0x12: 5, 0x13: 5, 0x08: 6, 0x09: 6, 0x04: 5, 0x05: 5, 0x10: 3, 0x11: 3,
    0x06: 2, 0x07: 2, 0x0C: 3, 0x0D: 3, 0x01: 3, 0x02: 1, 0x03: 1, 0x1D: 2, 0x1E: 2, 0x16: 1.5, 0x17: 1.5,
    0x18: 0.5, 0x19: 0.5, 0x0E: 0.75, 0x0F: 0.75, 0x20: 0.75, 0x21: 0.75, 0x23: 0.5, 0xD2: 0.5,
}  # fmt: skip
# SHA-256 of the files made, so that a change of the generator is noticed before a change of a figure.
EXPECTED = {
    "corpus.bin": "50b71c6200110b4c7d4058e8a132ad62045faf3bb152e47becb185c38e05687b",
    "capture.btsnoop": "f9a276592a7f0fd490fa3210d365161780e0b2661b589d8128b0e6df12ad85a7",
    "reqs_300.bin": "270c6480fd0ea73777a444677865bf75220021bc8a480fe55e618580037c824a",
    "reqs_3000.bin": "44f0758e82d3bac46e48a9e9a15610e48a0ed0037917a98bc360a7ff18e57945",
}

chance = random.Random(SEED)


def u16(*values):
    return struct.pack(f"<{len(values)}H", *values)


def octets(count):
    return bytes(chance.getrandbits(8) for _ in range(count))


def value(most):
    """Half of the values fill the PDU, the others have at most 20 octets."""
    return octets(most) if chance.random() < 0.5 else octets(chance.randint(1, min(20, most)))


def handle():
    return u16(chance.randint(1, 0xFFFE))


def handle_range():
    start = chance.randint(1, 3000)
    return u16(start, chance.randint(start, 0xFFFF))


def uuid():
    return u16(chance.randint(0x1800, 0x2BFF)) if chance.random() < 0.7 else octets(16)


def entries(most):
    return most if chance.random() < 0.6 else chance.randint(1, most)


def parameters(opcode, mtu):
    if opcode == 0x01:
        request = bytes([chance.choice([4, 6, 8, 10, 12, 16, 18])])
        return request + handle() + bytes([chance.randint(1, 0x13)])
    if opcode in (0x02, 0x03):
        return u16(chance.choice([23, 185, 247, 517]))
    if opcode == 0x04:
        return handle_range()
    if opcode == 0x05:
        form = chance.choice([1, 1, 2])
        size = 2 if form == 1 else 16
        return bytes([form]) + b"".join(handle() + octets(size) for _ in range(entries((mtu - 2) // (2 + size))))
    if opcode == 0x06:
        return handle_range() + u16(0x2800) + chance.choice([octets(2), octets(16)])[: mtu - 7]
    if opcode == 0x07:
        return b"".join(handle_range() for _ in range(entries((mtu - 1) // 4)))
    if opcode == 0x08:
        return handle_range() + uuid()
    if opcode == 0x10:
        return handle_range() + u16(0x2800)
    if opcode == 0x09:
        size = chance.choice([7, 7, 21, 2 + min(mtu - 4, 20)])
        return bytes([size]) + b"".join(handle() + octets(size - 2) for _ in range(entries((mtu - 2) // size)))
    if opcode == 0x11:
        size = chance.choice([6, 6, 20])
        return bytes([size]) + b"".join(handle_range() + octets(size - 4) for _ in range(entries((mtu - 2) // size)))
    if opcode == 0x0A:
        return handle()
    if opcode in (0x0B, 0x0D, 0x0F):
        return value(mtu - 1)
    if opcode == 0x0C:
        return handle() + u16(chance.randint(0, 512))
    if opcode in (0x0E, 0x20):
        return b"".join(handle() for _ in range(chance.randint(2, 8)))
    if opcode in (0x12, 0x52, 0x1B, 0x1D):
        return handle() + value(mtu - 3)
    if opcode in (0x13, 0x19, 0x1E):
        return b""
    if opcode in (0x16, 0x17):
        return handle() + u16(chance.randint(0, 256)) + value(mtu - 5)
    if opcode == 0x18:
        return bytes([chance.randint(0, 1)])
    if opcode == 0x21:
        count = chance.randint(2, 4)
        most = max(1, (mtu - 1) // count - 2)
        values = [value(most) for _ in range(count)]
        return b"".join(u16(len(v)) + v for v in values)
    if opcode == 0x23:
        count = chance.randint(2, 3)
        most = max(1, (mtu - 1) // count - 4)
        # Per tuple the value is drawn before the handle.
        values = []
        for _ in range(count):
            v = value(most)
            values.append(handle() + u16(len(v)) + v)
        return b"".join(values)
    if opcode == 0xD2:
        return handle() + value(min(mtu - 15, 180) if mtu > 15 else 1) + octets(12)
    raise ValueError(opcode)


def corpus():
    opcodes, weights = list(WEIGHTS), list(WEIGHTS.values())
    pdus = []
    for index in range(PDUS):
        mtu = (23, 247, 517)[index % 3]
        opcode = chance.choices(opcodes, weights)[0]
        if index < 3 * len(opcodes):  # each opcode at least once for each MTU
            opcode = opcodes[index // 3]
        pdus.append(bytes([opcode]) + parameters(opcode, mtu))
    chance.shuffle(pdus)
    return pdus


def vendor_uuid(number):
    return bytes(range(0xC0, 0xCC)) + u16(number) + b"\x00\xd0"


def service_uuid(service):
    """Services with an odd number, and their attributes, have 128-bit UUIDs."""
    number = 0xA000 + service
    return u16(number) if service % 2 == 0 else vendor_uuid(number)


def characteristic_uuid(service, characteristic):
    number = 0xB000 + 16 * service + characteristic
    return u16(number) if service % 2 == 0 else vendor_uuid(number)


def value_handle(service, characteristic):
    return 30 * service + 1 + 3 * characteristic + 2


def requests(services):
    """A service is 30 handles: its declaration, then declaration, value, configuration of its characteristics."""
    out = []
    chosen = [chance.randrange(services) for _ in range(200)]
    for s in chosen:
        out.append((0, b"\x04" + u16(30 * s + 1, 0xFFFF)))
    for s in chosen:
        out.append((1, b"\x08" + u16(30 * s + 1, 30 * s + 30, 0x2803)))
    for s in chosen:
        out.append((2, b"\x08" + u16(1, 0xFFFF) + characteristic_uuid(s, 3)))
    for s in chosen:
        out.append((3, b"\x10" + u16(30 * s + 1, 0xFFFF, 0x2800)))
    for s in chosen:
        out.append((4, b"\x06" + u16(1, 0xFFFF, 0x2800) + service_uuid(s)))
    for s in chosen:
        out.append((5, b"\x0a" + u16(value_handle(s, chance.randrange(9)))))
    for s in chosen:
        out.append((6, b"\x0c" + u16(value_handle(s, 9), 100)))
    for s in chosen:
        out.append((7, b"\x12" + u16(value_handle(s, chance.randrange(9))) + octets(20)))
    for s in chosen[:60]:
        out.append((8, b"\x16" + u16(value_handle(s, 9), 0) + octets(100)))
        out.append((8, b"\x16" + u16(value_handle(s, 9), 100) + octets(100)))
        out.append((8, b"\x18\x01"))
    return out


def capture(pdus):
    records = []
    time = 0x00DCDDB30F2F8000 + 1_700_000_000 * 1_000_000

    def add(flags, packet):
        nonlocal time
        time += 500
        records.append(struct.pack(">IIIIQ", len(packet), len(packet), flags, 0, time) + packet)

    add(3, bytes.fromhex("043E130100400001011122334455661800000000C80000"))
    for number, pdu in enumerate(pdus):
        received = number % 2
        frame, flag = u16(len(pdu), 4) + pdu, 0x2000 if received else 0
        while frame:
            part, frame = frame[:251], frame[251:]
            add(received, b"\x02" + u16(0x0040 | flag, len(part)) + part)
            flag = 0x1000
        if number % 3 == 0:
            add(3, bytes.fromhex("0413050140000100"))
    add(3, bytes.fromhex("04050400400013"))
    return b"btsnoop\0" + struct.pack(">II", 1, 1002) + b"".join(records)


def write(path, data):
    digest = hashlib.sha256(data).hexdigest()
    if digest != EXPECTED[path.name]:
        sys.exit(f"{path.name}: this generator made {digest}, not {EXPECTED[path.name]}")
    path.write_bytes(data)


def main():
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    pdus = corpus()
    write(folder / "corpus.bin", struct.pack("<I", len(pdus)) + b"".join(u16(len(p)) + p for p in pdus))
    write(folder / "capture.btsnoop", capture(pdus))
    for services in (10, 100):
        made = requests(services)
        data = b"".join(struct.pack("<BH", kind, len(pdu)) + pdu for kind, pdu in made)
        write(folder / f"reqs_{30 * services}.bin", struct.pack("<I", len(made)) + data)


if __name__ == "__main__":
    main()
