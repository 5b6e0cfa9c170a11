import BindruneATT
import BindruneWire
import BindruneGATT
import TestSupport
import Testing

/// Requests that the server refuses for lack of security: they wait, and are repeated once. Vol 3, Part C, §10.3.2.
@Suite struct ClientSecurityTests {
  private static func dialogue() -> Dialogue {
    var configuration = ClientConfiguration()
    configuration.repeatsWhenSecured = true
    return Dialogue(configuration: configuration)
  }

  /// 0x05, 0x0C and 0x0F wait; the request is repeated as it was, and answers once; later ones stay behind it.
  @Test(arguments: ["05", "0C", "0F"]) func aRefusedRequestIsRepeated(_ error: String) {
    let dialogue = Self.dialogue()
    dialogue.client.read(1, 3)
    dialogue.client.read(2, 5)
    dialogue.play("> 0A 0300\n< 01 0A 0300 \(error)")
    #expect(dialogue.effects() == ["security \(error)"])
    #expect(dialogue.holdsCommands(on: 1) && !dialogue.hasRequest(on: 1))
    dialogue.client.securityEnded(isSecured: true)
    dialogue.play("> 0A 0300\n< 0B 07\n> 0A 0500\n< 0B 08")
    #expect(dialogue.effects() == ["1 value 07", "2 value 08"])
  }
  /// The second refusal is the answer; so is the first where nothing could be secured.
  @Test func onceOnly() {
    let dialogue = Self.dialogue()
    dialogue.client.read(1, 3)
    dialogue.play("> 0A 0300\n< 01 0A 0300 05")
    #expect(dialogue.effects() == ["security 05"])
    dialogue.client.securityEnded(isSecured: true)
    dialogue.play("> 0A 0300\n< 01 0A 0300 0F")
    #expect(dialogue.effects() == ["1 att 0F 0A 03"])
    dialogue.client.read(2, 3)
    dialogue.play("> 0A 0300\n< 01 0A 0300 05")
    #expect(dialogue.effects() == ["security 05"])
    dialogue.client.securityEnded(isSecured: false)
    #expect(dialogue.effects() == ["2 att 05 0A 03"])
    // Nothing waits any more.
    dialogue.client.securityEnded(isSecured: true)
    #expect(dialogue.effects() == [] && dialogue.request() == nil)
  }
  /// Authorization (0x08) is the user's of the server, and other errors have nothing to do with the link; and without
  /// the configuration every error is the answer.
  @Test func otherErrorsAreAnswers() {
    for error in ["02", "08", "0A", "12"] {
      let dialogue = Self.dialogue()
      dialogue.write(1, 3, [7])
      dialogue.play("> 12 0300 07\n< 01 12 0300 \(error)", isOver: error != "12")
      #expect(!dialogue.effects().contains { $0.hasPrefix("security") }, "\(error)")
    }
    let dialogue = Dialogue()
    dialogue.client.read(1, 3)
    dialogue.play("> 0A 0300\n< 01 0A 0300 05")
    #expect(dialogue.effects() == ["1 att 05 0A 03"])
  }
  /// In the middle of a procedure the same part is repeated: what has been gathered stays.
  @Test func inTheMiddleOfALongRead() {
    let dialogue = Self.dialogue(), part = [UInt8](repeating: 0x11, count: 22)
    dialogue.client.readLong(1, 3)
    dialogue.play("> 0A 0300\n< 0B \(hex(part))\n> 0C 0300 1600\n< 01 0C 0300 0F")
    #expect(dialogue.effects() == ["security 0F"])
    dialogue.client.securityEnded(isSecured: true)
    dialogue.play("> 0C 0300 1600\n< 0D 22")
    #expect(dialogue.effects() == ["1 value \(hex(part + [0x22]))"])
  }
  @Test func inTheMiddleOfAQueue() {
    let dialogue = Self.dialogue()
    dialogue.writeLong(1, 3, [1, 2])
    dialogue.play("> 16 0300 0000 0102\n< 01 16 0300 05")
    dialogue.client.securityEnded(isSecured: true)
    dialogue.play("> 16 0300 0000 0102\n< 17 0300 0000 0102\n> 18 01\n< 19")
    #expect(dialogue.effects() == ["security 05", "1 done"])
  }
  @Test func inADiscovery() {
    let dialogue = Self.dialogue()
    dialogue.client.discoverPrimaryServices(1)
    dialogue.play("> 10 0100 FFFF 0028\n< 01 10 0100 05")
    dialogue.client.securityEnded(isSecured: true)
    dialogue.play("> 10 0100 FFFF 0028\n< 11 06 0100 FFFF 0D18")
    #expect(dialogue.effects() == ["security 05", "1 discovered"])
  }
  /// While it waits, a request ends as others do: by its caller, with its bearer, or because its attribute has changed.
  @Test func endsWhileWaiting() {
    let cancelled = Self.dialogue()
    cancelled.client.read(1, 3)
    cancelled.client.read(2, 5)
    cancelled.play("> 0A 0300\n< 01 0A 0300 05")
    cancelled.client.cancel(1)
    cancelled.play("> 0A 0500\n< 0B 08")
    #expect(cancelled.effects() == ["security 05", "1 cancelled", "2 value 08"])
    cancelled.client.securityEnded(isSecured: true)
    #expect(cancelled.request() == nil && cancelled.effects() == [])

    let closed = Self.dialogue()
    closed.client.read(1, 3)
    closed.play("> 0A 0300\n< 01 0A 0300 05")
    closed.close()
    closed.client.securityEnded(isSecured: true)
    #expect(closed.effects() == ["security 05", "1 bearerClosed(BindruneATT.BearerClosure.disconnected)"])
  }
}
