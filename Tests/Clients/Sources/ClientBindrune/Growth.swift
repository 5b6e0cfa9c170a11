import Bindrune

// Each enum of the interface that may get more cases, in a switch that is prepared for them: it goes on compiling, with
// a warning, when one of them gets a case. `ArrowTests` checks that each is marked for it.

func name(_ state: HostState) -> String {
  switch state {
  case .stopped: "stopped"
  case .starting: "starting"
  case .running: "running"
  case .closing: "closing"
  case .closed(let error): "closed: \(error)"
  @unknown default: "\(state)"
  }
}
func isOfLink(_ event: HostEvent) -> Bool {
  switch event {
  case .server(let event): isOfLink(event)
  case .servicesChanged, .rediscovered, .peerIdentified, .mtuChanged, .parametersChanged, .dataLengthChanged,
    .physChanged, .bearersChanged, .securityChanged, .pairingAsked, .pairingEnded, .encryptionFailed,
    .indicationConfirmed:
    true
  case .running, .discovered, .scanFailed, .advertisingStarted, .advertisingFailed, .completed, .failed: false
  @unknown default: false
  }
}
func isOfLink(_ event: ServerEvent) -> Bool {
  switch event {
  case .connected, .disconnected, .subscriptionChanged, .written, .readRequested, .writeRequested, .requestUnanswered:
    true
  case .advertisingStopped: false
  @unknown default: false
  }
}
func changesLink(_ event: LinkEvent) -> Bool {
  switch event {
  case .value: false
  case .servicesChanged, .rediscovered, .peerIdentified, .parametersChanged, .dataLengthChanged, .physChanged,
    .mtuChanged, .bearersChanged, .securityChanged:
    true
  @unknown default: false
  }
}
func isOfServer(_ operation: HostOperation) -> Bool {
  switch operation {
  case .connect, .connectToFirst, .disconnect, .readRSSI, .updateParameters, .readPHYs, .setPHYs, .setDefaultPHYs,
    .readFeatures, .pair, .encrypt, .openChannel:
    false
  case .readDatabaseHash, .discoverAll, .discoverServices, .discoverIncludedServices, .discoverCharacteristics,
    .discoverDescriptors, .followChanges, .read, .readUUID, .readMultiple, .write, .writeReliably, .subscribe,
    .unsubscribe:
    true
  @unknown default: false
  }
}
func hasValue(_ outcome: HostOutcome) -> Bool {
  switch outcome {
  case .done: false
  case .linked, .parameters, .rssi, .phys, .features, .security, .value, .values, .databaseHash, .database, .channel:
    true
  @unknown default: true
  }
}
func isOrderly(_ closing: ChannelClosing) -> Bool {
  switch closing {
  case .here, .byPeer: true
  case .failed: false
  @unknown default: false
  }
}
func isWorthRetrying(_ code: BluetoothError.Code) -> Bool {
  switch code {
  case .connectionFailed, .connectionTimedOut, .disconnected, .timedOut, .busy, .overflow, .servicesChanged: true
  case .transport, .controller, .connectionLimitReached, .refused, .att, .pairing, .protocolViolation, .cancelled,
    .invalidArgument, .outOfSpace, .notStarted, .storage:
    false
  @unknown default: false
  }
}
func isOfAdapter(_ spec: TransportSpec) -> Bool {
  switch spec {
  case .adapter: true
  case .serial, .tcp, .unix, .sim, .radio: false
  @unknown default: false
  }
}
func needsAdministrator(_ error: TransportError) -> Bool {
  switch error {
  case .adapter(let error):
    switch error {
    case .noKernelSupport, .notLoaded, .noCapability, .filtered: true
    case .foreignNetwork, .up, .taken, .inSetUp, .userNamespace, .blocked, .system: false
    case .notFound(_, _, let hint?):
      switch hint {
      case .withoutDriver: true
      case .switchedOff: false
      @unknown default: false
      }
    case .notFound(_, _, nil): false
    @unknown default: false
    }
  case .permissionDenied: true
  case .framing(let error):
    switch error.reason {
    case .packetType, .length, .noResetAnswer: false
    @unknown default: false
    }
  case .specification, .unsuitable, .refused, .notFound, .noRadio, .unresolved, .timedOut, .addressInUse, .closed,
    .unplugged, .packetTooLong, .overflow, .trace, .system:
    false
  @unknown default: false
  }
}
func isOfServer(_ kind: SendPort.Kind) -> Bool {
  switch kind {
  case .notification: true
  case .command: false
  @unknown default: false
  }
}
func isOfProcess(_ subject: AdapterCheck.Subject) -> Bool {
  switch subject {
  case .socket, .userNamespace, .capability: true
  case .adapter, .radioSwitch, .owner, .setUp, .power, .daemon, .opening: false
  @unknown default: false
  }
}
func isHarmless(_ verdict: AdapterCheck.Verdict) -> Bool {
  switch verdict {
  case .passed, .caution: true
  case .failed, .unknown: false
  @unknown default: false
  }
}
func adapter(_ change: AdapterChanges.Change) -> BluetoothAdapter? {
  switch change {
  case .added(let adapter), .changed(let adapter), .removed(let adapter): adapter
  @unknown default: nil
  }
}
