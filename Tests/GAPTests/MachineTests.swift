import BindruneWire
import BindruneGATT
import BindruneHCI
import TestSupport
import Testing

@testable import BindruneGAP

/// Scanner, Advertiser and Connections: every phase against every input.
@Suite struct MachineTests {
  private let a = ScanParameters(isActive: true), b = ScanParameters(isActive: false)

  @Test func everyPhaseOfTheScanner() throws {
    let active = a, passive = b, one = ScanID(rawValue: 1), two = ScanID(rawValue: 2)
    let setting = ["start 1"], enabling = setting + ["accepted"], on = enabling + ["accepted"]
    let scanner = Matrix(
      paths: [
        [], setting, setting + ["stop 1"], setting + ["start 2"], setting + ["start 2", "stop 2"],
        enabling, enabling + ["stop 1"], enabling + ["start 2"], enabling + ["start 2", "stop 1"],
        on, on + ["stop 1"], on + ["stop 1", "start 1"], on + ["start 2"], on + ["start 2", "stop 1"],
        ["start 2", "accepted", "accepted", "start 1"], ["start 2", "accepted", "accepted", "start 1", "accepted"],
        ["suspend"], ["suspend", "start 1"], setting + ["suspend"], enabling + ["suspend"], on + ["suspend"],
        on + ["suspend", "accepted"], on + ["suspend", "resume"], on + ["suspend", "accepted", "start 2"],
        on + ["suspend", "accepted", "resume"], on + ["suspend", "accepted", "resume", "accepted"],
      ],
      inputs: [
        ("start 1", { $0.perform { core, now in core.startScan(active, id: one, now: now) } }),
        ("start 2", { $0.perform { core, now in core.startScan(passive, id: two, now: now) } }),
        (
          "start 3, invalid", { $0.perform { core, now in core.startScan(invalid, id: ScanID(rawValue: 3), now: now) } }
        ),
        ("stop 1", { $0.perform { core, now in core.stopScan(id: one, now: now) } }),
        ("stop 2", { $0.perform { core, now in core.stopScan(id: two, now: now) } }),
        ("suspend", { $0.perform { core, now in core.scanner.suspend(hci: &core.hci, now: now) } }),
        ("resume", { $0.perform { core, now in core.scanner.resume(hci: &core.hci, now: now) } }),
        ("accepted", { $0.answer() }),
        ("refused", { $0.answer(.commandDisallowed) }),
        ("silence", { $0.wait(.seconds(2)) }),
        ("advertisement", { $0.receive(report(0x03, Bench.peer, [2, 9, 0x41])) }),
        ("restart", { $0.start() }),
        ("hardware error", { $0.receive("04 10 01 00") }),
      ],
      phase: { name($0.scanner.phase) + ($0.scanner.isQuiet ? "" : ", not quiet") })
    try scanner.check("scanner.txt")
  }

  @Test func everyPhaseOfTheAdvertiser() throws {
    let setting = ["advertise a"], enabling = setting + ["accepted", "accepted", "accepted"]
    let on = enabling + ["accepted"]
    let advertiser = Matrix(
      paths: [
        [], setting, setting + ["stop"], setting + ["advertise b"],
        setting + ["accepted"], setting + ["accepted", "stop"], setting + ["accepted", "accepted"],
        enabling, enabling + ["stop"], enabling + ["advertise b"],
        enabling + ["connection"], enabling + ["stop", "connection"], enabling + ["connection", "advertise b"],
        enabling + ["connection", "advertise a"],
        on, on + ["stop"], on + ["advertise b"], on + ["advertise b", "connection"], on + ["stop", "advertise a"],
        on + ["change data"], on + ["change data", "refused"], on + ["change data", "connection"],
        on + ["suspend"], on + ["suspend", "accepted"], on + ["suspend", "resume"], on + ["suspend", "connection"],
        enabling + ["suspend"], enabling + ["suspend", "resume"], setting + ["suspend", "accepted"],
        on + ["connection"], on + ["connection", "stop"], on + ["connection", "advertise a"],
        on + ["connection", "advertise b"], on + ["connection", "disconnection"],
        on + ["connection", "disconnection", "refused"], on + ["connection", "refused"],
        on + ["connection", "refused", "disconnection"], on + ["connection", "refused", "change data"],
        on + ["connection", "refused", "suspend"],
      ],
      inputs: [
        ("advertise a", { bench in bench.advertise("a") }),
        ("advertise b", { bench in bench.advertise("b", restarts: false) }),
        ("stop", { $0.perform { core, now in core.stopAdvertising(now: now) } }),
        ("accepted", { $0.answer() }),
        ("refused", { $0.answer(.connectionLimitExceeded) }),
        ("silence", { $0.wait(.seconds(2)) }),
        ("connection", { $0.receive(connectionComplete(0x40, .peripheral)) }),
        ("disconnection", { $0.receive(disconnectionComplete(0x40)) }),
        ("suspend", { $0.suspendAdvertising() }), ("resume", { $0.resumeAdvertising() }),
        ("change data", { $0.changeAdvertising("c") }),
        ("restart", { $0.start() }),
      ],
      phase: phaseOfTheAdvertiser)
    try advertiser.check("advertiser.txt")
  }

