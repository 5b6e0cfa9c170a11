import BindruneSimulator
import BindruneToolbox
import BindruneWire
import BindruneHCI
import TestSupport
import Testing

/// The resolving list. Vol 4, Part E, §7.8.38 – §7.8.45, §7.8.77; Vol 6, Part B, §4.7, §6.
@Suite struct ResolvingListTests {
  // The IRK and the address of Vol 3, Part H, Appendix D.7.
  static let irk: UInt128 = 0xec0234a3_57c8ad05_341010a6_0a397d9b
  static let resolvable = DeviceAddress(0x7081_940D_FBAA)
  static let identity = DeviceAddress(0xF0E1_D2C3_B4A5)
  static let otherIRK: UInt128 = 0x2b7e1516_28aed2a6_abf71588_09cf4f3c

  private func add(
    _ lab: inout Lab, _ host: Int, _ type: AddressType = .random, _ address: DeviceAddress = identity,
    peer: UInt128 = irk, local: UInt128 = 0
  ) -> UInt8? {
    lab.status(host, LEAddDeviceToResolvingList(type, address, peerIRK: peer, localIRK: local))
  }
  private func resolve(_ lab: inout Lab, _ host: Int, _ on: Bool = true) -> UInt8? {
    let command = LESetAddressResolutionEnable.with { $0.addressResolutionEnable = on }
    return lab.status(host, command)
  }
  /// Host 0 advertises under a random address.
  private func advertise(_ lab: inout Lab, as address: DeviceAddress = resolvable, filter: UInt8 = 0) {
    var random = LESetRandomAddress()
    random.randomAddress = address
    #expect(lab.status(0, random) == 0)
    lab.advertise(0) {
      $0.ownAddressType = .random
      $0.advertisingFilterPolicy = AdvertisingFilterPolicy(rawValue: filter)
    }
  }
  /// Address types and addresses of the reports received.
  private func reports(_ lab: inout Lab, _ host: Int = 1) -> [String] {
    lab.packets(host).filter { $0[1] == 0x3E && $0[3] == 2 }.map { hex(Array($0[6..<13])) }
  }
  private static func text(_ type: UInt8, _ address: DeviceAddress) -> String {
    hex([type] + (0..<6).map { UInt8(address.value >> (8 * $0) & 0xFF) })
  }

  @Test func aScannerResolves() {
    var lab = Lab(hosts: 2)
    #expect(add(&lab, 1) == 0)
    advertise(&lab)
    lab.scan(1)
    lab.run(50)
    // The list exists, but is not enabled.
    #expect(Set(reports(&lab)) == [Self.text(1, Self.resolvable)])
    #expect(lab.status(1, LESetScanEnable()) == 0 && resolve(&lab, 1) == 0)
    lab.scan(1, active: true)
    lab.run(50)
    #expect(Set(reports(&lab)) == [Self.text(3, Self.identity)])
    let read = LEReadPeerResolvableAddress.with {
      $0.peerIdentityAddressType = .random
      $0.peerIdentityAddress = Self.identity
    }
    _ = lab.packets(1)
    lab.command(1, read)
    lab.run(1)
    #expect(lab.hexes(1).contains("04 0E 0A 01 2B 20 00 AA FB 0D 94 81 70"))
  }

  /// In network privacy mode the controller ignores the identity address of a peer with an IRK. Vol 6, Part B, §4.7.
  @Test func privacyModes() {
    for mode in [PrivacyMode.network, .device] {
      var lab = Lab(hosts: 2)
      #expect(add(&lab, 1) == 0)
      let command = LESetPrivacyMode.with {
        $0.peerIdentityAddressType = .random
        $0.peerIdentityAddress = Self.identity
        $0.privacyMode = mode
      }
      #expect(lab.status(1, command) == 0 && resolve(&lab, 1) == 0)
      advertise(&lab, as: Self.identity)
      lab.scan(1)
      lab.run(50)
      #expect(Set(reports(&lab)) == (mode == .network ? [] : [Self.text(1, Self.identity)]))
    }
  }

