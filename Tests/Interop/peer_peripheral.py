#!/usr/bin/env python3
"""A Bumble GATT server as a peripheral, for an external central.

Prints {"event":"ready","port":…}; later connection, disconnection and, at its end, {"event":"exit", what was counted}.

Control point (database.CONTROL), its first octet says what to do:
  01 n16 length16   a burst of n notifications of NOTIFY, each `length` octets, a 32-bit counter first
  02 n8             n indications of INDICATE, a 32-bit counter each
  03                disconnect
  04                L2CAP connection parameter update request: 19…32 × 1.25 ms, latency 0, 5 s
  05                Security Request
"""
import argparse
import asyncio
import itertools
import struct
import sys

from bumble import att, gatt, gatt_server, l2cap, smp
from bumble.core import AdvertisingData, UUID
from bumble.device import AdvertisingEventProperties, AdvertisingParameters
from bumble.gatt import Characteristic, CharacteristicValue, Descriptor, Service

import database
import peers

PROPERTIES, ATTRIBUTE = Characteristic.Properties, att.Attribute


class IncludeDeclaration(gatt.IncludedServiceDeclaration):
    """Bumble writes two UUID octets always; Vol 3, Part G, §3.2: only a 16-bit UUID is present."""

    def __init__(self, service):
        value = struct.pack('<HH', service.handle, service.end_group_handle)
        if len(service.uuid.to_pdu_bytes()) == 2:
            value += service.uuid.to_pdu_bytes()
        att.Attribute.__init__(self, gatt.GATT_INCLUDE_ATTRIBUTE_TYPE, ATTRIBUTE.READABLE, value)
        self.service = service


gatt_server.IncludedServiceDeclaration = IncludeDeclaration


class Peripheral:
    def __init__(self, device, args):
        self.device, self.args = device, args
        self.counts = {'writes': 0, 'write_commands': 0, 'write_command_octets': 0, 'confirmations': 0,
                       'parameter_update': None, 'pairing_failed': None}
        self.written, self.long = b'', database.LONG_VALUE
        self.connection = None
        self.build()

    # The values whose reads or writes do more than access stored octets.

    def read(self, uuid):
        if uuid == database.WRITE:
            return self.written
        if uuid == database.WRITE_COMMAND:
            return struct.pack('<II', self.counts['write_commands'], self.counts['write_command_octets'])
        return self.long

    def write(self, uuid, connection, value):
        if uuid == '2A39' and value != b'\x01':
            raise att.ATT_Error(database.READ_REFUSED)
        if uuid == database.ERRORS:
            raise att.ATT_Error(database.WRITE_REFUSED)
        if uuid == database.WRITE:
            self.counts['writes'] += 1
            self.written = bytes(value)
        if uuid == database.WRITE_COMMAND:
            self.counts['write_commands'] += 1
            self.counts['write_command_octets'] += len(value)
        if uuid == database.LONG:
            self.long = bytes(value)
        if uuid == database.CONTROL:
            task = asyncio.get_running_loop().create_task(self.control(connection, bytes(value)))
            task.add_done_callback(lambda task: task.exception() and peers.say('error', what=repr(task.exception())))

    @staticmethod
    def refuse(error):
        """Bumble does not refuse a read without the permission."""
        def read(_connection):
            raise att.ATT_Error(error)
        return read

    def characteristic(self, described):
        uuid, reads = described.uuid, described.reads
        permissions = ATTRIBUTE.Permissions(0)
        if 'read' in described.properties:
            permissions |= ATTRIBUTE.READABLE
        if 'write' in described.properties or 'write-without-response' in described.properties:
            permissions |= ATTRIBUTE.WRITEABLE
        if uuid == database.ENCRYPTED:
            permissions |= ATTRIBUTE.READ_REQUIRES_ENCRYPTION
        if uuid == database.AUTHENTICATED:
            permissions |= ATTRIBUTE.READ_REQUIRES_AUTHENTICATION

        def write(connection, value):
            self.write(uuid, connection, value)

        if uuid in (database.ENCRYPTED, database.AUTHENTICATED):
            value = b'secret'  # Bumble refuses it by the permissions
        elif isinstance(reads, int):
            value = CharacteristicValue(read=self.refuse(reads), write=write)
        elif uuid in (database.WRITE, database.WRITE_COMMAND, database.LONG):
            value = CharacteristicValue(read=lambda _: self.read(uuid), write=write)
        else:
            value = reads
        # Client Characteristic Configuration: Bumble adds it
        descriptors = [Descriptor(each.uuid, ATTRIBUTE.READABLE, each.reads)
                       for each in described.descriptors if each.uuid != '2902']
        return Characteristic(uuid, PROPERTIES(described.bits), permissions, value, descriptors)

    def build(self):
        services = {}
        for described in database.SERVICES:
            if described.uuid in ('1800', '1801'):  # Bumble's own
                continue
            services[described.uuid] = Service(
                described.uuid, [self.characteristic(each) for each in described.characteristics],
                primary=described.primary, included_services=[services[uuid] for uuid in described.includes])
        self.device.add_services(services.values())
        service_changed = next(each for each in self.device.gatt_server.attributes if short(each.type) == '2A05')
        service_changed.value = CharacteristicValue(read=self.refuse(database.READ_NOT_PERMITTED))
        found = [(each.handle, short(each.type)) for each in self.device.gatt_server.attributes]
        if found != database.attributes():
            sys.exit(f'the database is not the one of database.py: {found}')
        self.characteristics = {short(each.uuid): each for service in services.values() for each in service.characteristics}
        heart_rate = self.characteristics['2A37']
        heart_rate.on(Characteristic.EVENT_SUBSCRIPTION, self.heart_rate_subscription)
        self.device.l2cap_channel_manager.register_fixed_channel(smp.SMP_CID, self.security_manager)

    def security_manager(self, _handle, pdu):
        """No pairing here; counts the other side's answers to our Security Request."""
        if len(pdu) == 2 and pdu[0] == 0x05:
            self.counts['pairing_failed'] = pdu[1]

    def heart_rate_subscription(self, connection, notify, _indicate):
        peers.say('subscription', notify=bool(notify))
        if notify:
            asyncio.get_running_loop().create_task(self.heart_rate(connection))

    def is_subscribed(self, connection, characteristic, bit):
        value = self.device.gatt_server.subscribers.get(connection, {}).get(characteristic.handle, b'\0')
        return value[0] & bit != 0

    async def heart_rate(self, connection):
        for value in itertools.cycle(database.HEART_RATES) if self.args.endless else database.HEART_RATES:
            if not self.is_subscribed(connection, self.characteristics['2A37'], 1):
                return
            await self.device.notify_subscriber(connection, self.characteristics['2A37'], value)
            await asyncio.sleep(self.args.interval)

    async def control(self, connection, value):
        await asyncio.sleep(0)  # the write's own response first
        if value[0] == 1:
            count, length = struct.unpack_from('<HH', value, 1)
            for number in range(count):
                octets = struct.pack('<I', number).ljust(length, b'n')
                await self.device.notify_subscriber(connection, self.characteristics[database.NOTIFY], octets)
                if number % 32 == 31:
                    await self.device.host.le_acl_packet_queue.drain(connection.handle)
        elif value[0] == 2:
            for number in range(value[1]):
                octets = struct.pack('<I', number)
                await self.device.indicate_subscriber(connection, self.characteristics[database.INDICATE], octets)
                self.counts['confirmations'] += 1
        elif value[0] == 3:
            await asyncio.sleep(0.05)
            await connection.disconnect()
        elif value[0] == 4:
            self.counts['parameter_update'] = await self.device.l2cap_channel_manager.update_connection_parameters(
                connection, 19, 32, 0, 500)
        elif value[0] == 5:
            self.device.send_l2cap_pdu(connection.handle, smp.SMP_CID, bytes([0x0B, 0x01]))

    async def advertise(self, restarts=True):
        data = bytes(AdvertisingData([
            (AdvertisingData.FLAGS, bytes([6])),
            (AdvertisingData.COMPLETE_LIST_OF_16_BIT_SERVICE_CLASS_UUIDS, bytes.fromhex('0d180f18')),
            (AdvertisingData.COMPLETE_LOCAL_NAME, database.NAME.encode())]))
        scan_response = bytes(AdvertisingData([
            (AdvertisingData.COMPLETE_LIST_OF_128_BIT_SERVICE_CLASS_UUIDS, UUID(database.SERVICE).to_pdu_bytes()),
            (AdvertisingData.MANUFACTURER_SPECIFIC_DATA, bytes.fromhex('ffff0102'))]))
        if self.args.extended:
            long = bytes(AdvertisingData([(AdvertisingData.MANUFACTURER_SPECIFIC_DATA, b'\xff\xff' + bytes(180))]))
            await self.device.create_advertising_set(
                advertising_parameters=AdvertisingParameters(
                    advertising_event_properties=AdvertisingEventProperties(is_connectable=True, is_scannable=False),
                    primary_advertising_interval_min=30, primary_advertising_interval_max=30, advertising_sid=3,
                    own_address_type=peers.own_address_type(self.args)),
                random_address=self.device.random_address, advertising_data=data + long, auto_restart=restarts)
        else:
            await self.device.start_advertising(
                advertising_data=data, scan_response_data=scan_response, auto_restart=restarts,
                advertising_interval_min=30, advertising_interval_max=30,
                own_address_type=peers.own_address_type(self.args))


