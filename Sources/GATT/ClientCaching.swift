import BindruneATT
import BasicContainers
import BindruneWire
import DequeModule

/// # What a client knows of its server, and for how long
/// **Overview**: Vol 3, Part G, §2.5.2. Handles are valid while the server's database is as it was when they were
/// discovered. Three signals report a change: the Database Hash (§7.3), which a client compares when it connects; the
/// Service Changed indication (§7.1), with the range that has changed; and the error 0x12, Database Out Of Sync, with
/// which a server that has this client's Robust Caching bit (§7.2) refuses requests until the client has learnt of the
/// change.
///
/// **Function**: the caller keeps `remote` between connections:
///
///     client.readDatabaseHash(id)                       // .databaseHash(hash)
///     client.restore(kept)                              // if kept.hash == hash; else
///     client.discoverAll(id)                            // then keep client.remote, if it has a hash
///     client.followChanges(id)                          // and the client learns of changes from here on
///
/// When the services change, `remote` forgets the range, waiting requests that refer to it fail with
/// `.databaseChanged`, and the effect `.servicesChanged` reports it. If `remote` was complete, the client discovers
/// that range again: `.rediscovered`.
///
/// After 0x12 the client reads the hash and repeats the request if the hash proves that the handle still has its
/// meaning, or if `remote` is empty, so that the handle came from elsewhere. Otherwise the client forgets the whole
/// database, because the request might reach another attribute than the caller meant. The caller gets a second 0x12.
extension Client {
  /// The hash of the server's database now: `.databaseHash`, `nil` when the server has none. Vol 3, Part G, §7.3.
  public mutating func readDatabaseHash(_ id: RequestID) { submit(Procedure(.request(id), .databaseHash)) }

  /// Sets `remote` to `database` instead of discovering it. It must be this server's current database: compare the
  /// hash.
  public mutating func restore(_ database: RemoteDatabase) {
    emptyArena()
    if bearers.isEmpty { return }
    remote = database
    if remote.hash != nil { hasHash = true }
    freshHash = nil
  }

  /// Tells a server that has the characteristics for it what this client supports (`features`: Vol 3, Part G, §7.2), and
  /// subscribes to Service Changed (§7.1). `remote` provides the handles: discover or restore first. Completes with
  /// `.done`, also where there is nothing to do. The client ignores a refusal of the features; a refusal of the
  /// subscription is the result.
  public mutating func followChanges(_ id: RequestID) { submit(Procedure(.request(id), .followChanges)) }

  // MARK: Discovered

  /// Merges a completed discovery that the active request asked for.
  mutating func learn(_ found: RemoteDatabase, isComplete: Bool) {
    let before = remote
    remote = found
    if !isComplete {
      // One part has changed, so the rest may have changed too.
      if !remote.extends(before) { remote.isComplete = false }
      if !remote.isComplete { remote.hash = nil }
      return
    }
    // Unless another change has arrived meanwhile.
    remote.isComplete = true
    for index in bearers.indices where bearers[index].waiting.contains(where: { $0.procedure.isRediscovery }) {
      remote.isComplete = false
    }
    remote.hash = freshHash
    freshHash = nil
  }

  mutating func beginRediscovery(_ range: HandleRange, at index: Int) {
    if hasHash { bearers[index].procedure.readHash() } else { discoverEverything(in: range, at: index) }
  }

  // MARK: Following changes

