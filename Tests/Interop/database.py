"""The GATT database of the interop tests: what a peripheral serves and a central must find.

One description for everybody: `peer_peripheral.py` builds it on Bumble and compares the result with
`attributes()`, `peer_central.py` and `checks.py` expect it, and `Peripheral/` offers the same in Swift.
"""
from dataclasses import dataclass, field


def custom(number):
    return f'A0B1{number:04X}-1D1D-4BBD-8E5C-6F0E5F1A0C00'


NAME = 'InteropPeer'
ADDRESS = 'F0:F1:F2:F3:F4:F5'  # random static
SERVICE = custom(0)
(READ, WRITE, WRITE_COMMAND, NOTIFY, INDICATE, LONG, ENCRYPTED, AUTHENTICATED, DESCRIPTORS, CONTROL, ERRORS,
 WRITE_ONLY) = (custom(number) for number in range(1, 13))
SECONDARY, SECONDARY_VALUE = custom(0x20), custom(0x21)

READ_VALUE = b'HELLO'
LONG_VALUE = bytes(number & 0xFF for number in range(512))
# Over the handles and declarations below: Vol 3, Part G, §7.3.
DATABASE_HASH = bytes.fromhex('6C2160B114A9ECAE0EB2E2590AE85A0C')
HEART_RATES = [bytes([0x00, 60 + number % 100]) for number in range(20)]

# ATT error codes. Vol 3, Part F, §3.4.1.1.
INVALID_HANDLE, READ_NOT_PERMITTED, WRITE_NOT_PERMITTED, INVALID_PDU = 0x01, 0x02, 0x03, 0x04
INSUFFICIENT_AUTHENTICATION, REQUEST_NOT_SUPPORTED, INVALID_OFFSET, ATTRIBUTE_NOT_FOUND = 0x05, 0x06, 0x07, 0x0A
INVALID_LENGTH, INSUFFICIENT_ENCRYPTION = 0x0D, 0x0F
READ_REFUSED, WRITE_REFUSED = 0x80, 0x81  # the application's own

PROPERTIES = {'broadcast': 0x01, 'read': 0x02, 'write-without-response': 0x04, 'write': 0x08, 'notify': 0x10,
              'indicate': 0x20, 'authenticated-signed-writes': 0x40, 'extended-properties': 0x80}


@dataclass
class Descriptor:
    uuid: str
    reads: bytes


@dataclass
class Characteristic:
    """`reads` is the value, or the number of the error that a read without a bond must get."""
    uuid: str
    properties: list
    reads: object
    descriptors: list = field(default_factory=list)

    @property
    def bits(self):
        return sum(PROPERTIES[name] for name in self.properties)


@dataclass
class Service:
    uuid: str
    characteristics: list
    includes: list = field(default_factory=list)
    primary: bool = True


def configuration():
    """Client Characteristic Configuration, off."""
    return Descriptor('2902', bytes(2))


SERVICES = [
    Service('1800', [
        Characteristic('2A00', ['read'], NAME.encode()),
        Characteristic('2A01', ['read'], bytes(2)),
    ]),
    Service('1801', [
        Characteristic('2A05', ['indicate'], READ_NOT_PERMITTED, [configuration()]),
        Characteristic('2B29', ['read', 'write'], bytes(1)),
        Characteristic('2B2A', ['read'], DATABASE_HASH),
    ]),
    Service('180D', [
        Characteristic('2A37', ['notify'], READ_NOT_PERMITTED, [configuration()]),
        Characteristic('2A38', ['read'], b'\x02'),
        Characteristic('2A39', ['write'], READ_NOT_PERMITTED),
    ]),
    Service('180F', [
        Characteristic('2A19', ['read', 'notify'], b'\x57', [configuration()]),
    ]),
    Service(SECONDARY, [
        Characteristic(SECONDARY_VALUE, ['read'], b'2nd'),
    ], primary=False),
    Service(SERVICE, [
        Characteristic(READ, ['read'], READ_VALUE),
        Characteristic(WRITE, ['read', 'write'], b''),
        Characteristic(WRITE_COMMAND, ['read', 'write-without-response'], bytes(8)),  # reads back commands, octets
        Characteristic(NOTIFY, ['read', 'notify'], bytes(4), [configuration()]),
        Characteristic(INDICATE, ['read', 'indicate'], bytes(4), [configuration()]),
        Characteristic(LONG, ['read', 'write'], LONG_VALUE),
        Characteristic(ENCRYPTED, ['read'], INSUFFICIENT_ENCRYPTION),
        Characteristic(AUTHENTICATED, ['read'], INSUFFICIENT_AUTHENTICATION),
        Characteristic(DESCRIPTORS, ['read'], b'd', [
            Descriptor('2901', b'user description'),
            Descriptor('2904', bytes.fromhex('0400ad27010000')),
        ]),
        Characteristic(CONTROL, ['write'], READ_NOT_PERMITTED),
        Characteristic(ERRORS, ['read', 'write'], READ_REFUSED),
        Characteristic(WRITE_ONLY, ['write'], READ_NOT_PERMITTED),
    ], includes=['180F', SECONDARY]),
]


@dataclass
class Placed:
    """Something of the database with its handles: `handle` of the declaration, `end` of the group."""
    what: object
    handle: int
    end: int = 0
    service: object = None


def placed():
    """Everything in order: services, includes (as (include, service UUID)), characteristics, descriptors."""
    result, next_handle = [], 1
    for service in SERVICES:
        group = Placed(service, next_handle)
        result.append(group)
        next_handle += 1
        for include in service.includes:
            result.append(Placed(('include', include), next_handle, next_handle, service))
            next_handle += 1
        for characteristic in service.characteristics:
            result.append(Placed(characteristic, next_handle, next_handle + 1, service))
            next_handle += 2
            for descriptor in characteristic.descriptors:
                result.append(Placed(descriptor, next_handle, next_handle, service))
                next_handle += 1
        group.end = next_handle - 1
    return result


def attributes():
    """(handle, type) of every attribute."""
    result = []
    for item in placed():
        if isinstance(item.what, Service):
            result.append((item.handle, '2800' if item.what.primary else '2801'))
        elif isinstance(item.what, Characteristic):
            result += [(item.handle, '2803'), (item.handle + 1, item.what.uuid)]
        elif isinstance(item.what, Descriptor):
            result.append((item.handle, item.what.uuid))
        else:
            result.append((item.handle, '2802'))
    return result