def short(uuid):
    """180D, or the 128-bit text."""
    return UUID(uuid).to_hex_str('-').upper() if isinstance(uuid, str) else uuid.to_hex_str('-').upper()


async def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    peers.add_arguments(parser)
    parser.add_argument('--interval', type=float, default=0.01, help='seconds between heart rate notifications')
    parser.add_argument('--endless', action='store_true', help='heart rates from the first again, until nobody subscribes')
    parser.add_argument('--keep-advertising', action='store_true', help='also while connected')
    parser.add_argument('--extended', action='store_true', help='advertise with extended PDUs')
    parser.add_argument('--disconnections', type=int, default=0, help='end after that many')
    args = parser.parse_args()
    device, port = await peers.make_peer(args, database.NAME, database.ADDRESS, 'C0:DE:00:00:00:01/P')
    peripheral = Peripheral(device, args)
    await device.power_on()
    enough, left = asyncio.get_running_loop().create_future(), args.disconnections

    def on_connection(connection):
        peers.say('connection', peer=str(connection.peer_address))

        def on_disconnection(reason):
            nonlocal left
            peers.say('disconnection', reason=reason)
            left -= 1
            if left == 0 and not enough.done():
                enough.set_result(None)
        connection.on('disconnection', on_disconnection)
        if args.keep_advertising:
            device.keep_advertising = asyncio.get_running_loop().create_task(peripheral.advertise(restarts=False))
    device.on('connection', on_connection)
    await peripheral.advertise(restarts=not args.keep_advertising)
    peers.say('ready', port=port, address=str(device.random_address), public=str(device.public_address))
    try:
        await asyncio.wait_for(enough, args.run_for)
    except asyncio.TimeoutError:
        pass
    await asyncio.sleep(0.1)
    peers.say('exit', **peripheral.counts)


if __name__ == '__main__':
    asyncio.run(main())
