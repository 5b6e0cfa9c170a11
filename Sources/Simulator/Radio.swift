import BindruneWire
import RealModule

/// Which controllers hear each other, how well, and what is lost: the physics of the air, as far as a host can notice
/// it.
///
/// Function: free-space path loss (Vol 6, Part A does not specify it; 40 dB at one metre and 20 dB per decade are the
/// textbook's figures for 2.4 GHz), a constant probability of loss for every packet on the air, and pairs that a caller
/// has separated.
struct Radio {
  var configuration: AirConfiguration
  var random: SeededGenerator
  /// Separated pairs, the lower number first.
  private var separated: [(ControllerID, ControllerID)] = []

  init(_ configuration: AirConfiguration, seed: UInt64) {
    self.configuration = configuration
    random = SeededGenerator(seed: seed)
  }

  mutating func separate(_ a: ControllerID, _ b: ControllerID) {
    if !isSeparated(a, b) { separated.append((min(a, b), max(a, b))) }
  }
  mutating func reunite(_ a: ControllerID, _ b: ControllerID) {
    separated.removeAll { $0.0 == min(a, b) && $0.1 == max(a, b) }
  }
  /// The controller has been removed.
  mutating func forget(_ id: ControllerID) { separated.removeAll { $0.0 == id || $0.1 == id } }
  var separatedCount: Int { separated.count }
  func isSeparated(_ a: ControllerID, _ b: ControllerID) -> Bool {
    let low = min(a, b), high = max(a, b)
    return separated.contains { $0.0 == low && $0.1 == high }
  }

  /// Signal strength at the receiver without fading, in dBm.
  static func strength(_ power: Int8, from a: Position, to b: Position) -> Double {
    let metres = max(.hypot(a.x - b.x, a.y - b.y), 0.1)
    return Double(power) - 40 - 20 * .log10(metres)
  }
  /// Whether the two can hear each other.
  func reaches(_ power: Int8, _ from: ControllerID, _ a: Position, _ to: ControllerID, _ b: Position) -> Bool {
    !isSeparated(from, to) && Self.strength(power, from: a, to: b) >= Double(configuration.sensitivity)
  }
  /// The signal strength with which one packet arrives, in dBm; `nil` if it is lost.
  mutating func receive(_ power: Int8, _ from: ControllerID, _ a: Position, _ to: ControllerID, _ b: Position) -> Int8?
  {
    guard reaches(power, from, a, to, b), !random.chance(configuration.loss) else { return nil }
    var strength = Self.strength(power, from: a, to: b)
    if configuration.fading > 0 {
      let spread = UInt64(2 * Int(configuration.fading) + 1)
      strength += Double(random.next() % spread) - Double(configuration.fading)
    }
    return Self.level(strength)
  }
  /// The whole number of dBm nearest to `strength`, in the range of an RSSI: −127 … 20. Vol 4, Part E, §7.5.4.
  static func level(_ strength: Double) -> Int8 { Int8(max(-127, min(20, strength.rounded()))) }
}

/// A place, in metres.
public struct Position: BitwiseCopyable, Sendable, Equatable {
  public var x: Double, y: Double
  public init(x: Double = 0, y: Double = 0) {
    self.x = x
    self.y = y
  }
}
