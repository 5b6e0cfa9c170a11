import BindruneWire
import BindruneHCI

// Direct test mode: a transmitter sends reference packets on one channel, a receiver counts those that it hears. Vol 6,
// Part F; Vol 4, Part E, §7.8.28 – §7.8.30. Single packets are not simulated: the end of either test determines their
// number, and the air's loss reduces it.

/// The test that one controller runs.
enum DirectTest {
  case receiving(channel: UInt8, phy: PHY, since: Instant, counted: UInt16)
  /// `Medium.transmissions` has its packets.
  case transmitting
}

/// A transmitter's test.
struct TestTransmission {
  let sender: ControllerID, power: Int8, position: Position
  let channel: UInt8, phy: PHY
  /// The time between the starts of two packets.
  let period: Duration
  let start: Instant

  /// I(L) = ⌈(L + 249) / 625⌉ × 625 µs, L being the packet's own time. Vol 6, Part F, §4.1.6. A test packet has no MIC:
  /// beside its payload preamble, access address, header and CRC, 10 octets on LE 1M and 11 on LE 2M; on LE Coded, 400
  /// µs and 64 µs an octet with S = 8, 382 µs and 16 µs an octet with S = 2, of header, payload and CRC. Vol 6, Part B,
  /// §2.1, §2.2.
  static func period(_ octets: UInt8, _ phy: PHY) -> Duration {
    let octets = Int64(octets), length: Int64
    switch phy {
    case .le2M: length = 4 * (octets + 11)
    case .leCoded: length = 400 + 64 * (octets + 5)
    case .leCodedS2: length = 382 + 16 * (octets + 5)
    default: length = 8 * (octets + 10)
    }
    return .microseconds((length + 249 + 624) / 625 * 625)
  }
}
extension PHY {
  /// LE Coded with S = 2; only a transmitter's test distinguishes them.
  fileprivate static var leCodedS2: PHY { PHY(rawValue: 4) }
  fileprivate var modulation: PHY { self == .leCodedS2 ? .leCoded : self }
}

extension Medium {
  /// The number of packets of a transmission that a receiver hears from `since` on.
  func packets(of test: TestTransmission, by receiver: borrowing VirtualController) -> Int {
    guard case .receiving(let channel, let phy, let since, _) = receiver.test, channel == test.channel,
      phy == test.phy.modulation,
      radio.reaches(test.power, test.sender, test.position, receiver.id, receiver.configuration.position)
    else { return 0 }
    let sent = (now - max(since, test.start)).nanoseconds / test.period.nanoseconds
    return Int(Double(sent) * (1 - radio.configuration.loss))
  }
}
extension Air {
  /// A transmission has ended: the receivers add the packets that they have heard.
  mutating func count(_ transmission: TestTransmission) {
    for index in 0..<controllers.count where controllers[index].isPresent {
      guard case .receiving(let channel, let phy, let since, let counted) = controllers[index].test else { continue }
      let heard = medium.packets(of: transmission, by: controllers[index])
      controllers[index].test = .receiving(
        channel: channel, phy: phy, since: since, counted: UInt16(clamping: Int(counted) + heard))
    }
  }
}

extension VirtualController {
  /// A test begins in the standby state.
  private func startStatus(_ channel: UInt8, _ phy: PHY) -> HCIStatus {
    if test != nil || isActive || !connections.isEmpty { return .commandDisallowed }
    guard channel <= 39, (1...3).contains(phy.modulation.rawValue) else { return .invalidHCICommandParameters }
    return phys.contains(phy.modulation.set) ? .success : .unsupportedFeatureOrParameterValue
  }
  fileprivate mutating func receive(_ channel: UInt8, _ phy: PHY, _ medium: borrowing Medium) -> HCIStatus {
    let status = phy == .leCodedS2 ? .invalidHCICommandParameters : startStatus(channel, phy)
    if status == .success { test = .receiving(channel: channel, phy: phy, since: medium.now, counted: 0) }
    return status
  }
  fileprivate mutating func transmit(
    _ channel: UInt8, _ octets: UInt8, _ pattern: UInt8, _ phy: PHY, _ medium: inout Medium
  ) -> HCIStatus {
    let status = pattern > 7 ? .invalidHCICommandParameters : startStatus(channel, phy)
    guard status == .success else { return status }
    test = .transmitting
    medium.transmissions.append(
      TestTransmission(
        sender: id, power: configuration.transmitPower, position: configuration.position, channel: channel, phy: phy,
        period: TestTransmission.period(octets, phy), start: medium.now))
    return .success
  }
  /// Returns the receiver's count: 0 without a receiver.
  @discardableResult mutating func endTest(_ medium: inout Medium) -> UInt16 {
    defer { test = nil }
    switch test {
    case nil: return 0
    case .receiving(_, _, _, let counted):
      return UInt16(
        clamping: medium.transmissions.reduce(Int(counted)) { $0 + medium.packets(of: $1, by: self) })
    case .transmitting:
      for transmission in medium.transmissions where transmission.sender == id {
        medium.errands.append(.transmitted(transmission))
      }
      medium.transmissions.removeAll { $0.sender == id }
      return 0
    }
  }
}

// MARK: Commands

extension LEReceiverTest: Executable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> Return {
    Return(controller.receive(rxChannel, .le1M, medium))
  }
}
extension LEReceiverTestV2: Executable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> Return {
    modulationIndex > 1 ? Return(.invalidHCICommandParameters) : Return(controller.receive(rxChannel, phy, medium))
  }
}
extension LETransmitterTest: Executable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> Return {
    Return(controller.transmit(txChannel, testDataLength, packetPayload, .le1M, &medium))
  }
}
extension LETransmitterTestV2: Executable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> Return {
    Return(controller.transmit(txChannel, testDataLength, packetPayload, phy, &medium))
  }
}
extension LETestEnd: Executable {
  func execute(_ controller: inout VirtualController, _ medium: inout Medium, _ packet: Span<UInt8>) -> Return {
    if controller.test == nil { return Return(.commandDisallowed) }
    var result = Return(.success)
    result.numPackets = controller.endTest(&medium)
    return result
  }
}
