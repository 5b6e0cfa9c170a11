import BindruneATT
import BindruneWire
import BindruneGAP
import BindruneHCI
import BindruneL2CAP
import BindruneSMP

/// A field whose bits have names of their own.
protocol NamedBits: WireValue {
  /// First bit, width, name. The bits of no entry are reserved.
  static var parts: [(bit: Int, width: Int, name: StaticString)] { get }
}
/// Vol 3, Part F, §3.3.1.
extension ATTOpcode: NamedBits {
  static var parts: [(bit: Int, width: Int, name: StaticString)] {
    [(7, 1, "Authentication Signature Flag"), (6, 1, "Command Flag"), (0, 6, "Method")]
  }
}
/// Vol 4, Part E, §5.4.1.
extension HCIOpcode: NamedBits {
  static var parts: [(bit: Int, width: Int, name: StaticString)] {
    [(10, 6, "Opcode Group Field"), (0, 10, "Opcode Command Field")]
  }
}
/// Vol 3, Part H, §3.5.1.
extension AuthReq: NamedBits {
  static var parts: [(bit: Int, width: Int, name: StaticString)] {
    [
      (0, 2, "Bonding_Flags"), (2, 1, "MITM"), (3, 1, "SC: LE Secure Connections"), (4, 1, "Keypress"), (5, 1, "CT2"),
    ]
  }
}
/// Vol 3, Part H, §3.6.1.
extension KeyDistribution: NamedBits {
  static var parts: [(bit: Int, width: Int, name: StaticString)] {
    [
      (0, 1, "EncKey: LTK, EDIV and Rand"), (1, 1, "IdKey: IRK and identity address"), (2, 1, "SignKey: CSRK"),
      (3, 1, "LinkKey"),
    ]
  }
}
/// Vol 4, Part E, §7.8.64.
extension PHYSet: NamedBits {
  static var parts: [(bit: Int, width: Int, name: StaticString)] {
    [(0, 1, "LE 1M"), (1, 1, "LE 2M"), (2, 1, "LE Coded")]
  }
}
/// The Flags of advertising data. Core Specification Supplement, Part A, §1.3.
private struct ADFlags: OpenNumber, NamedBits {
  var rawValue: UInt8
  static var parts: [(bit: Int, width: Int, name: StaticString)] {
    [
      (0, 1, "LE Limited Discoverable Mode"), (1, 1, "LE General Discoverable Mode"), (2, 1, "BR/EDR Not Supported"),
      (3, 1, "Simultaneous LE and BR/EDR (Controller)"), (4, 1, "Previously used"),
    ]
  }
}

extension ExplainRecorder {
  /// The value in words: the text of its type, with the unit where the type has one.
  func meaning<V: WireValue>(of value: V) -> String {
    switch value {
    case let time as any TimeUnits: conversion(time)
    // Every signed octet of HCI is a power.
    case let power as Int8: power == 127 ? "127 (not available)" : "\(power) dBm"
    case let opcode as HCIOpcode: opcode.text + (opcode.shownName.map { " (\($0))" } ?? "")
    case let channel as ChannelID: channel.text + (channel.name.map { " (\($0))" } ?? "")
    case let code as SignalCode: code.text + (code.name.map { " (\($0))" } ?? "")
    case let type as HCIPacketType: "\(type) (\(type.rawValue))"
    case let flag as PacketBoundaryFlag: boundary(flag)
    case let number as ADType: number.text + (number.name.map { " (\($0))" } ?? "")
    case let format as InformationFormat: format == .short ? "1 (16-bit UUIDs)" : "2 (128-bit UUIDs)"
    default: value.text
    }
  }
  /// `24 × 1.25 ms = 30 ms`.
  private func conversion<T: TimeUnits>(_ time: T) -> String {
    let text = time.text
    guard let open = text.firstIndex(of: "(") else { return text }
    return "\(time.wire) × \(milliseconds(T.unit)) ms = " + text[open...].dropFirst().dropLast()
  }
  private func milliseconds(_ microseconds: Int64) -> String {
    let fraction = String(microseconds % 1_000 + 1_000).dropFirst()
    let significant = fraction.reversed().drop { $0 == "0" }.reversed()
    return "\(microseconds / 1_000)" + (significant.isEmpty ? "" : "." + String(significant))
  }
  private func boundary(_ flag: PacketBoundaryFlag) -> String {
    switch flag {
    case .firstNonFlushable: "0 (first fragment, from a host)"
    case .continuing: "1 (continuing fragment)"
    case .first: "2 (first fragment, from a controller)"
    case .complete: "3 (complete PDU, not over LE)"
    }
  }
  /// Adds a row for each named part of the field at `start`.
  mutating func flags<V: WireValue>(of _: V.Type, _ start: Int, _ raw: UInt64) {
    guard let type = V.self as? any NamedBits.Type else { return }
    for part in type.parts {
      let value = raw >> UInt64(part.bit) & (UInt64(1) << UInt64(part.width) - 1)
      let text = part.width > 1 ? "0x" + hexDigits(value, 2) : value == 1 ? "yes" : "no"
      rows.append(
        Explanation.Row(kind: .flag, bit: start + part.bit, width: part.width, label: "\(part.name)", text: text))
    }
  }

