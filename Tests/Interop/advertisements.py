"""The simultaneous advertisements of peer_advertiser.py, and the scanner's expected results (checks.py)."""
from dataclasses import dataclass, field

import database

CONNECTABLE, SCANNABLE, LEGACY_PDUS = 0x01, 0x02, 0x10  # Vol 4, Part E, §7.8.53


def structure(kind, octets):
    return bytes([len(octets) + 1, kind]) + octets


# AD types: Core Specification Supplement, Part A, §1.
def flags(value=6):
    return structure(0x01, bytes([value]))


def short_services(*uuids):
    return structure(0x03, b''.join(bytes.fromhex(each)[::-1] for each in uuids))


def long_services(*uuids):
    return structure(0x07, b''.join(bytes.fromhex(each.replace('-', ''))[::-1] for each in uuids))


def name(text):
    return structure(0x09, text.encode())


def service_data(uuid, octets):
    return structure(0x16, bytes.fromhex(uuid)[::-1] + octets)


def manufacturer(octets):
    return structure(0xFF, octets)


@dataclass
class Advertiser:
    address: str  # random static
    properties: int
    data: bytes = b''
    scan_response: bytes = b''
    is_legacy: bool = False  # of the commands of Bluetooth 4; it has a controller of its own then
    # The expected result
    name: str = None
    services: list = field(default_factory=list)
    manufacturer: bytes = None
    service_data: dict = field(default_factory=dict)
    # The part in the scan response, which a passive scan does not see
    name_in_response: bool = False
    services_in_response: list = field(default_factory=list)

    @property
    def is_connectable(self):
        return bool(self.properties & CONNECTABLE)


LONG_NAME = 'Forty octets of a name in extended PDUs.'
COMPANY = bytes.fromhex('FFFF')
FILLING = bytes(number & 0xFF for number in range(200))
# The service C007 sets bit 4 of octet 4 in the overflow area: a capture of an iPhone, ../../Fixtures/Vectors/overflow.txt.
OVERFLOW = bytes.fromhex('4C000100000000100000000000000000000000')

ADVERTISERS = {
    'legacy commands': Advertiser(
        'F1:00:00:00:00:01', LEGACY_PDUS | CONNECTABLE | SCANNABLE, flags() + short_services('180D', '180F'),
        name('Legacy') + long_services(database.custom(0)), is_legacy=True, name='Legacy', name_in_response=True,
        services=['180D', '180F', database.custom(0)], services_in_response=[database.custom(0)]),
    'legacy PDUs': Advertiser(
        'F1:00:00:00:00:02', LEGACY_PDUS | CONNECTABLE | SCANNABLE, flags() + name('Legacy set'),
        manufacturer(COMPANY + b'in the response'), name='Legacy set', manufacturer=COMPANY + b'in the response'),
    'extended': Advertiser(
        'F1:00:00:00:00:03', CONNECTABLE, flags() + name(LONG_NAME)
        + long_services(*map(database.custom, range(3))) + service_data('180F', b'\x57'), name=LONG_NAME,
        services=[database.custom(number) for number in range(3)], service_data={'180F': '57'}),
    'long': Advertiser(
        'F1:00:00:00:00:04', 0, name('Long') + manufacturer(COMPANY + FILLING) + service_data('180F', FILLING)
        + long_services(database.custom(7)), name='Long', manufacturer=COMPANY + FILLING, services=[database.custom(7)],
        service_data={'180F': FILLING.hex().upper()}),
    'scannable': Advertiser(
        'F1:00:00:00:00:05', SCANNABLE, b'', name('Only asked') + short_services('1812'), name='Only asked',
        name_in_response=True, services=['1812'], services_in_response=['1812']),
    'overflow': Advertiser(
        'F1:00:00:00:00:06', LEGACY_PDUS | CONNECTABLE | SCANNABLE, flags(0x1A) + manufacturer(OVERFLOW),
        manufacturer=OVERFLOW),
}
