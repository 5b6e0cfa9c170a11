import BindruneSystem
import BindruneTransport
import BindruneWire
import BindruneGAP
import Glibc
import Logging
import BindruneSMP
import SystemPackage

/// Refuses every pairing: peers get Pairing Not Supported, and the host begins none by itself, so that what needs
/// encryption stays closed to both. Bonds from earlier keep working.
public struct RefusingAgent: PairingAgent {
  public init() {}
  public var ioCapability: IOCapability { .noInputNoOutput }
  public var permitsPairing: Bool { false }
  public func answer(_ question: PairingQuestion, from link: Link) async -> PairingAnswer? { .refuse }
}

/// Who answers for the user of a program, as `BINDRUNE_AGENT` and the tool's `--agent` name it.
package enum AgentChoice: Sendable, Equatable {
  /// Nobody is asked: `JustWorksAgent`.
  case accept
  case refuse
  /// The user of the terminal that the process belongs to.
  case terminal
  /// A command of the shell: `CommandAgent`.
  case command(String)

  package init(_ text: String) {
    switch text {
    case "accept", "": self = .accept
    case "refuse": self = .refuse
    case "terminal": self = .terminal
    default: self = .command(text)
    }
  }
  package func agent(_ logger: Logger) -> any PairingAgent {
    switch self {
    case .accept: JustWorksAgent()
    case .refuse: RefusingAgent()
    case .terminal: AskingAgent(TerminalDesk(logger: logger))
    case .command(let command): CommandAgent(command, logger: logger)
    }
  }
}

// MARK: A person

/// Where an `AskingAgent` meets its user.
package protocol PairingDesk: Sendable {
  /// Shows a sentence, and six digits if there are any.
  func show(_ text: String, digits: PairingDigits?) async
  /// The next line that the user enters; nil: there will be none, or the task is cancelled.
  func ask(_ cue: String) async -> String?
}

/// Asks a person in words.
package struct AskingAgent: PairingAgent {
  private let desk: any PairingDesk
  package let ioCapability: IOCapability
  private let reportsEnd: Bool

  /// `reportsEnd`: the user also reads that a pairing has ended, and why.
  package init(
    _ desk: any PairingDesk, ioCapability: IOCapability = .keyboardDisplay, reportsEnd: Bool = true
  ) {
    self.desk = desk
    self.ioCapability = ioCapability
    self.reportsEnd = reportsEnd
  }

  package func answer(_ question: PairingQuestion, from link: Link) async -> PairingAnswer? {
    let peer = await link.address
    switch question {
    case .consent(let method, let replaced):
      let danger = method.isAuthenticated ? "" : " No digits are compared, so another device could pass for it."
      await desk.show("\(Self.text(of: peer, replaced))\(danger)", digits: nil)
      guard let replaced, !replaced.isProven else { return await confirms("Pair with it?") ? .consent : .refuse }
      return await confirms("Let it replace \(replaced.address)?") ? .consent : .refuse
    case .display(let number):
      await desk.show("Enter these digits on \(peer):", digits: PairingDigits(number))
      return nil
    case .compare(let number):
      await desk.show("Compare these digits with those that \(peer) shows:", digits: PairingDigits(number))
      return await confirms("Are they the same?") ? .numbersMatch : .refuse
    case .enterPasskey:
      await desk.show("\(peer) shows six digits.", digits: nil)
      while let line = await desk.ask("The digits: ") {
        if let digits = PairingDigits(line) { return .passkey(digits.number) }
        if line.isEmpty { break }
        await desk.show("Enter all six digits, or nothing to refuse.", digits: nil)
      }
      return .refuse
    case .keypress: return nil
    }
  }
  /// What the peer wants, and whose place it would take.
  private static func text(of peer: PeerAddress, _ replaced: ReplacedBond?) -> String {
    guard let replaced else { return "\(peer) wants to pair." }
    switch replaced.ground {
    case .key: return "\(peer) wants to pair anew."
    case .address:
      return
        "\(peer) wants to pair, and that replaces the bond with \(replaced). It uses the address of that device and "
        + "has not shown that it is the device: agree only if you have just reset it."
    case .identity:
      return "\(peer) says that it is \(replaced), and takes the place of that device, which it has not shown to be: "
        + "agree only if you have just reset it."
    }
  }
  /// Nothing but yes is consent.
  private func confirms(_ question: String) async -> Bool {
    while let line = await desk.ask("\(question) yes or no: ") {
      switch line.lowercased() {
      case "yes", "y": return true
      case "no", "n", "": return false
      default: await desk.show("Answer yes or no.", digits: nil)
      }
    }
    return false
  }
  package func pairingEnded(on link: Link, _ error: BluetoothError?) async {
    guard reportsEnd else { return }
    let peer = await link.address
    await desk.show(error?.description ?? "Paired with \(peer).", digits: nil)
  }
}