  // MARK: Advertising data

  /// The AD structures from `at` to `end`. Vol 3, Part C, §11. A fault ends them and is noted, and the fields behind
  /// them continue: their place does not depend on it. In a packet (`isPart`) the end may cut a structure, whose rest
  /// another packet has: that is for the rules to judge.
  mutating func structures(isPart: Bool = false) {
    while at < end {
      let length = Int(packet[at])
      if length == 0 {
        let isZero = (at..<end).allSatisfy { packet[$0] == 0 }
        if isZero {
          return add(.field, "Padding", draws ? "\(octetCount(end - at)), not significant" : "", octets: end - at)
        }
        add(.wrong, "Octets", "not zero behind the end", octets: end - at)
        return problem("A zero length ends AD structures, and only zeros may follow.")
      }
      guard at + 1 + length <= end else {
        let left = end - at - 1
        add(.field, "Length", length, octets: 1)
        if at < end { add(.field, "AD Type", draws ? meaning(of: ADType(rawValue: packet[at])) : "", octets: 1) }
        if at < end { add(.wrong, "", "not understood", octets: end - at) }
        let words = "The AD structure states \(octetCount(length)); available: \(left)."
        return isPart ? note(words + " Other fragments may have them.") : problem(words)
      }
      add(.field, "Length", length, octets: 1)
      let type = ADType(rawValue: packet[at])
      add(.field, "AD Type", draws ? meaning(of: type) : "", octets: 1)
      let close = at + length - 1
      guard type.accepts(octets: length - 1) else {
        if at < close { add(.wrong, "", "not understood", octets: close - at) }
        problem(draws ? "\(type) cannot have \(octetCount(length - 1))." : "")
        continue
      }
      content(type, close)
      if at < close { add(.field, "Data", close - at, octets: close - at) }
    }
  }
  /// The octets of one structure that have a meaning of their own; the caller adds what is left.
  private mutating func content(_ type: ADType, _ close: Int) {
    let count = close - at
    func text(_ range: Range<Int>) -> String {
      draws ? "\"" + String(decoding: packet[range], as: UTF8.self).printable(limit: 300) + "\"" : ""
    }
    switch type {
    case .flags where count == 1:
      let start = 8 * at, raw = UInt64(packet[at])
      add(.field, "Flags", draws ? "0x" + hexDigits(raw, 2) : "", octets: 1)
      if draws { flags(of: ADFlags.self, start, raw) }
    case .incompleteServiceUUIDs16, .completeServiceUUIDs16, .solicitationUUIDs16: uuids(2, to: close)
    case .incompleteServiceUUIDs128, .completeServiceUUIDs128, .solicitationUUIDs128: uuids(16, to: close)
    case .serviceData16: uuids(2, to: at + 2)
    case .serviceData128: uuids(16, to: at + 16)
    case .shortenedLocalName, .completeLocalName, .broadcastName:
      if count > 0 { add(.field, "Name", text(at..<close), octets: count) }
    case .txPowerLevel: add(.field, "Tx Power Level", draws ? "\(Int8(bitPattern: packet[at])) dBm" : "", octets: 1)
    case .peripheralConnectionIntervalRange:
      interval("Minimum")
      interval("Maximum")
    case .advertisingInterval:
      let units = AdvertisingInterval(rawValue: UInt16(number(at, 2)))
      add(.field, "Advertising Interval", draws ? meaning(of: units) : "", octets: 2)
    case .publicTargetAddress, .randomTargetAddress, .leBluetoothDeviceAddress:
      while close - at >= 6 { add(.field, "Address", draws ? DeviceAddress(number(at, 6)).text : "", octets: 6) }
      if close - at == 1 { add(.field, "Address Type", packet[at] & 1 == 0 ? "public" : "random", octets: 1) }
    case .appearance: add(.field, "Appearance", draws ? "0x" + hexDigits(number(at, 2), 4) : "", octets: 2)
    case .manufacturerData:
      add(.field, "Company Identifier", draws ? "0x" + hexDigits(number(at, 2), 4) : "", octets: 2)
    default: break
    }
  }
  private mutating func uuids(_ width: Int, to close: Int) {
    while close - at >= width {
      let uuid: BluetoothUUID =
        width == 2 ? .short(UInt16(number(at, 2))) : .long(low: number(at, 8), high: number(at + 8, 8))
      name(uuid, "UUID", width)
    }
  }
  private mutating func interval(_ label: StaticString) {
    let units = number(at, 2)
    let text = !draws ? "" : units == 0xFFFF ? "0xFFFF (any)" : meaning(of: ConnectionInterval(rawValue: UInt16(units)))
    add(.field, label, text, octets: 2)
  }
}
