import BindruneATT
import BindruneCapture
import BindruneConformance
import BindruneControl
import BindruneReplay
import BindruneReport
import BindruneSimulator
import BindruneSystem
import BindruneToolbox
import BindruneTrace
import BindruneTransport
import BindruneWire
import Foundation
import BindruneGAP
import BindruneGATT
import BindruneHCI
import BindruneL2CAP
import BindruneSMP
import SystemPackage
import TestSupport

/// The example on the first page of each module's catalogue. A test runs it and shows what it prints; nil: it needs an
/// adapter or a user, and is only compiled (`OpeningsOfPrograms.swift`).
let openings: [String: (@Sendable () throws -> Void)?] = [
  "BindruneWire": wire, "BindruneToolbox": toolbox, "BindruneHCI": hci, "BindruneL2CAP": l2cap, "BindruneATT": att,
  "BindruneSMP": smp, "BindruneGATT": gatt,
  "BindruneGAP": gap, "BindruneSimulator": simulator, "BindruneCapture": capture, "BindruneSystem": system,
  "BindruneAdapters": nil, "BindruneTransport": transport, "BindruneControl": control,
  "BindruneConformance": conformance, "BindruneTrace": trace, "BindruneReplay": replay, "BindruneReport": report,
  "Bindrune": nil, "BindruneBroker": nil, "CoreBluetooth": nil,
]
/// A recording of the course.
private let path = Page.files.appending(path: "sensor.btsnoop").path

private func wire() throws {
  // example BindruneWire: BindruneWire
  struct Level: WireRecord {  // an invented message
    var percent: UInt8 = 0
    var note = Octets()
    init() {}
    mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
      try visit.value("Percent", &percent)
      try visit.octets("Note", &note)
    }
  }
  let packet: [UInt8] = [0x46, 0x6F, 0x6B]
  let level = try WireDecoder.decode(Level.self, packet.span)
  print(level.description(in: packet.span))
  print(try level.encoded(from: packet.span) == packet)
  for field in Level.layout { print(field.label, "at bit", field.bit ?? -1) }
  let empty: [UInt8] = []
  do { _ = try WireDecoder.decode(Level.self, empty.span) } catch { print(error) }
  // end
}

private func control() throws {
  // example BindruneControl: BindruneControl
  let control = DaemonControl.move(app: "com.example.belt", life: "suspended")
  print(control.text.split(separator: "\t"))
  print(try DaemonControl(text: control.text) == control)
  do { try DaemonControl.list.ask(at: "/nowhere") { print($0) } } catch { print(error) }
  // end
}

private func toolbox() throws {
  // example BindruneToolbox: BindruneToolbox
  // Vol 3, Part H, Appendix D.7: the hash of a resolvable private address.
  let irk = SecurityKey(0xEC02_34A3_57C8_AD05_3410_10A6_0A39_7D9B)
  print(ah(AES128(key: irk), 0x70_8194) == 0x0D_FBAA)

  var chance = SystemRandomNumberGenerator()
  let alice = P256KeyPair(using: &chance), bob = P256KeyPair(using: &chance)
  print(try alice.dhKey(with: bob.publicKey) == bob.dhKey(with: alice.publicKey))
  print(irk)  // no text shows a key
  // end
}

private func hci() throws {
  // example BindruneHCI: BindruneHCI, BindruneWire
  var layer = HCILayer(), packet = PacketBuffer()
  layer.start(now: .zero)
  while packet.fill({ layer.nextCommand(into: &$0, now: .zero) }) {
    print(try AnyCommand(packet.bytes.span).name, "leaves for the controller")
  }
  // The controller has reset itself.
  let event: [UInt8] = [0x04, 0x0E, 0x04, 0x01, 0x03, 0x0C, 0x00]
  print(try HCIEvent(event.span).name, "comes")
  _ = layer.receive(event.span, now: .zero)
  while packet.fill({ layer.nextCommand(into: &$0, now: .zero) }) {
    print(try AnyCommand(packet.bytes.span).name, "is next")
  }
  // end
}

