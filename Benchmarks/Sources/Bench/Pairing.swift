// x.pairing: a whole pairing of two Security Managers, both sides together, with the keys that both distribute: legacy
// and LE Secure Connections by Just Works, and Secure Connections by Passkey Entry, whose 20 rounds need no user after
// the digits. The controllers' part, the encryption, costs nothing here.
import BindruneSimulator
import BindruneWire
import BindruneSMP

func pairing(_ id: String, _ repetitions: Int, _ batches: Int) {
  var initiator = PairingSettings(), responder = PairingSettings()
  for keys in [\PairingSettings.distributes, \.requests] {
    initiator[keyPath: keys] = [.encKey, .idKey, .signKey]
    responder[keyPath: keys] = [.encKey, .idKey, .signKey]
  }
  switch id {
  case "x.pairing.legacy": initiator.secureConnections = .off
  case "x.pairing.sc": break
  case "x.pairing.passkey":
    initiator.ioCapability = .keyboardOnly
    responder.ioCapability = .displayOnly
  default: fail("no row \(id)")
  }
  _ = pair(initiator, responder, 1)
  measure(id, items: 1, repetitions: repetitions, batches: batches) { pair(initiator, responder, $0) }
}

@inline(never)
func pair(_ initiator: PairingSettings, _ responder: PairingSettings, _ repetitions: Int) -> UInt64 {
  var sum: UInt64 = 0
  for repetition in 0..<repetitions {
    var ends = PairingEnds(initiator, responder, seed: UInt64(repetition))
    ends.run()
    guard ends.completed == 2 else { fail("the pairing failed") }
    sum += UInt64(ends.pdus)
  }
  return sum
}

struct PairingEnds: ~Copyable {
  private var initiator: SecurityManager, responder: SecurityManager
  private var chance: SeededGenerator
  private var packet = PacketBuffer(capacity: SecurityManager.longestPDU)
  private(set) var completed = 0, pdus = 0
  private var digits: UInt32?

  init(_ initiator: PairingSettings, _ responder: PairingSettings, seed: UInt64) {
    let addresses = PairingAddresses(
      initiator: PairingAddress(DeviceAddress(0xC000_0000_0001), isRandom: true),
      responder: PairingAddress(DeviceAddress(0xC000_0000_0002), isRandom: true))
    self.initiator = SecurityManager(role: .initiator, addresses: addresses, settings: initiator)
    self.responder = SecurityManager(role: .responder, addresses: addresses, settings: responder)
    chance = SeededGenerator(seed: seed)
  }

  mutating func run() {
    do throws(PairingRefusal) { try initiator.pair(now: .zero) } catch { fail("\(error)") }
    while carry() {}
  }
  /// One effect or PDU of either side; false when there is none.
  private mutating func carry() -> Bool {
    if let effect = initiator.nextEffect() {
      switch effect {
      case .encrypt(let key):
        guard responder.key(ediv: 0, rand: 0) == key else { fail("the keys differ") }
        initiator.encryptionChanged(isEncrypted: true, now: .zero, using: &chance)
        responder.encryptionChanged(isEncrypted: true, now: .zero, using: &chance)
      case .requestPasskey: if let digits { _ = initiator.enter(passkey: digits, now: .zero, using: &chance) }
      case .completed: completed += 1
      default: break
      }
      return true
    }
    if let effect = responder.nextEffect() {
      switch effect {
      case .requestConsent: _ = responder.accept(now: .zero, using: &chance)
      case .displayPasskey(let passkey): digits = passkey
      case .completed: completed += 1
      default: break
      }
      return true
    }
    if packet.fill({ initiator.nextPDU(into: &$0, now: .zero) }) {
      pdus += 1
      packet.withBytes { responder.receive($0, now: .zero, using: &chance) }
      return true
    }
    guard packet.fill({ responder.nextPDU(into: &$0, now: .zero) }) else { return false }
    pdus += 1
    packet.withBytes { initiator.receive($0, now: .zero, using: &chance) }
    return true
  }
}
