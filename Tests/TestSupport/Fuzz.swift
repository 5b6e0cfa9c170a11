import Foundation

/// Bad input for a `receive`: every prefix of every sample, then `cases` random packets.
///
///     for packet in Fuzz(samples) {
///       layer.receive(packet.span, now: .zero)      // an effect or a typed error, never a trap
///     }
///
/// A third of the packets are random, a third are samples with flipped bits, a third are samples cut, stretched,
/// spliced. Prints its seed when it starts. `BINDRUNE_FUZZ_CASES` and `BINDRUNE_FUZZ_SEED` set the defaults.
public struct Fuzz: Sequence, IteratorProtocol {
  /// Random packets: 10,000, or `BINDRUNE_FUZZ_CASES`.
  public static var cases: Int { environment("BINDRUNE_FUZZ_CASES").flatMap { Int($0) } ?? 10_000 }
  /// Complete sequences of PDUs with one peer: 20,000, or `BINDRUNE_FUZZ_CASES`.
  public static var sequences: Int { environment("BINDRUNE_FUZZ_CASES").flatMap { Int($0) } ?? 20_000 }
  /// Sequences of PDUs and answers of a user while pairing, most with computations on P-256: 2,000, or
  /// `BINDRUNE_FUZZ_CASES`.
  public static var pairings: Int { environment("BINDRUNE_FUZZ_CASES").flatMap { Int($0) } ?? 2_000 }
  /// PDUs in one direction, comparing the fast path with a plain one: 50,000, or `BINDRUNE_FUZZ_CASES`.
  public static var pdus: Int { environment("BINDRUNE_FUZZ_CASES").flatMap { Int($0) } ?? 50_000 }
  /// 1, or `BINDRUNE_FUZZ_SEED`: repeat a failed run with the seed it printed.
  public static var seed: UInt64 { environment("BINDRUNE_FUZZ_SEED").flatMap { UInt64($0) } ?? 1 }

  private let samples: [[UInt8]]
  private let longest: Int
  private var left: Int
  private var chance: SplitMix64
  private var prefixes: (sample: Int, count: Int) = (0, 0)

  /// `samples` are valid packets; no generated packet is longer than `longest` octets.
  public init(
    _ samples: [[UInt8]], cases: Int = Fuzz.cases, seed: UInt64 = Fuzz.seed, longest: Int = 600,
    file: String = #fileID, line: Int = #line
  ) {
    self.samples = samples
    self.longest = longest
    left = cases
    chance = SplitMix64(seed: seed)
    print("fuzz \(file):\(line): \(samples.count) samples, \(cases) cases, seed \(seed)")
  }

  public mutating func next() -> [UInt8]? {
    if let prefix = nextPrefix() { return prefix }
    guard left > 0 else { return nil }
    left -= 1
    guard let sample = samples.randomElement(using: &chance) else { return random(opcode: nil) }
    switch left % 3 {
    case 0: return random(opcode: sample.first)
    case 1: return flipped(sample)
    default: return Array(spliced(sample).prefix(longest))
    }
  }

  private mutating func nextPrefix() -> [UInt8]? {
    guard prefixes.sample < samples.count else { return nil }
    let prefix = Array(samples[prefixes.sample].prefix(prefixes.count))
    prefixes.count += 1
    if prefixes.count > samples[prefixes.sample].count { prefixes = (prefixes.sample + 1, 0) }
    return prefix
  }

  /// Mostly short, often with small numbers, as lengths and counts are. Half of them begin like a sample, so that the
  /// decoder gets past the opcode.
  private mutating func random(opcode: UInt8?) -> [UInt8] {
    let count = Int.random(in: 0...(Bool.random(using: &chance) ? Swift.min(32, longest) : longest), using: &chance)
    var packet: [UInt8] = []
    for _ in 0..<count {
      packet.append(.random(in: 0...(Bool.random(using: &chance) ? 0xFF : 0x08), using: &chance))
    }
    if let opcode, !packet.isEmpty, Bool.random(using: &chance) { packet[0] = opcode }
    return packet
  }

  private mutating func flipped(_ sample: [UInt8]) -> [UInt8] {
    var packet = sample
    guard !packet.isEmpty else { return packet }
    for _ in 0...Int.random(in: 0...3, using: &chance) {
      packet[Int.random(in: 0..<packet.count, using: &chance)] ^= 1 << UInt8.random(in: 0...7, using: &chance)
    }
    return packet
  }

  private mutating func spliced(_ sample: [UInt8]) -> [UInt8] {
    let cut = Int.random(in: 0...sample.count, using: &chance)
    switch UInt8.random(in: 0...3, using: &chance) {
    case 0: return Array(sample[..<cut])
    case 1: return sample + random(opcode: nil).prefix(24)
    case 2: return Array(sample[..<cut]) + random(opcode: nil).prefix(4) + sample[cut...]
    default:
      let other = samples[Int.random(in: 0..<samples.count, using: &chance)]
      return Array(sample[..<cut]) + other.suffix(Int.random(in: 0...other.count, using: &chance))
    }
  }
}

func environment(_ name: String) -> String? { ProcessInfo.processInfo.environment[name] }
