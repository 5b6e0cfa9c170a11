import BindruneWire
import BindruneGATT
import BindruneHCI
import TestSupport
import Testing

@testable import BindruneGAP

/// The commands for addresses and the resolving list, which change only while nothing uses them. Vol 4, Part E, §7.8.4,
/// §7.8.38, §7.8.44.
@Suite struct PrivacyCommandTests {
  private static let irk = IdentityResolvingKey(0xec0234a3_57c8ad05_341010a6_0a397d9b)
  private static let resolvable = PeerAddress(DeviceAddress(0x7081_940D_FBAA), .random)
  private static let off = "LE_Set_Scan_Enable(off)", on = ["LE_Set_Scan_Parameters", "LE_Set_Scan_Enable(on)"]

  private static func bench(list: UInt8, _ policy: AddressPolicy = .identity, scans: Bool = true) -> Bench {
    var controller = PaperController()
    if list > 0 { controller.features.insert(.llPrivacy) }
    controller.resolvingListSize = list
    var bench = Bench.started(controller: controller) { $0.addressPolicy = policy }
    if scans {
      bench.perform { core, now in core.startScan(ScanParameters(isActive: false), now: now) }
      bench.answerAll()
    }
    _ = bench.takeAll()
    return bench
  }
  private static func know(
    _ bench: inout Bench, _ peer: PeerAddress = Bench.otherPeer, _ irk: IdentityResolvingKey = irk
  )
    throws
  {
    var failure: IdentityError?
    bench.perform { core, now in
      do throws(IdentityError) { try core.addPeerIdentity(peer, irk, now: now) } catch { failure = error }
    }
    if let failure { throw failure }
  }

  @Test func aKeyGoesIntoTheList() throws {
    var bench = Self.bench(list: 2)
    try Self.know(&bench)
    bench.answerAll()
    let entered = ["LE_Add_Device_To_Resolving_List", "LE_Set_Privacy_Mode"]
    same(bench.takeAll(), [Self.off] + entered + ["LE_Set_Address_Resolution_Enable"] + Self.on)
    // Another key for the same peer, and then none.
    try Self.know(&bench, Bench.otherPeer, IdentityResolvingKey(5))
    bench.answerAll()
    same(bench.takeAll(), [Self.off, "LE_Remove_Device_From_Resolving_List"] + entered + Self.on)
    bench.perform { core, now in core.removePeerIdentity(Bench.otherPeer, now: now) }
    bench.answerAll()
    same(bench.takeAll(), [Self.off, "LE_Remove_Device_From_Resolving_List"] + Self.on)
  }

  /// The host resolves the peer even if the controller refuses its key, and does not repeat the command.
  @Test(arguments: [HCIStatus.memoryCapacityExceeded, .invalidHCICommandParameters, .unknownHCICommand])
  func theHostResolvesKeysThatTheControllerRefuses(status: HCIStatus) throws {
    var bench = Self.bench(list: 2)
    try Self.know(&bench)
    bench.answer()
    bench.answer(status)
    bench.answerAll()
    same(bench.takeAll(), [Self.off, "LE_Add_Device_To_Resolving_List"] + Self.on)
    bench.receive(report(3, Self.resolvable, [2, 1, 6]))
    guard case .discovered(_, let discovery)? = bench.effects.last else {
      Issue.record("nothing discovered")
      return
    }
    #expect(discovery.address == Bench.otherPeer && discovery.addressOnAir == Self.resolvable)
    bench.wait(.seconds(10))
    same(bench.sent, [])
  }

  /// An address that the controller has resolved is the same peer.
  @Test func identityTypesAreNames() throws {
    var bench = Self.bench(list: 2)
    bench.receive(report(3, PeerAddress(Bench.otherPeer.address, .randomIdentity), [2, 1, 6]))
    guard case .discovered(_, let discovery)? = bench.effects.last else {
      Issue.record("nothing discovered")
      return
    }
    #expect(discovery.address == Bench.otherPeer)
  }

  @Test func anAddressIsChangedInAPause() {
    var bench = Self.bench(list: 0, .resolvable(Self.irk))
    let first = bench.core.ownAddress
    #expect(first.address.randomKind == .resolvablePrivate)
    bench.wait(.seconds(899))
    same(bench.sent, [])
    bench.wait(.seconds(1))
    bench.answerAll()
    same(bench.takeAll(), [Self.off, "LE_Set_Random_Address"] + Self.on)
    let second = bench.core.ownAddress
    #expect(second != first && second.address.randomKind == .resolvablePrivate)
    // After a refusal the old address stays, and the next one follows on schedule.
    bench.wait(.seconds(900))
    bench.answer()
    bench.answer(.commandDisallowed)
    bench.answerAll()
    same(
      bench.takeAll(), [Self.off, "LE_Set_Random_Address"] + Self.on + ["privateAddressRefused"])
    same(bench.core.ownAddress, second)
    bench.wait(.seconds(900))
    bench.answerAll()
    expect(bench.core.ownAddress != second)
  }

