import Bindrune
import Glibc
import Logging

/// A central for the cases of `Tests/Kernel`: counts numbered notifications, and compares long values.
///
///     KernelCentral SPEC NAME notifications COUNT LENGTH [TRACE] of InteropPeripheral, which numbers them
///     KernelCentral SPEC NAME value UUID LENGTH               reads what is there, writes LENGTH octets, reads them back
///     KernelCentral SPEC NAME wait [SECONDS]                  waits for the end of the link, SECONDS after it found NAME
///
/// Finds the peer by its advertised name, and tells each step as a line, and what the host logs; status 1 and the
/// error's sentence where one failed.
@main
struct KernelCentral {
  static func main() async {
    var arguments = CommandLine.arguments.dropFirst()
    guard let spec = arguments.popFirst(), let name = arguments.popFirst(), let check = arguments.popFirst() else {
      return end(2, "usage: KernelCentral SPEC NAME CHECK ARGUMENT…")
    }
    do {
      var configuration = HostConfiguration()
      configuration.prefersExtendedCommands = true
      let trace = check == "notifications" && arguments.count == 3 ? arguments.popLast() : nil
      // The logger's own way: to standard output, what is of note.
      let host = try await BluetoothHost.open(
        spec, configuration: configuration, trace: trace, logger: Logger(label: "bindrune"))
      do {
        let peer = try await find(name, host)
        printLine("found \(peer)")
        if check == "wait", let delay = arguments.first.flatMap({ UInt16($0) }) {
          try await Task.sleep(for: .seconds(delay))
        }
        let events = await host.events
        let link = try await host.connect(to: peer)
        let database = try await link.discoverAll()
        printLine("connected, ATT_MTU \(await link.mtu)")
        switch (check, Array(arguments)) {
        case ("notifications", let numbers) where numbers.count == 2:
          guard let count = UInt16(numbers[0]), let length = UInt16(numbers[1]) else {
            return end(2, "COUNT and LENGTH are numbers up to 65535")
          }
          try await receive(count, length, Server(link: link, database: database))
        case ("value", let words) where words.count == 2:
          guard let length = Int(words[1]), 0...512 ~= length else { return end(2, "LENGTH is 0 to 512") }
          try await exchange(length, with: try Server(link: link, database: database).characteristic(words[0]), link)
        case ("wait", _):
          for try await event in events {
            if case .disconnected(link.id, let reason) = event { throw BluetoothError(.disconnected, "\(reason)") }
          }
        default: return end(2, "no check \(check) with \(arguments.count) arguments")
        }
        try await link.disconnect()
        printLine("disconnected")
      } catch {
        await host.close()
        throw error
      }
      await host.close()
    } catch {
      end(1, "\(error)")
    }
  }

  static func find(_ name: String, _ host: BluetoothHost) async throws -> PeerAddress {
    for try await advertisement in host.scan() where advertisement.name == name { return advertisement.address }
    throw BluetoothError(.connectionFailed, "The scan ended without \(name).")
  }

  /// Requests `count` notifications of `length` octets, and prints how many came and which were missing. Ends when the
  /// last one has come, or none for a while.
  static func receive(_ count: UInt16, _ length: UInt16, _ server: Server) async throws {
    let source = try server.characteristic("A0B10004-1D1D-4BBD-8E5C-6F0E5F1A0C00")
    let control = try server.characteristic("A0B1000A-1D1D-4BBD-8E5C-6F0E5F1A0C00")
    let tally = Tally(count: Int(count), length: Int(length))
    let reader = Task {
      for try await value in server.link.notifications(of: source) {
        if await tally.add(value.value) { return }
      }
    }
    guard let configuration = server.database.descriptor(.clientCharacteristicConfiguration, of: source) else {
      throw BluetoothError(.invalidArgument, "The values cannot be subscribed to.")
    }
    while try await server.link.read(configuration.handle) != [1, 0] { try await Task.sleep(for: .milliseconds(20)) }
    printLine("subscribed")
    try await server.link.write(
      [1, UInt8(truncatingIfNeeded: count), UInt8(count >> 8), UInt8(truncatingIfNeeded: length), UInt8(length >> 8)],
      to: control.valueHandle)
    let watch = Task {
      // In short steps: the clock continues while this process is stopped, and a stop must not look like silence.
      var seen = 0
      var stillFor = 0
      while stillFor < 50 {
        try await Task.sleep(for: .milliseconds(100))
        let received = await tally.received
        stillFor = received == seen ? stillFor + 1 : 0
        seen = received
      }
      reader.cancel()
    }
    do { try await reader.value } catch { printLine("the values ended: \(error)") }
    watch.cancel()
    printLine(await tally.text)
    // Whatever was lost, the link is usable or gives a reason.
    printLine("read: \(try await server.link.read(source.valueHandle).count) octets")
  }

  /// Writes this many octets to the peer, in as many requests as needed, and reads them back.
  static func exchange(_ length: Int, with characteristic: RemoteCharacteristic, _ link: Link) async throws {
    printLine("read \(try await link.read(characteristic.valueHandle).count) octets")
    let value = (0..<length).map { UInt8(truncatingIfNeeded: $0 * 7 + $0 >> 8) }
    try await link.write(value, to: characteristic.valueHandle)
    printLine("wrote \(length) octets")
    let found = try await link.read(characteristic.valueHandle)
    printLine(
      found == value ? "read the same \(length) octets" : "read \(found.count) octets, not those written: \(found)")
  }
}

/// A link and its discovered characteristic.
struct Server: Sendable {
  let link: Link
  let database: RemoteDatabase

  func characteristic(_ text: String) throws -> RemoteCharacteristic {
    guard let uuid = BluetoothUUID(text), let found = database.characteristic(uuid) else {
      throw BluetoothError(.invalidArgument, "The peer has no characteristic \(text).")
    }
    return found
  }
}

/// Records which of the numbered values have arrived.
actor Tally {
  private let count: Int
  private let length: Int
  private(set) var received = 0
  private var expected = 0
  private var lost: [Range<Int>] = []
  private var misplaced: [Int] = []
  private var wrong = 0

  init(count: Int, length: Int) {
    self.count = count
    self.length = length
  }

  /// The number in its first four octets, little-endian. True: it is the last one.
  func add(_ value: [UInt8]) -> Bool {
    received += 1
    guard value.count == length, value.count >= 4 else {
      wrong += 1
      return false
    }
    let number = (0..<4).reduce(0) { $0 | Int(value[$1]) << (8 * $1) }
    if number < expected {
      misplaced.append(number)
    } else {
      if number > expected { lost.append(expected..<number) }
      expected = number + 1
    }
    return expected == count
  }

  var text: String {
    let missing = lost + (expected < count ? [expected..<count] : [])
    var parts = ["received \(received) of \(count)"]
    parts.append(misplaced.isEmpty ? "in order" : "out of order: \(misplaced.prefix(8))")
    if wrong > 0 { parts.append("\(wrong) of another length") }
    if !missing.isEmpty {
      parts.append("lost \(missing.reduce(0) { $0 + $1.count }) in \(missing.count) gaps, first \(missing[0])")
    }
    return parts.joined(separator: ", ")
  }
}

private func printLine(_ line: String) {
  print(line)
  fflush(nil)  // stdout is a file: whoever waits for a line reads it now
}
private func end(_ status: CInt, _ words: String) {
  printLine(words)
  exit(status)
}
