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


def queue():
    """Three connections that end with packets in a controller of eight buffers."""
    trace = Trace()
    trace.command(0x2002)
    trace.event(0x0E, bytes([1, 0x02, 0x20, 0, 0xFB, 0x00, 8]))
    for _ in range(3):
        trace.connected(0x40, bytes.fromhex("0153005e0000"))
        for value in range(5):
            trace.att(0x40, bytes([0x52, 3, 0, value]), True)
        trace.completed(0x40)
        trace.event(0x05, b"\0\x40\0\x13")
    return trace


def failures():
    """What goes wrong on connections, a trace each, and words of the cause."""
    link, end = b"\x40\0", lambda reason: (lambda t: t.event(0x05, b"\0\x40\0" + bytes([reason])))

    def pdu(channel, from_host, text, after=1_000):
        def add(trace):
            octets = bytes.fromhex(text)
            frame = struct.pack("<HH", len(octets), channel) + octets
            trace.add(struct.pack("<BHH", 2, 0x40 | (0 if from_host else 0x2000), len(frame)) + frame, from_host, after)
        return add

    def att(from_host, text): return pdu(4, from_host, text)
    def smp(from_host, text): return pdu(6, from_host, text)
    def wait(seconds): return lambda t: setattr(t, "time", t.time + seconds * 1_000_000)

    discovery = [att(True, "080100ffff0328"), att(False, "09070200120300372a"), att(True, "040400ffff"),
                 att(False, "050104000229"), att(True, "040500ffff"), att(False, "010405000a")]
    subscription = [att(True, "1204000100"), att(False, "13")]
    encryption = [lambda t: t.command(0x2019, link + bytes([1] * 8) + b"\2\0" + bytes([3] * 16)),
                  lambda t: t.event(0x0F, b"\0\1\x19\x20")]
    confirms = [smp(True, "03" + "11" * 16), smp(False, "03" + "22" * 16), smp(True, "04" + "33" * 16)]
    cases = {
        "supervision timeout": (0, discovery + [wait(5), end(0x08)], "the peer vanished"),
        "never established": (0, [end(0x3E)], "never established"),
        "MIC failure": (0, encryption + [lambda t: t.event(0x08, b"\0\x40\0\1"), end(0x3D)], "the keys of the two sides differ"),
        "lost bond": (0, encryption + [lambda t: t.event(0x08, b"\6\x40\0\0"), end(0x16)], "it has forgotten it"),
        "refused parameters": (0, [pdu(5, False, "1201080006000c000000c800"), pdu(5, True, "130102000100"), end(0x13)],
                               "refused the connection parameters"),
        "unanswered request": (0, discovery + [att(True, "0a0300"), wait(45), end(0x16)], "was never answered"),
        "wrong passkey": (0, [smp(True, "01020005100000"), smp(False, "02000005100000")] + confirms + [smp(False, "0504"), end(0x13)],
                          "used different passkeys"),
        "unconfirmed indication": (1, [att(False, "080100ffff0328"), att(True, "09070200200300372a"), att(False, "1204000200"),
                                       att(True, "13"), att(True, "1d030001"), wait(31), end(0x16)], "was never confirmed"),
        "MTU of 23": (0, discovery + subscription + [att(False, "1b0300" + "41" * 20)] * 3 + [end(0x13)], "the MTU of 23"),
        "not subscribed": (0, discovery + [wait(20), end(0x16)], "has not subscribed"),
        "Service Changed ignored": (0, [att(True, "080100ffff0328"), att(False, "09070200200300052a05000206" + "00372a"),
                                        att(True, "1204000200"), att(False, "13"), att(False, "1d03000500ffff"), att(True, "1e"),
                                        att(True, "0a0600"), att(False, "010a060001"), end(0x16)], "ignored Service Changed"),
        "controller reset": (0, discovery + [lambda t: t.event(0x10, b"\x22"), lambda t: t.command(0x0C03),
                                             lambda t: t.event(0x0E, b"\1\3\x0c\0")], "hardware error"),
    }
    made = {}
    for name, (role, steps, words) in cases.items():
        trace = Trace()
        trace.connected(0x40, bytes.fromhex("0153005e0000"), role)
        for step in steps:
            step(trace)
        made[name] = (trace, words)
    return made
