import BindruneATT
import BindruneWire
import BindruneGAP
import BindruneGATT
import BindruneHCI
import BindruneL2CAP
import Testing

/// The log text of a violation names the offender, the rule and the consequence, for people: no case names.
@Suite struct ViolationTextTests {
  static let truncated = WireError.truncated("Value Offset", needed: 2, available: 1)
  static let handle = AttributeHandle(rawValue: 0x0022)

  @Test(arguments: [
    (HostViolation.hci(.malformed(truncated)), "(truncated \"Value Offset\": needed 2, available 1): ignored"),
    (.hci(.unexpectedPacketType(0x07)), "of type 0x07"), (.hci(.unexpectedAnswer(Reset.opcode)), "HCI_Reset"),
    (.hci(.unexpectedAnswer(HCIOpcode(rawValue: 0xFC01))), "0xFC01"),
    (.hci(.completedPacketsOfUnknownLink(ConnectionHandle(rawValue: 0x0040))), "0x0040"),
    (.hci(.tooManyCompletedPackets(ConnectionHandle(rawValue: 0x0040), 3)), "3 packets more"),
    (.hci(.handleInUse(ConnectionHandle(rawValue: 0x0040))), "restarted"), (.l2cap(.unknownLink), "not open"),
    (.l2cap(.incompleteFrame(received: 3, expected: nil)), "3 of unknown many octets"),
    (.l2cap(.frameTooLong(.attribute, length: 600)), "0x0004"), (.l2cap(.rejectedSignal(0x14)), "0x14"),
    (
      .l2cap(.channel(ChannelID(rawValue: 0x0041), .sduOverrun(received: 12, expected: 10))),
      "12 octets of an SDU of 10"
    ),
    (.l2cap(.channel(ChannelID(rawValue: 0x0041), .noCredit)), "0x0041"),
    (.l2cap(.channelsRefused(.sourceCIDAlreadyAllocated)), "0x000A"), (.l2cap(.invalidResponse(0x15)), "0x15"),
    (.l2cap(.unexpectedCredits(ChannelID(rawValue: 0x0041), credits: 0)), "0 credits"),
    (.l2cap(.reconfigurationRefused(.mpsReduced)), "0x0002"),
    (.att(.malformed(.readRequest, truncated)), "ATT_READ_REQ"), (.att(.mtuTooSmall(22)), "22 octets"),
    (.att(.longerThanMTU(.handleValueNotification, count: 30, mtu: 23)), "30 octets, more than the MTU of 23"),
    (.seekRefused(.commandDisallowed), "0x0C"),
    (.att(.indicationBeforeConfirmation(handle)), "0x0022"), (.gatt(.handlesNotIncreasing(handle)), "0x0022"),
    (.transactionTimedOut, "30 s"), (.applicationTooSlow(handle), "0x0022"),
    (.parametersRejected(.unacceptableConnectionParameters), "0x3B"), (.disconnectRefused(.commandDisallowed), "0x0C"),
    (.valuesLost(7), "7 notifications"), (.hardwareError(0x42), "0x42"),
  ]) func says(violation: HostViolation, words: String) {
    let text = violation.text
    #expect(text.contains(words), "\(text)")
    #expect(!text.hasSuffix(".") && !text.contains("Optional") && !text.contains("(rawValue") && !text.contains("\n"))
    #expect(text.first?.isLowercase == true || text.first?.isNumber == true)
  }
}