  /// A link keeps the address with which its set has advertised, even if the time for a new one comes before the event
  /// that names the set: Vol 4, Part E, §7.7.65.18.
  @Test func anAddressIsChangedBetweenALinkAndItsSet() {
    var bench = Bench.started(controller: .extended) { $0.addressPolicy = .resolvable(Self.irk) }
    let first = bench.core.ownAddress
    bench.perform { core, now in
      try! core.advertise(AdvertisingData(localName: "a"), AdvertisingParameters(), now: now)
    }
    bench.answerAll()
    bench.wait(.seconds(899))
    _ = bench.takeAll()
    bench.receive(connectionComplete(0x40, .peripheral))
    bench.answerAll()
    bench.wait(.seconds(1))
    expect(bench.takeAll().contains("LE_Set_Extended_Advertising_Enable(off)"))
    bench.receive([4, 0x3E, 6, 0x12, 0, 0, 0x40, 0, 1])
    bench.answerAll()
    let second = bench.core.ownAddress
    #expect(second != first && second.address.randomKind == .resolvablePrivate)
    expect(bench.core.addressesOnAir(of: LinkID(rawValue: 1))?.own == first)
  }

  /// Only the host can resolve the peer: it scans for the peer, and connects to its current address.
  @Test func aPeerIsSought() throws {
    var bench = Self.bench(list: 0, scans: false)
    try Self.know(&bench)
    bench.perform { core, now in core.connect(to: Bench.otherPeer, id: RequestID(rawValue: 1), now: now) }
    bench.answerAll()
    let begun = bench.takeAll()
    #expect(Set(begun).isSuperset(of: Self.on), "\(begun)")
    bench.receive(report(0, Self.resolvable, [2, 1, 6]))
    same(bench.takeAll(), ["LE_Create_Connection_Cancel"])
    bench.answer()
    bench.receive(connectionComplete(0, .central, PeerAddress(DeviceAddress(), .public), .unknownConnectionIdentifier))
    expect(
      bench.lastCommand.contains("Peer_Address_Type: random, Peer_Address: 70:81:94:0D:FB:AA"), "\(bench.lastCommand)")
    bench.answerAll()
    _ = bench.takeAll()
    // Another report with the same address changes nothing.
    bench.receive(report(0, Self.resolvable, [2, 1, 6]))
    same(bench.takeAll(), [])
    bench.receive(connectionComplete(0x40, .central, Self.resolvable))
    let events = bench.takeAll()
    #expect(events.contains("link 1 up: \(Bench.otherPeer), Central") && events.contains("1: link 1"), "\(events)")
    #expect(events.contains(Self.off), "nobody is sought any more")
    expect(bench.core.addressesOnAir(of: LinkID(rawValue: 1))?.peer == Self.resolvable)
  }

  /// If the controller refuses to scan for the peer, the core reports that and tries again after a pause, as long as
  /// there is a request; the request continues to wait and ends once.
  @Test func aRefusedSeekIsTriedAgain() throws {
    var bench = Self.bench(list: 0, scans: false)
    try Self.know(&bench)
    let id = RequestID(rawValue: 1)
    bench.perform { core, now in core.connect(to: Bench.otherPeer, id: id, now: now) }
    for _ in 0..<3 {
      while let next = bench.unanswered.first {
        bench.answer(next.opcode == LESetScanParameters.opcode ? .commandDisallowed : .success)
      }
      let events = bench.takeAll()
      #expect(events.suffix(2) == ["LE_Set_Scan_Parameters", "seekRefused"], "\(events)")
      bench.wait(.milliseconds(9_999))
      same(bench.takeAll(), [])
      bench.wait(.milliseconds(1))
    }
    // Now the controller scans, and the peer is there.
    bench.answerAll()
    let begun = bench.takeAll()
    #expect(begun == Self.on, "\(begun)")
    bench.receive(report(0, Self.resolvable, [2, 1, 6]))
    bench.answer()
    bench.receive(connectionComplete(0, .central, PeerAddress(DeviceAddress(), .public), .unknownConnectionIdentifier))
    bench.answerAll()
    bench.receive(connectionComplete(0x40, .central, Self.resolvable))
    bench.answerAll()
    let events = bench.takeAll()
    #expect(events.filter { $0.hasPrefix("1: ") } == ["1: link 1"] && events.contains(Self.off), "\(events)")
  }
  /// The core reports a refused scan of the application, and resumes seeking afterwards, but not for a request that was
  /// cancelled in the pause.
  @Test func aRefusedScanOfTheApplicationPausesTheSeek() throws {
    var bench = Self.bench(list: 0, scans: false)
    try Self.know(&bench)
    let id = RequestID(rawValue: 1)
    bench.perform { core, now in core.connect(to: Bench.otherPeer, id: id, now: now) }
    bench.answerAll()
    bench.perform { core, now in core.startScan(now: now) }
    bench.answer()
    bench.answer(.commandDisallowed)
    let events = bench.takeAll()
    #expect(events.contains("scanFailed 0x0C") && events.contains("seekRefused"), "\(events)")
    bench.perform { core, now in core.startScan(now: now) }
    bench.answerAll()
    #expect(bench.takeAll().contains("scanStarted"))
    bench.perform { core, now in core.stopScan(now: now) }
    bench.answerAll()
    same(bench.takeAll(), [Self.off, "scanStopped"])
    bench.wait(.seconds(10))
    bench.answerAll()
    same(bench.takeAll(), Self.on)
    // Refused once more; then the request is cancelled.
    bench.perform { core, now in core.startScan(now: now) }
    bench.answer()
    bench.answer(.commandDisallowed)
    bench.perform { core, now in core.cancel(id, now: now) }
    bench.answerAll()
    bench.receive(connectionComplete(0, .central, PeerAddress(DeviceAddress(), .public), .unknownConnectionIdentifier))
    let ended = bench.takeAll()
    #expect(ended.filter { $0.hasPrefix("1: ") } == ["1: cancelled"], "\(ended)")
    bench.wait(.seconds(60))
    same(bench.takeAll(), [])
  }

