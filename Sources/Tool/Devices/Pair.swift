import ArgumentParser
import Bindrune
import BindruneSystem
import BindruneTransport
import BindruneWire
import BindruneGAP
import Logging
import BindruneSMP
import Synchronization
import SystemPackage

struct Pair: AsyncParsableCommand {
  static let configuration = CommandConfiguration(
    abstract: "Pair with a device, and keep the bond.",
    discussion: """
      Connects and pairs. Shows six digits, or asks for them, if that is how the two devices can pair; prints what \
      protects the link then, and where the bond is stored. From then on all verbs, and Core Bluetooth programs, \
      encrypt their links with the device.

        bindrune pair --name "Heart*"
        echo 123456 | bindrune pair --address F0:F1:F2:F3:F4:F5/random --io keyboard
        bindrune pair --name Lock --oob lock.txt

      Without digits (Just Works) a device in the middle can take part unnoticed; --mitm refuses that. With a bond \
      that is strong enough the verb only encrypts. \(DeviceOptions.statuses)
      """)

  @OptionGroup var device: DeviceOptions
  @Option(
    help: """
      What you can do: display (see digits), keyboard (type them), yesno (see and compare), keyboard-display (all of \
      it), none. Default: keyboard-display on a terminal, otherwise none.
      """)
  var io: PairingIO?
  @Flag(help: "Require protection against a man in the middle: digits.")
  var mitm = false
  @Flag(help: "Require LE Secure Connections.")
  var scOnly = false
  @Option(
    help: ArgumentHelp(
      """
      A file with the device's out of band data, from its NFC tag or printed code: AD structures as hexadecimal \
      digits, with the types 22 and 23, or 10 for legacy pairing.
      """, valueName: "file"), completion: .file())
  var oob: String?
  @Option(
    help: ArgumentHelp(
      "Write this side's out of band data to a new file, and wait until you have given it to the device.",
      valueName: "file"), completion: .file())
  var oobOwn: String?
  @Flag(help: "Keep no bond: the keys end with the link.")
  var noBond = false
  @Flag(help: "Print one JSON object per question, and one for the result.")
  var json = false

  func validate() throws {
    if io != nil, device.pairing.agent != nil {
      throw ValidationError("--io says what you can do, and --agent who answers instead of you: give one of them.")
    }
    if mitm, device.pairing.agent == nil, ability == .none, oob == nil, oobOwn == nil {
      throw ValidationError("--mitm needs digits: say with --io how you see or enter them, or give data with --oob.")
    }
    if noBond, device.pairing.bonds != nil {
      throw ValidationError("--no-bond stores nothing in the file of --bonds: give one of them.")
    }
  }
  private var ability: PairingIO { io ?? (PairDesk.isPerson ? .keyboardDisplay : .none) }

  func run() async throws {
    if json { Interruption.watchOutput() }
    let progress = Progress(isShown: !json), logger = device.host.common.logger
    let store = noBond ? nil : try device.pairing.store(device.host, logger)
    let agent: any PairingAgent =
      device.pairing.agent?.agent(logger)
      ?? AskingAgent(PairDesk(json: json), ioCapability: ability.capability, reportsEnd: false)
    var configuration = HostConfiguration()
    configuration.pairing.isBonding = !noBond
    configuration.pairing.protection = mitm ? .required : .wanted
    configuration.pairing.secureConnections = scOnly ? .only : .supported
    if let oob { configuration.pairing.peersData = try outOfBandData(oob) }
    if let oobOwn { configuration.pairing.ownData = try await giveOutOfBandData(oobOwn) }
    configuration.pairing.requiresOutOfBand = oob != nil || oobOwn != nil
    let paired = try await device.withLink(progress, configuration, agent: agent, bondStore: store) { link, _ in
      progress("pairing with \(await link.address)")
      let (security, isNew) = try await secure(link)
      return Paired(peer: link.peer, address: await bondedAddress(link), security: security, isNew: isNew)
    }
    // The host has been closed, and with that the bond been stored.
    var isStored = false
    if paired.security.isBonded, let path = store?.path {
      isStored = try await BondFile(path: path).all().entries.contains { $0.bond.peer == paired.peer }
    }
    report(paired, path: isStored ? store?.path : nil)
    if paired.security.isBonded, store != nil, !isStored {
      throw Failure("The devices have paired, but the bond is in no file: name a file that you may write with --bonds.")
    }
  }
  private struct Paired {
    let peer: PeerID
    let address: PeerAddress
    let security: LinkSecurity
    let isNew: Bool
  }