  mutating func beginFollowing(at index: Int) -> ClientResult? {
    guard let features = remote.characteristic(.clientSupportedFeatures, in: .genericAttribute) else {
      return followServiceChanged(at: index)
    }
    bearers[index].procedure.write([self.features.rawValue], to: features.valueHandle)
    return nil
  }
  /// Subscribes after the features were written, if the server offers the subscription.
  private mutating func followServiceChanged(at index: Int) -> ClientResult? {
    guard let changed = remote.characteristic(.serviceChanged, in: .genericAttribute) else { return .done }
    followed = changed.valueHandle
    bearers[index].procedure.become(.subscribe(changed.valueHandle, .indication))
    return beginSubscribing(changed.valueHandle, .indication, at: index)
  }
  /// The server has written or refused the features. Returns the result when nothing is left to do.
  mutating func followed(_ error: ClientError?, at index: Int) -> ClientResult? {
    if case .malformedResponse? = error { return .failed(.malformedResponse(.unexpectedResponse)) }
    guard bearers[index].procedure.isWanted else { return .failed(.cancelled) }
    return followServiceChanged(at: index)
  }

  // MARK: Subscribing

  mutating func beginSubscribing(
    _ valueHandle: AttributeHandle, _ wanted: ClientCharacteristicConfiguration?, at index: Int
  ) -> ClientResult? {
    guard let characteristic = remote.characteristic(valueHandle: valueHandle) else {
      return .failed(.unknownCharacteristic)
    }
    if let place = subscriptions.firstIndex(where: { $0.valueHandle == valueHandle }),
      wanted == nil || wanted == subscriptions[place].configuration
    {
      if bearers[index].procedure.caller != .client { subscriptions[place].subscribers += 1 }
      return .done
    }
    guard let configuration = wanted ?? characteristic.properties.configuration else {
      return .failed(.noConfigurationDescriptor)
    }
    bearers[index].procedure.become(.subscribe(valueHandle, configuration))
    return findConfiguration(of: characteristic, at: index)
  }
  mutating func beginUnsubscribing(_ valueHandle: AttributeHandle, at index: Int) -> ClientResult? {
    guard let characteristic = remote.characteristic(valueHandle: valueHandle) else {
      return .failed(.unknownCharacteristic)
    }
    if let place = subscriptions.firstIndex(where: { $0.valueHandle == valueHandle }),
      subscriptions[place].subscribers > 1
    {
      subscriptions[place].subscribers -= 1
      return .done
    }
    return findConfiguration(of: characteristic, at: index)
  }

  private mutating func findConfiguration(of characteristic: RemoteCharacteristic, at index: Int) -> ClientResult? {
    if configure(characteristic.valueHandle, at: index) { return nil }
    guard !characteristic.descriptorsAreKnown, let range = characteristic.descriptorRange else {
      return .failed(.noConfigurationDescriptor)
    }
    discover(.descriptors(range), at: index)
    return nil
  }
  /// True when the client knows the descriptor that a bearer's procedure writes to.
  mutating func configure(_ valueHandle: AttributeHandle, at index: Int) -> Bool {
    guard let characteristic = remote.characteristic(valueHandle: valueHandle),
      let descriptor = remote.descriptor(.clientCharacteristicConfiguration, of: characteristic)
    else { return false }
    bearers[index].procedure.configure(descriptor.handle)
    return true
  }

  /// The server has agreed to a subscription, or may have. Returns the procedure that undoes it if its caller has
  /// cancelled.
  mutating func subscribed(
    _ valueHandle: AttributeHandle, _ configuration: ClientCharacteristicConfiguration, by caller: Procedure.Caller
  ) -> Procedure? {
    let index = subscriptions.firstIndex { $0.valueHandle == valueHandle }
    let earlier = index.map { subscriptions[$0].configuration }
    if let index { subscriptions[index].configuration = configuration }
    switch (caller, index, earlier) {
    case (.client, _, _): break  // a restoration
    case (.request, let index?, _): subscriptions[index].subscribers += 1
    case (.request, nil, _):
      subscriptions.append(Subscription(valueHandle: valueHandle, configuration: configuration, subscribers: 1))
    // Restores what the other subscribers had.
    case (.none, _, let earlier?): return Procedure(.client, .subscribe(valueHandle, earlier))
    // No subscriber is left.
    case (.none, _, nil): return Procedure(.client, .unsubscribe(valueHandle))
    }
    return nil
  }