  /// The extended commands: data in pieces, an address and a removal between them, and ends caused by the controller.
  @Test func everyPhaseOfTheAdvertiserWithExtendedCommands() throws {
    let answering = ["advertise a", "accepted", "accepted", "accepted"]
    let enabling = answering + ["accepted"], on = enabling + ["accepted"]
    let long = ["advertise long", "accepted", "accepted"]
    var controller = PaperController.extended
    controller.address = [0, 0, 0, 0, 0, 0]
    let advertiser = Matrix(
      paths: [
        [], ["advertise a"], ["advertise a", "accepted"], ["advertise a", "accepted", "stop"],
        ["advertise a", "accepted", "accepted"], answering, answering + ["stop"], enabling, enabling + ["stop"],
        enabling + ["connection"],
        enabling + ["set terminated"], enabling + ["time over"], enabling + ["advertise b", "time over"],
        enabling + ["stop", "time over"], on, on + ["stop"], on + ["connection"], on + ["set terminated"],
        on + ["set terminated", "refused"], on + ["time over"], on + ["advertise b"], on + ["advertise b", "refused"],
        on + ["advertise b", "set terminated"], on + ["change data"], on + ["change data", "set terminated"],
        on + ["change data", "time over"], on + ["suspend"], on + ["suspend", "accepted"],
        on + ["suspend", "set terminated"], enabling + ["suspend"], ["suspend", "advertise a"],
        long, long + ["accepted"], long + ["accepted", "accepted"], long + ["accepted", "accepted", "accepted"],
        on + ["advertise long"], on + ["advertise long", "accepted"], on + ["advertise long", "accepted", "stop"],
        on + ["advertise long", "accepted", "accepted"],
      ],
      inputs: [
        ("advertise a", { bench in bench.advertise("a") }),
        ("advertise b", { bench in bench.advertise("b", restarts: false) }),
        ("advertise long", { bench in bench.advertiseLong() }),
        ("stop", { $0.perform { core, now in core.stopAdvertising(now: now) } }),
        ("accepted", { $0.answer() }),
        ("refused", { $0.answer(.connectionLimitExceeded) }),
        ("silence", { $0.wait(.seconds(2)) }),
        ("connection", { $0.receive(connectionComplete(0x40, .peripheral)) }),
        ("set terminated", { $0.receive("04 3E 06 12 00 00 40 00 00") }),
        ("time over", { $0.receive("04 3E 06 12 3C 00 00 00 00") }),
        ("events over", { $0.receive("04 3E 06 12 43 00 00 00 07") }),
        ("other set terminated", { $0.receive("04 3E 06 12 3C 01 00 00 00") }),
        ("disconnection", { $0.receive(disconnectionComplete(0x40)) }),
        ("suspend", { $0.suspendAdvertising() }), ("resume", { $0.resumeAdvertising() }),
        ("change data", { $0.changeAdvertising("c") }),
        ("restart", { $0.start() }),
      ],
      phase: phaseOfTheAdvertiser, controller: controller)
    try advertiser.check("advertiser-extended.txt")
  }

