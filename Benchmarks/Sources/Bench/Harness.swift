import BindruneSimulator
import BindruneWire
import BindruneGAP
import Glibc

/// Nanoseconds of CPU time of this thread: other processes do not count.
func nanoseconds() -> UInt64 {
  var time = timespec()
  unsafe clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time)
  return UInt64(time.tv_sec) * 1_000_000_000 + UInt64(time.tv_nsec)
}

/// An unusable workload ends the run: a figure from another workload would be worse than none.
func fail(_ reason: String) -> Never {
  print(reason)
  exit(1)
}

/// A workload file, as Workloads/generate.py writes it and cbound.h reads it.
///
/// Never freed: a corpus exists as long as the process. It is in raw memory so that the measured loops use a pointer
/// and two tables, like the C bound's, and no array bookkeeping counts against the codec.
@safe struct Corpus {
  let bytes: UnsafeMutablePointer<UInt8>
  let offset: UnsafeMutablePointer<UInt32>
  let length: UnsafeMutablePointer<UInt16>
  /// The octet before each length, if the file is `tagged`: the kind of a request.
  let tag: UnsafeMutablePointer<UInt8>
  let count: Int

  init(_ folder: String, _ name: String, tagged: Bool = false) {
    guard let file = unsafe fopen("\(folder)/\(name)", "rb") else { fail("cannot read \(folder)/\(name)") }
    unsafe fseek(file, 0, SEEK_END)
    let size = unsafe ftell(file)
    unsafe rewind(file)
    unsafe bytes = .allocate(capacity: size)
    guard unsafe fread(bytes, 1, size, file) == size else { fail("cannot read \(folder)/\(name)") }
    unsafe fclose(file)
    count = unsafe Int(UnsafeRawPointer(bytes).loadUnaligned(as: UInt32.self).littleEndian)
    unsafe offset = .allocate(capacity: count)
    unsafe length = .allocate(capacity: count)
    unsafe tag = .allocate(capacity: count)
    var at = 4
    for i in 0..<count {
      unsafe tag[i] = tagged ? bytes[at] : 0
      if tagged { at += 1 }
      let length = unsafe Int(bytes[at]) | Int(bytes[at + 1]) << 8
      unsafe self.length[i] = UInt16(length)
      unsafe offset[i] = UInt32(at + 2)
      at += 2 + length
    }
  }

  @inline(__always) subscript(i: Int) -> UnsafeBufferPointer<UInt8> {
    unsafe UnsafeBufferPointer(start: bytes + Int(offset[i]), count: Int(length[i]))
  }
}

/// Runs `work`, one call for each repetition, in batches, and prints the line that measure.py reads. It prints
/// `roundTrips` and the items per second if they are the figure.
func measure(
  _ id: String, items: Int, repetitions: Int, batches: Int, roundTrips: Int? = nil, showsRate: Bool = false,
  _ work: (Int) -> UInt64
) {
  var times: [Double] = []
  var sum: UInt64 = 0
  for _ in 0..<batches {
    let start = nanoseconds()
    sum = work(repetitions)
    times.append(Double(nanoseconds() - start) / Double(repetitions * items))
  }
  times.sort()
  let median = times[batches / 2]
  // Hundredths as integers: the cost of formatting a Double depends on its digits, and this is counted too.
  let hundredths = Int(median * 100)
  let fraction = hundredths % 100
  var line = "\(id) ns \(hundredths / 100).\(fraction / 10)\(fraction % 10)"
  line += " check \(sum / UInt64(repetitions)) items \(items)"
  if let roundTrips { line += " round_trips \(roundTrips)" }
  if showsRate { line += " per_second \(Int(1e9 / median))" }
  print(line)
}

extension HostCore {
  /// The host and its virtual controller answer each other until both are quiet. Returns the host's effects.
  mutating func converse(_ air: inout Air, _ controller: ControllerID) -> [HostEffect] {
    var packet = PacketBuffer(), effects: [HostEffect] = [], isQuiet = false
    while !isQuiet {
      isQuiet = true
      while packet.fill({ nextPacket(into: &$0, now: .zero) }) {
        isQuiet = false
        packet.withBytes { air.receive($0, at: controller, now: .zero) }
      }
      while packet.fill({ air.nextPacket(from: controller, into: &$0, now: .zero) }) {
        isQuiet = false
        packet.withBytes { _ = receive($0, now: .zero) }
      }
      while let effect = nextEffect() { effects.append(effect) }
    }
    return effects
  }
}
