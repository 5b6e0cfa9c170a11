/// What the adapter keeps for the peripheral's half.
struct Serving {
}

extension Adapter {
  /// What the next host begins with.
  var databaseToServe: Database { Database() }

  func perform(peripheral request: BrokerRequest, of session: AdapterSession, _ host: isolated Host) {
    refuse(peripheral: request, of: session)
  }
  /// The adapter is not powered on.
  func refuse(peripheral request: BrokerRequest, of session: AdapterSession) {
    switch request {
    case .addService(let id, _), .startAdvertising(let id, _, _): session.complete(id, .failure(notReady))
    default: break
    }
  }
  /// Everything that the host says but what its scans find. Links are in the table.
  func serve(_ event: HostEvent, _ host: isolated Host) {}
  /// The session has been closed. No host: the adapter is not powered on.
  func endServing(of session: AdapterSession, _ host: isolated Host?) {}
  /// Before the sessions are told. Every link, and what was advertised, is gone unless it is `.poweredOn`; below `.poweredOff`
  /// what was published, too.
  func stateChanged(to state: AdapterState) {}
}
