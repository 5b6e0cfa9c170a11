import ArgumentParser
import Bindrune
import BindruneSystem
import BindruneTransport
import BindruneWire
import Dispatch
import Glibc
import Synchronization
import SystemPackage

struct PipeCommand: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    commandName: "pipe",
    abstract: "Connect standard input and output with a channel to a device.",
    discussion: """
      Carries octets over a credit-based channel of L2CAP, as netcat does over TCP: much faster than values, and \
      neither side can overrun the other. One side listens and advertises, the other connects:

        bindrune pipe --listen 0x80 --name Desk > copy
        bindrune pipe --name Desk --psm 0x80 < image

      PSMs 0x80 … 0xFF are free for any use; 0x01 … 0x7F belong to services that the Bluetooth SIG has assigned.

      At the end of standard input the other side gets an SDU without octets, which ends its output if it is this \
      program, or a Linux socket; octets from there are still taken, until that side has ended, too, or closes the \
      channel. With --close the channel closes then, for devices that know no such end.

      Status 2: the device was not heard or did not answer. 4: it refuses the channel: it has no such service, no room, \
      or wants a better protected link. 5: the time is over. 64: wrong usage. 1: anything else, such as a link or a \
      channel that ended before everything had been sent.
      """)

  @OptionGroup var host: HostOptions
  @Option(help: ArgumentHelp("Listen, and take the first channel that a device opens to this PSM.", valueName: "psm"))
  var listen: WantedPSM?
  @Option(help: ArgumentHelp("Open a channel to this PSM of the device.", valueName: "psm"))
  var psm: WantedPSM?
  @Option(
    help: ArgumentHelp(
      "The device: AA:BB:CC:DD:EE:FF/public or …/random; without a type the tool scans for it.", valueName: "address"))
  var address: WantedAddress?
  @Option(
    help: """
      The device's name, or its beginning and *; the first match is used. With --listen the name to advertise, at most \
      29 octets of UTF-8.
      """)
  var name: String?
  @Option(help: "With --listen, what must protect the link: none, encrypted or authenticated.")
  var security = WantedSecurity.none
  @Option(
    help: ArgumentHelp(
      "How long to look for the device, and then to connect; default: 10. With --listen how long to wait for a channel.",
      valueName: "seconds"))
  var timeout: Seconds?
  @Flag(help: "Close the channel at the end of standard input, when everything has been sent.")
  var close = false
  @OptionGroup var pairing: PairingOptions

  func validate() throws {
    guard (listen == nil) != (psm == nil) else {
      throw ValidationError("Select a side: either --listen, or --psm with a device.")
    }
    if listen != nil {
      if address != nil { throw ValidationError("--listen takes any device: leave out --address.") }
      if let name, name.isEmpty { throw ValidationError("--name is empty: leave it out, or give one.") }
      if let name { try checkLength(ofName: name) }
    } else {
      guard (address == nil) != (name == nil) else {
        throw ValidationError("Select a device: either --address or --name.")
      }
      if security != .none { throw ValidationError("--security is the listener's: leave it out.") }
    }
  }

  func run() async throws {
    let logger = host.common.logger
    // Questions of a pairing would take lines of the input: only on request.
    let agent: any PairingAgent = pairing.agent == nil ? JustWorksAgent() : pairing.makeAgent(logger)
    try await BluetoothHost.using(host, agent: agent, bondStore: try pairing.store(host, logger)) { host in
      if let listen { return try await serve(listen, on: host) }
      guard let psm else { return }
      let wanted = address.map { WantedDevice.address($0) } ?? .name(name ?? ""), limit = timeout ?? Seconds(10)
      Note.show("looking for a \(wanted.text) …")
      defer { Note.show(nil) }
      let peer = try await wanted.find(by: host, within: limit)
      Note.show("connecting to \(peer) …")
      try await host.reach(peer, .fast, within: limit) { link in
        try await carry(try await open(psm, on: link))
      }
    }
  }

  private func open(_ psm: WantedPSM, on link: Link) async throws -> LinkChannel {
    do throws(BluetoothError) { return try await link.openChannel(psm: psm.psm, mtu: 4096) } catch {
      guard error.code == .refused || error.code == .pairing else { throw error }
      throw Failure(error.description, status: .refused)
    }
  }
  private func serve(_ psm: WantedPSM, on host: BluetoothHost) async throws {
    let name = name ?? "Bindrune pipe"
    let listener = try await host.listen(psm: psm.psm, security: security.security, mtu: 4096)
    try await host.advertise(
      AdvertisingData(localName: name), AdvertisingParameters(interval: .every(.milliseconds(30))))
    Console.error("listening on PSM \(psm.psm.text) as \(name.printable()), \(await host.ownAddress)")
    let accept = { @Sendable () async throws -> LinkChannel in
      for try await channel in listener { return channel }
      throw CancellationError()
    }
    let channel: LinkChannel
    if let timeout {
      guard let first = try await withLimit(timeout.duration, accept) else {
        throw Failure("No device opened a channel in \(timeout): raise --timeout.", status: .timeOver)
      }
      channel = first
    } else {
      channel = try await accept()
    }
    await listener.end()
    await host.stopAdvertising()
    try await carry(channel)
  }

  // MARK: Both directions

  private enum Side { case input, output, channel }

  private func carry(_ channel: LinkChannel) async throws {
    let count = PipeCount(), closes = close
    let show = Task {
      while !Console.isTerminal {
        Note.show(count.text)
        try await Task.sleep(for: .milliseconds(250))
      }
    }
    defer {
      show.cancel()
      Note.show(nil)
    }
    try await withThrowingTaskGroup(of: Side.self) { group in
      group.addTask { try await send(on: channel, count, closes: closes) }
      group.addTask { try await receive(on: channel, count) }
      // Nothing more comes and nothing can be sent: an input that has not ended is of no use.
      while let side = try await group.next() { if side == .channel { group.cancelAll() } }
    }
    try Task.checkCancellation()
    // Both sides have ended. The listener leaves it to the other to close: two requests that cross might each be the last
    // thing on the link.
    if listen != nil { _ = try await withLimit(.seconds(10)) { await channel.closed } }
    await channel.close()
    switch await channel.closed {
    case .failed(let error): throw error
    // Who closes the channel ends the link, when the answer has come: the other would cut its answer off.
    case .byPeer: _ = try await withLimit(.seconds(2)) { await channel.link.closed }
    case .here: break
    }
  }
  /// Ends with the input, or, as a part of the input is lost, throws.
  private func send(on channel: LinkChannel, _ count: PipeCount, closes: Bool) async throws -> Side {
    while let octets = await StandardInput.next() {
      var rest = octets[...]
      while !rest.isEmpty {
        let sdu = Array(rest.prefix(channel.longestSDU))
        do throws(BluetoothError) { try await channel.send(sdu) } catch {
          guard await channel.closed == .byPeer else { throw error }
          throw Failure("The device closed the channel before all of the input was sent: \(count.text).")
        }
        rest = rest.dropFirst(sdu.count)
        count.sent.add(sdu.count, ordering: .relaxed)
      }
    }
    if Task.isCancelled { return .input }
    if closes {
      await channel.close()
      return .channel
    }
    do throws(BluetoothError) { try await channel.send([]) } catch {
      // It needs no end of the input any more.
      guard await channel.closed == .byPeer else { throw error }
    }
    return .input
  }
  /// Ends with the other side's input, or with the channel.
  private func receive(on channel: LinkChannel, _ count: PipeCount) async throws -> Side {
    for try await sdu in channel.received {
      if sdu.isEmpty {
        StandardOutput.end()
        return .output
      }
      try await StandardOutput.write(sdu)
      count.received.add(sdu.count, ordering: .relaxed)
    }
    return .channel
  }
}

