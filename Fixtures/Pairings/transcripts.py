#!/usr/bin/env python3
"""transcripts.py: pairs two Bumble devices by each method and prints what both send, with their secrets.

The output of Bumble 0.0.236 is transcripts.txt; every run has other numbers. LE legacy pairing Out of Band is not in it:
Bumble leaves both random numbers 0 there, so that both confirm values are equal, which we refuse.
"""
import asyncio

from bumble import crypto, hci, smp
from bumble.controller import Controller
from bumble.core import PhysicalTransport
from bumble.device import Device
from bumble.host import Host
from bumble.link import LocalLink
from bumble.pairing import OobContext, PairingConfig, PairingDelegate
from bumble.transport.common import AsyncPipeSink

IO = PairingDelegate.IoCapability
PASSKEY = 123456


class Delegate(PairingDelegate):
    async def get_number(self):
        return PASSKEY

    async def generate_passkey(self):
        return PASSKEY

    async def display_number(self, number, digits):
        pass

    async def compare_numbers(self, number, digits):
        print(f"number {number:06}")
        return True


def most_significant_first(octets):
    return octets[::-1].hex()


async def pair(title, sc, mitm, io, oob=False):
    print(f"\n{title}")
    link, devices, addresses = LocalLink(), [], ["C0:00:5E:00:53:01", "C0:00:5E:00:53:02"]
    configs = []
    for index in (0, 1):
        controller = Controller(f"C{index}", link=link)
        device = Device(address=hci.Address(addresses[index]), host=Host(controller, AsyncPipeSink(controller)))
        devices.append(device)
    keys = [crypto.EccKey.generate(), crypto.EccKey.generate()]
    contexts = [OobContext(ecc_key=key) for key in keys]
    for index, device in enumerate(devices):
        data = None
        if oob:
            data = PairingConfig.OobConfig(contexts[index], contexts[1 - index].share(), None)
        config = PairingConfig(sc=sc, mitm=mitm, bonding=True, oob=data, delegate=Delegate(io[index],
                               local_initiator_key_distribution=PairingDelegate.KeyDistribution(0),
                               local_responder_key_distribution=PairingDelegate.KeyDistribution(0)))
        device.pairing_config_factory = lambda connection, config=config: config
        device.smp_manager._ecc_key = keys[index]
    for name, key in zip(("initiator", "responder"), keys):
        if sc:
            print(f"private {name} {key.private_key.private_numbers().private_value:064x}")
    if oob:
        for name, context in zip(("initiator", "responder"), contexts):
            print(f"data {name} {most_significant_first(context.share().c)} {most_significant_first(context.r)}")
    for device, sign in zip(devices, "><"):
        send = device.smp_manager.send_command

        def traced(connection, command, send=send, sign=sign):
            # What follows the encryption has keys of its own.
            if isinstance(command, (smp.SMP_Identity_Information_Command, smp.SMP_Encryption_Information_Command,
                                    smp.SMP_Signing_Information_Command, smp.SMP_Master_Identification_Command,
                                    smp.SMP_Identity_Address_Information_Command)):
                return send(connection, command)
            print(sign, bytes(command).hex(" ").upper())
            return send(connection, command)

        device.smp_manager.send_command = traced
    for device in devices:
        await device.power_on()
    send_command = devices[0].host.send_async_command

    def spied(command, *arguments, **keywords):
        if isinstance(command, hci.HCI_LE_Enable_Encryption_Command):
            print(f"key {most_significant_first(command.long_term_key)}")
        return send_command(command, *arguments, **keywords)

    devices[0].host.send_async_command = spied
    await devices[1].start_advertising(own_address_type=hci.OwnAddressType.RANDOM)
    connection = await devices[0].connect(hci.Address(addresses[1]), own_address_type=hci.OwnAddressType.RANDOM)
    # Bumble's controllers know random addresses only; pairing shall have one of each type.
    public = hci.Address("00:00:5E:00:53:01", hci.Address.PUBLIC_DEVICE_ADDRESS)
    connection.self_address = public
    for other in devices[1].connections.values():
        other.peer_address = public
    for name, address in (("initiator", connection.self_address), ("responder", connection.peer_address)):
        print(f"address {name} {address.to_string(False)} {'public' if address.is_public else 'random'}")
    await asyncio.wait_for(connection.pair(), 10)


async def main():
    none, keyboard, display, yes_no = (IO.NO_OUTPUT_NO_INPUT, IO.KEYBOARD_INPUT_ONLY, IO.DISPLAY_OUTPUT_ONLY,
                                       IO.DISPLAY_OUTPUT_AND_YES_NO_INPUT)
    await pair("legacy Just Works", False, False, (none, none))
    await pair("legacy Passkey Entry, the responder displays", False, True, (keyboard, display))
    await pair("legacy Passkey Entry, the initiator displays", False, True, (display, keyboard))
    await pair("Just Works", True, False, (none, none))
    await pair("Numeric Comparison", True, True, (yes_no, yes_no))
    await pair("Passkey Entry, the responder displays", True, True, (keyboard, display))
    await pair("Passkey Entry, the initiator displays", True, True, (display, keyboard))
    await pair("Passkey Entry, both enter", True, True, (keyboard, keyboard))
    await pair("Out of Band", True, False, (none, none), True)


asyncio.run(main())