  /// A controller with two sets: each continues independently of the other.
  @Test func everyPhaseOfTwoAdvertisingSets() throws {
    let one = ["advertise 1", "accepted", "accepted", "accepted", "accepted"]
    let both = one + ["advertise 2", "accepted", "accepted", "accepted", "accepted"]
    var controller = PaperController.extended
    controller.advertisingSets = 2
    let advertiser = Matrix(
      paths: [
        ["advertise 1"], ["advertise 1", "advertise 2"], ["advertise 1", "advertise 2", "stop 1"], one,
        one + ["advertise 2"], both, both + ["stop 1"], both + ["stop 1", "accepted"],
        both + ["stop 1", "stop 2"], both + ["stop 1", "advertise 3"], both + ["set 1 terminated"],
        both + ["set 1 terminated", "set 2 terminated"], both + ["set 1 terminated", "refused"],
        both + ["time of 2 over"], both + ["suspend"], both + ["suspend", "accepted", "accepted"],
        both + ["suspend", "stop 2"], both + ["advertise 1"],
      ],
      inputs: [
        ("advertise 1", { $0.advertise("one", as: 1) }), ("advertise 2", { $0.advertise("two", as: 2) }),
        ("advertise 3", { $0.advertise("three", as: 3) }), ("stop 1", { $0.stopAdvertising(1) }),
        ("stop 2", { $0.stopAdvertising(2) }), ("stop 3", { $0.stopAdvertising(3) }),
        ("accepted", { $0.answer() }), ("refused", { $0.answer(.connectionLimitExceeded) }),
        ("silence", { $0.wait(.seconds(2)) }),
        ("set 1 terminated", { $0.receive("04 3E 06 12 00 00 40 00 00") }),
        ("set 2 terminated", { $0.receive("04 3E 06 12 00 01 41 00 00") }),
        ("time of 2 over", { $0.receive("04 3E 06 12 3C 01 00 00 00") }),
        ("unknown set terminated", { $0.receive("04 3E 06 12 00 02 41 00 00") }),
        ("disconnection", { $0.receive(disconnectionComplete(0x40)) }),
        ("suspend", { $0.suspendAdvertising() }), ("resume", { $0.resumeAdvertising() }),
        ("restart", { $0.start() }),
      ],
      phase: phaseOfTheAdvertiser, controller: controller)
    try advertiser.check("advertising-sets.txt")
  }

  /// Without a Filter Accept List, peers take turns.
  @Test func everyPhaseOfTheConnections() throws {
    let connections = Matrix(
      paths: [
        [], ["connect 1"], ["connect 1", "connect 2"], ["connect 1", "accepted"], ["connect 1", "cancel 1"],
        ["connect 1", "cancel 1", "connect 2"], ["connect 1", "accepted", "connect 2"],
        ["connect 1", "accepted", "cancel 1"], ["connect 1", "accepted", "connect 2", "cancel 1"],
        ["connect 1", "accepted", "cancel 1", "connect 2", "accepted"],
        ["connect 1", "accepted", "cancel 1", "silence", "connect 2"],
        ["connect 1", "accepted", "connect 2", "cancel 1", "silence", "refused"],
        ["connect 1", "accepted", "suspend"], ["connect 1", "accepted", "suspend", "accepted", "end"],
      ],
      inputs: inputs, phase: { name($0.connections.phase) })
    try connections.check("connections.txt")
  }
  /// With a Filter Accept List of two entries.
  @Test func everyPhaseOfTheConnectionsWithAnAcceptList() throws {
    var controller = PaperController.extended
    controller.acceptListSize = 2
    let both = ["connect 1", "connect 2"], listed = both + ["accepted", "cancelled", "accepted", "accepted"]
    let initiating = listed + ["accepted"]
    let connections = Matrix(
      paths: [
        [], both, both + ["accepted"], both + ["accepted", "cancelled"], both + ["accepted", "cancelled", "accepted"],
        listed, listed + ["cancel 1"], listed + ["connect 3"], listed + ["link"], initiating,
        initiating + ["connect 3"], initiating + ["connect 3", "turn"],
        initiating + ["connect 3", "turn", "cancelled"],
        initiating + ["cancel 1"], initiating + ["cancel 1", "cancelled"], initiating + ["link"],
        initiating + ["link", "no room"], initiating + ["link", "connect 3", "cancelled", "no room"],
        initiating + ["suspend"], initiating + ["suspend", "cancelled"], initiating + ["suspend", "cancelled", "link"],
      ],
      inputs: inputs + [
        ("connect 3", { $0.connect(3, Bench.thirdPeer) }),
        ("no room", { $0.answer(.connectionLimitExceeded) }),
        ("full list", { $0.answer(.memoryCapacityExceeded) }),
        ("turn", { $0.wait(.seconds(11)) }),
        (
          "cancelled",
          {
            $0.answer()
            $0.receive(connectionComplete(0, .central, Bench.peer, .unknownConnectionIdentifier))
          }
        ),
        ("link down", { $0.receive(disconnectionComplete(0x40)) }),
      ],
      phase: { name($0.connections.phase) }, controller: controller)
    try connections.check("connections-list.txt")
  }
  private let inputs: [Matrix.Step] = [
    ("connect 1", { $0.connect(1, Bench.peer) }),
    ("connect 2", { $0.connect(2, Bench.otherPeer) }),
    ("cancel 1", { $0.perform { core, now in core.cancel(RequestID(rawValue: 1), now: now) } }),
    ("accepted", { $0.answer() }),
    ("refused", { $0.answer(.commandDisallowed) }),
    ("silence", { $0.wait(.seconds(2)) }),
    ("link", { $0.receive(connectionComplete(0x40)) }),
    ("link with another", { $0.receive(connectionComplete(0x41, .central, Bench.otherPeer)) }),
    ("link as peripheral", { $0.receive(connectionComplete(0x42, .peripheral, Bench.thirdPeer)) }),
    ("failure", { $0.receive(connectionComplete(0, .central, Bench.peer, .connectionFailedToBeEstablished)) }),
    ("end", { $0.receive(connectionComplete(0, .central, Bench.peer, .unknownConnectionIdentifier)) }),
    ("suspend", { $0.perform { core, now in core.connections.suspend(hci: &core.hci, now: now) } }),
    ("resume", { $0.perform { core, now in core.connections.resume(hci: &core.hci, now: now) } }),
    ("restart", { $0.start() }),
  ]
}