private func l2cap() throws {
  // example BindruneL2CAP: BindruneHCI, BindruneL2CAP, BindruneWire
  /// The layer above: here it prints what comes, and has nothing to send.
  struct Printer: L2CAPUpper {
    mutating func receive(_ payload: Span<UInt8>, on channel: ChannelID, of link: ConnectionHandle, now: Instant) {
      print("channel", channel.text, "of link", link.text, "has", payload.count, "octets")
    }
    func waiting(of _: ConnectionHandle) -> ChannelSet { ChannelSet() }
    mutating func nextPayload(
      on _: ChannelID, of _: ConnectionHandle, into _: inout OutputRawSpan, now _: Instant
    ) -> Bool { false }
  }
  var layer = L2CAPLayer(), printer = Printer()
  let link = ConnectionHandle(rawValue: 0x0040), channel = L2CAPChannel(.attribute, longestPayload: 517)
  layer.open(link, role: .central, channels: [channel], now: .zero)

  // One frame in two ACL packets.
  let first: [UInt8] = [0x02, 0x40, 0x20, 0x06, 0x00, 0x03, 0x00, 0x04, 0x00, 0x0B, 0x48]
  let second: [UInt8] = [0x02, 0x40, 0x10, 0x01, 0x00, 0x69]
  for packet in [first, second] {
    layer.receive(try ACLPacket(packet.span), in: packet.span, now: .zero, into: &printer)
  }
  // end
}

private func att() throws {
  // example BindruneATT: BindruneATT, BindruneWire
  var request = ReadBlobRequest()
  request.attributeHandle = AttributeHandle(rawValue: 0x0003)
  request.valueOffset = 22
  var packet = PacketBuffer()
  _ = try packet.fill { output throws(WireError) in
    try ATTPDU.readBlobRequest(request).encode(into: &output, from: Span())
    return true
  }
  print(packet.bytes == [0x0C, 0x03, 0x00, 0x16, 0x00])
  print(try ATTPDU(packet.bytes.span).describe(in: packet.bytes.span))
  do { _ = try ATTPDU([0x0C, 0x03, 0x00, 0x16].span) } catch { print(error) }
  // end
}

private func smp() throws {
  // example BindruneSMP: BindruneSMP, BindruneWire
  let addresses = PairingAddresses(
    initiator: PairingAddress(DeviceAddress(0xC000_5E00_5301), isRandom: true),
    responder: PairingAddress(DeviceAddress(0x0000_5E00_5302), isRandom: false))
  var phone = SecurityManager(role: .initiator, addresses: addresses)
  var belt = SecurityManager(role: .responder, addresses: addresses)
  var chance = SystemRandomNumberGenerator(), packet = PacketBuffer()
  try phone.pair(now: .zero)
  var isPairing = true
  while isPairing {
    isPairing = false
    while packet.fill({ phone.nextPDU(into: &$0, now: .zero) }) {
      print("→", try SMPPDU(packet.bytes.span).name)
      belt.receive(packet.bytes.span, now: .zero, using: &chance)
      isPairing = true
    }
    while let effect = belt.nextEffect() {
      if case .requestConsent = effect { isPairing = belt.accept(now: .zero, using: &chance) }
    }
    while packet.fill({ belt.nextPDU(into: &$0, now: .zero) }) {
      print("←", try SMPPDU(packet.bytes.span).name)
      phone.receive(packet.bytes.span, now: .zero, using: &chance)
      isPairing = true
    }
  }
  while let effect = phone.nextEffect() {
    if case .encrypt = effect { print("now the controllers encrypt the link") }
  }
  // end
}

private func gatt() throws {
  // example BindruneGATT: BindruneATT, BindruneGATT, BindruneWire
  var builder = DatabaseBuilder()
  builder.genericAccess(name: "Belt")
  let rate = builder.service("180D") { $0.characteristic("2A37", .notify) }
  var server = Server(database: try builder.build()), client = Client()

  // The server's half of a bearer, which a peer asks: read 0x0003, the device's name.
  var bearer = Bearer(BearerID(rawValue: 0)), packet = PacketBuffer()
  server.open(bearer.id)
  client.open(bearer.id)
  bearer.receive([0x0A, 0x03, 0x00].span, now: .zero, server: &server, client: &client)
  while packet.fill({ bearer.nextPDU(into: &$0, now: .zero, client: &client) }) {
    print(try ATTPDU(packet.bytes.span).describe(in: packet.bytes.span))
  }
  print("may notify:", server.mayNotify(rate.value, to: bearer.id))
  // end
}

