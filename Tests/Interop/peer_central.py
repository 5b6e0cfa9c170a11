#!/usr/bin/env python3
"""A Bumble GATT client as a central: finds, connects to and checks an external peripheral that serves database.py.

Prints {"event":"ready","port":…}, then a line per check, then {"event":"exit", what else was seen}.
Exit status 0 all passed, 1 some failed, 2 nothing ran. No pairing.
"""
import argparse
import asyncio
import os
import struct
import sys
import time

from bumble import att, core, gatt, l2cap, smp
from bumble.core import UUID
from bumble.device import Peer

import database
import peers
from peer_peripheral import short


async def expect_error(coroutine):
    """The number of the ATT error that the procedure ended with."""
    try:
        value = await coroutine
        return f'no error ({peers.Checks.text(value)})'
    except core.ProtocolError as error:
        return int(error.error_code)


def code(error):
    """Both permissions' refusals are right for an attribute that needs a bond: which one is the server's choice."""
    return 'refused' if error in (database.INSUFFICIENT_AUTHENTICATION, database.INSUFFICIENT_ENCRYPTION) else error


def services(advertisement):
    kinds = core.AdvertisingData
    return [short(uuid) for kind in (kinds.COMPLETE_LIST_OF_16_BIT_SERVICE_CLASS_UUIDS,
                                     kinds.INCOMPLETE_LIST_OF_16_BIT_SERVICE_CLASS_UUIDS)
            for uuid in advertisement.data.get(kind) or []]


class Collected:
    """Values of a subscription, awaited by number."""

    def __init__(self):
        self.values, self.changed = [], asyncio.Event()

    def __call__(self, value):
        self.values.append(bytes(value))
        self.changed.set()

    async def count(self, number, timeout):
        async def wait():
            while len(self.values) < number:
                self.changed.clear()
                await self.changed.wait()
        try:
            await asyncio.wait_for(wait(), timeout)
        except asyncio.TimeoutError:
            pass  # the check tells what is missing
        return self.values


