import BindruneWire
import TestSupport
import Testing

@testable import BindruneHCI

@Suite struct VectorTests {
  let file: VectorFile
  init() throws { file = try VectorFile("hci.txt") }

  @Test func everyVectorGoesBothWays() throws {
    let wrong = try file.check(roundTrip, layout: layout)
    #expect(wrong.isEmpty, "\(wrong.joined(separator: "\n"))")
  }

  @Test func vectorsAreNamedAsTheirMessages() throws {
    for vector in file.vectors {
      let name =
        try vector.octets[0] == 1 ? "\(AnyCommand(vector.octets.span).name)" : "\(HCIEvent(vector.octets.span).name)"
      #expect(name == vector.name, "\(vector)")
    }
  }

  /// The parameters cut short, with a length octet that agrees: the error names a field of the message itself.
  @Test func shortParametersNameTheField() throws {
    for vector in file.vectors {
      let header = vector.octets[0] == 1 ? 4 : 3
      let labels = layout(vector.octets).map(\.label)
      for count in header..<vector.octets.count {
        var short = Array(vector.octets[..<count])
        short[header - 1] = UInt8(count - header)
        do throws(WireError) {
          let found = try roundTrip(short)
          #expect(found.octets == short, "\(vector), \(count) octets")
        } catch {
          guard case .truncated = error.reason else { throw error }
          #expect("\(error.field)" != "Parameter_Total_Length", "\(vector): \(error)")
          if !["HCI_Command_Complete", "Unknown Event"].contains(vector.name), !vector.name.contains("Report"),
            !vector.name.contains("Extended")
          {
            #expect(labels.contains("\(error.field)"), "\(vector): \(error)")
          }
        }
      }
    }
  }

  @Test func tooManyOctetsAreAnError() throws {
    for vector in file.vectors where vector.name != "Unknown Event" && !vector.title.contains("HCI_Command_Complete, ")
    {
      #expect(throws: WireError.self, "\(vector)") { try roundTrip(vector.octets + [0]) }
    }
  }

  /// Every declared message has a vector; so do every command's return parameters.
  @Test func everyMessageHasAVector() throws {
    var missing = Names()
    try AnyCommand.each(&missing)
    try HCIEvent.each(&missing)
    for vector in file.vectors {
      missing.names.remove(vector.name)
      missing.names.remove(vector.title)
    }
    #expect(missing.names.isEmpty, "no vector: \(missing.names.sorted())")
  }
  /// The switch that decodes has every message of the list, at its number, and no other.
  @Test func theListIsWhatIsDecoded() throws {
    var numbers = Numbers()
    try AnyCommand.each(&numbers)
    try HCIEvent.each(&numbers)
    #expect(numbers.commands.count == 84 && numbers.events.count == 26)
    for raw in 0...UInt16.max {
      let command = AnyCommand(default: HCIOpcode(rawValue: raw))
      #expect(command.map { "\($0.name)" } == numbers.commands[raw])
      #expect(command.map { $0.opcode.rawValue == raw } != false)
    }
    for code in 0...UInt8.max {
      for subevent in 0...(code == 0x3E ? UInt8.max : 0) {
        let event = HCIEvent(default: code, subevent: subevent)
        #expect(event.map { "\($0.name)" } == numbers.events[UInt16(code) | UInt16(subevent) << 8])
        #expect(event.map { $0.code == code && $0.subevent == (code == 0x3E ? subevent : nil) } != false)
      }
    }
  }
  /// Vol 4, Part E, §7.3.1, §7.3.69, §7.8.1: the tables of the masks' bits, against the rule that derives them.
  @Test func maskBitsAreThoseOfTheTables() {
    #expect(EventMask.standard.rawValue == 0x2000_8000_0204_E890)
    let full = UsedEvents()
    #expect(full.page2.rawValue == 1 << 23 | 1 << 25)
    #expect(full.le.rawValue == 1 << 42 | 0b10_0001_1010_0111_1111)
    #expect(UsedEvents(LEFeatures(), CoreVersion(rawValue: 6)).page2.isEmpty)
    #expect(UsedEvents(LEFeatures(), CoreVersion(rawValue: 6)).le.rawValue == 0b1111)
  }

  /// A command whose handle was forgotten becomes no packet, least of all one for link 0 or advertising set 0.
  @Test func noHandleIsForgotten() throws {
    var blank = Blank()
    try AnyCommand.each(&blank)
    #expect(blank.commands == 23)
    var octets: [UInt8] = []
    let error = #expect(throws: WireError.self) {
      try WireList([LESetExtendedAdvertisingEnable.Set()], in: &octets)
    }
    #expect(error?.description == #"unset "Advertising_Handle""#)
  }

  @Test func aRefusalMayHaveOnlyAStatus() throws {
    let packet = octets("04 0E 04 01 09 10 0C")
    let answer = try ReadBDADDR.decodeReturn(Octets(6, 1), in: packet.span)
    #expect(answer.status == .commandDisallowed && answer.bdADDR == DeviceAddress())
    let success = octets("04 0E 04 01 09 10 00")
    #expect(throws: WireError.self) { try ReadBDADDR.decodeReturn(Octets(6, 1), in: success.span) }
  }
}

