import BindruneATT
import BindruneWire
import BindruneGATT
import TestSupport
import Testing

/// Vol 3, Part G, §4.4 … §4.7, octet for octet.
@Suite struct ClientDiscoveryTests {
  @Test func everything() {
    let dialogue = Dialogue()
    dialogue.client.discoverAll(1)
    dialogue.play(
      """
      > 10 0100 FFFF 0028
      < 11 06 0100 0500 0018  0600 0900 0D18
      > 10 0A00 FFFF 0028
      < 11 14 1000 1900 000C 5F1A5F6E 5C8E BD4B 1D1D 0000 B1A0
      > 10 1A00 FFFF 0028
      < 01 10 1A00 0A
      > 10 0A00 FFFF 0128   # handles 0x000A to 0x000F and what follows 0x0019 are in no primary service
      < 11 06 1A00 1C00 0F18
      > 10 1D00 FFFF 0128
      < 01 10 1D00 0A
      > 08 0100 1C00 0228
      < 09 08 1100 1A00 1C00 0F18
      > 08 1200 1C00 0228
      < 01 08 1200 0A
      > 08 0100 1C00 0328
      < 09 07 0200 02 0300 002A  0400 02 0500 012A  0700 10 0800 372A
      > 08 0800 1C00 0328
      < 09 15 1200 0A 1300 010C 5F1A5F6E 5C8E BD4B 1D1D 0000 B1A0
      > 08 1300 1C00 0328
      < 09 07 1B00 12 1C00 192A
      > 04 1400 1900       # 0x0009 must be the configuration of 0x0007, and nobody asks; 0x1C is the service's end
      < 05 01 1400 0129  1500 0429
      > 04 1600 1900
      < 01 04 1600 0A
      """)
    #expect(dialogue.effects() == ["1 discovered"])
    #expect(
      dialogue.client.remote.description == """
        0001-0005 primary 1800
        0002-0003   characteristic 2A00 0x02, value 0003
        0004-0005   characteristic 2A01 0x02, value 0005
        0006-0009 primary 180D
        0007-0009   characteristic 2A37 0x10, value 0008
        0010-0019 primary A0B10000-1D1D-4BBD-8E5C-6E5F1A5F0C00
        0011        include 001A-001C 180F
        0012-0019   characteristic A0B10000-1D1D-4BBD-8E5C-6E5F1A5F0C01 0x0A, value 0013
        0014          descriptor 2901
        0015          descriptor 2904
        001A-001C secondary 180F
        001B-001C   characteristic 2A19 0x12, value 001C
        """)
  }

  @Test func anEmptyServer() {
    let dialogue = Dialogue()
    dialogue.client.discoverAll(1)
    dialogue.play(
      """
      > 10 0100 FFFF 0028
      < 01 10 0100 0A
      > 10 0100 FFFF 0128
      < 01 10 0100 0A
      """)
    #expect(dialogue.effects() == ["1 discovered"])
    #expect(dialogue.client.remote.isEmpty)
  }

  @Test func servicesUpToTheLastHandle() {
    // The last group ends at 0xFFFF: the client searches no further, neither for primary nor for secondary services.
    let dialogue = Dialogue()
    dialogue.client.discoverAll(1)
    dialogue.play(
      """
      > 10 0100 FFFF 0028
      < 11 06 0100 FFFF 0018
      > 08 0100 FFFF 0228
      < 01 08 0100 0A
      > 08 0100 FFFF 0328
      < 09 07 FEFF 02 FFFF 002A
      """)
    #expect(dialogue.effects() == ["1 discovered"])
    #expect(dialogue.client.remote.characteristics.map(\.endHandle.rawValue) == [0xFFFF])
  }

  @Test(arguments: ["10", "06"]) func secondaryServicesThatCannotBeAskedFor(error: String) {
    let dialogue = Dialogue()
    dialogue.client.discoverAll(1)
    // The include carries no UUID, so the service's declaration is read (§4.5.1); its range is then searched as well.
    dialogue.play(
      """
      > 10 0100 FFFF 0028
      < 11 06 0100 0200 0D18
      > 10 0300 FFFF 0028
      < 01 10 0300 0A
      > 10 0300 FFFF 0128
      < 01 10 0300 \(error)
      > 08 0100 0200 0228
      < 09 06 0200 2000 2300
      > 0A 2000
      < 0B 000C 5F1A5F6E 5C8E BD4B 1D1D 2000 B1A0
      > 08 0300 2300 0228
      < 09 08 2100 2000 2300 0000   # a service that includes itself
      > 08 2200 2300 0228
      < 01 08 2200 0A
      > 08 0100 2300 0328
      < 09 07 2200 02 2300 002A
      """)
    #expect(dialogue.effects() == ["1 discovered"])
    #expect(
      dialogue.client.remote.description == """
        0001-0002 primary 180D
        0002        include 0020-0023 A0B10020-1D1D-4BBD-8E5C-6E5F1A5F0C00
        0020-0023 secondary A0B10020-1D1D-4BBD-8E5C-6E5F1A5F0C00
        0021        include 0020-0023 A0B10020-1D1D-4BBD-8E5C-6E5F1A5F0C00
        0022-0023   characteristic 2A00 0x02, value 0023
        """)
  }

  @Test func anIncludedServiceNestedInTheOneThatIncludesIt() {
    // Bumble: the include of a 128-bit service carries the first two octets of its UUID, and the service lies inside.
    let dialogue = Dialogue()
    dialogue.client.discoverAll(1)
    dialogue.play(
      """
      > 10 0100 FFFF 0028
      < 11 06 0100 0900 0D18
      > 10 0A00 FFFF 0028
      < 01 10 0A00 0A
      > 10 0A00 FFFF 0128
      < 01 10 0A00 0A
      > 08 0100 0900 0228
      < 09 08 0200 0300 0500 000C
      > 08 0300 0900 0228
      < 01 08 0300 0A
      > 0A 0300
      < 0B 000C 5F1A5F6E 5C8E BD4B 1D1D 2000 B1A0
      > 08 0100 0900 0328
      < 09 07 0400 02 0500 002A  0600 02 0700 012A
      > 08 0700 0900 0328
      < 01 08 0700 0A
      > 04 0800 0900
      < 05 01 0800 0129
      > 04 0900 0900
      < 05 01 0900 0329
      """)
    #expect(dialogue.effects() == ["1 discovered"])
    #expect(
      dialogue.client.remote.description == """
        0001-0009 primary 180D
        0002        include 0003-0005 A0B10020-1D1D-4BBD-8E5C-6E5F1A5F0C00
        0006-0009   characteristic 2A01 0x02, value 0007
        0008          descriptor 2901
        0009          descriptor 2903
        0003-0005 secondary A0B10020-1D1D-4BBD-8E5C-6E5F1A5F0C00
        0004-0005   characteristic 2A00 0x02, value 0005
        """)
    #expect(dialogue.client.remote.service(containing: 4)?.handle == 3)
    #expect(dialogue.client.remote.service(containing: 8)?.handle == 1)
  }

  @Test func anIncludedServiceThatMayNotBeRead() {
    let dialogue = Dialogue()
    dialogue.client.discoverIncludedServices(1, in: HandleRange(1, 9))
    dialogue.play(
      """
      > 08 0100 0900 0228
      < 09 08 0200 2000 2300 0F18  0300 3000 3300 1018
      > 08 0400 0900 0228
      < 09 06 0400 4000 4300
      > 08 0500 0900 0228
      < 01 08 0500 0A
      > 0A 4000              # a 16-bit UUID stands in the include: §4.5.1 has only the others read
      < 01 0A 4000 05
      """)
    #expect(dialogue.effects() == ["1 discovered"])
    #expect(dialogue.client.remote.includes.map { $0.uuid?.description } == ["180F", "1810", nil])
    #expect(dialogue.client.remote.services.map(\.handle.rawValue) == [0x20, 0x30])
    #expect(dialogue.client.remote.services.map(\.isPrimary) == [false, false])
  }

  @Test func oneFindInformationForSeveralGaps() {
    let dialogue = Dialogue(mtu: 64)
    dialogue.client.discoverAll(1)
    dialogue.play(
      """
      > 10 0100 FFFF 0028
      < 11 06 0100 FFFF 0D18
      > 08 0100 FFFF 0228
      < 01 08 0100 0A
      > 08 0100 FFFF 0328
      < 09 07 0200 02 0300 012A  0500 02 0600 022A  0900 02 0A00 032A  0C00 12 0D00 042A
      > 08 0D00 FFFF 0328
      < 01 08 0D00 0A
      > 04 0400 FFFF       # gaps: 4, 7-8, 11, 14-FFFF
      < 05 01 0400 0129  0500 0328  0600 022A  0700 0129  0800 0429  0900 0328  0A00 032A
      > 04 0B00 FFFF
      < 05 02 0B00 010C 5F1A5F6E 5C8E BD4B 1D1D 0000 B1A0
      > 04 0E00 FFFF       # what lies between is known
      < 05 01 0E00 0229
      > 04 0F00 FFFF
      < 01 04 0F00 0A
      """)
    #expect(dialogue.effects() == ["1 discovered"])
    #expect(dialogue.client.remote.descriptors.map(\.handle.rawValue) == [4, 7, 8, 11, 14])
  }

  @Test(
    arguments: [
      (0x10, "2902"), (0x20, "2902"), (0x30, "2902"), (0x01, "2903"), (0x80, "2900"), (0x02, nil), (0x90, nil),
      (0x11, nil), (0x81, nil),
    ] as [(UInt8, String?)], [false, true]) func theDescriptorInAGapOfOne(_ sample: (UInt8, String?), infers: Bool)
  {
    let (properties, required) = sample, isInferred = infers && required != nil
    let dialogue = Dialogue()
    dialogue.client.discoverAll(1, infersDescriptors: infers)
    dialogue.play(
      """
      > 10 0100 FFFF 0028
      < 11 06 0100 0400 0D18
      > 10 0500 FFFF 0028
      < 01 10 0500 0A
      > 10 0500 FFFF 0128
      < 01 10 0500 0A
      > 08 0100 0400 0228
      < 01 08 0100 0A
      > 08 0100 0400 0328
      < 09 07 0200 \(hex([properties])) 0300 372A
      > 08 0300 0400 0328
      < 01 08 0300 0A
      """, isOver: false)
    // Whatever the rules require there, this server has a User Description.
    let question = "> 04 0400 0400\n< 05 01 0400 0129"
    if !isInferred { dialogue.play(question) }
    #expect(dialogue.request() == nil)
    #expect(dialogue.effects() == ["1 discovered"])
    #expect(dialogue.client.remote.isComplete)
    #expect(dialogue.client.remote.descriptors.isEmpty == isInferred)
    #expect(dialogue.client.remote.characteristics.map(\.descriptorsAreKnown) == [!isInferred])
    if isInferred {
      let before = dialogue.client.remote
      dialogue.client.discoverDescriptors(2, in: HandleRange(4, 4))
      dialogue.play(question)
      #expect(dialogue.effects() == ["2 discovered"])
      #expect(dialogue.client.remote.isComplete, "what was not known before is no change")
      #expect(dialogue.client.remote.characteristics == before.characteristics)
    }
    #expect(dialogue.client.remote.descriptors.map(\.uuid.description) == ["2901"])
    #expect(dialogue.client.remote.characteristics.map(\.descriptorsAreKnown) == [true])
  }

  /// The client does not ask for what it infers, but learns it where an answer says it all the same: 0x0007, and not
  /// 0x000A.
  @Test func anAnswerThatGoesOn() {
    let dialogue = Dialogue(mtu: 64)
    dialogue.client.discoverAll(1)
    dialogue.play(
      """
      > 10 0100 FFFF 0028
      < 11 06 0100 0F00 0D18
      > 10 1000 FFFF 0028
      < 01 10 1000 0A
      > 10 1000 FFFF 0128
      < 01 10 1000 0A
      > 08 0100 0F00 0228
      < 01 08 0100 0A
      > 08 0100 0F00 0328
      < 09 07 0200 02 0300 012A  0500 10 0600 022A  0800 20 0900 032A  0B00 02 0C00 042A  0E00 80 0F00 052A
      > 04 0400 0D00       # gaps: 4, 7, 10, 13
      < 05 01 0400 0129  0500 0328  0600 022A  0700 0129
      > 04 0D00 0D00
      < 05 01 0D00 0129
      """)
    #expect(dialogue.effects() == ["1 discovered"])
    let remote = dialogue.client.remote
    #expect(remote.descriptors.map(\.handle.rawValue) == [4, 7, 13])
    #expect(remote.characteristics.map(\.descriptorsAreKnown) == [true, true, false, true, true])
    // What is known is not asked for again, and is no configuration.
    dialogue.client.subscribe(2, 6)
    dialogue.client.subscribe(3, 9)
    dialogue.play("> 04 0A00 0A00\n< 05 01 0A00 0229\n> 12 0A00 0200\n< 13")
    #expect(dialogue.effects() == ["2 noConfigurationDescriptor", "3 done"])
  }

  @Test func servicesByUUID() {
    let dialogue = Dialogue()
    dialogue.client.discoverPrimaryServices(1, "180D")
    dialogue.client.discoverPrimaryServices(2, "A0B10000-1D1D-4BBD-8E5C-6E5F1A5F0C00")
    dialogue.client.discoverPrimaryServices(3, "0000180F-0000-1000-8000-00805F9B34FB")
    dialogue.play(
      """
      > 06 0100 FFFF 0028 0D18
      < 07 0100 0500  1000 1500
      > 06 1600 FFFF 0028 0D18
      < 01 06 1600 0A
      > 06 0100 FFFF 0028 000C 5F1A5F6E 5C8E BD4B 1D1D 0000 B1A0
      < 07 2000 FFFF
      > 06 0100 FFFF 0028 0F18
      < 01 06 0100 0A
      """)
    #expect(dialogue.effects() == ["1 discovered", "2 discovered", "3 discovered"])
    #expect(dialogue.client.remote.services.map(\.handle.rawValue) == [1, 0x10, 0x20])
    #expect(dialogue.client.remote.services("180D").count == 2)
    #expect(dialogue.client.remote.service("180F") == nil)
  }

  @Test func stepByStep() {
    let dialogue = Dialogue()
    dialogue.client.discoverPrimaryServices(1)
    dialogue.client.discoverCharacteristics(2, in: HandleRange(1, 9))
    dialogue.client.discoverDescriptors(3, in: HandleRange(4, 5))
    dialogue.play(
      """
      > 10 0100 FFFF 0028
      < 11 06 0100 0900 0D18
      > 10 0A00 FFFF 0028
      < 01 10 0A00 0A
      > 08 0100 0900 0328
      < 09 07 0200 10 0300 372A  0600 02 0700 382A
      > 08 0700 0900 0328
      < 01 08 0700 0A
      > 04 0400 0500
      < 05 01 0400 0229  0500 0129
      """)
    #expect(dialogue.effects() == ["1 discovered", "2 discovered", "3 discovered"])
    let remote = dialogue.client.remote
    #expect(remote.characteristics.map(\.endHandle.rawValue) == [5, 9])
    #expect(remote.characteristic("2A38", in: "180D")?.valueHandle == 7)
    #expect(remote.characteristic("2A38", in: "180F") == nil)
    #expect(remote.characteristic(valueHandle: 3)?.handle == 2)
    #expect(remote.characteristic(valueHandle: 4) == nil)
    #expect(remote.descriptor("2902", of: remote.characteristics[0])?.handle == 4)
    #expect(remote.descriptors(of: remote.characteristics[1]).isEmpty)
    #expect(remote.descriptor(at: 5)?.uuid == "2901")
    // Services again: one that still exists keeps its contents, one that is gone loses them.
    dialogue.client.discoverPrimaryServices(4)
    dialogue.play(
      """
      > 10 0100 FFFF 0028
      < 11 06 0100 FFFF 0D18
      """)
    #expect(dialogue.client.remote.characteristics.count == 2)
    dialogue.client.discoverPrimaryServices(5, "180D")
    dialogue.play(
      """
      > 06 0100 FFFF 0028 0D18
      < 01 06 0100 0A
      """)
    #expect(dialogue.client.remote.isEmpty)
  }

  /// Responses with which a peer could make a trusting client search forever or store an impossible database.
  @Test(arguments: [
    ("11 06 0000 0500 0018", "handlesNotIncreasing(BindruneATT.AttributeHandle(rawValue: 0))"),
    ("11 06 0500 0600 0018  0500 0700 0018", "handlesNotIncreasing(BindruneATT.AttributeHandle(rawValue: 5))"),
    ("11 06 0500 0400 0018", "groupEnd(BindruneATT.AttributeHandle(rawValue: 5))"),
    ("11 07 0500 0600 001800", "declarationLength(BindruneATT.AttributeHandle(rawValue: 5), 3)"),
    ("09 07 0200 02 0300 002A", "unexpectedResponse"),
    ("13", "unexpectedResponse"),
  ]) func malformedServices(response: String, violation: String) {
    let dialogue = Dialogue()
    dialogue.client.discoverAll(1)
    dialogue.play("> 10 0100 FFFF 0028\n< \(response)")
    #expect(dialogue.effects() == ["1 malformedResponse(BindruneGATT.ResponseViolation.\(violation))"])
  }

  @Test(arguments: [
    ("09 07 0100 02 0200 002A", "handlesNotIncreasing(BindruneATT.AttributeHandle(rawValue: 1))"),
    ("09 07 0300 02 0400 002A  0300 02 0400 002A", "handlesNotIncreasing(BindruneATT.AttributeHandle(rawValue: 3))"),
    ("09 07 0A00 02 0B00 002A", "handleOutOfRange(BindruneATT.AttributeHandle(rawValue: 10))"),
    ("09 08 0300 02 0400 002A00", "declarationLength(BindruneATT.AttributeHandle(rawValue: 3), 6)"),
  ]) func malformedCharacteristics(response: String, violation: String) {
    let dialogue = Dialogue()
    dialogue.client.discoverCharacteristics(1, in: HandleRange(2, 9))
    dialogue.play("> 08 0200 0900 0328\n< \(response)")
    #expect(dialogue.effects() == ["1 malformedResponse(BindruneGATT.ResponseViolation.\(violation))"])
  }

  @Test func whatIsPassedOver() {
    let dialogue = Dialogue()
    dialogue.client.discoverCharacteristics(1, in: HandleRange(2, 9))
    dialogue.play(
      """
      > 08 0200 0900 0328
      < 09 07 0200 02 0200 002A  0400 02 0500 012A
      > 08 0500 0900 0328
      < 01 08 0500 0A
      """)
    #expect(
      dialogue.effects() == ["ignored valueHandle(BindruneATT.AttributeHandle(rawValue: 2))", "1 discovered"])
    #expect(dialogue.client.remote.characteristics.map(\.handle.rawValue) == [4])
    dialogue.client.discoverIncludedServices(2, in: HandleRange(2, 3))
    dialogue.play(
      """
      > 08 0200 0300 0228
      < 09 08 0300 0500 0400 0F18
      """)
    #expect(dialogue.effects() == ["ignored groupEnd(BindruneATT.AttributeHandle(rawValue: 3))", "2 discovered"])
  }

  @Test func aRefusalThatIsNone() {
    let dialogue = Dialogue()
    dialogue.client.discoverAll(1)
    dialogue.play(
      """
      > 10 0100 FFFF 0028
      < 11 06 0100 0500 0018
      > 10 0600 FFFF 0028
      < 01 10 0600 0E
      """)
    #expect(dialogue.effects() == ["1 att 0E 10 06"])
    #expect(dialogue.client.remote.isEmpty, "results of a discovery count when it completes")
  }
}