  /// Connecting to an identity, and through the Filter Accept List to one.
  @Test(arguments: [false, true]) func anInitiatorResolves(usesAcceptList: Bool) {
    var lab = Lab(hosts: 2)
    #expect(add(&lab, 1) == 0 && resolve(&lab, 1) == 0)
    var create = Lab.creation(to: Self.identity)
    create.peerAddressType = .random
    if usesAcceptList {
      var accept = LEAddDeviceToFilterAcceptList()
      accept.addressType = .random
      accept.address = Self.identity
      #expect(lab.status(1, accept) == 0)
      create.initiatorFilterPolicy = InitiatorFilterPolicy(rawValue: 1)
      create.peerAddress = DeviceAddress()
    }
    advertise(&lab)
    lab.command(1, create)
    lab.run(200)
    let central = lab.texts(1), peripheral = lab.texts(0)
    #expect(
      central.contains {
        $0.hasPrefix("LE_Enhanced_Connection_Complete Status: 0x00")
          && $0.contains(
            """
            Peer_Address_Type: random identity, Peer_Address: F0:E1:D2:C3:B4:A5, Local_Resolvable_Private_Address: \
            00:00:00:00:00:00, Peer_Resolvable_Private_Address: 70:81:94:0D:FB:AA
            """
          )
      })
    #expect(
      peripheral.contains {
        $0.contains("Role: Peripheral, Peer_Address_Type: public, Peer_Address: 00:11:22:33:44:02")
      })
  }

  /// Both sides have each other's IRK and use private addresses that their controllers make.
  @Test func bothSidesArePrivate() {
    var lab = Lab(hosts: 2)
    for (host, own, other) in [(0, Self.irk, Self.otherIRK), (1, Self.otherIRK, Self.irk)] {
      #expect(add(&lab, host, .public, Lab.address(1 - host), peer: other, local: own) == 0)
      #expect(resolve(&lab, host) == 0)
    }
    // Vol 4, Part E, §7.8.5: Peer_Address selects the local IRK.
    lab.advertise(0) {
      $0.ownAddressType = .resolvableOrPublic
      $0.peerAddress = Lab.address(1)
      // Only the one peer may connect, known by its identity.
      $0.advertisingFilterPolicy = AdvertisingFilterPolicy(rawValue: 2)
    }
    var accept = LEAddDeviceToFilterAcceptList()
    accept.address = Lab.address(1)
    lab.enableAdvertising(0, false)
    #expect(lab.status(0, accept) == 0)
    lab.enableAdvertising(0)
    var create = Lab.creation(to: Lab.address(0))
    create.ownAddressType = .resolvableOrPublic
    lab.command(1, create)
    lab.run(200)
    for host in 0...1 {
      let complete = lab.packets(host).first { $0.count == 34 && $0[3] == 0x0A && $0[4] == 0 }
      guard let complete else {
        Issue.record("no link at host \(host)")
        continue
      }
      func address(_ start: Int) -> DeviceAddress {
        DeviceAddress((0..<6).reduce(0) { $0 | UInt64(complete[start + $1]) << (8 * UInt64($1)) })
      }
      #expect(complete[8] == 2 && address(9) == Lab.address(1 - host))
      let (own, other) = host == 0 ? (Self.irk, Self.otherIRK) : (Self.otherIRK, Self.irk)
      for (start, key) in [(15, own), (21, other)] {
        let found = address(start)
        #expect(found.randomKind == .resolvablePrivate && ah(AES128(key: key), found.prand) == found.hash)
      }
    }
  }

  /// Without an entry for the peer the address is the public one, or the random one. Vol 4, Part E, §7.8.5.
  @Test func privateAddressesFallBack() {
    var lab = Lab(hosts: 2)
    lab.advertise(0) { $0.ownAddressType = .resolvableOrPublic }
    lab.scan(1)
    lab.run(50)
    #expect(Set(reports(&lab)) == [Self.text(0, Lab.address(0))])
  }

  /// The controller uses a private address for the time set by the host, and then another.
  @Test func theTimeoutIsKept() {
    var lab = Lab(hosts: 2)
    #expect(add(&lab, 0, .public, Lab.address(1), peer: 0, local: Self.irk) == 0)
    var timeout = LESetResolvablePrivateAddressTimeout()
    for (seconds, status) in [(0, 0x12), (3601, 0x12), (1, 0)] as [(UInt16, UInt8)] {
      timeout.rpaTimeout = seconds
      #expect(lab.status(0, timeout) == status)
    }
    lab.advertise(0) {
      $0.ownAddressType = .resolvableOrPublic
      $0.peerAddress = Lab.address(1)
    }
    lab.scan(1)
    lab.run(10_000)
    let addresses = lab.packets(1).filter { $0[1] == 0x3E }.map { packet in
      DeviceAddress((0..<6).reduce(0) { $0 | UInt64(packet[7 + $1]) << (8 * UInt64($1)) })
    }
    #expect(addresses.allSatisfy { ah(AES128(key: Self.irk), $0.prand) == $0.hash })
    #expect((10...11).contains(Set(addresses).count))
    // Each in one contiguous period: as many changes as addresses.
    #expect(zip(addresses, addresses.dropFirst()).count { $0 != $1 } == Set(addresses).count - 1)
  }

  /// TargetA is a private address that only the target can resolve.
  @Test func directedAtAPrivateAddress() {
    var lab = Lab(hosts: 3)
    #expect(add(&lab, 0, .public, Lab.address(1), peer: Self.otherIRK, local: Self.irk) == 0)
    #expect(add(&lab, 1, .public, Lab.address(0), peer: Self.irk, local: Self.otherIRK) == 0)
    #expect(resolve(&lab, 1) == 0)
    lab.advertise(0, .connectableDirectedLowDutyCycle) {
      $0.ownAddressType = .resolvableOrPublic
      $0.peerAddress = Lab.address(1)
    }
    for host in 1...2 {
      let parameters = LESetScanParameters.with { $0.ownAddressType = .resolvableOrPublic }
      lab.command(host, parameters)
      let enable = LESetScanEnable.with { $0.leScanEnable = true }
      lab.command(host, enable)
    }
    lab.run(50)
    #expect(Set(reports(&lab, 1)) == [Self.text(2, Lab.address(0))])
    #expect(reports(&lab, 2).isEmpty)
  }

  @Test func refusedCommands() {
    var configuration = ControllerConfiguration(address: Lab.address(0))
    configuration.resolvingListSize = 2
    var lab = Lab(.ideal, [configuration])
    let remove = LERemoveDeviceFromResolvingList.with {
      $0.peerIdentityAddressType = .random
      $0.peerIdentityAddress = Self.identity
    }
    #expect(lab.status(0, remove) == 0x02)
    #expect(add(&lab, 0, .randomIdentity) == 0x12)
    #expect(add(&lab, 0) == 0)
    #expect(add(&lab, 0, peer: 5) == 0x12, "the same identity")
    #expect(add(&lab, 0, .public) == 0x12, "the same IRK")
    #expect(add(&lab, 0, .public, peer: 5) == 0)
    #expect(add(&lab, 0, .public, Lab.address(3), peer: 6) == 0x07)
    let read = LEReadLocalResolvableAddress.with {
      $0.peerIdentityAddressType = .random
      $0.peerIdentityAddress = Self.identity
    }
    #expect(lab.status(0, read) == 0x02, "there is none")
    var mode = LESetPrivacyMode()
    mode.peerIdentityAddress = Lab.address(3)
    #expect(lab.status(0, mode) == 0x02)
    mode.privacyMode = PrivacyMode(rawValue: 2)
    #expect(lab.status(0, mode) == 0x12)
    // It cannot be enabled while a role is active, and the list cannot be changed while it is enabled.
    lab.scan(0)
    #expect(resolve(&lab, 0) == 0x0C)
    #expect(lab.status(0, remove) == 0)
    #expect(add(&lab, 0) == 0)
    #expect(lab.status(0, LESetScanEnable()) == 0)
    #expect(resolve(&lab, 0) == 0)
    #expect(lab.status(0, remove) == 0)
    #expect(add(&lab, 0) == 0)
    lab.scan(0)
    #expect(add(&lab, 0, peer: 7) == 0x0C)
    #expect(lab.status(0, remove) == 0x0C)
    #expect(lab.status(0, LEClearResolvingList()) == 0x0C)
    mode.privacyMode = .device
    #expect(lab.status(0, mode) == 0x0C)
    #expect(resolve(&lab, 0, false) == 0x0C)
    #expect(lab.status(0, Reset()) == 0)
    #expect(lab.status(0, remove) == 0x02)
  }

  @Test func aControllerWithoutOne() {
    var lab = Lab(.ideal, [.legacy(address: Lab.address(0))])
    #expect(add(&lab, 0) == 0x01)
    #expect(lab.status(0, LEReadResolvingListSize()) == 0x01)
    #expect(lab.status(0, LESetPrivacyMode()) == 0x01)
  }
}