  /// The answer to whether the host must scan for a peer is computed only after a change, and every change counts:
  /// identities, the controller's list, requests and their ends.
  @Test(arguments: [UInt8(0), 2]) func seekingFollowsEveryChange(list: UInt8) throws {
    var bench = Self.bench(list: list, scans: false), chance = SplitMix64(seed: Fuzz.seed)
    var seen: Set<Bool> = []
    let peers = (1...6).map { PeerAddress(DeviceAddress(0xC000_0000_0000 | $0), .random) }
    for step in 0..<600 {
      let peer = peers.randomElement(using: &chance)!, id = RequestID(rawValue: peer.address.value & 7)
      switch Int.random(in: 0..<7, using: &chance) {
      case 0, 1: try Self.know(&bench, peer, IdentityResolvingKey(UInt128(id.rawValue) + 9))
      case 2: bench.perform { core, now in core.removePeerIdentity(peer, now: now) }
      case 3, 4: bench.perform { core, now in core.connect(to: peer, id: id, now: now) }
      case 5: bench.perform { core, now in core.cancel(id, now: now) }
      default:
        if let air = bench.core.privacy.identities.peers.randomElement(using: &chance) {
          let address = DeviceAddress.resolvablePrivate(air.irk, using: &chance)
          bench.receive(report(0, PeerAddress(address, .random), [2, 1, 6]))
        }
      }
      bench.answerAll()
      // Ends a cancelled attempt.
      let nobody = PeerAddress(DeviceAddress(), .public)
      bench.receive(connectionComplete(0, .central, nobody, .unknownConnectionIdentifier))
      bench.answerAll()
      let isNeeded = bench.core.privacy.identities.peers.contains {
        !bench.core.privacy.isListed($0.identity) && bench.core.connections.wants($0.identity)
      }
      seen.insert(isNeeded)
      expect((bench.core.privacy.seeking == .scanning) == isNeeded, "step \(step), seed \(Fuzz.seed)")
      bench.forget()
    }
    #expect(seen == [true, false])
  }
  /// Of 16 bonds and 1,500 strangers, each address is tried with the keys once: what a report costs depends on neither.
  /// A new key forgets the answers.
  @Test func anAddressIsResolvedOnce() throws {
    var bench = Self.bench(list: 0), chance = SplitMix64(seed: Fuzz.seed), addresses: [PeerAddress] = []
    for number in UInt64(1)...16 {
      let irk = IdentityResolvingKey(UInt128(number) << 64 | 5)
      try Self.know(&bench, PeerAddress(DeviceAddress(0xC000_0000_0000 | number), .random), irk)
      addresses.append(PeerAddress(.resolvablePrivate(irk, using: &chance), .random))
    }
    for _ in 0..<1_500 { addresses.append(PeerAddress(.resolvablePrivate(Self.irk, using: &chance), .random)) }
    func hear() -> Int {
      let before = bench.core.privacy.identities.blocks
      for address in addresses {
        bench.receive(report(3, address, [2, 1, 6]))
        bench.forget()
      }
      return bench.core.privacy.identities.blocks - before
    }
    let first = hear()
    #expect(first > 16 * 1_400)
    #expect(hear() == 0 && hear() == 0)
    #expect(bench.core.connections.deadline == nil)
    try Self.know(&bench, Bench.otherPeer, Self.irk)
    #expect(hear() > first)
  }

  /// An endless scan reports ever new addresses: all memory stays bounded.
  @Test func aStormOfAddresses() throws {
    var bench = Self.bench(list: 0), chance = SplitMix64(seed: Fuzz.seed)
    try Self.know(&bench)
    for _ in 0..<5_000 {
      let address = DeviceAddress(
        prand: DeviceAddress.prand(using: &chance), hash: .random(in: 0..<1 << 24, using: &chance))
      bench.receive(report(3, PeerAddress(address, .random), [2, 1, 6]))
      bench.forget()
    }
    expect(bench.core.privacy.identities.remembered <= 2 * PeerIdentities.capacity)
    expect(bench.core.privacy.identities.blocks <= 5_000)
  }
}
