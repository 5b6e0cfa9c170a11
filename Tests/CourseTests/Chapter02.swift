import BindruneSimulator
import BindruneWire
import BindruneHCI
import TestSupport
import Testing

// snippet 4
/// Sends a controller its commands, never more at once than it accepts. Vol 4, Part E, §4.4.
struct Commands {
  var waiting: [[UInt8]] = []
  /// How many the controller accepts now. Before its first answer that is one.
  var credit = 1

  mutating func next() -> [UInt8]? {
    guard credit > 0, !waiting.isEmpty else { return nil }
    credit -= 1
    return waiting.removeFirst()
  }
  mutating func receive(_ event: [UInt8]) throws {
    switch try HCIEvent(event.span) {
    case .commandComplete(let complete): credit = Int(complete.numHCICommandPackets)
    case .commandStatus(let status): credit = Int(status.numHCICommandPackets)
    default: break
    }
  }
}
// end

@Suite("Course 2: HCI", .hang) struct Chapter2 {
  @Test func page() throws {
    try course("02-hci", exercises: [5, 10]) { page in
      // snippet
      var scan = LESetScanEnable()
      scan.leScanEnable = true
      let command = try written { output throws(WireError) in try scan.writePacket(into: &output, from: Span()) }
      print(hex(command))
      page.shows()

      // snippet
      var air = Air(configuration: .ideal)
      let controller = air.addController(ControllerConfiguration(address: DeviceAddress(0x0000_5E00_5301)))
      air.receive([0x01, 0x03, 0x0C, 0x00].span, at: controller, now: .zero)  // HCI_Reset

      var packet = PacketBuffer(), answers: [[UInt8]] = []
      while packet.fill({ air.nextPacket(from: controller, into: &$0, now: .zero) }) { answers.append(packet.bytes) }
      print(answers.map(hex))
      page.shows()

      // snippet
      let answer = answers[0], event = try HCIEvent(answer.span)
      print(event.name)
      print(event.describe(in: answer.span))
      page.shows()

      // snippet 5
      let readAddress: [UInt8] = [0x01, 0x09, 0x10, 0x00], readBuffers: [UInt8] = [0x01, 0x02, 0x20, 0x00]
      var commands = Commands(waiting: [readAddress, readBuffers, command])
      while let next = commands.next() {
        print("→", hex(next))
        air.receive(next.span, at: controller, now: .zero)
        print("   credit", commands.credit)
        while packet.fill({ air.nextPacket(from: controller, into: &$0, now: .zero) }) {
          print("←", hex(packet.bytes))
          try commands.receive(packet.bytes)
        }
        print("   credit", commands.credit)
      }
      page.shows()

      // snippet 6
      var credits = DataCredits()
      credits.configure(aclLength: 251, total: 8)
      let link = ConnectionHandle(rawValue: 0x0040)
      credits.open(link)
      credits.setWants(link, true)
      var sent = 0
      while let granted = credits.next() {
        credits.took(granted)
        sent += 1
      }
      print("sent", sent, "packets; free buffers:", credits.free)
      _ = credits.completed(link, 3)
      print("three were completed; free buffers:", credits.free)
      page.shows()
    }
  }
}