/// A window longer than its interval.
private let invalid = ScanParameters(
  intent: .custom(interval: ScanInterval(rawValue: 16), window: ScanInterval(rawValue: 17)))

private func phaseOfTheAdvertiser(_ core: borrowing HostCore) -> String {
  let phases = core.advertiser.sets.map { set in
    switch set.phase {
    case .setting(let step, _, .request): "setting \(name(step))"
    case .setting(let step, _, let cause): "setting \(name(step)), \(cause)"
    case .changing(let step, _): "changing \(name(step))"
    case let phase: name(phase)
    }
  }
  return phases.isEmpty ? "no set" : phases.joined(separator: " | ")
}

extension Bench {
  /// 406 octets, in two pieces.
  mutating func advertiseLong() {
    var data = AdvertisingData(flags: nil)
    data.serviceData = [
      .init(uuid: "180D", data: [UInt8](repeating: 1, count: 199)),
      .init(uuid: "180F", data: [UInt8](repeating: 2, count: 199)),
    ]
    perform { core, now in try! core.advertise(data, AdvertisingParameters(kind: .nonconnectable), now: now) }
  }
  mutating func advertise(_ name: String, restarts: Bool = true) {
    perform { core, now in
      try! core.advertise(
        AdvertisingData(localName: name), AdvertisingParameters(restartsAfterConnection: restarts), now: now)
    }
  }
  mutating func advertise(_ name: String, as id: UInt32) {
    do throws(AdvertisingError) {
      try core.advertise(AdvertisingData(localName: name), as: AdvertisingSetID(rawValue: id), now: now)
    } catch { note("\(error)") }
    perform { _, _ in }
  }
  mutating func stopAdvertising(_ id: UInt32) {
    perform { core, now in core.stopAdvertising(AdvertisingSetID(rawValue: id), now: now) }
  }
  mutating func changeAdvertising(_ name: String) {
    do throws(AdvertisingError) { try core.setAdvertisingData(AdvertisingData(localName: name), now: now) } catch {
      note("\(error)")
    }
    perform { _, _ in }
  }
  mutating func suspendAdvertising() {
    perform { core, now in
      core.advertiser.suspend(hci: &core.hci, now: now)
      core.drain(now)
    }
  }
  mutating func resumeAdvertising() {
    perform { core, now in
      core.advertiser.resume(hci: &core.hci, now: now)
      core.drain(now)
    }
  }
  mutating func connect(_ id: UInt64, _ peer: PeerAddress = Bench.peer) {
    perform { core, now in core.connect(to: peer, id: RequestID(rawValue: id), now: now) }
  }
}
