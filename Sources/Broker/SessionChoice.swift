import BindruneControl
import BindruneTransport

/// Where a manager's session is: in this process, or with bindruned. See `DaemonSocket`.
public enum SessionChoice {
  /// `adapter`: what the program names, as for `DirectSession`, or `broker`, or `broker:NAME`. A mistake in what
  /// chooses the adapter is the state `AdapterState.unsupported`.
  public static func open(
    adapter: String?, as identity: ManagerIdentity, events: EventQueue
  ) -> any BrokerSession {
    // A program that provides an adapter under this name means that one.
    if let adapter, AdapterRegistry.shared.isProvided(adapter) {
      return DirectSession(adapter: adapter, as: identity, events: events)
    }
    do throws(TransportError) {
      guard let daemon = try DaemonSocket.chosen(adapter) else {
        return DirectSession(adapter: adapter, as: identity, events: events)
      }
      do throws(FrameError) {
        let hello = AppMessage.Hello(
          manifest: try .ofThisProgram(), manager: identity, adapter: daemon.adapter)
        return RemoteSession(to: daemon.path, hello, events: events)
      } catch {
        throw .specification(String(error.description.dropLast()))
      }
    } catch {
      return DirectSession(on: AdapterRegistry.shared.adapter(.failure(error)), as: identity, events: events)
    }
  }

  /// S61, S62: the restoration identifiers of the managers for which bindruned has relaunched this process; none if a
  /// user has started it, or it does not use the daemon. It blocks its thread until the daemon has answered, 5 s at
  /// most.
  public static func launchIdentifiers(of role: BackgroundMode) -> [String] {
    guard let daemon = try? DaemonSocket.chosen(), let manifest = try? AppManifest.ofThisProgram() else { return [] }
    var identifiers: [String] = []
    try? DaemonControl.launched(app: manifest.identifier).ask(at: daemon.path) { line in
      let words = line.split(separator: "\t", maxSplits: 1)
      if words.count == 2, words[0] == role.rawValue { identifiers.append(String(words[1])) }
    }
    return identifiers
  }
}
