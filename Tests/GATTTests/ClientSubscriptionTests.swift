import BindruneATT
import BindruneWire
import BindruneGATT
import TestSupport
import Testing

/// Vol 3, Part G, §4.10, §4.11: which subscribers get the server's values, and when the client writes the
/// configuration.
@Suite struct ClientSubscriptionTests {
  /// The first subscription asks for the type of the descriptor.
  private static let question = "> 04 0400 0400\n< 05 01 0400 0229\n"

  /// One service with these properties of its one characteristic, value 3, and room for `room` descriptors.
  private func client(_ properties: UInt8, room: UInt8 = 1) -> Dialogue {
    let dialogue = Dialogue(), end = hex([3 + room, 0])
    dialogue.client.discoverPrimaryServices(100, "180D")
    dialogue.client.discoverCharacteristics(101, in: HandleRange(1, AttributeHandle(rawValue: UInt16(3 + room))))
    dialogue.play(
      """
      > 06 0100 FFFF 0028 0D18
      < 07 0100 \(end)
      > 06 \(hex([4 + room, 0])) FFFF 0028 0D18
      < 01 06 \(hex([4 + room, 0])) 0A
      > 08 0100 \(end) 0328
      < 09 07 0200 \(hex([properties])) 0300 372A
      """, isOver: false)
    if room > 0 { dialogue.play("> 08 0300 \(end) 0328\n< 01 08 0300 0A") }
    #expect(dialogue.effects() == ["100 discovered", "101 discovered"])
    return dialogue
  }

  @Test(arguments: [(0x10, "0100"), (0x20, "0200"), (0x30, "0100")] as [(UInt8, String)])
  func whatTheCharacteristicOffers(properties: UInt8, value: String) {
    // There is one handle between the value and the service's end: the client reads its type, once.
    let dialogue = client(properties)
    dialogue.client.subscribe(1, 3)
    dialogue.client.unsubscribe(2, 3)
    dialogue.play(Self.question + "> 12 0400 \(value)\n< 13\n> 12 0400 0000\n< 13")
    #expect(dialogue.effects() == ["1 done", "2 done"])
  }

  @Test func unsupportedConfigurations() {
    let silent = client(0x02)
    silent.client.subscribe(1, 3)
    #expect(silent.request() == nil)
    // If the caller names the configuration, the server decides.
    silent.client.subscribe(2, 3, .notification)
    silent.play("> 04 0400 0400\n< 05 01 0400 0229\n> 12 0400 0100\n< 01 12 0400 03")
    let full = client(0x10, room: 0)
    full.client.subscribe(3, 3)
    #expect(full.request() == nil)
    #expect(silent.effects() == ["1 noConfigurationDescriptor", "2 att 03 12 04"])
    #expect(full.effects() == ["3 noConfigurationDescriptor"])
  }

