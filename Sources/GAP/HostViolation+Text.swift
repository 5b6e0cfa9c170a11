import BindruneATT
import BindruneWire
import BindruneGATT
import BindruneHCI
import BindruneL2CAP
import BindruneSMP

extension HostViolation {
  /// For a log: the violator, the violation and the consequence, as a clause without a full stop.
  public var text: String {
    switch self {
    case .hci(let violation): words(violation)
    case .l2cap(let violation): words(violation)
    case .att(let violation): words(violation)
    case .gatt(.notEncrypted(let handle)):
      "a value of attribute \(handle.text) came over a link to a bonded device that is not encrypted: ignored"
    case .gatt(let violation):
      "the peer's response breaks a rule, \(violation.text): the request fails or goes on without it"
    case .smp(let violation): words(violation)
    case .weakerThanBond:
      "the peer has paired with a weaker key than that of its bond: the bond stays, the pairing fails"
    case .noRoomForBond:
      "there is no room for a bond without authentication, as all bonds have it: remove one, or pair with digits"
    case .identityRefused(let error): "the peer has paired with an invalid identity, \(error): its keys are not kept"
    case .clientRecord(let error): "the stored record of the peer's client does not decode (\(error)): it begins anew"
    case .signatureRefused(let handle, let refusal):
      "the peer's signed write to attribute \(handle.text) is ignored: \(words(refusal))"
    case .authenticationTimedOut: "no packet of the encrypted link was authenticated for 30 s: the link is disconnected"
    case .transactionTimedOut: "the peer took more than 30 s for a transaction: the link is disconnected"
    case .bearerTimedOut: "the peer took more than 30 s for a transaction on an enhanced bearer: the bearer is closed"
    case .applicationTooSlow(let handle):
      "the application took more than 25 s for attribute \(handle.text): the client got Unlikely Error"
    case .parametersRejected(let status): "the connection parameters are unchanged: \(status)"
    case .disconnectRefused(let status): "the controller refuses to disconnect the link: \(status)"
    case .privateAddressRefused(let status):
      "the controller refuses a new private address, the old one remains in use: \(status)"
    case .seekRefused(let status):
      "the controller refuses to scan for a peer with a private address, the host repeats the command in 10 s: \(status)"
    case .valuesLost(let count): "\(count) notifications were not read in time and were dropped"
    case .hardwareError(let code): "the controller reports hardware error \(hex(code)): everything on it has ended"
    }
  }

  private func words(_ refusal: SignatureRefusal) -> String {
    switch refusal {
    case .noKey: "no bond has a key for its signature"
    case .wrongSignature: "another key or other octets were signed"
    case .repeatedCounter: "its counter is that of an earlier one"
    }
  }
  private func words(_ violation: HCIViolation) -> String {
    switch violation {
    case .malformed(let error): "the controller sent a packet that does not decode (\(error)): ignored"
    case .unexpectedPacketType(let type): "the controller sent a packet of type \(hex(type)): ignored"
    case .unexpectedAnswer(let opcode):
      "the controller answered \(name(opcode)), which answers no command: ignored"
    case .completedPacketsOfUnknownLink(let handle):
      "the controller completed packets of handle \(handle.text), which is not a link: ignored"
    case .tooManyCompletedPackets(let handle, let count):
      "the controller completed \(count) packets more of handle \(handle.text) than it had: ignored"
    case .handleInUse(let handle):
      "the controller gave a new link the handle \(handle.text) of an open one: the controller must be restarted"
    }
  }
  private func words(_ violation: SMPViolation) -> String {
    switch violation {
    case .unexpected(let code): "\(code) came where it has no place: a pairing in progress fails"
    case .malformed(let code, let reason): "\(code) does not decode (\(reason)): a pairing in progress fails"
    case .reserved(let code): "the Security Manager command \(hex(code.rawValue)) is reserved: ignored"
    case .empty: "a Security Manager PDU came without an octet: ignored"
    case .afterTimeOut(let code): "\(code) came after a pairing had timed out: ignored"
    }
  }
  private func name(_ opcode: HCIOpcode) -> String { AnyCommand(default: opcode).map { "\($0.name)" } ?? opcode.text }