private func gap() throws {
  // example BindruneGAP: BindruneGAP, BindruneGATT, BindruneHCI, BindruneWire
  var core = HostCore(database: Database()), packet = PacketBuffer()
  core.start(now: .zero)
  while packet.fill({ core.nextPacket(into: &$0, now: .zero) }) {
    print(try AnyCommand(packet.bytes.span).name, "leaves for the controller")
  }
  print("unless something happens before, call expire(now:) at", core.deadline ?? .zero)

  let belt = AdvertisingData(localName: "Belt", serviceUUIDs: ["180D"])
  let octets = AdvertisingPacker(.standard).pack(belt).payloads.advertising
  print(octets.count, "octets:", AdvertisingData(decoding: octets.span).localName ?? "no name")
  // end
}

private func simulator() throws {
  // example BindruneSimulator: BindruneHCI, BindruneSimulator, BindruneWire
  var air = Air(configuration: .ideal)
  let controller = air.addController(ControllerConfiguration(address: DeviceAddress(0x0000_5E00_5301)))
  air.receive([0x01, 0x09, 0x10, 0x00].span, at: controller, now: .zero)  // HCI_Read_BD_ADDR

  var packet = PacketBuffer()
  while packet.fill({ air.nextPacket(from: controller, into: &$0, now: .zero) }) {
    print(try HCIEvent(packet.bytes.span).describe(in: packet.bytes.span))
  }
  // end
}

private func capture() throws {
  // example BindruneCapture: BindruneCapture, BindruneHCI
  var octets: [UInt8] = []
  BTSnoop.appendHeader(to: &octets)
  BTSnoop.append([0x01, 0x03, 0x0C, 0x00].span, .fromHost, time: 1_700_000_000_000_000, to: &octets)

  var parser = CaptureParser(), place = 0, span = octets.mutableSpan
  while case .record(let record) = try parser.next(&span, at: &place, isLast: true) {
    print("record", record.number, "of", record.time, "ns:", record.octets.count, "octets")
  }
  // end
}

private func system() throws {
  // example BindruneSystem: BindruneSystem, SystemPackage
  let ends = try FileDescriptor.pipeEnds()
  let child = try ChildProcess.start("/bin/sh", ["sh", "-c", "echo hello; exit 3"], adding: [:], output: ends.writeEnd)
  try ends.writeEnd.close()
  print(String(decoding: try ends.readEnd.readAll(upTo: 100), as: UTF8.self), terminator: "")
  print("status", ChildProcess.wait(for: child))
  // end
  try ends.readEnd.close()
}

private func transport() throws {
  // example BindruneTransport: BindruneTransport
  for text in ["hci0", "serial:/dev/ttyACM0,1000000", "sim:desk", "usb0"] {
    do { print(try TransportSpec(text)) } catch { print(error) }
  }
  // end
}

private func conformance() throws {
  // example BindruneConformance: BindruneConformance
  let database = try DatabaseFile(
    """
    { "services": [ { "uuid": "FFE0", "characteristics": [
      { "uuid": "FFE1", "properties": ["read"], "value": "01 02" } ] } ] }
    """, file: "belt.json")
  for answer in ["01 02", "01 03"] {
    let script = try Script("title: Read a value\n< 0A 03 00\n> 0B \(answer)", file: "read.exchange")
    switch Runner.run(script, against: StackTarget(database)).outcome {
    case .passed: print("passed")
    case .failed(let failure): print("line", failure.line, "expects", failure.expected, "and gets", failure.got)
    case .skipped(let reason): print("skipped:", reason)
    }
  }
  // end
}

private func trace() throws {
  // example BindruneTrace: BindruneTrace
  var file = try TraceFile(path: path), sink = DissectingSink(Checker())
  try file.read(into: &sink)
  for finding in sink.sink.findings {
    print(finding.number, finding.rule.id, finding.party.rawValue, finding.seen, finding.allowed, finding.rule.section)
  }
  print(sink.sink.findings.count, "findings")
  // end
}

private func replay() throws {
  // example BindruneReplay: BindruneReplay, BindruneTrace
  var collector = ReplayCollector()
  var file = try TraceFile(path: path)
  try file.read(into: &collector)
  let result = try Replay(collector).run()
  for divergence in result.divergences {
    print(divergence.number, ReplayDivergence.lines(divergence.recorded, divergence.stream))
  }
  print(result.divergences.count, "divergences")
  // end
}

private func report() throws {
  // example BindruneReport: BindruneReport, BindruneTrace
  var collector = ReportCollector()
  var file = try TraceFile(path: path)
  try file.read(into: &collector)
  print(collector.records, "records")
  let page = collector.page(title: "sensor.btsnoop")
  print(String(decoding: page.prefix(15), as: UTF8.self), "…")
  // end
}
