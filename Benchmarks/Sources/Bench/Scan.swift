// B10: a report of a scan, from its packet to the effect of a host that filters no duplicates: `.plain` without bonds
// and requests; `.all` with 128 bonds, whose keys the host must try with each private address, and with requests to
// connect to 1,000 devices. The reports come from 1,024 private addresses in turn, one of which belongs to a bonded
// device.
import BindruneSimulator
import BindruneToolbox
import BindruneWire
import BindruneGAP
import BindruneGATT
import BindruneHCI
import BindruneSMP

func scan(_ id: String, _ repetitions: Int, _ batches: Int) {
  var end: ScanEnd
  switch id {
  case "B10.plain": end = ScanEnd(bonds: 0, targets: 0)
  case "B10.all": end = ScanEnd(bonds: 128, targets: 1_000)
  default: fail("no row \(id)")
  }
  let packets = ScanEnd.reports
  _ = hear(2, packets, &end)
  measure(id, items: packets.count, repetitions: repetitions, batches: batches, showsRate: true) {
    hear($0, packets, &end)
  }
}
@inline(never) func hear(_ repetitions: Int, _ packets: [[UInt8]], _ end: inout ScanEnd) -> UInt64 {
  var sum: UInt64 = 0
  for _ in 0..<repetitions {
    for packet in packets {
      end.core.receive(packet.span, now: .zero)
      var output = unsafe OutputRawSpan(buffer: end.room, initializedCount: 0)
      if end.core.nextPacket(into: &output, now: .zero) { fail("nothing was to be sent") }
      _ = unsafe output.finalize(for: end.room)
      while let effect = end.core.nextEffect() {
        guard case .discovered(_, let discovery) = effect else { fail("not a discovery: \(effect)") }
        sum &+= end.core.withBytes(of: discovery.advertising) { UInt64($0.count) }
        if discovery.address != discovery.addressOnAir { sum &+= 1 }
      }
      _ = end.core.nextDeadline()
    }
  }
  return sum
}

/// A host that scans.
@safe struct ScanEnd: ~Copyable {
  var core: HostCore
  let room = UnsafeMutableRawBufferPointer.allocate(byteCount: 1100, alignment: 64)

  init(bonds: Int, targets: Int) {
    var chance = NoChance(), configuration = HostConfiguration()
    configuration.maximumBonds = max(bonds, 1)
    core = HostCore(configuration: configuration, database: Database(), chance: &chance)
    for number in 0..<bonds {
      var keys = DistributedKeys()
      // The last is the Specification's sample: Vol 3, Part H, Appendix D.7.
      keys.irk = SecurityKey(number == bonds - 1 ? 0xec0234a3_57c8ad05_341010a6_0a397d9b : UInt128(number) + 1)
      let address = PeerAddress(DeviceAddress(0xC000_0000_1000 | UInt64(number)), .random)
      let bond = Bond(
        peer: PeerID(address), address: address,
        strength: KeyStrength(isAuthenticated: false, isSecureConnections: true), ours: DistributedKeys(), peers: keys)
      do throws(IdentityError) { try core.add(bond, now: .zero) } catch { fail("\(error)") }
    }
    var air = Air(configuration: .ideal)
    let controller = air.addController(ControllerConfiguration(address: DeviceAddress(0x0000_5E00_5301)))
    core.start(now: .zero)
    Self.settle(core.converse(&air, controller))
    guard core.isRunning else { fail("the host does not start") }
    core.startScan(ScanParameters(isActive: false), now: .zero)
    Self.settle(core.converse(&air, controller))
    for number in 0..<targets {
      let address = PeerAddress(DeviceAddress(0x0000_5E10_0000 | UInt64(number)), .public)
      core.connect(to: address, timeout: .seconds(3600), id: RequestID(rawValue: UInt64(number) + 1), now: .zero)
      Self.settle(core.converse(&air, controller))
    }
  }
  /// Requests go on for ever: none may have ended.
  private static func settle(_ effects: [HostEffect]) {
    for case .completed(let id, let result) in effects { fail("request \(id): \(result)") }
  }

  /// LE Advertising Reports of ADV_NONCONN_IND with flags and a name.
  static var reports: [[UInt8]] {
    let data: [UInt8] = [2, 1, 6, 5, 9, 0x52, 0x75, 0x6E, 0x65]
    return (0..<1024).map { number in
      let address: UInt64 = number == 0 ? 0x7081_940D_FBAA : 0x4A00_0000_0000 | UInt64(number) &* 0x1_0003
      return [4, 0x3E, UInt8(12 + data.count), 2, 1, 3, 1]
        + (0..<6).map { UInt8(truncatingIfNeeded: address >> (8 * UInt64($0))) } + [UInt8(data.count)] + data + [0xC8]
    }
  }
}