  private func outOfBandData(_ path: String) throws -> PeersOutOfBandData {
    let text: [UInt8]
    do throws(FilePath.DistrustedFile) { text = try FilePath(text: path).trustedContents(upTo: 4_096) } catch {
      if case .planted(let planted) = error {
        throw Failure("\(planted.sentence(or: "name another file with out of band data")).")
      }
      throw Failure("The file \(path.printable()) cannot be read, \(error): name a file with out of band data.")
    }
    guard let octets = HexOctets(argument: String(decoding: text, as: UTF8.self))?.octets,
      let data = PeersOutOfBandData(AdvertisingData(decoding: octets.span))
    else {
      throw Failure(
        "The file \(path.printable()) has no out of band data: it needs AD structures of 16 octets as hexadecimal "
          + "digits, with the types 22 and 23, or 10.")
    }
    return data
  }
  /// Writes our data, and waits for the user.
  private func giveOutOfBandData(_ path: String) async throws -> OwnOutOfBandData {
    var chance = SystemRandomNumberGenerator()
    let data = OwnOutOfBandData(using: &chance)
    let text = data.forPeer.structures.flatMap(\.octets).map { hexDigits(UInt64($0), 2) }.joined(separator: " ") + "\n"
    do throws(Errno) { try FilePath(text: path).create(Array(text.utf8)) } catch {
      throw Failure("The file \(path.printable()) cannot be written, \(error): choose a free name in your own folder.")
    }
    let line = "Give the device the data in \(path.printable()), then press Return."
    if json {
      var object = JSONLine(event: "question")
      object.add("text", line)
      Console.line(object)
    } else {
      Console.line(line)
    }
    _ = await TerminalDesk.line(of: .standardInput)
    return data
  }

  /// Encrypts with the bond, if there is one and it is strong enough; else pairs.
  private func secure(_ link: Link) async throws -> (LinkSecurity, isNew: Bool) {
    guard await link.security.isBonded else { return (try await link.pair(), true) }
    let security: LinkSecurity
    do throws(BluetoothError) { security = try await link.encrypt() } catch {
      guard error.code == .pairing || error.status == .pinOrKeyMissing else { throw error }
      let address = await bondedAddress(link)
      throw Failure(
        """
        \(error.diagnostics.hasSuffix(".") ? String(error.diagnostics.dropLast()) : error.diagnostics): \
        "bindrune bonds remove \(address)" removes it here.
        """
      )
    }
    if mitm && !security.isAuthenticated || scOnly && security.key?.isSecureConnections != true {
      return (try await link.pair(), true)
    }
    return (security, false)
  }

  /// The address of the peer's bond, by which the file and the verb `bonds` name it. The link may have another one: an
  /// identity address without a key that resolves the link's address is only a claim. Without a bond, the link's.
  private func bondedAddress(_ link: Link) async -> PeerAddress {
    let peer = link.peer
    if let bond = await link.host.bonds.first(where: { $0.peer == peer }) { return bond.address }
    return await link.address
  }
  /// `path`: of the file with the bond.
  private func report(_ paired: Paired, path: String?) {
    if json {
      var line = JSONLine(event: paired.isNew ? "paired" : "encrypted")
      line.add("address", "\(paired.address)")
      line.add("encrypted", paired.security.isEncrypted)
      line.add("authenticated", paired.security.isAuthenticated)
      line.add("secureConnections", paired.security.key?.isSecureConnections)
      line.add("keySize", paired.security.key?.size.count)
      line.add("bonded", paired.security.isBonded)
      line.add("bonds", path)
      return Console.line(line)
    }
    let key = paired.security.key.map { "\($0)" } ?? "none"
    Console.line(
      paired.isNew
        ? "Paired with \(paired.address): \(key)." : "The bond with \(paired.address) encrypts the link: \(key).")
    if !paired.security.isAuthenticated {
      Console.line("No digits were compared, so a device in the middle would not have been noticed.")
    }
    if let path {
      Console.line(
        Console.withCommands(
          "The bond is in \(path.printable()); `bindrune bonds remove \(paired.address)` removes it."))
    } else {
      Console.line("No bond is stored: the keys end with this link.")
    }
  }
}

/// `--io`. Vol 3, Part H, §2.3.2.
enum PairingIO: String, CaseIterable, ExpressibleByArgument {
  case display, keyboard, yesno
  case keyboardDisplay = "keyboard-display"
  case none
  var capability: IOCapability {
    switch self {
    case .display: .displayOnly
    case .keyboard: .keyboardOnly
    case .yesno: .displayYesNo
    case .keyboardDisplay: .keyboardDisplay
    case .none: .noInputNoOutput
    }
  }
}

