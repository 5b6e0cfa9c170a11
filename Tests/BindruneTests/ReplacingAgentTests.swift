import Bindrune
import BindruneTransport
import BindruneGAP
import BindruneSMP
import Synchronization
import TestSupport
import Testing

/// A person who reads everything and always gives the same answer.
private final class Desk: PairingDesk {
  private let answer: String, texts = Mutex<[String]>([])
  init(_ answer: String) { self.answer = answer }
  var shown: [String] { texts.withLock { $0 } }
  func show(_ text: String, digits: PairingDigits?) async { texts.withLock { $0.append(text) } }
  func ask(_ cue: String) async -> String? {
    texts.withLock { $0.append(cue) }
    return answer
  }
}

/// Who answers when a device that has lost its bond, or one that uses its address, pairs again. Decision 0060.
@Suite(.virtualTime, .hang) struct ReplacingAgentTests {
  /// A central pairs with a host of `agent`, twice; between the two pairings its own bond goes, if `forgets`. The error
  /// of the second, whether the host has another bond then, and the device's address.
  private func pairTwice(
    with agent: any PairingAgent, forgets: Bool = true, on lab: Lab = Lab()
  ) async throws -> (error: BluetoothError?, isReplaced: Bool, address: String) {
    let central = try await lab.host(), host = BluetoothHost(lab.radio.controller(), agent: agent)
    try await host.start()
    try await host.advertiseFast()
    var link = try await central.connect(to: host.ownAddress, .fast)
    try await link.pair()
    let bond = await host.bonds.first, address = await central.ownAddress
    if forgets { link = try await central.withoutBond(link, to: host) }
    var failure: BluetoothError?
    do throws(BluetoothError) { try await link.pair() } catch { failure = error }
    let bonds = await host.bonds
    #expect(bonds.count == 1)
    await central.close()
    await host.close()
    return (failure, bonds.first?.ours != bond?.ours, "\(address)")
  }

  /// Nobody can say that the device has been reset.
  @Test func withoutAUserABondStays() async throws {
    let (error, isReplaced, _) = try await pairTwice(with: JustWorksAgent())
    #expect(error?.code == .pairing && !isReplaced)
  }
  /// A device that has the key of its bond makes a new one.
  @Test func theBondedDeviceNeedsNoUser() async throws {
    let (error, isReplaced, _) = try await pairTwice(with: JustWorksAgent(), forgets: false)
    #expect(error == nil && isReplaced)
  }
  /// The question names the device whose bond goes.
  @Test(arguments: ["yes", "no"]) func aUserIsTold(_ answer: String) async throws {
    let desk = Desk(answer)
    let agent = AskingAgent(desk, ioCapability: .noInputNoOutput)
    let central = answer == "yes" ? nil : BluetoothError.Code.pairing
    // The first pairing needs consent, too.
    let (error, isReplaced, address) = try await pairTwice(with: FirstTime(agent))
    #expect(error?.code == central && isReplaced == (answer == "yes"))
    let shown = desk.shown
    #expect(
      shown.contains { $0.contains("replaces the bond with \(address) (") && $0.contains("unauthenticated") },
      "\(shown)")
    #expect(shown.contains("Let it replace \(address)? yes or no: "), "\(shown)")
  }
  /// Consents to devices without a bond, and asks another agent about others.
  private struct FirstTime: PairingAgent {
    let other: any PairingAgent
    init(_ other: any PairingAgent) { self.other = other }
    var ioCapability: IOCapability { .noInputNoOutput }
    func answer(_ question: PairingQuestion, from link: Link) async -> PairingAnswer? {
      if case .consent(_, nil) = question { .consent } else { await other.answer(question, from: link) }
    }
  }
}

/// The same with a command of the shell.
@Suite(.realTime, .hang) struct ReplacingCommandTests {
  /// One that says yes to each device gives up no bond; `replace` is a question of its own.
  @Test(arguments: [
    ("test $BINDRUNE_QUESTION = consent && echo yes", false),
    ("test $BINDRUNE_AUTHENTICATED = no && test -n \"$BINDRUNE_REPLACES\" && echo yes", true),
  ]) func aCommandIsTold(_ command: String, replaces: Bool) async throws {
    let lab = Lab.overSockets()
    let central = try await lab.host()
    // The first consent is the test's.
    let host = BluetoothHost(lab.radio.controller(), agent: Second(CommandAgent(command, logger: .silent)))
    try await host.start()
    try await host.advertiseFast()
    var link = try await central.connect(to: host.ownAddress, .fast)
    try await link.pair()
    let bond = await host.bonds.first
    link = try await central.withoutBond(link, to: host)
    var failure: BluetoothError?
    do throws(BluetoothError) { try await link.pair() } catch { failure = error }
    #expect((failure == nil) == replaces)
    let bonds = await host.bonds
    #expect(bonds.count == 1 && (bonds.first?.ours != bond?.ours) == replaces)
    await central.close()
    await host.close()
  }
  private struct Second: PairingAgent {
    let command: CommandAgent
    init(_ command: CommandAgent) { self.command = command }
    var ioCapability: IOCapability { .noInputNoOutput }
    func answer(_ question: PairingQuestion, from link: Link) async -> PairingAnswer? {
      if case .consent(_, nil) = question { .consent } else { await command.answer(question, from: link) }
    }
    func pairingEnded(on link: Link, _ error: BluetoothError?) async {}
  }
}

extension BluetoothHost {
  /// Forgets the bond of the link's peer, and connects to it anew.
  fileprivate func withoutBond(_ link: Link, to peer: BluetoothHost) async throws -> Link {
    #expect(removeBond(with: link.peer))
    try await link.disconnect()
    try await peer.advertiseFast()
    return try await connect(to: peer.ownAddress, .fast)
  }
}
