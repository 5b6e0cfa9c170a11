import CoreBluetooth
import Testing

@Suite struct ErrorTests {
  @Test func asAClientMeetsThem() throws {
    #expect(CBErrorDomain == "CBErrorDomain" && CBATTErrorDomain == "CBATTErrorDomain")
    #expect(CBError.errorDomain == CBErrorDomain && CBATTError.errorDomain == CBATTErrorDomain)
    let codes: [CBError.Code] = [
      CBError.unknown, CBError.invalidParameters, CBError.invalidHandle, CBError.notConnected, CBError.outOfSpace,
      CBError.operationCancelled, CBError.connectionTimeout, CBError.peripheralDisconnected, CBError.uuidNotAllowed,
      CBError.alreadyAdvertising, CBError.connectionFailed, CBError.connectionLimitReached, CBError.unknownDevice,
      CBError.operationNotSupported, CBError.peerRemovedPairingInformation, CBError.encryptionTimedOut,
      CBError.tooManyLEPairedDevices, CBError.leGattExceededBackgroundNotificationLimit,
      CBError.leGattNearBackgroundNotificationLimit,
    ]
    #expect(codes.map(\.rawValue) == Array(0...18))
    #expect(codes == (0...18).compactMap(CBError.Code.init(rawValue:)))
    let answers: [CBATTError.Code] = [
      CBATTError.success, CBATTError.invalidHandle, CBATTError.readNotPermitted, CBATTError.writeNotPermitted,
      CBATTError.invalidPdu, CBATTError.insufficientAuthentication, CBATTError.requestNotSupported,
      CBATTError.invalidOffset, CBATTError.insufficientAuthorization, CBATTError.prepareQueueFull,
      CBATTError.attributeNotFound, CBATTError.attributeNotLong, CBATTError.insufficientEncryptionKeySize,
      CBATTError.invalidAttributeValueLength, CBATTError.unlikelyError, CBATTError.insufficientEncryption,
      CBATTError.unsupportedGroupType, CBATTError.insufficientResources,
    ]
    #expect(answers.map(\.rawValue) == Array(0...0x11))

    // Errors as a client uses them: caught by type or by code, compared, bridged, and shown to people.
    func fails(_ error: any Error) throws { throw error }
    do { try fails(CBError(.peripheralDisconnected)) } catch CBError.peripheralDisconnected {} catch {
      Issue.record("\(error) is not caught by its code")
    }
    do { try fails(CBATTError(.readNotPermitted)) } catch CBATTError.readNotPermitted {} catch {
      Issue.record("\(error) is not caught by its code")
    }
    do { try fails(CBATTError(.invalidOffset)) } catch let error as CBATTError {
      #expect(error.code == .invalidOffset && error.errorCode == 7 && error == CBATTError(.invalidOffset))
    }
    let error: any Error = CBError(.connectionTimeout, userInfo: [NSLocalizedDescriptionKey: "Gone.", "more": 1])
    #expect(error.localizedDescription == "Gone." && (error as? CBError)?.userInfo["more"] as? Int == 1)
    #expect((error as NSError).domain == CBErrorDomain && (error as NSError).code == 6)
    #expect((error as NSError).localizedDescription == "Gone.")
    for code in codes { #expect(!(CBError(code) as any Error).localizedDescription.contains("CBError")) }
    #expect("\(error)" == "Error Domain=CBErrorDomain Code=6 \"Gone.\"")
    #expect(
      "\(CBATTError(.readNotPermitted))" == "Error Domain=CBATTErrorDomain Code=2 \"The attribute cannot be read.\"")
    for code in answers { #expect(!(CBATTError(code) as any Error).localizedDescription.contains("CBATTError")) }
  }

  @Test("Both casts succeed, as in programs that know NSError alone, from a delegate's optional error too")
  func bridged() throws {
    let errors: [((any Error)?, String, Int)] = [
      (CBError(.connectionTimeout, userInfo: ["more": 1]), CBErrorDomain, 6),
      (CBATTError(.readNotPermitted, userInfo: ["more": 1]), CBATTErrorDomain, 2),
    ]
    for (error, domain, code) in errors {
      let bridged = error as? NSError
      #expect(bridged?.domain == domain && bridged?.code == code && bridged?.userInfo["more"] as? Int == 1)
      #expect(bridged?.localizedDescription == error?.localizedDescription)
      #expect((error as Any) as? NSError == bridged && bridged == error.map { $0 as NSError })
    }
    let lost: any Error = NSError(domain: CBErrorDomain, code: 6, userInfo: ["more": 1])
    let refused: any Error = NSError(domain: CBATTErrorDomain, code: 0x80)
    let foreign: any Error = NSError(domain: NSCocoaErrorDomain, code: 6)
    #expect((lost as? CBError)?.code == .connectionTimeout && (lost as? CBError)?.userInfo["more"] as? Int == 1)
    #expect((refused as? CBATTError)?.code.rawValue == 0x80 && refused as? CBError == nil)
    #expect(foreign as? CBError == nil && foreign as? CBATTError == nil && (foreign as NSError).code == 6)
    func fails(_ error: any Error) throws { throw error }
    do { try fails(lost) } catch CBError.connectionTimeout {} catch {
      Issue.record("\(error) is not caught by its code")
    }
    do { try fails(lost) } catch let error as CBError {
      #expect(error.hashValue == CBError(.connectionTimeout).hashValue)
    } catch {
      Issue.record("\(error) is not caught by its type")
    }
    do { try fails(CBError(.connectionTimeout)) } catch let error as NSError { #expect(error.code == 6) }
  }

  @Test("An application's own error code survives, as in Apple's enumeration") func unknownAnswers() throws {
    let code = try #require(CBATTError.Code(rawValue: 0x80))
    let error: any Error = CBATTError(code)
    #expect((error as NSError).code == 0x80 && (error as? CBATTError)?.code.rawValue == 0x80)
    #expect(error.localizedDescription.contains("0x80"))
    switch code {
    case .success, .invalidHandle: Issue.record("0x80 is taken for another")
    default: break
    }
  }
}
