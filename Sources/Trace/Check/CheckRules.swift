extension CheckRule {
  /// Id, section and sentence.
  var definition: (StaticString, StaticString, StaticString) {
    switch self {
    // MARK: HCI
    case .packetType:
      ("hci.packet-type", "Vol 4, Part A, §2", "A packet begins with its type.")
    case .commandDirection:
      ("hci.command-direction", "Vol 4, Part A, §2", "Commands go from the host to the controller.")
    case .eventDirection: ("hci.event-direction", "Vol 4, Part A, §2", "Events go from the controller to the host.")
    case .commandLength:
      (
        "hci.command-length", "Vol 4, Part E, §5.4.1",
        "Parameter_Total_Length counts the octets of a command's parameters."
      )
    case .eventLength:
      (
        "hci.event-length", "Vol 4, Part E, §5.4.4",
        "Parameter_Total_Length counts the octets of an event's parameters."
      )
    case .dataLength:
      ("hci.data-length", "Vol 4, Part E, §5.4.2", "Data_Total_Length counts the octets of an ACL packet's data.")
    case .commandParameters:
      (
        "hci.command-parameters", "Vol 4, Part E, §7",
        "A command has the parameters that its opcode defines, in their ranges."
      )
    case .eventParameters:
      (
        "hci.event-parameters", "Vol 4, Part E, §7.7",
        "An event has the parameters that its code defines, in their ranges."
      )
    case .returnParameters:
      (
        "hci.return-parameters", "Vol 4, Part E, §7.7.14",
        "A Command Complete event has the return parameters that its command defines."
      )
    case .commandCredits:
      (
        "hci.command-credits", "Vol 4, Part E, §4.4",
        "The host sends a command only while Num_HCI_Command_Packets, less the commands since, is above zero."
      )
    case .resetAlone:
      (
        "hci.reset-alone", "Vol 4, Part E, §7.3.2",
        "Between HCI_Reset and its Command Complete the host sends no command."
      )
    case .replyMatches:
      (
        "hci.reply-matches", "Vol 4, Part E, §4.4",
        "A Command Complete or Command Status event names a command that waits for one."
      )
    case .replyKind:
      (
        "hci.reply-kind", "Vol 4, Part E, §4.4",
        "A command that succeeds is answered by the event that its definition names: Command Complete or Command Status."
      )
    case .advertisingParametersBusy:
      (
        "hci.advertising-parameters-busy", "Vol 4, Part E, §7.8.5",
        "The host does not set advertising parameters while advertising is enabled."
      )
    case .scanParametersBusy:
      (
        "hci.scan-parameters-busy", "Vol 4, Part E, §7.8.10",
        "The host does not set scan parameters while scanning is enabled."
      )
    case .randomAddressBusy:
      (
        "hci.random-address-busy", "Vol 4, Part E, §7.8.4",
        "The host does not set the random address while legacy advertising, scanning or initiating is enabled."
      )
    case .resolvingListBusy:
      (
        "hci.resolving-list-busy", "Vol 4, Part E, §7.8.38",
        """
        The host does not change the resolving list while address resolution and advertising, scanning or initiating \
        are enabled.
        """
      )
    case .createConnectionBusy:
      (
        "hci.create-connection-busy", "Vol 4, Part E, §7.8.12",
        "The host does not create a connection while another creation is pending."
      )
    case .legacyOrExtended:
      (
        "hci.legacy-or-extended", "Vol 4, Part E, §3.1.1",
        "Between two resets the host uses legacy or extended advertising and scanning commands, not both."
      )
    case .advertisingIntervals:
      (
        "hci.advertising-intervals", "Vol 4, Part E, §7.8.5",
        "Advertising_Interval_Min is not greater than Advertising_Interval_Max."
      )
    case .scanWindow:
      ("hci.scan-window", "Vol 4, Part E, §7.8.10", "A scan window is not longer than the scan interval.")
    case .connectionIntervals:
      (
        "hci.connection-intervals", "Vol 4, Part E, §7.8.12",
        "Connection_Interval_Min is not greater than Connection_Interval_Max."
      )
    case .supervisionTimeout:
      (
        "hci.supervision-timeout", "Vol 4, Part E, §7.8.12",
        "Supervision_Timeout is longer than (1 + Max_Latency) × Connection_Interval_Max × 2."
      )
    case .eventLengths:
      ("hci.event-lengths", "Vol 4, Part E, §7.8.12", "Min_CE_Length is not greater than Max_CE_Length.")
    case .advertisingSetKnown:
      (
        "hci.advertising-set-known", "Vol 4, Part E, §7.8.54",
        "The host sets data of an advertising set, or enables it, after its parameters."
      )
    case .encryptionByCentral:
      ("hci.encryption-by-central", "Vol 4, Part E, §7.8.24", "Only a Central's host starts encryption.")
    case .keyRequestToPeripheral:
      (
        "hci.key-request-to-peripheral", "Vol 4, Part E, §7.7.65.5",
        "Only a Peripheral's host is asked for a Long Term Key."
      )
    case .keyReplyAsked:
      (
        "hci.key-reply-asked", "Vol 4, Part E, §7.8.25",
        "The host answers an LE Long Term Key Request event, once."
      )
    case .encryptionCause:
      (
        "hci.encryption-cause", "Vol 4, Part E, §7.7.8",
        "Encryption changes after a Central's LE_Enable_Encryption or a Peripheral's Long Term Key."
      )
    case .handleRange:
      ("hci.handle-range", "Vol 4, Part E, §5.4.2", "A connection handle is at most 0x0EFF.")
    case .handleUnique:
      ("hci.handle-unique", "Vol 4, Part E, §7.7.65.1", "A new connection has a handle that no other connection has.")
    case .connectionCause:
      (
        "hci.connection-cause", "Vol 4, Part E, §7.7.65.1",
        "A connection arises from advertising as Peripheral, or from creating one as Central."
      )
    case .connectionParameters:
      (
        "hci.connection-parameters", "Vol 6, Part B, §4.5.2",
        "A connection's supervision timeout is longer than (1 + latency) × interval × 2."
      )
    case .eventConnection:
      ("hci.event-connection", "Vol 4, Part E, §5.4.2", "An event names a connection that exists.")
    case .dataConnection:
      ("hci.data-connection", "Vol 4, Part E, §5.4.2", "An ACL packet belongs to a connection that exists.")
    case .dataFlags:
      (
        "hci.data-flags", "Vol 4, Part E, §5.4.2",
        "LE data has the boundary flag 00 or 01 from the host, 10 or 01 to it, and the broadcast flag 00."
      )
    case .dataSize:
      (
        "hci.data-size", "Vol 4, Part E, §7.8.2",
        "The host's ACL packets are not longer than the controller's LE_ACL_Data_Packet_Length."
      )
    case .dataCredits:
      (
        "hci.data-credits", "Vol 4, Part E, §4.1.1",
        "The host has at most as many ACL packets in the controller as that has buffers."
      )
    case .completedPackets:
      (
        "hci.completed-packets", "Vol 4, Part E, §7.7.19",
        "The controller completes no more packets of a connection than the host has sent."
      )
    case .eventMask:
      ("hci.event-mask", "Vol 4, Part E, §7.3.1", "The controller sends no event that Event_Mask disables.")
    case .eventMaskLE:
      ("hci.le-event-mask", "Vol 4, Part E, §7.8.1", "The controller sends no LE event that LE_Event_Mask disables.")
    case .reportWhileScanning:
      (
        "hci.report-while-scanning", "Vol 4, Part E, §7.8.11",
        "Advertising reports come only while scanning is enabled."
      )
    case .randomAddressKind:
      (
        "hci.random-address-kind", "Vol 6, Part B, §1.3.2",
        "A random address is static or private: its random part is neither all zeros nor all ones."
      )

    case .commandSupported:
      (
        "hci.command-supported", "Vol 4, Part E, §6.27",
        "The host sends the commands whose bit in Supported_Commands is 1, and the controller supports no others."
      )
    case .encryptionKeySize:
      (
        "hci.encryption-key-size", "Vol 3, Part H, §2.3.4",
        "The key of an encrypted LE link has 7 to 16 octets, and not fewer than its pairing has agreed on."
      )

    // MARK: L2CAP
    case .fragmentOrder:
      ("l2cap.fragment-order", "Vol 3, Part A, §7.2.2", "A continuing fragment follows the first one of its frame.")
    case .frameComplete:
      ("l2cap.frame-complete", "Vol 3, Part A, §7.2.2", "A frame is complete before the next one of its link begins.")
    case .frameOverlong:
      (
        "l2cap.frame-overlong", "Vol 3, Part A, §7.2.2",
        "The fragments of a frame have no more octets than its header states."
      )
    case .channelKnown:
      ("l2cap.channel-known", "Vol 3, Part A, §2.1", "A frame on an LE link is for a channel that LE defines.")
    case .channelOpen:
      (
        "l2cap.channel-open", "Vol 3, Part A, §4.22",
        "A frame for a dynamic channel follows the response that opened it."
      )
    case .signalSingle:
      ("l2cap.signal-single", "Vol 3, Part A, §4", "A frame on the LE signaling channel has exactly one command.")
    case .signalLength:
      ("l2cap.signal-length", "Vol 3, Part A, §4", "A signaling command has the data that its length and code define.")
    case .signalCode:
      ("l2cap.signal-code", "Vol 3, Part A, §4", "A command on the LE signaling channel is one of LE's.")
    case .signalIdentifier:
      ("l2cap.signal-identifier", "Vol 3, Part A, §4", "A signaling command's identifier is not zero.")
    case .signalResponse:
      (
        "l2cap.signal-response", "Vol 3, Part A, §4",
        "A signaling response has the identifier of a request that waits for it, and answers its code."
      )
    case .signalReuse:
      ("l2cap.signal-reuse", "Vol 3, Part A, §4", "A signaling request has another identifier than those that wait.")
    case .updateByPeripheral:
      (
        "l2cap.update-by-peripheral", "Vol 3, Part A, §4.20",
        "Only a Peripheral requests a connection parameter update."
      )
    case .updateParameters:
      (
        "l2cap.update-parameters", "Vol 3, Part A, §4.20",
        "Requested intervals are 6 to 3,200 in order, the latency at most 499, the timeout 10 to 3,200."
      )
    case .updateTimeout:
      (
        "l2cap.update-timeout", "Vol 3, Part A, §4.20",
        "The requested latency is below (timeout / (interval max × 2)) − 1."
      )
    case .signalTimeout:
      (
        "l2cap.signal-timeout", "Vol 3, Part A, §6.2.1, §6.2.2",
        "A signaling request is answered within 60 s, or within 300 s of a response that announces another one."
      )
    case .channelPSM:
      ("l2cap.psm", "Vol 3, Part A, §4.22", "A channel request's SPSM is 0x0001 to 0x00FF.")
    case .channelRange:
      (
        "l2cap.channel-range", "Vol 3, Part A, §4.22",
        "A channel that is opened on LE has an identifier of 0x0040 to 0x007F."
      )
    case .channelUnique:
      (
        "l2cap.channel-unique", "Vol 3, Part A, §2.1, §4.22",
        "A channel that is opened has an identifier that no open channel of its device has."
      )
    case .channelMinimum:
      ("l2cap.channel-minimum", "Vol 3, Part A, §4.22", "A channel's MTU is at least 23, its MPS 23 to 65,533.")
    case .channelFirstCredits:
      (
        "l2cap.channel-first-credits", "Vol 3, Part A, §4.25, §4.26",
        "Enhanced channels begin with 1 to 65,535 credits."
      )
    case .channelCount:
      (
        "l2cap.channel-count", "Vol 3, Part A, §4.26",
        "A response that opens enhanced channels names as many as its request."
      )
    case .channelCredits:
      (
        "l2cap.channel-credits", "Vol 3, Part A, §10.1",
        "Each frame of a credit-based channel uses a credit of its receiver."
      )
    case .channelCreditLimit:
      (
        "l2cap.channel-credit-limit", "Vol 3, Part A, §10.1",
        "A channel's credits never exceed 65,535, and none are given as zero."
      )
    case .segmentSize:
      (
        "l2cap.segment-size", "Vol 3, Part A, §3.4.3",
        "A frame of a credit-based channel is not longer than its receiver's MPS."
      )
    case .unitSize:
      (
        "l2cap.unit-size", "Vol 3, Part A, §3.4.3",
        "An SDU is not longer than its receiver's MTU, and its segments have its length."
      )
    case .reconfiguredChannel:
      (
        "l2cap.reconfigured-channel", "Vol 3, Part A, §4.27",
        "A reconfiguration is about open enhanced channels of its device."
      )
    case .reconfiguredMTU:
      ("l2cap.reconfigured-mtu", "Vol 3, Part A, §4.27", "A reconfiguration does not make an MTU less than before.")
    case .reconfiguredMPS:
      (
        "l2cap.reconfigured-mps", "Vol 3, Part A, §4.27",
        "A reconfiguration of more than one channel does not make an MPS less than before."
      )

    // MARK: ATT
    case .attributeEmpty: ("att.empty", "Vol 3, Part F, §3.3.1", "An ATT PDU has an opcode.")
    case .attributeOpcode:
      ("att.opcode", "Vol 3, Part F, §3.4.8", "An ATT PDU has an opcode that the Specification defines.")
    case .attributeShape: ("att.shape", "Vol 3, Part F, §3.4", "An ATT PDU has the parameters that its opcode defines.")
    case .attributeMTU:
      (
        "att.mtu", "Vol 3, Part F, §3.2.8",
        "An ATT PDU is not longer than ATT_MTU: 23 octets, or the lesser of both sides' values."
      )
    case .mtuOnce:
      ("att.mtu-once", "Vol 3, Part F, §3.4.2.1", "A client sends one Exchange MTU Request in a connection.")
    case .mtuMinimum: ("att.mtu-minimum", "Vol 3, Part F, §3.4.2.1", "The MTU that a side offers is at least 23.")
    case .mtuSymmetric:
      ("att.mtu-symmetric", "Vol 3, Part F, §3.4.2.2", "A device offers the same MTU as client and as server.")
    case .oneRequest:
      ("att.one-request", "Vol 3, Part F, §3.3.2", "A client sends a request after the response to the one before.")
    case .responseAsked: ("att.response-asked", "Vol 3, Part F, §3.3.2", "A response follows a request.")
    case .responseKind:
      ("att.response-kind", "Vol 3, Part F, §3.4.9", "A response is that of the request, or an error.")
    case .errorRequest:
      ("att.error-request", "Vol 3, Part F, §3.4.1.1", "An error response names the request that it answers.")
    case .errorHandle:
      (
        "att.error-handle", "Vol 3, Part F, §3.4.1.1",
        "An error response names an attribute of the request, its starting handle if the whole range failed, or 0x0000."
      )
    case .errorCode:
      (
        "att.error-code", "Vol 3, Part F, §3.4.1.1",
        "An error code is defined, of the application, or of a common profile."
      )
    case .oneIndication:
      (
        "att.one-indication", "Vol 3, Part F, §3.3.2",
        "A server sends an indication after the confirmation of the one before."
      )
    case .confirmationAsked:
      ("att.confirmation-asked", "Vol 3, Part F, §3.4.7.3", "A confirmation follows an indication.")
    case .transactionTimeout:
      (
        "att.timeout", "Vol 3, Part F, §3.3.3",
        "A request or indication is answered within 30 s."
      )
    case .handleZero: ("att.handle-zero", "Vol 3, Part F, §3.2.2", "An attribute handle is not 0x0000.")
    case .handleRangeOrder:
      ("att.range", "Vol 3, Part F, §3.4.3.1", "A request's starting handle is not greater than its ending handle.")
    case .listInRange:
      (
        "att.list-in-range", "Vol 3, Part F, §3.4.3.2",
        "A list of attributes lies in the range that the request asks for."
      )
    case .listAscending:
      ("att.list-ascending", "Vol 3, Part F, §3.4.3.2", "A list of attributes is in the order of their handles.")
    case .listUniform:
      (
        "att.list-uniform", "Vol 3, Part F, §3.4.4.2",
        "The entries of a list have the length that it states, all of it."
      )
    case .informationFormat:
      ("att.information-format", "Vol 3, Part F, §3.4.3.2", "The format of Find Information is 0x01 or 0x02.")
    case .groupEnd:
      (
        "att.group-end", "Vol 3, Part F, §3.4.4.10",
        "A group ends at or behind its first attribute, and before the next group."
      )
    case .multipleHandles:
      ("att.multiple-handles", "Vol 3, Part F, §3.4.4.7", "A request for several values names two attributes or more.")
    case .valueLength: ("att.value-length", "Vol 3, Part F, §3.2.9", "An attribute's value has at most 512 octets.")
    case .prepareEcho:
      (
        "att.prepare-echo", "Vol 3, Part F, §3.4.6.2",
        "A Prepare Write Response repeats handle, offset and value of its request."
      )
    case .executeFlags: ("att.execute-flags", "Vol 3, Part F, §3.4.6.3", "The flags of Execute Write are 0x00 or 0x01.")
    case .multipleNotification:
      (
        "att.multiple-notification", "Vol 3, Part F, §3.4.7.4",
        "Multiple Handle Value Notification has two values or more, of their lengths."
      )
    case .foundGroupEnd:
      (
        "att.find-by-type-group", "Vol 3, Part F, §3.4.3.4",
        "A group end in Find By Type Value is at or behind the found attribute."
      )

    case .afterTimeout:
      (
        "att.after-timeout", "Vol 3, Part F, §3.3.3",
        "A device whose transaction has timed out sends no request, command, indication or notification on that bearer."
      )

    // MARK: GATT
    case .enhancedEncrypted:
      (
        "att.enhanced-encrypted", "Vol 3, Part G, §5.3.2", "A link has enhanced bearers only while it is encrypted."
      )
    case .enhancedMTU:
      (
        "att.enhanced-mtu", "Vol 3, Part G, §4.2",
        "No MTU is exchanged on an enhanced bearer: its channel has one."
      )
    case .groupingType:
      ("gatt.grouping-type", "Vol 3, Part G, §2.5.3", "Read By Group Type asks for primary or secondary services.")
    case .serviceShape:
      ("gatt.service-shape", "Vol 3, Part G, §3.1", "A service declaration is a UUID of 2 or 16 octets.")
    case .servicesDisjoint: ("gatt.services-disjoint", "Vol 3, Part G, §3.1", "Services do not share attributes.")
    case .includeShape:
      (
        "gatt.include-shape", "Vol 3, Part G, §3.2",
        "An include declaration has 6 octets, or 4 for a UUID of 128 bits, and a valid range."
      )
    case .characteristicShape:
      ("gatt.characteristic-shape", "Vol 3, Part G, §3.3.1", "A characteristic declaration has 5 or 19 octets.")
    case .valueHandle:
      ("gatt.value-handle", "Vol 3, Part G, §3.3.2", "A characteristic's value directly follows its declaration.")
    case .databaseStable:
      (
        "gatt.database-stable", "Vol 3, Part G, §2.5.2",
        "An attribute keeps its type while a connection lasts, unless Service Changed is indicated."
      )
    case .declarationValue:
      (
        "gatt.declaration-value", "Vol 3, Part G, §2.5.2",
        "A declaration that is read again has the value that discovery showed."
      )
    case .configurationShape:
      ("gatt.cccd-shape", "Vol 3, Part G, §3.3.3.3", "A Client Characteristic Configuration is read as 2 octets.")
    case .configurationWrite:
      (
        "gatt.cccd-write", "Vol 3, Part G, §3.3.3.3",
        "A client writes 2 octets to a Client Characteristic Configuration, with bits 2 to 15 zero."
      )
    case .configurationRead:
      (
        "gatt.cccd-read", "Vol 3, Part G, §3.3.3.3",
        "A Client Characteristic Configuration is read as this client has written it."
      )
    case .notificationEnabled:
      ("gatt.notification-enabled", "Vol 3, Part G, §3.3.3.3", "A server notifies a client that has enabled it.")
    case .indicationEnabled:
      ("gatt.indication-enabled", "Vol 3, Part G, §3.3.3.3", "A server indicates to a client that has enabled it.")
    case .notifyProperty:
      ("gatt.notify-property", "Vol 3, Part G, §3.3.1.1", "A characteristic that is notified has the Notify property.")
    case .indicateProperty:
      (
        "gatt.indicate-property", "Vol 3, Part G, §3.3.1.1",
        "A characteristic that is indicated has the Indicate property."
      )
    case .notifiedHandle:
      (
        "gatt.notified-handle", "Vol 3, Part G, §4.10",
        "A notification or indication is about a characteristic's value."
      )
    case .multipleNotificationEnabled:
      (
        "gatt.multiple-notification-enabled", "Vol 3, Part G, §7.2",
        "A server sends Multiple Handle Value Notification to a client whose Client Supported Features has bit 2."
      )
    case .signedUnencrypted:
      (
        "gatt.signed-unencrypted", "Vol 3, Part G, §4.9.2",
        "A client sends Signed Write Without Response on a link that is not encrypted."
      )
    case .serviceChangedShape:
      (
        "gatt.service-changed-shape", "Vol 3, Part G, §7.1",
        "Service Changed has 4 octets: a range of handles in order."
      )
    case .databaseHashShape: ("gatt.database-hash-shape", "Vol 3, Part G, §7.3", "The Database Hash has 16 octets.")
    case .profileValueShape:
      (
        "gatt.profile-value-shape", "Vol 3, Part C, §12",
        "Appearance has 2 octets, Preferred Connection Parameters 8, and Central Address Resolution 1."
      )

    case .descriptorExists:
      (
        "gatt.descriptor-exists", "Vol 3, Part G, §3.3.1.1",
        "A characteristic has the configuration or extended properties descriptors that its properties demand."
      )
    case .readProperty:
      ("gatt.read-property", "Vol 3, Part G, §3.3.1.1", "A server lets values be read whose properties say so.")
    case .writeProperty:
      ("gatt.write-property", "Vol 3, Part G, §3.3.1.1", "A server lets values be written whose properties say so.")
    case .serviceOnce:
      (
        "gatt.service-once", "Vol 3, Part C, §12",
        "A server has one Generic Access service and not more than one Generic Attribute service."
      )

    // MARK: SMP
    case .pairingCode:
      ("smp.code", "Vol 3, Part H, §3.3", "A Security Manager PDU has a code that the Specification defines.")
    case .pairingLength: ("smp.length", "Vol 3, Part H, §3.3", "A Security Manager PDU has the length of its code.")
    case .pairingValues:
      (
        "smp.values", "Vol 3, Part H, §3.5.1",
        "IO Capability is at most 4, OOB Data Flag at most 1, and the encryption key size 7 to 16."
      )
    case .pairingRoles:
      (
        "smp.roles", "Vol 3, Part H, §2.3, §2.4.6",
        "A Central sends Pairing Request; a Peripheral sends Pairing Response and Security Request."
      )
    case .pairingOrder:
      ("smp.order", "Vol 3, Part H, §2.3.5, §2.4.6", "Pairing PDUs come in the order of the method, each once.")
    case .pairingAfterFailure:
      (
        "smp.after-failure", "Vol 3, Part H, §3.5.5",
        "After Pairing Failed a new Pairing Request or Security Request comes first."
      )
    case .pairingFailureReason:
      ("smp.failure-reason", "Vol 3, Part H, §3.5.5", "The reason of Pairing Failed is defined.")
    case .pairingTimeout:
      (
        "smp.timeout", "Vol 3, Part H, §3.4",
        "Pairing PDUs follow each other within 30 s; after a longer pause the pairing does not continue."
      )
    case .pairingKeysOffered:
      (
        "smp.keys-offered", "Vol 3, Part H, §3.5.2",
        "A Pairing Response asks for and offers no key that the request does not."
      )
    case .keyAgreed:
      ("smp.key-agreed", "Vol 3, Part H, §3.6.1", "A side distributes only the keys that both have agreed on.")
    case .keyOrder:
      ("smp.key-order", "Vol 3, Part H, §3.6.1", "Keys are distributed in the order of their table, each once.")
    case .keyResponderFirst:
      (
        "smp.key-responder-first", "Vol 3, Part H, §3.6.1",
        "The responder distributes all its keys before the initiator."
      )
    case .keyEncrypted:
      ("smp.key-encrypted", "Vol 3, Part H, §3.6.1", "Keys are distributed only on an encrypted link.")
    case .keyIdentityAddress:
      (
        "smp.identity-address", "Vol 3, Part H, §3.6.5",
        "An identity address is public (type 0), or random (type 1) and static."
      )
    case .publicKeyCurve: ("smp.public-key", "Vol 3, Part H, §2.3.5.6.1", "A public key is a point of P-256.")
    case .publicKeyOwn:
      (
        "smp.public-key-own", "Vol 3, Part H, §2.3.5.6.1",
        "A responder does not send the initiator's public key as its own."
      )
    case .confirmValue:
      (
        "smp.confirm", "Vol 3, Part H, §2.3.5.6",
        "With LE Secure Connections a Pairing Confirm is f4 of both public keys, its sender's Random and the passkey's bit."
      )
    case .encryptionAfterPairing:
      (
        "smp.encryption-order", "Vol 3, Part H, §2.4.4",
        "Encryption starts after the pairing PDUs of phase 2, not between them."
      )

    case .identifiersZero:
      (
        "smp.identifiers-zero", "Vol 3, Part H, §2.4.4",
        "EDIV and Rand are 0 for a key that a pairing has made and no PDU has distributed."
      )

    // MARK: Advertising
    case .structureLength: ("ad.length", "Vol 3, Part C, §11", "An AD structure ends within its data.")
    case .structureEnd: ("ad.end", "Vol 3, Part C, §11", "Behind an AD structure of length 0 all octets are zero.")
    case .structureSize: ("ad.size", "CSS, Part A, §1", "An AD structure's data has the size of its type.")
    case .structureContext:
      (
        "ad.context", "CSS, Part A, §1",
        "Advertising data has no type that is only for out-of-band data or for the controller's advertising data."
      )
    case .flagsModes:
      (
        "ad.flags-modes", "Vol 3, Part C, §9.2.3.2",
        "Flags do not state limited and general discoverable mode together."
      )
    case .flagsInScanResponse: ("ad.flags-scan-response", "CSS, Part A, §1", "A scan response has no Flags.")
    case .structureOnce:
      (
        "ad.once", "CSS, Part A, §1",
        "Flags, names, target addresses, Appearance, Advertising Interval and LE Supported Features occur once in a block."
      )
    case .uuidListShape: ("ad.uuid-list", "CSS, Part A, §1.1", "A list of service UUIDs has whole UUIDs.")
    case .serviceDataShape: ("ad.service-data", "CSS, Part A, §1.11", "Service data begins with its service's UUID.")
    case .manufacturerShape:
      (
        "ad.manufacturer", "CSS, Part A, §1.4",
        "Manufacturer Specific Data begins with a company identifier of 2 octets."
      )
    case .nameText: ("ad.name", "CSS, Part A, §1.2", "A Local Name is UTF-8.")
    case .intervalRange:
      (
        "ad.interval-range", "CSS, Part A, §1.9",
        "The preferred interval range is two intervals in order, each 6 to 3,200 or 0xFFFF."
      )
    }
  }
}