class Central:
    def __init__(self, device, args):
        self.device, self.args, self.check, self.seen = device, args, peers.Checks(), {}

    # Advertising, connection

    async def scan(self):
        """The advertisement of the peripheral by its name."""
        found = asyncio.get_running_loop().create_future()

        def on_advertisement(advertisement):
            name = advertisement.data.get(core.AdvertisingData.COMPLETE_LOCAL_NAME)
            if self.args.heart_rate:
                wanted = '180D' in services(advertisement) and self.args.sensor in (None, name)
            else:
                wanted = name == self.args.name
            if wanted and advertisement.is_connectable and not found.done():
                found.set_result(advertisement)
        self.device.on('advertisement', on_advertisement)
        await self.device.start_scanning(active=True, filter_duplicates=False, legacy=self.args.legacy_scan)
        try:
            return await asyncio.wait_for(found, self.args.timeout)
        except asyncio.TimeoutError:
            raise RuntimeError('no connectable advertisement of the peripheral') from None
        finally:
            await self.device.stop_scanning()
            self.device.remove_listener('advertisement', on_advertisement)

    async def connect(self, advertisement):
        """A working link; one that the peripheral did not receive ends at once (0x3E) and is made again."""
        for _ in range(3):
            await self.try_to_connect(advertisement)
            await asyncio.wait([self.disconnected], timeout=0.3)
            if not self.disconnected.done() or self.disconnected.result() != 0x3E:
                return

    async def try_to_connect(self, advertisement):
        self.connection = await self.device.connect(
            advertisement.address, own_address_type=peers.own_address_type(self.args), timeout=self.args.timeout)
        self.seen['connections'] = self.seen.get('connections', 0) + 1
        self.disconnected = asyncio.get_running_loop().create_future()
        self.connection.on(
            'disconnection', lambda reason: self.disconnected.done() or self.disconnected.set_result(reason))
        self.connection.on('disconnection', lambda reason: self.seen.update(reason=reason))
        self.peer = Peer(self.connection)
        self.client = self.peer.gatt_client

    async def request(self, pdu):
        return await self.client.send_request(pdu)

    # Parts

    async def discovery(self):
        client, check = self.client, self.check
        check('mtu: 23 before the exchange', client.mtu, 23)
        mtu = await self.peer.request_mtu(self.args.mtu)
        self.seen['mtu'] = mtu
        check('mtu: the smaller of both', mtu, min(self.args.mtu, 517))

        services = await client.discover_services()
        expected = [each for each in database.placed() if isinstance(each.what, database.Service)]
        check('discover: primary services',
              [(short(each.uuid), each.handle, each.end_group_handle) for each in services],
              [(each.what.uuid, each.handle, each.end) for each in expected if each.what.primary])
        own = next((each for each in services if short(each.uuid) == database.SERVICE), None)
        one = await client.discover_service(UUID(database.SERVICE))  # Find By Type Value
        check('discover: primary service by UUID', [(each.handle, each.end_group_handle) for each in one],
              [(own.handle, own.end_group_handle)] if own else [])
        check('discover: no service by an unknown UUID', await client.discover_service(UUID('1234')), [])
        check('discover: includes', sorted(await self.included(own)), sorted(database.SERVICES[-1].includes))

        self.values = {}
        found, descriptors = [], []
        for service in services:
            for each in await client.discover_characteristics([], service):
                self.values[short(each.uuid)] = each
                found.append((short(each.uuid), each.handle - 1, int(each.properties)))
                descriptors += [(short(descriptor.type), descriptor.handle)
                                for descriptor in await client.discover_descriptors(each)]
        placed = [each for each in database.placed() if each.service is None or each.service.primary]
        check('discover: characteristics', found,
              [(each.what.uuid, each.handle, each.what.bits) for each in placed
               if isinstance(each.what, database.Characteristic)])
        check('discover: descriptors', descriptors,
              [(each.what.uuid, each.handle) for each in placed if isinstance(each.what, database.Descriptor)])
        check('discover: every attribute by Find Information', await self.information(), database.attributes())

    async def included(self, service):
        """UUIDs of the included services (Bumble's own procedure raises on a 128-bit one)."""
        found, handle = [], service.handle
        while handle <= service.end_group_handle:
            response = await self.request(att.ATT_Read_By_Type_Request(
                starting_handle=handle, ending_handle=service.end_group_handle,
                attribute_type=gatt.GATT_INCLUDE_ATTRIBUTE_TYPE))
            if response.op_code == att.Opcode.ATT_ERROR_RESPONSE:
                break
            for declaration, value in response.attributes:
                start, _end = struct.unpack_from('<HH', value)
                uuid = value[4:] or await self.client.read_value(start, no_long_read=True)
                found.append(short(UUID.from_bytes(uuid)))
                handle = declaration + 1
        return found

    async def information(self):
        found, handle = [], 1
        while handle <= 0xFFFF:
            response = await self.request(
                att.ATT_Find_Information_Request(starting_handle=handle, ending_handle=0xFFFF))
            if response.op_code == att.Opcode.ATT_ERROR_RESPONSE:
                break
            for each, uuid in response.information:
                found.append((each, short(UUID.from_bytes(uuid))))
                handle = each + 1
        return found

    async def reads(self):
        client, check, values = self.client, self.check, self.values
        for each in database.placed():
            if isinstance(each.what, database.Characteristic) and each.service.primary:
                name, expected = f'read: {each.what.uuid[:8]}', each.what.reads
                if isinstance(expected, int):
                    check(name + ' refused', code(await expect_error(client.read_value(each.handle + 1))), code(expected))
                else:
                    check(name, await client.read_value(each.handle + 1), expected)
            elif isinstance(each.what, database.Descriptor):
                check(f'read: descriptor {each.what.uuid} at {each.handle}', await client.read_value(each.handle),
                      each.what.reads)
        battery, long = values['2A19'], values[database.LONG]
        check('read: by UUID', await client.read_characteristics_by_uuid(UUID('2A19'), None), [b'\x57'])
        if client.mtu <= 512:  # else a server may say Attribute Not Long
            check('read: the last octet of a long value', await self.blob(long.handle, 511), b'\xFF')
            check('read: blob at the end', await self.blob(long.handle, 512), b'')
            check('read: blob past the end', await expect_error(self.blob(long.handle, 513)), database.INVALID_OFFSET)
        response = await self.request(
            att.ATT_Read_Multiple_Request(set_of_handles=[values[database.READ].handle, battery.handle]))
        check('read: multiple', getattr(response, 'set_of_values', None), database.READ_VALUE + b'\x57')
        check('read: invalid handle', await expect_error(client.read_value(0xFFF0)), database.INVALID_HANDLE)
        response = await self.request(
            att.ATT_Find_Information_Request(starting_handle=0xFFF0, ending_handle=0xFFFF))
        check('read: nothing found', int(getattr(response, 'error_code', 0)), database.ATTRIBUTE_NOT_FOUND)

    async def blob(self, handle, offset):
        response = await self.request(att.ATT_Read_Blob_Request(attribute_handle=handle, value_offset=offset))
        if response.op_code == att.Opcode.ATT_ERROR_RESPONSE:
            raise att.ATT_Error(error_code=response.error_code)
        return response.part_attribute_value

    async def writes(self):
        client, check, values = self.client, self.check, self.values
        value = values[database.WRITE]
        await client.write_value(value, b'with response', with_response=True)
        check('write: reads back', await client.read_value(value), b'with response')
        check("write: the application's error", await expect_error(
            client.write_value(values[database.ERRORS], b'x', True)), database.WRITE_REFUSED)
        check('write: control point takes 01', await expect_error(
            client.write_value(values['2A39'], b'\x02', True)), database.READ_REFUSED)
        await client.write_value(values['2A39'], b'\x01', with_response=True)
        await client.write_value(values[database.WRITE_ONLY], b'w', with_response=True)

        counter, commands = values[database.WRITE_COMMAND], self.args.write_commands
        before = struct.unpack('<II', await client.read_value(counter))
        for number in range(commands):
            await client.write_value(counter, bytes([number & 0xFF]) * 20, with_response=False)
        after = struct.unpack('<II', await client.read_value(counter))
        check('write: commands all arrived', (after[0] - before[0], after[1] - before[1]), (commands, 20 * commands))

        long, other = values[database.LONG].handle, bytes(255 - number & 0xFF for number in range(512))
        await client.write_long_value(long, other)
        check('write: long value reads back', await client.read_value(long), other)
        response = await self.request(att.ATT_Prepare_Write_Request(
            attribute_handle=long, value_offset=0, part_attribute_value=b'zz'))
        check('write: prepare is echoed',
              [getattr(response, name, None) for name in ('attribute_handle', 'value_offset', 'part_attribute_value')],
              [long, 0, b'zz'])
        await self.request(att.ATT_Execute_Write_Request(flags=0))
        check('write: cancelled leaves the value', await client.read_value(long), other)
        await client.write_long_value(long, database.LONG_VALUE)

    async def notifications(self):
        client, check, values, timeout = self.client, self.check, self.values, self.args.timeout
        heart_rate, wanted = values['2A37'], database.HEART_RATES[:self.args.notifications]
        collected = Collected()
        await client.subscribe(heart_rate, collected)
        await collected.count(len(wanted), timeout)
        await client.unsubscribe(heart_rate, collected)
        check('notify: heart rates', collected.values[:len(wanted)], wanted)
        configuration = heart_rate.get_descriptor(gatt.GATT_CLIENT_CHARACTERISTIC_CONFIGURATION_DESCRIPTOR)
        check('notify: off after unsubscribing', await client.read_value(configuration), b'\0\0')

        burst, length = Collected(), min(client.mtu - 3, 244)
        await client.subscribe(values[database.NOTIFY], burst)
        started = time.monotonic()
        await client.write_value(values[database.CONTROL], struct.pack('<BHH', 1, self.args.burst, length), True)
        await burst.count(self.args.burst, timeout)
        self.seen['notifications_per_second'] = round(len(burst.values) / (time.monotonic() - started))
        check('notify: a burst in order, none lost', [struct.unpack_from('<I', each)[0] for each in burst.values],
              list(range(self.args.burst)))
        check('notify: whole values', {len(each) for each in burst.values}, {length})
        indications = Collected()
        await client.subscribe(values[database.INDICATE], indications, prefer_notify=False)
        await client.write_value(values[database.CONTROL], b'\x02\x03', True)
        check('indicate: three in order', await indications.count(3, timeout), [struct.pack('<I', each) for each in range(3)])

    async def parameters(self):
        """The central's update (link layer), then the one that the peripheral asks for (L2CAP)."""
        changed = asyncio.Event()
        self.connection.on('connection_parameters_update', changed.set)
        await self.connection.update_parameters(45, 50, 0, 4000)
        await asyncio.wait_for(changed.wait(), self.args.timeout)
        self.check('parameters: the central sets them', 45 <= self.connection.parameters.connection_interval <= 50
                   or self.connection.parameters.connection_interval)
        changed.clear()
        await self.client.write_value(self.values[database.CONTROL], b'\x04', True)
        try:
            await asyncio.wait_for(changed.wait(), self.args.timeout)
        except asyncio.TimeoutError:
            pass
        self.check('parameters: the peripheral asks for them', 23.75 <= self.connection.parameters.connection_interval <= 40
                   or self.connection.parameters.connection_interval)

    async def strict(self):
        """Checks for which Bumble's own server fails."""
        check = self.check

        async def answer(channel, octets, timeout=self.args.timeout):
            answers = asyncio.Queue()
            channels = self.device.l2cap_channel_manager.fixed_channels
            before = channels.get(channel)
            channels[channel] = lambda _handle, pdu: answers.put_nowait(bytes(pdu))
            try:
                self.device.send_l2cap_pdu(self.connection.handle, channel, octets)
                return await asyncio.wait_for(answers.get(), timeout)
            except asyncio.TimeoutError:
                return 'no answer'
            finally:
                if before:
                    channels[channel] = before
                else:
                    del channels[channel]
        check('strict: unknown request is refused', await answer(att.ATT_CID, b'\x3E\x01'), b'\x01\x3E\x00\x00\x06')
        check('strict: unknown command is ignored', await answer(att.ATT_CID, b'\x7E\x01', 0.3), 'no answer')
        # A short Read Request: Invalid PDU.
        check('strict: short request is refused', await answer(att.ATT_CID, b'\x0A\x01'), b'\x01\x0A\x00\x00\x04')
        check('strict: a range of handles that runs backwards', await answer(att.ATT_CID, b'\x04\x05\x00\x02\x00'),
              b'\x01\x04\x05\x00\x01')
        check('strict: write without permission', await answer(att.ATT_CID, b'\x12\x03\x00x'), b'\x01\x12\x03\x00\x03')
        pairing_request = bytes([0x01, 0x03, 0x00, 0x01, 0x10, 0x01, 0x01])
        check('strict: no pairing', await answer(smp.SMP_CID, pairing_request), b'\x05\x05')

        signals = asyncio.Queue()
        handler = self.device.l2cap_channel_manager.on_control_frame

        def on_control_frame(connection, channel, frame):
            signals.put_nowait(bytes(frame))
        self.device.l2cap_channel_manager.on_control_frame = on_control_frame
        try:
            # LE credit based connection request, which no service awaits: result SPSM not supported, Vol 3, Part A, §4.23.
            # Then a code that no edition has: command not understood, §4.1.
            refused = bytes([0x15, 0x11, 0x0A, 0]) + bytes(8) + bytes([2, 0])
            for signal, answered in (('14110A0081004000170017000100', refused), ('E0120000', bytes([1, 0x12, 2, 0, 0, 0]))):
                self.device.send_l2cap_pdu(self.connection.handle, l2cap.L2CAP_LE_SIGNALING_CID, bytes.fromhex(signal))
                try:
                    frame = await asyncio.wait_for(signals.get(), self.args.timeout)
                except asyncio.TimeoutError:
                    frame = b''
                check(f'strict: signal {signal[:2]} is refused', frame, answered)
        finally:
            self.device.l2cap_channel_manager.on_control_frame = handler

    async def run(self):
        args, check = self.args, self.check
        advertisement = await self.scan()
        check('advertising: services', services(advertisement), ['180D', '180F'])
        check('advertising: flags', bytes(advertisement.data.get(core.AdvertisingData.FLAGS, raw=True) or b''), b'\x06')
        check('advertising: address', str(advertisement.address).split('/')[0] == database.ADDRESS or args.any_address)
        await self.connect(advertisement)
        await self.discovery()
        await self.reads()
        await self.writes()
        await self.notifications()
        await self.parameters()
        if args.strict:
            await self.strict()
        await self.connection.disconnect()
        await asyncio.wait_for(self.disconnected, args.timeout)
        check('disconnection: by us', self.connection.handle in self.device.connections, False)

        await self.connect(await self.scan())
        await self.discover_quietly()
        configuration = self.values[database.NOTIFY].get_descriptor(
            gatt.GATT_CLIENT_CHARACTERISTIC_CONFIGURATION_DESCRIPTOR)
        check('reconnection: subscriptions are forgotten', await self.client.read_value(configuration), b'\0\0')
        await self.client.write_value(self.values[database.CONTROL], b'\x03', with_response=True)
        try:
            reason = await asyncio.wait_for(self.disconnected, args.timeout)
        except asyncio.TimeoutError:
            reason = None
        check('disconnection: by the peripheral', reason, 0x13)

    async def run_heart_rate(self):
        """Any heart rate sensor, not our database."""
        advertisement = await self.scan()
        self.check('advertising: heart rate', '180D' in services(advertisement))
        await self.connect(advertisement)
        await self.peer.request_mtu(self.args.mtu)
        await self.discover_quietly()
        location = self.values.get('2A38')
        if self.check('body sensor location', location is not None):
            self.check('it has one octet', len(await self.client.read_value(location)), 1)
        heart_rate, collected = self.values.get('2A37'), Collected()
        if self.check('heart rate measurement notifies', heart_rate is not None and int(heart_rate.properties) & 0x10 != 0):
            await self.client.subscribe(heart_rate, collected)
            values = await collected.count(self.args.heart_rate, self.args.timeout)
            self.check('values arrive', len(values) >= self.args.heart_rate or len(values))
            self.check('values are heart rates', [each.hex() for each in values if not 2 <= len(each) <= 20], [])
            await self.client.unsubscribe(heart_rate, collected)
        await self.connection.disconnect()

    async def discover_quietly(self):
        self.values = {}
        for service in await self.client.discover_services():
            for each in await self.client.discover_characteristics([], service):
                self.values[short(each.uuid)] = each
                await self.client.discover_descriptors(each)