/// The six digits of a pairing. Vol 3, Part H, §2.3.5.3.
package struct PairingDigits: Sendable, Equatable {
  /// 0 … 999,999.
  package let number: UInt32
  package init(_ number: UInt32) { self.number = number % 1_000_000 }
  /// As a person types them, with or without spaces.
  package init?(_ text: String) {
    let digits = text.filter { $0 != " " && $0 != "\t" && $0 != "\r" }
    guard digits.utf8.count == 6, digits.utf8.allSatisfy({ 0x30...0x39 ~= $0 }), let number = UInt32(digits) else {
      return nil
    }
    self.number = number
  }
  /// `012345`
  package var text: String {
    let digits = String(number)
    return String(repeating: "0", count: 6 - digits.count) + digits
  }
  /// `012 345`
  package var spaced: String { "\(text.prefix(3)) \(text.suffix(3))" }
}

/// The terminal that the process belongs to, whatever its standard streams are.
package struct TerminalDesk: PairingDesk {
  private let logger: Logger
  /// Called before anything is shown.
  private let prepare: @Sendable () -> Void
  /// The lines that show six digits.
  private let draw: @Sendable (PairingDigits) -> [String]
  package init(
    logger: Logger, prepare: @escaping @Sendable () -> Void = {},
    draw: @escaping @Sendable (PairingDigits) -> [String] = { ["  " + $0.spaced] }
  ) {
    self.logger = logger
    self.prepare = prepare
    self.draw = draw
  }

  package func show(_ text: String, digits: PairingDigits?) async {
    guard let terminal = openTerminal() else { return }
    var lines = [text]
    if let digits { lines += [""] + draw(digits) }
    Self.write(lines.map { $0 + "\n" }.joined(), to: terminal)
    try? terminal.close()
  }
  package func ask(_ cue: String) async -> String? {
    guard let terminal = openTerminal() else { return nil }
    defer { try? terminal.close() }
    // What was typed before the question is no answer to it.
    tcflush(terminal.rawValue, TCIFLUSH)
    Self.write(cue, to: terminal)
    return await Self.line(of: terminal)
  }
  private func openTerminal() -> FileDescriptor? {
    prepare()
    do throws(Errno) {
      return try Errno.typed {
        try FileDescriptor.opened(FilePath("/dev/tty"), .readWrite, options: [.noControllingTerminal])
      }
    } catch {
      logger.warning("There is no terminal to ask about the pairing (\(error)): it is refused; set another agent.")
      return nil
    }
  }
  private static func write(_ text: String, to terminal: FileDescriptor) { _ = try? terminal.writeAll(text.utf8) }

  /// The next line of a terminal or a pipe, at most 256 octets, without its end; nil: there is none, or the task is
  /// cancelled. Reads nothing after it, and blocks no thread.
  package static func line(of input: FileDescriptor) async -> String? {
    var octets: [UInt8] = []
    while octets.count < 256 {
      var ready = pollfd(fd: input.rawValue, events: Int16(POLLIN), revents: 0)
      let count = unsafe poll(&ready, 1, 0)
      if count < 0, errno != EINTR { return nil }
      if count <= 0 {
        do { try await Task.sleep(for: .milliseconds(50)) } catch { return nil }
        continue
      }
      var octet: UInt8 = 0
      switch unsafe read(input.rawValue, &octet, 1) {
      case 1 where octet == UInt8(ascii: "\n"): return text(octets)
      case 1: octets.append(octet)
      case 0: return octets.isEmpty ? nil : text(octets)
      default: if errno != EINTR, errno != EAGAIN { return nil }
      }
    }
    return text(octets)
  }
  /// Without spaces at both ends.
  private static func text(_ octets: [UInt8]) -> String {
    let isBlank = { (octet: UInt8) in octet == 0x20 || 0x09...0x0D ~= octet }
    let inner = octets.drop(while: isBlank).reversed().drop(while: isBlank).reversed()
    return String(decoding: Array(inner), as: UTF8.self)
  }
}