  /// After bluez/bluez#2383: the only descriptor of a value that can be notified is not the configuration. It is not
  /// written, and asked for once. Vol 3, Part G, §3.3.3.3, §4.7.1.
  @Test(arguments: [
    "05 01 0400 0029", "05 01 0400 0129", "05 01 0400 0329", "05 01 0400 0429",
    "05 02 0400 010C5F1A5F6E5C8EBD4B1D1D0000B1A0",
    "01 04 0400 0A",
  ]) func whatIsNotTheConfiguration(answer: String) {
    for properties: UInt8 in [0x10, 0x20, 0x30] {
      let dialogue = client(properties)
      dialogue.client.subscribe(1, 3)
      dialogue.client.subscribe(2, 3, .indication)
      dialogue.client.unsubscribe(3, 3)
      dialogue.play("> 04 0400 0400\n< \(answer)")
      #expect(
        dialogue.effects() == [
          "1 noConfigurationDescriptor", "2 noConfigurationDescriptor", "3 noConfigurationDescriptor",
        ])
      #expect(dialogue.client.remote.descriptors.count == (answer.hasPrefix("05") ? 1 : 0))
      #expect(dialogue.client.remote.characteristics.map(\.descriptorsAreKnown) == [true])
    }
  }
  /// Of several descriptors the configuration is written, wherever it stands; or none is.
  @Test(
    arguments: [
      ("0500", "05 01 0400 0129  0500 0229"), ("0400", "05 01 0400 0229  0500 0129"),
      (nil, "05 01 0400 0129  0500 0429"),
    ] as [(String?, String)]) func twoDescriptors(written: String?, answer: String)
  {
    let dialogue = client(0x12, room: 2)
    dialogue.client.subscribe(1, 3)
    dialogue.play("> 04 0400 0500\n< \(answer)" + (written.map { "\n> 12 \($0) 0100\n< 13" } ?? ""))
    #expect(dialogue.effects() == [written == nil ? "1 noConfigurationDescriptor" : "1 done"])
    #expect(dialogue.client.remote.descriptors.map(\.handle.rawValue) == [4, 5])
  }
  @Test func theConfigurationInALongForm() {
    let dialogue = client(0x10)
    dialogue.client.subscribe(1, 3)
    dialogue.play(
      """
      > 04 0400 0400
      < 05 02 0400 FB349B5F8000 0080 0010 0000 0229 0000
      > 12 0400 0100
      < 13
      """)
    #expect(dialogue.effects() == ["1 done"])
  }
  /// The services change, or the caller cancels, while the client asks: it writes nothing.
  @Test func questionsThatLoseTheirPurpose() {
    let changed = client(0x10)
    changed.client.discoverPrimaryServices(1, "1801")
    changed.client.discoverCharacteristics(2, in: HandleRange(0x20, 0x22))
    changed.play(
      """
      > 06 0100 FFFF 0028 0118
      < 07 2000 2200
      > 06 2300 FFFF 0028 0118
      < 01 06 2300 0A
      > 08 2000 2200 0328
      < 09 07 2100 20 2200 052A
      """)
    changed.client.subscribe(3, 3)
    changed.play("> 04 0400 0400", isOver: false)
    changed.send(octets("1D 2200 0100 0400"))
    changed.play("< 05 01 0400 0229")
    #expect(
      changed.effects() == [
        "1 discovered", "2 discovered", "indication 34: 01 00 04 00", "changed 0001-0004", "3 databaseChanged",
      ])
    #expect(changed.client.remote.services.map(\.uuid) == ["1801"])

    let cancelled = client(0x10)
    cancelled.client.subscribe(1, 3)
    cancelled.play("> 04 0400 0400", isOver: false)
    cancelled.client.cancel(1)
    cancelled.play("< 05 01 0400 0229")
    cancelled.client.subscribe(2, 3)
    cancelled.play(Self.question + "> 12 0400 0100\n< 13")
    #expect(cancelled.effects() == ["1 cancelled", "2 done"])
  }

  @Test func severalSubscribers() {
    let dialogue = client(0x30)
    dialogue.client.subscribe(1, 3)
    dialogue.client.subscribe(2, 3)
    dialogue.client.subscribe(3, 3, .notification)
    dialogue.client.unsubscribe(4, 3)
    dialogue.client.unsubscribe(5, 3)
    dialogue.play(Self.question + "> 12 0400 0100\n< 13")
    #expect(dialogue.effects() == ["1 done", "2 done", "3 done", "4 done", "5 done"])
    // A subscriber with another configuration sets it for all; the last one to leave ends it.
    dialogue.client.subscribe(6, 3, .indication)
    dialogue.client.unsubscribe(7, 3)
    dialogue.client.unsubscribe(8, 3)
    dialogue.play("> 12 0400 0200\n< 13\n> 12 0400 0000\n< 13")
    #expect(dialogue.effects() == ["6 done", "7 done", "8 done"])
  }

  @Test func aRefusalIsNoSubscription() {
    let dialogue = client(0x10)
    dialogue.client.subscribe(1, 3)
    dialogue.client.subscribe(2, 3)
    dialogue.play(Self.question + "> 12 0400 0100\n< 01 12 0400 05\n> 12 0400 0100\n< 13")
    #expect(dialogue.effects() == ["1 att 05 12 04", "2 done"])
  }

  @Test func cancelledBeforeTheAnswer() {
    let dialogue = client(0x10)
    dialogue.client.subscribe(1, 3)
    dialogue.client.read(2, 3)
    dialogue.play(Self.question + "> 12 0400 0100", isOver: false)
    dialogue.client.cancel(1)
    // The server accepted the subscription of a caller that has cancelled.
    dialogue.play("< 13\n> 12 0400 0000\n< 13\n> 0A 0300\n< 0B 01")
    #expect(dialogue.effects() == ["1 cancelled", "2 value 01"])
    // The server refused: nothing to undo.
    dialogue.client.subscribe(3, 3)
    dialogue.play("> 12 0400 0100", isOver: false)
    dialogue.client.cancel(3)
    dialogue.play("< 01 12 0400 05")
    #expect(dialogue.effects() == ["3 cancelled"])
  }
  /// The remaining subscriber's configuration is restored.
  @Test func cancelledBesideAnotherSubscriber() {
    let dialogue = client(0x30)
    dialogue.client.subscribe(1, 3)
    dialogue.client.subscribe(2, 3, .indication)
    dialogue.client.read(3, 3)
    dialogue.play(Self.question + "> 12 0400 0100\n< 13\n> 12 0400 0200", isOver: false)
    dialogue.client.cancel(2)
    dialogue.play("< 13\n> 12 0400 0100\n< 13\n> 0A 0300\n< 0B 01")
    #expect(dialogue.effects() == ["1 done", "2 cancelled", "3 value 01"])
    // It counts as one subscriber, and the last one to leave ends the subscription.
    dialogue.client.subscribe(4, 3, .notification)
    dialogue.client.unsubscribe(5, 3)
    dialogue.client.unsubscribe(6, 3)
    dialogue.play("> 12 0400 0000\n< 13")
    #expect(dialogue.effects() == ["4 done", "5 done", "6 done"])
  }
  /// The server refused the other configuration: the previous one is still in force.
  @Test func cancelledAndRefused() {
    let dialogue = client(0x30)
    dialogue.client.subscribe(1, 3)
    dialogue.client.subscribe(2, 3, .indication)
    dialogue.play(Self.question + "> 12 0400 0100\n< 13\n> 12 0400 0200", isOver: false)
    dialogue.client.cancel(2)
    dialogue.play("< 01 12 0400 05")
    #expect(dialogue.effects() == ["1 done", "2 cancelled"])
  }

  @Test func valuesBeforeTheAnswer() {
    let dialogue = client(0x10)
    dialogue.client.subscribe(1, 3)
    dialogue.play(Self.question + "> 12 0400 0100", isOver: false)
    dialogue.send(octets("1B 0300 07"))
    dialogue.send(octets("1B 0900 08"))
    dialogue.play("< 13")
    #expect(dialogue.effects() == ["notification 3: 07", "notification 9: 08", "1 done"])
  }
}
