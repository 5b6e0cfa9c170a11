#!/usr/bin/env python3
"""A Bumble host that scans for `bindrune advertise`, compares its advertisement, and connects once.

Prints {"event":"ready","port":…}, then a line per check, then {"event":"exit"}.
Exit status 0 all passed, 1 some failed, 2 nothing ran.
"""
import argparse
import asyncio
import os
import sys

from bumble import core, gatt
from bumble.core import UUID, AdvertisingData
from bumble.device import Peer

import peers


def wanted(args):
    """The advertising data as Bumble would write them, in the order of the tool."""
    uuids = [UUID(each) for each in args.service]
    structures = [(AdvertisingData.FLAGS, b'\x06')]
    for size, kind in ((2, AdvertisingData.COMPLETE_LIST_OF_16_BIT_SERVICE_CLASS_UUIDS),
                       (16, AdvertisingData.COMPLETE_LIST_OF_128_BIT_SERVICE_CLASS_UUIDS)):
        listed = b''.join(each.to_bytes() for each in uuids if len(each.to_bytes()) == size)
        structures += [(kind, listed)] if listed else []
    if args.manufacturer:
        structures.append((AdvertisingData.MANUFACTURER_SPECIFIC_DATA, bytes.fromhex(args.manufacturer)))
    name = (AdvertisingData.COMPLETE_LOCAL_NAME, args.name.encode())
    if args.shortened:
        name = (AdvertisingData.SHORTENED_LOCAL_NAME, args.shortened.encode())
    return bytes(AdvertisingData(structures)), bytes(AdvertisingData([name]))


async def run(device, args, check):
    data, name = wanted(args)
    whole = data + name
    found = asyncio.get_running_loop().create_future()

    def on_advertisement(advertisement):
        # Legacy data are followed by the scan response, once it has arrived.
        if bytes(advertisement.data) == whole and not found.done():
            found.set_result(advertisement)
    device.on('advertisement', on_advertisement)
    await device.start_scanning(active=True, filter_duplicates=False)
    try:
        advertisement = await asyncio.wait_for(found, args.timeout)
    except asyncio.TimeoutError:
        return check('advertising: data', None, whole)
    finally:
        await device.stop_scanning()
        device.remove_listener('advertisement', on_advertisement)
    check('advertising: data', bytes(advertisement.data), whole)
    if args.controller:  # Bumble's own controller has one kind of PDUs for both
        check('advertising: PDUs', 'legacy' if advertisement.is_legacy else 'extended', args.pdus)
        check('advertising: connectable', advertisement.is_connectable)

    connection = await asyncio.wait_for(device.connect(advertisement.address), args.timeout)
    peer = Peer(connection)
    await peer.discover_services()
    await peer.discover_characteristics()
    names = peer.get_characteristics_by_uuid(gatt.GATT_DEVICE_NAME_CHARACTERISTIC)
    check('connection: device name', bytes(await names[0].read_value()) if names else None, args.name.encode())
    await connection.disconnect()


async def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    peers.add_arguments(parser)
    parser.add_argument('--address', default='E0:E1:E2:E3:E4:E8', help='own random static address')
    parser.add_argument('--name', required=True)
    parser.add_argument('--shortened', help='the part of the name that is advertised')
    parser.add_argument('--service', action='append', default=[])
    parser.add_argument('--manufacturer', help='hex')
    parser.add_argument('--pdus', choices=['legacy', 'extended'], default='legacy')
    parser.add_argument('--timeout', type=float, default=10, help='seconds for each thing awaited')
    args = parser.parse_args()
    device, port = await peers.make_peer(args, 'InteropScanner', args.address, 'C0:DE:00:00:00:05/P')
    check = peers.Checks()
    try:
        await device.power_on()
        peers.say('ready', port=port)
        await asyncio.wait_for(run(device, args, check), args.run_for)
    except (Exception, asyncio.CancelledError) as error:  # Bumble cancels waits on a link that has ended
        check('completed', repr(error), 'no error')
        if args.v:
            raise
    peers.say('exit')
    sys.stdout.flush()
    os._exit(check.status)  # Bumble's tasks are not waited for


if __name__ == '__main__':
    asyncio.run(main())