// MARK: A command

/// Has a command of the shell answer: `BINDRUNE_QUESTION` is `consent`, `replace`, `display`, `passkey`, `compare` or,
/// after all others, `ended`; `BINDRUNE_PEER` the device's address; `BINDRUNE_DIGITS` the six digits of `display` and
/// `compare`; `BINDRUNE_REPLACES` the bonded device whose place it would take with `replace`, and
/// `BINDRUNE_AUTHENTICATED` whether that bond is authenticated, `yes` or `no`. `replace` is a question of its own, so
/// that a command that says yes to all devices does not give up bonds. The first line of its standard output is the
/// answer: `yes`, `no`, or six digits. A command that fails, or runs for 30 s, refuses.
package struct CommandAgent: PairingAgent {
  private let command: ShellCommand
  private let logger: Logger
  /// The pairing itself waits no longer. Vol 3, Part H, §3.4.
  private let limit: Duration
  package init(_ command: String, logger: Logger, limit: Duration = .seconds(30)) {
    self.command = ShellCommand(command)
    self.logger = logger
    self.limit = limit
  }
  package var ioCapability: IOCapability { .keyboardDisplay }

  package func answer(_ question: PairingQuestion, from link: Link) async -> PairingAnswer? {
    switch question {
    case .consent(_, let replaced?) where !replaced.isProven:
      return await line("replace", link, replacing: replaced) == "yes" ? .consent : .refuse
    case .consent: return await line("consent", link) == "yes" ? .consent : .refuse
    case .compare(let number):
      return await line("compare", link, PairingDigits(number)) == "yes" ? .numbersMatch : .refuse
    case .display(let number): return await line("display", link, PairingDigits(number)) == nil ? .refuse : nil
    case .enterPasskey:
      return await line("passkey", link).flatMap { PairingDigits($0) }.map { .passkey($0.number) } ?? .refuse
    case .keypress: return nil
    }
  }
  package func pairingEnded(on link: Link, _ error: BluetoothError?) async { _ = await line("ended", link) }

  /// Nil: it failed, which is logged.
  private func line(
    _ question: String, _ link: Link, _ digits: PairingDigits? = nil, replacing bond: ReplacedBond? = nil
  ) async -> String? {
    var variables = ["BINDRUNE_QUESTION": question, "BINDRUNE_PEER": "\(await link.address)"]
    variables["BINDRUNE_DIGITS"] = digits?.text ?? ""
    variables["BINDRUNE_REPLACES"] = bond.map { "\($0.address)" } ?? ""
    variables["BINDRUNE_AUTHENTICATED"] = bond.map { $0.strength?.isAuthenticated == true ? "yes" : "no" } ?? ""
    do throws(ShellCommand.Failure) {
      return try await command.run(variables, within: limit)
    } catch {
      if error != .cancelled {
        logger.warning("The agent's command gave no answer to \(question), \(error): the pairing is refused.")
      }
      return nil
    }
  }
}