/// Who answers when devices pair, and where bonds are kept: the options of verbs that may have to pair.
struct PairingOptions: ParsableArguments {
  @Option(
    help: ArgumentHelp(
      """
      Who answers when a device pairs: accept (nobody is asked), refuse, terminal, or a command for sh. Default: \
      terminal on a terminal, otherwise accept.
      """, valueName: "agent"))
  var agent: AgentChoice?
  @Option(
    help: ArgumentHelp("The file of the bonds. Default: BINDRUNE_BONDS, or the user's own.", valueName: "path"),
    completion: .file())
  var bonds: String?

  /// The agent of a verb without questions of its own.
  func makeAgent(_ logger: Logger) -> any PairingAgent {
    switch agent ?? (PairDesk.isPerson ? .terminal : .accept) {
    case .terminal:
      AskingAgent(
        TerminalDesk(logger: logger, prepare: { Console.status(nil) }, draw: { $0.picture + ["", "  " + $0.spaced] }))
    case let other: other.agent(logger)
    }
  }
  /// Nil: in memory.
  func store(_ host: HostOptions, _ logger: Logger) throws -> BondFile? {
    try bonds.map { BondFile(path: $0) } ?? BondFile.ofPrograms(host.choice().spec, logger)
  }
}
extension AgentChoice: ExpressibleByArgument {
  public init?(argument: String) {
    if argument.isEmpty { return nil }
    self.init(argument)
  }
}

/// The questions of `bindrune pair`: on the terminal, or as lines of two pipes.
struct PairDesk: PairingDesk {
  let json: Bool
  /// Somebody sees the output and can type.
  static var isPerson: Bool { StandardInput.isTerminal && Console.isTerminal }

  func show(_ text: String, digits: PairingDigits?) async {
    Console.status(nil)
    if json {
      var line = JSONLine(event: "question")
      line.add("text", text)
      line.add("digits", digits?.text)
      return Console.line(line)
    }
    guard let digits else { return Console.line(text) }
    guard Console.isTerminal else { return Console.line("\(text) \(digits.text)") }
    Console.line(text)
    Console.line()
    if Screen.size.columns >= 60 { for line in digits.picture { Console.line("  \(line)") } }
    Console.line()
    Console.line("  " + Console.styled(digits.spaced, .bold))
  }
  func ask(_ cue: String) async -> String? {
    if Console.isTerminal { Console.status(nil) }
    if !json { Console.write(Console.isTerminal ? cue : cue + "\n") }
    return await TerminalDesk.line(of: .standardInput)
  }
}

/// The questions of the shell on a terminal, which reads the keys itself.
struct ShellDesk: PairingDesk {
  /// A question that waits for its line.
  final class Question: Sendable {
    let cue: String
    private enum Phase {
      case open
      case waiting(CheckedContinuation<String?, Never>)
      case answered
    }
    private let phase = Mutex(Phase.open)
    init(_ cue: String) { self.cue = cue }

    var isOpen: Bool { phase.withLock { if case .answered = $0 { false } else { true } } }
    /// Nil: refused. Only the first answer counts.
    func answer(_ line: String?) {
      let waiting = phase.withLock { phase -> CheckedContinuation<String?, Never>? in
        defer { phase = .answered }
        if case .waiting(let continuation) = phase { return continuation }
        return nil
      }
      waiting?.resume(returning: line)
    }
    fileprivate func wait(_ continuation: CheckedContinuation<String?, Never>) {
      let isOver = phase.withLock { phase in
        guard case .open = phase else { return true }
        phase = .waiting(continuation)
        return false
      }
      if isOver { continuation.resume(returning: nil) }
    }
  }
  /// For `ShellTerminal`.
  let questions: AsyncStream<Question>
  private let asked: AsyncStream<Question>.Continuation
  init() { (questions, asked) = AsyncStream.makeStream() }

  func show(_ text: String, digits: PairingDigits?) async {
    await PairDesk(json: false).show(text, digits: digits)
  }
  func ask(_ cue: String) async -> String? {
    let question = Question(cue)
    return await withTaskCancellationHandler {
      await withCheckedContinuation { continuation in
        question.wait(continuation)
        asked.yield(question)
      }
    } onCancel: {
      question.answer(nil)
      asked.yield(question)  // to be taken off the screen
    }
  }
}