/// Commands and events, return parameters by their type.
func roundTrip(_ packet: [UInt8]) throws(WireError) -> (text: String, octets: [UInt8]) {
  var buffer = PacketBuffer()
  if packet.first == 1 {
    let command = try AnyCommand(packet.span)
    _ = try buffer.fill { output throws(WireError) in
      try command.writePacket(into: &output, from: packet.span)
      return true
    }
    return (command.describe(in: packet.span), buffer.bytes)
  }
  let event = try HCIEvent(packet.span)
  if case .commandComplete(let complete) = event, let command = AnyCommand(default: complete.commandOpcode) {
    var rewriter = ReturnRewriter(packet: packet, complete: complete)
    try command.visit(&rewriter)
    return (event.describe(in: packet.span), rewriter.written)
  }
  _ = try buffer.fill { output throws(WireError) in
    try event.writePacket(into: &output, from: packet.span)
    return true
  }
  return (event.describe(in: packet.span), buffer.bytes)
}

private struct ReturnRewriter: CommandVisitor {
  let packet: [UInt8], complete: CommandComplete
  var written: [UInt8] = []
  mutating func visitCommand<C: HCICommand>(_: C) throws(WireError) {
    let answer = try C.decodeReturn(complete.returnParameters, in: packet.span)
    var buffer = PacketBuffer()
    let (packet, number) = (packet, complete.numHCICommandPackets)
    _ = try buffer.fill { output throws(WireError) in
      try C.writeComplete(answer, numHCICommandPackets: number, into: &output, from: packet.span)
      return true
    }
    // A refusal without the other parameters is encoded with them.
    written = complete.returnParameters.count == 1 && answer.status != .success ? packet : buffer.bytes
  }
}

/// The fields of the packet, its header's first.
func layout(_ packet: [UInt8]) -> [WireLayout.Field] {
  var fields = Fields()
  do throws(WireError) {
    if packet[0] == 1 {
      try AnyCommand(packet.span).visit(&fields)
    } else {
      try HCIEvent(packet.span).visit(&fields)
    }
  } catch {}
  return fields.fields
}
private struct Fields: CommandVisitor, EventVisitor {
  var fields: [WireLayout.Field] = []
  mutating func visitCommand<C: HCICommand>(_: C) { fields = CommandPacket<C>.layout }
  mutating func visitEvent<E: HCIEventMessage>(_: E) { fields = EventPacket<E>.layout }
}
private struct CommandPacket<C: HCICommand>: WireRecord {
  var type: UInt8 = 1, opcode = C.opcode, length: UInt8 = 0, command = C()
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("HCI packet type", &type)
    try visit.value("Opcode", &opcode)
    try visit.value("Parameter_Total_Length", &length)
    try command.fields(&visit)
  }
}
private struct EventPacket<E: HCIEventMessage>: WireRecord {
  var type: UInt8 = 4, code = E.code, length: UInt8 = 0, subevent = E.subevent ?? 0, event = E()
  mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("HCI packet type", &type)
    try visit.value("Event_Code", &code)
    try visit.value("Parameter_Total_Length", &length)
    if E.subevent != nil { try visit.value("Subevent_Code", &subevent) }
    try event.fields(&visit)
  }
}
private struct Names: CommandVisitor, EventVisitor {
  var names: Set<String> = []
  mutating func visitCommand<C: HCICommand>(_: C) {
    names.insert("\(C.name)")
    if !C.isAnsweredByStatus { names.insert("HCI_Command_Complete, \(C.name)") }
  }
  mutating func visitEvent<E: HCIEventMessage>(_: E) { names.insert("\(E.name)") }
}
private struct Numbers: CommandVisitor, EventVisitor {
  var commands: [UInt16: String] = [:], events: [UInt16: String] = [:]
  mutating func visitCommand<C: HCICommand>(_: C) { commands[C.messageNumber] = "\(C.name)" }
  mutating func visitEvent<E: HCIEventMessage>(_: E) { events[E.messageNumber] = "\(E.name)" }
}
/// Encodes each command that has a handle, with no field set.
private struct Blank: CommandVisitor {
  var commands = 0
  mutating func visitCommand<C: HCICommand>(_: C) throws(WireError) {
    let handles = ["Handle", "Connection_Handle", "Advertising_Handle"]
    guard let handle = C.layout.first(where: { handles.contains($0.label) }) else { return }
    commands += 1
    var packet = PacketBuffer()
    do throws(WireError) {
      _ = try packet.fill { output throws(WireError) in
        try C().writePacket(into: &output, from: Span())
        return true
      }
      Issue.record("\(C.name) is a packet: \(hex(packet.bytes))")
    } catch {
      #expect(error.description == "unset \"\(handle.label)\"", "\(C.name)")
      #expect(packet.count == 0)
    }
  }
}
