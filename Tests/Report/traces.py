"""Traces that people do not record every day: hostile names, nothing, one packet, many connections, many records."""

import struct

EPOCH = 0x00DCDDB30F2F8000  # btsnoop counts microseconds from the year 0


class Trace:
    def __init__(self):
        self.octets, self.time, self.count = bytearray(b"btsnoop\0" + struct.pack(">II", 1, 1002)), 1_700_000_000_000_000, 0

    def add(self, packet, from_host, after=1_000):
        self.time += after
        flags = (0 if from_host else 1) | (2 if packet[0] in (1, 4) else 0)
        self.octets += struct.pack(">IIIIq", len(packet), len(packet), flags, 0, self.time + EPOCH) + packet
        self.count += 1

    def command(self, opcode, parameters=b""):
        self.add(struct.pack("<BHB", 1, opcode, len(parameters)) + parameters, True)

    def event(self, code, parameters):
        self.add(struct.pack("<BBB", 4, code, len(parameters)) + parameters, False)

    def connected(self, handle, address, role=0):
        self.event(0x3E, struct.pack("<BBHBB", 1, 0, handle, role, 0) + address + struct.pack("<HHHB", 24, 0, 100, 0))

    def advertising(self, address, data, rssi=-60):
        self.event(0x3E, bytes([2, 1, 0, 0]) + address + bytes([len(data)]) + data + struct.pack("b", rssi))

    def att(self, handle, pdu, from_host, fragment=None, after=1_000):
        frame = struct.pack("<HH", len(pdu), 4) + pdu
        size = fragment or len(frame)
        for at in range(0, len(frame), size):
            flag = 1 if at else (0 if from_host else 2)
            part = frame[at:at + size]
            self.add(struct.pack("<BHH", 2, handle | flag << 12, len(part)) + part, from_host, after)

    def completed(self, handle, count=1):
        self.event(0x13, struct.pack("<BHH", 1, handle, count))

    def save(self, path):
        with open(path, "wb") as file:
            file.write(self.octets)


MARKUP = [b"</script><script>hacked=1</script>", b"<img src=x onerror=hacked=1>", b"\"'><svg/onload=hacked=1>",
          b"<!--<script>", b"\x00\x1b[2J\x07\r\n\xe2\x80\xae\xff", b"]]>&lt;&#x3c;\\u003c"]


def hostile():
    """Markup, control and bidirectional characters where people's names stand, and a value of 512 octets."""
    trace, address = Trace(), bytes.fromhex("0153005e0000")
    for number, text in enumerate(MARKUP):
        name = text[:26]
        trace.advertising(bytes([number]) + address[1:], bytes([len(name) + 1, 9]) + name)
    trace.connected(0x40, address)
    for text in MARKUP:
        trace.att(0x40, b"\x12\x03\x00" + text[:20], True)
        trace.att(0x40, b"\x13", False)
    trace.att(0x40, b"\x02\xff\x01", True)
    trace.att(0x40, b"\x03\xff\x01", False)
    trace.att(0x40, b"\x1b\x03\x00" + (b"</script>" * 60)[:505], False, fragment=251)
    return trace


def one():
    trace = Trace()
    trace.command(0x0C03)
    return trace


def connections(count=500):
    trace = Trace()
    for number in range(count):
        trace.connected(number + 1, struct.pack("<HI", number, 0xC0000000))
        trace.att(number + 1, b"\x0a\x03\x00", True)
        trace.att(number + 1, b"\x0b\x01", False)
    return trace


def long(records=50_000):
    """A central that reads and is notified, with credits; one more device advertises."""
    trace, address = Trace(), bytes.fromhex("0153005e0000")
    trace.command(0x2002)
    trace.event(0x0E, bytes([1, 0x02, 0x20, 0, 251, 0, 8]))
    trace.connected(0x40, address)
    number = 0
    while trace.count < records:
        number += 1
        kind = number % 5
        if kind < 3:
            trace.att(0x40, b"\x1b\x10\x00" + struct.pack("<IQ", number, number * 0x9E3779B97F4A7C15 % 2**64), False, after=900)
        elif kind == 3:
            trace.att(0x40, b"\x0a\x12\x00", True)
            trace.completed(0x40)
            trace.att(0x40, b"\x0b" + struct.pack("<I", number), False, after=7_000 + number * 37 % 5_000)
        else:
            trace.advertising(bytes([number % 6]) + address[1:], b"\x02\x01\x06\x05\x09Belt", -50 - number * 13 % 30)
    return trace
