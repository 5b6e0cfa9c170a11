import BindruneCapture
import BindruneTrace
import Testing

/// Captures from the air: link types 251, 256 and 272 (https://www.tcpdump.org/linktypes.html). tshark 4.0.17 finds the
/// same packets, LL_START_ENC_REQ and unfragmented PDUs in these files; it does not join fragments there.
@Suite struct LinkLayerTests {
  private static let access: [UInt8] = [0x27, 0x4A, 0x65, 0x50]
  /// A data PDU: LLID, sequence number, payload. Vol 6, Part B, §2.4.
  private static func data(_ llid: UInt8, _ payload: [UInt8], sequence: UInt8 = 0) -> [UInt8] {
    access + [llid | sequence << 3, UInt8(payload.count)] + payload + [0, 0, 0]
  }
  private static func frame(_ channel: UInt8, _ payload: [UInt8]) -> [UInt8] {
    [UInt8(payload.count), 0, channel, 0] + payload
  }
  /// A Central's read request, its Peripheral's response in two fragments of which the first is repeated, a Pairing
  /// Request, LL_START_ENC_REQ, and two data PDUs that are encrypted from there on.
  static let packets: [(isCentral: Bool, octets: [UInt8])] = {
    let response = frame(4, [0x0B] + Array(repeating: 0x41, count: 22)), sealed: [UInt8] = Array(1...16)
    return [
      (true, data(2, frame(4, [0x0A, 0x03, 0x00]))),
      (false, data(2, Array(response.prefix(20)))), (false, data(2, Array(response.prefix(20)))),
      (false, data(1, Array(response.dropFirst(20)), sequence: 1)),
      (true, data(2, frame(6, [0x01, 0x03, 0x00, 0x01, 0x10, 0x07, 0x07]), sequence: 1)),
      (false, data(3, [0x05])), (true, data(2, sealed)), (false, data(1, sealed)), (true, data(1, [])),
    ]
  }()
  static func file(_ type: Int) -> [UInt8] {
    var file = Formats.little32(0xA1B2_C3D4) + [2, 0, 4, 0] + Formats.little32(0) + Formats.little32(0)
    file += Formats.little32(65_535) + Formats.little32(type)
    for (index, packet) in packets.enumerated() {
      let direction: UInt8 = packet.isCentral ? 1 : 0
      let head: [UInt8] =
        switch type {
        // RF channel, signal, noise, offenses, reference access address; flags: dewhitened, and the type of PDU.
        case 256: [12, 0xC4, 0, 0] + access + (packet.isCentral ? [0x01, 0x01] : [0x81, 0x01])
        // Board; length, version 3, counter, packet type; length of the header, flags: CRC and direction, channel,
        // signal, event counter, time.
        case 272:
          [9] + [UInt8(packet.octets.count + 10), 0, 3, UInt8(index), 0, 6]
            + [10, 0x01 | direction << 1, 12, 60, 0, 0, 0, 0, 0, 0]
        default: []
        }
      let record = head + packet.octets
      file += Formats.little32(Int(Formats.seconds)) + Formats.little32(index)
      file += Formats.little32(record.count) + Formats.little32(record.count) + record
    }
    return file
  }
  static let rows = [
    "1\t-\t0x50654a27\tatt\t0x0a\t0x0003\t\t0a0300",
    "4\t-\t0x50654a27\tatt\t0x0b\t0x0003\t" + String(repeating: "41", count: 22) + "\t0b"
      + String(repeating: "41", count: 22),
    "5\t-\t0x50654a27\tsmp\t0x01\t\t030001100707\t01030001100707",
  ]

  @Test(arguments: [251, 256, 272]) func pdusInTheClear(_ type: Int) throws {
    let file = try ScratchFile(Self.file(type))
    var trace = try TraceFile(path: file.path), fields = DissectingSink(TraceFields())
    try trace.read(into: &fields)
    let found = String(decoding: fields.sink.output, as: UTF8.self).split(separator: "\n").map(String.init)
    #expect(found == Self.rows)
    // Two data PDUs with octets; an empty one has nothing to encrypt.
    #expect(fields.dissector.encryptedCount == 2)
  }
}