  // MARK: Changes

  /// Whether the handle is the value of Service Changed, in the Generic Attribute service. Vol 3, Part G, §7. While the
  /// client knows nothing of the handle, because a change included it, the handle is the one that was followed: §7.1.
  public func isServiceChanged(_ valueHandle: AttributeHandle) -> Bool {
    let characteristic = remote.characteristic(valueHandle: valueHandle)
    guard characteristic?.uuid == .serviceChanged || (characteristic == nil && valueHandle == followed) else {
      return false
    }
    guard let service = remote.service(containing: valueHandle) else { return true }
    return service.uuid == .genericAttribute
  }
  /// Service Changed: two handles. Vol 3, Part G, §7.1.
  mutating func received(serviceChanged value: Octets, in packet: Span<UInt8>) {
    var range = HandleRange.all
    let start = Int(value.offset)
    if let changed = try? WireDecoder.decode(ServiceChanged.self, packet, from: start, to: start + Int(value.count)),
      changed.range.isValid
    {
      range = changed.range
    } else {
      effects.append(.ignored(.changedRange))
    }
    freshHash = nil
    forget(range)
  }

  /// 0x12. The client does not repeat a request that takes back prepared writes.
  func isOutOfSync(_ response: ATTPDU, at index: Int) -> Bool {
    guard case .errorResponse(let error) = response, error.errorCode == .databaseOutOfSync else { return false }
    return bearers[index].procedure.isWanted && bearers[index].procedure.phase != .rollingBack
  }

  /// Receives the answer to a procedure's own request for the hash.
  mutating func received(hash response: ATTPDU, in packet: Span<UInt8>, at index: Int) {
    let result = DatabaseHash.result(of: response, in: packet)
    freshHash = takeHash(result)
    if case .rediscover(let range) = bearers[index].procedure.kind {
      discoverEverything(in: range, at: index)
    } else {
      end(result, at: index)
    }
  }
  private mutating func takeHash(_ result: ClientResult) -> DatabaseHash? {
    guard case .databaseHash(let hash?) = result else { return nil }
    hasHash = true
    return hash
  }

  /// Resumes after 0x12, once the server has answered the request for the hash.
  mutating func resume(after response: ATTPDU, in packet: Span<UInt8>, at index: Int) {
    let hash = takeHash(DatabaseHash.result(of: response, in: packet))
    bearers[index].synchrony = .resumed
    guard bearers[index].procedure.isWanted else { return end(.failed(.cancelled), at: index) }
    let isSame = remote.isEmpty || hash != nil && hash == remote.hash
    if !isSame { forget(.all) }
    switch bearers[index].procedure.kind {
    // From the beginning: the results so far may come from two databases.
    case .rediscover, .discover(.everything):
      for other in bearers.indices { bearers[other].waiting.removeAll { $0.procedure.isRediscovery } }
      freshHash = hash
      if bearers[index].procedure.isRediscovery { bearers[index].procedure.become(.rediscover(.all)) }
      discoverEverything(in: .all, at: index)
    case .discover(.primaryServices): discover(.primaryServices, at: index)
    case .discover(.services(let uuid)): discover(.services(uuid), at: index)
    case .values, .discover, .databaseHash, .subscribe, .unsubscribe, .followChanges:
      if !isSame { end(.failed(.databaseChanged), at: index) }
    }
  }