async def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    peers.add_arguments(parser)
    parser.add_argument('--address', default='E0:E1:E2:E3:E4:E5', help='own random static address')
    parser.add_argument('--name', default=database.NAME, help="the peripheral's")
    parser.add_argument('--mtu', type=int, default=247)
    parser.add_argument('--notifications', type=int, default=10)
    parser.add_argument('--heart-rate', type=int, help='only that many values of any heart rate sensor')
    parser.add_argument('--sensor', metavar='NAME', help='with --heart-rate: only the sensor of this name')
    parser.add_argument('--burst', type=int, default=200)
    parser.add_argument('--write-commands', type=int, default=100)
    parser.add_argument('--timeout', type=float, default=10, help='seconds for each thing awaited')
    parser.add_argument('--legacy-scan', action='store_true')
    parser.add_argument('--any-address', action='store_true', help="do not check the peripheral's address")
    parser.add_argument('--strict', action='store_true', help='also what Bumble as a server gets wrong')
    args = parser.parse_args()
    device, port = await peers.make_peer(args, 'InteropCentral', args.address, 'C0:DE:00:00:00:02/P')
    central = Central(device, args)
    try:
        await device.power_on()
        peers.say('ready', port=port)
        await asyncio.wait_for(central.run_heart_rate() if args.heart_rate else central.run(), args.run_for)
    except (Exception, asyncio.CancelledError) as error:  # Bumble cancels waits on a link that has ended
        central.check('completed', repr(error), 'no error')
        if args.v:
            raise
    peers.say('exit', **central.seen)
    sys.stdout.flush()
    os._exit(central.check.status)  # Bumble's tasks are not waited for


if __name__ == '__main__':
    asyncio.run(main())