  private func words(_ violation: L2CAPViolation) -> String {
    switch violation {
    case .unknownLink: "a packet came for a link that is not open: ignored"
    case .illegalHandle: "the controller gave a connection handle of more than 12 bits: the link is not opened"
    case .illegalFlags: "a packet's flags are invalid on an LE link: ignored"
    case .orphanFragment(let count): "a fragment of \(count) octets continues no frame: ignored"
    case .incompleteFrame(let received, let expected):
      "a frame ended after \(received) of \(expected.map { "\($0)" } ?? "unknown many") octets: dropped"
    case .overlongFragment(let received, let expected):
      "a frame of \(expected) octets came with \(received): dropped"
    case .frameTooLong(let channel, let length):
      "a frame of \(length) octets came on channel \(channel.text), which takes fewer: dropped"
    case .frameTooShort(let channel, let length):
      "a frame of \(length) octets came on channel \(channel.text), where it is invalid: ignored"
    case .unknownChannel(let channel): "a frame came on channel \(channel.text), which is not open: ignored"
    case .malformedSignal(let code, let error):
      "the signaling command \(code.text) does not decode (\(error)): a request is rejected, anything else ignored"
    case .illegalIdentifier(let code): "the signaling command \(code.text) has identifier 0: ignored"
    case .rejectedSignal(let code): "the signaling request \(code.text) is not supported: rejected"
    case .unexpectedSignal(let code, let identifier):
      "the signaling command \(code.text), identifier \(identifier), answers no request: ignored"
    case .tooManySignals(let code): "too many answers wait: the signaling request \(code.text) gets none"
    case .channel(let channel, let fault): "channel \(channel.text) \(fault.text): it is disconnected"
    case .unexpectedCredits(let channel, let credits):
      "\(credits) credits came for channel \(channel.text), which is not open or needs at least one: ignored"
    case .channelsRefused(let result):
      "the peer asked for channels with numbers or lengths that are not allowed: result \(result.text)"
    case .reconfigurationRefused(let result):
      "the peer asked for lengths on channels that are not allowed: result \(result.text)"
    case .invalidResponse(let code):
      "the signaling response \(code.text) opens channels with values that are not allowed: they do not open"
    }
  }

  private func words(_ violation: ATTViolation) -> String {
    switch violation {
    case .emptyPDU: "the peer sent an ATT PDU without an opcode: ignored"
    case .malformed(let opcode, let error):
      "the peer's \(opcode) does not decode (\(error)): a request gets Invalid PDU"
    case .unknownOpcode(let opcode): "the peer sent \(opcode): a request gets Request Not Supported"
    case .unexpectedResponse(let opcode): "the peer sent \(opcode), which answers no request: ignored"
    case .errorForAnotherRequest(let opcode): "the peer's error refers to \(opcode), which was not sent: ignored"
    case .unexpectedConfirmation: "the peer sent a confirmation without an indication: ignored"
    case .requestBeforeResponse(let opcode): "the peer sent \(opcode) before the response to its last request: accepted"
    case .requestDropped(let opcode): "the peer sent \(opcode) as a third request before a response: dropped"
    case .indicationBeforeConfirmation(let handle):
      "the peer indicated \(handle.text) before the confirmation of its last indication: dropped"
    case .mtuExchangeUnsupported:
      "the peer exchanged the MTU on an enhanced bearer, which has that of its channel: refused"
    case .repeatedMTUExchange: "the peer exchanged the MTU a second time: answered, without effect"
    case .mtuTooSmall(let mtu): "the peer's MTU of \(mtu) octets is below 23: 23 is used"
    case .longerThanMTU(let opcode, let count, let mtu):
      "the peer's \(opcode) has \(count) octets, more than the MTU of \(mtu): accepted"
    }
  }

  private func hex(_ octet: UInt8) -> String { "0x" + hexDigits(UInt64(octet), 2) }
}

extension ResponseViolation {
  /// For a log or an error: what was wrong. Half a sentence, without a full stop.
  public var text: String {
    switch self {
    case .unexpectedResponse: "it belongs to another request"
    case .notEncrypted(let handle): "the value of \(handle.text) is not encrypted"
    case .handlesNotIncreasing(let handle): "handles do not increase at \(handle.text)"
    case .handleOutOfRange(let handle): "handle \(handle.text) was not asked for"
    case .groupEnd(let handle): "the group at \(handle.text) ends before it starts"
    case .declarationLength(let handle, let length): "the declaration at \(handle.text) has \(length) octets"
    case .valueHandle(let handle): "the value \(handle.text) precedes its declaration"
    case .echo(let handle): "the echo of \(handle.text) differs from what was sent"
    case .tooLong: "it has more than the request asked for"
    case .changedRange: "its range of changed attributes is invalid"
    }
  }
}

extension ChannelFault {
  /// What the channel got.
  package var text: String {
    switch self {
    case .noCredit: "got a frame for which the peer has no credit"
    case .frameTooLong(let length): "got a frame of \(length) octets, more than its MPS"
    case .sduLengthMissing: "got a frame without the length of its SDU"
    case .sduTooLong(let length): "got an SDU of \(length) octets, more than its MTU"
    case .sduOverrun(let received, let expected): "got \(received) octets of an SDU of \(expected)"
    case .tooManyCredits: "got credits beyond 65,535"
    }
  }
}