  /// The attributes in `range` have changed: waiting requests that refer to them fail, on all bearers.
  private mutating func forget(_ range: HandleRange) {
    let wasComplete = remote.isComplete, range = remote.forget(range)
    subscriptions.removeAll { range.contains($0.valueHandle) }
    if case .servicesChanged(let other)? = effects.last {
      effects[effects.count - 1] = .servicesChanged(range.union(other))
    } else {
      effects.append(.servicesChanged(range))
    }
    var again: HandleRange? = wasComplete ? range : nil
    for index in bearers.indices {
      if bearers[index].procedure.isRediscovery { again = again.union(range) }
      var rest = bearers[index].waiting
      bearers[index].waiting.removeAll()
      while let request = rest.popFirst() {
        if case .rediscover(let other) = request.procedure.kind {
          again = again.union(range).union(other)
        } else if request.procedure.touches(range) || request.synchrony == .readingHash {
          complete(request.procedure, .failed(.databaseChanged))
        } else {
          bearers[index].waiting.append(request)
        }
      }
    }
    if let again { bearers[0].waiting.append(RequestQueue.Waiting(procedure: Procedure(.client, .rediscover(again)))) }
    for index in bearers.indices {
      guard case .securing(let active, _) = bearers[index].phase, bearers[index].procedure.touches(range) else {
        continue
      }
      bearers[index].turn(to: .asking(active))
      end(.failed(.databaseChanged), at: index)
    }
    beginAll()
  }
}

/// Value of the Service Changed characteristic (0x2A05): the handles that are affected. Vol 3, Part G, §7.1.
public struct ServiceChanged: WireRecord {
  public var startOfAffectedAttributeHandleRange = AttributeHandle()
  public var endOfAffectedAttributeHandleRange = AttributeHandle()
  @inlinable public init() {}
  @inlinable @inline(__always) public mutating func fields(_ visit: inout some FieldVisitor) throws(WireError) {
    try visit.value("Start of Affected Attribute Handle Range", &startOfAffectedAttributeHandleRange)
    try visit.value("End of Affected Attribute Handle Range", &endOfAffectedAttributeHandleRange)
  }
  var range: HandleRange { HandleRange(startOfAffectedAttributeHandleRange, endOfAffectedAttributeHandleRange) }
}

extension DatabaseHash {
  /// Decodes the answer to `request`.
  fileprivate static func result(of response: ATTPDU, in packet: Span<UInt8>) -> ClientResult {
    switch response {
    case .readByTypeResponse(let list):
      var cursor = list.attributeDataList.cursor
      guard let entry = cursor.next(in: packet) else { return .failed(.malformedResponse(.unexpectedResponse)) }
      guard let hash = DatabaseHash(packet.extracting(entry.attributeValue.range)) else {
        return .failed(
          .malformedResponse(.declarationLength(entry.attributeHandle, Int(entry.attributeValue.count))))
      }
      return .databaseHash(hash)
    case .errorResponse(let error) where error.errorCode == .attributeNotFound: return .databaseHash(nil)
    case .errorResponse(let error):
      return .failed(.att(error.errorCode, ReadByTypeRequest.opcode, error.attributeHandleInError))
    case .exchangeMTURequest, .exchangeMTUResponse, .findInformationRequest, .findInformationResponse,
      .findByTypeValueRequest, .findByTypeValueResponse, .readByTypeRequest, .readRequest, .readResponse,
      .readBlobRequest, .readBlobResponse, .readMultipleRequest, .readMultipleResponse, .readByGroupTypeRequest,
      .readByGroupTypeResponse, .writeRequest, .writeResponse, .prepareWriteRequest, .prepareWriteResponse,
      .executeWriteRequest, .executeWriteResponse, .handleValueNotification, .handleValueIndication,
      .handleValueConfirmation, .readMultipleVariableRequest, .readMultipleVariableResponse,
      .multipleHandleValueNotification, .writeCommand, .signedWriteCommand:
      return .failed(.malformedResponse(.unexpectedResponse))
    }
  }
}

extension Procedure {
  var isRediscovery: Bool { if case .rediscover = kind { true } else { false } }
}

extension CharacteristicProperties {
  /// The configuration that a client asks for by default: notifications cost less.
  var configuration: ClientCharacteristicConfiguration? {
    if contains(.notify) { return .notification }
    return contains(.indicate) ? .indication : nil
  }
}