/// A PSM as the user types it: hexadecimal with 0x, or decimal.
struct WantedPSM: ExpressibleByArgument, Sendable {
  let psm: SPSM
  init?(argument: String) {
    let isHex = argument.hasPrefix("0x")
    guard let number = UInt16(isHex ? argument.dropFirst(2) : argument[...], radix: isHex ? 16 : 10),
      1...0xFF ~= number
    else { return nil }
    psm = SPSM(rawValue: number)
  }
}

/// `--security`.
enum WantedSecurity: String, CaseIterable, ExpressibleByArgument {
  case none, encrypted, authenticated
  var security: ChannelSecurity {
    switch self {
    case .none: .none
    case .encrypted: .encrypted
    case .authenticated: .authenticated
    }
  }
}

/// Octets that were carried, and how fast.
private final class PipeCount: Sendable {
  let sent = Atomic(0), received = Atomic(0)
  private let start = ContinuousClock.now
  var text: String {
    let (sent, received) = (sent.load(ordering: .relaxed), received.load(ordering: .relaxed))
    let rate = Double(sent + received) / max((ContinuousClock.now - start) / .seconds(1), 0.001)
    return "sent \(sent) octets, received \(received), \(decimal(rate / 1000, 1)) kB/s"
  }
}

/// A live line on standard error, if that is a terminal: standard output belongs to the data.
private enum Note {
  private static let isTerminal = isatty(STDERR_FILENO) == 1
  static func show(_ text: String?) {
    if isTerminal { _ = try? FileDescriptor.standardError.writeAll(("\r\u{1B}[K" + (text ?? "")).utf8) }
  }
}

/// Standard output, for octets. A separate thread writes, and the caller waits for the reader.
private enum StandardOutput {
  private static let queue = DispatchQueue(label: "bindrune.output")

  static func write(_ octets: [UInt8]) async throws(Failure) {
    let error = await withCheckedContinuation { (done: CheckedContinuation<Errno?, Never>) in
      queue.async {
        do throws(Errno) {
          try Errno.typed { _ = try FileDescriptor.standardOutput.writeAll(octets) }
          done.resume(returning: nil)
        } catch {
          done.resume(returning: error)
        }
      }
    }
    guard let error else { return }
    Interruption.end(error == .brokenPipe ? .outputClosed : .outputFailed(error.description))
    throw Failure("Standard output failed: \(error.description).")
  }
  /// Its reader sees the end.
  static func end() { queue.async { try? FileDescriptor.standardOutput.close() } }
}
