import BindruneATT
import BasicContainers
import BindruneWire
import BindruneGATT
import BindruneHCI
import BindruneL2CAP

// What the layers above HCI say: the effects of L2CAP, bearers, clients and the server.
extension HostCore {
  mutating func collect(_ handle: ConnectionHandle, _ now: Instant) {
    if !upper.drained.isEmpty { closeDrainedStreams(of: handle, now) }
    while let effect = l2cap.nextEffect() { self.handle(effect, now) }
    if let index = upper.index(of: handle) {
      collect(at: index)
      if upper.links[index].protection.hasWork { secure(at: index, now) }
    }
    if upper.awaitsSecurity { continueOpenings(now) }
    collectServer()
  }
  /// Takes the effects of a link's client and bearers, with their octets, and notes whether the link has something to
  /// send.
  mutating func collect(at index: Int) {
    let link = upper.links[index].id
    while let effect = upper.links[index].client.nextEffect() {
      switch effect {
      case .value(let handle, let octets, let kind):
        let value = upper.keep(octets, ofClientAt: index)
        upper.batch.append(
          value: value, of: handle, isIndication: kind == .indication,
          isServiceChanged: upper.links[index].client.isServiceChanged(handle), on: link)
      case .completed(let id, .value(let octets)):
        emit(.completed(id, .gatt(.value(upper.keep(octets, ofClientAt: index)))))
      case .completed(let id, .values(let octets)):
        emit(.completed(id, .gatt(.values(upper.keep(octets, ofClientAt: index)))))
      case .completed(let id, let result): emit(.completed(id, .gatt(result)))
      case .valuesLost(let count): emit(.violation(link, .valuesLost(count)))
      case .ignored(let violation): emit(.violation(link, .gatt(violation)))
      case .servicesChanged(let range): emit(.servicesChanged(link, range))
      case .rediscovered(let range, let error): emit(.rediscovered(link, range, error))
      case .securityNeeded(let refusal): upper.links[index].protection.refusal = refusal
      }
    }
    upper.links[index].releaseCommands()
    upper.collectBearers(at: index)
    if upper.server.hasServiceChanged { upper.indicateServiceChanged(at: index) }
    note(at: index)
  }
  /// `collect` would find an effect.
  @inline(__always) func hasEffects(of handle: ConnectionHandle) -> Bool {
    if l2cap.hasEffect || !upper.drained.isEmpty || upper.server.hasEffect || upper.server.hasServiceChanged {
      return true
    }
    guard let index = upper.index(of: handle) else { return false }
    return upper.links[index].hasEffect
  }
  mutating func collectServer() {
    while let effect = upper.server.nextEffect() {
      switch effect {
      case .subscriptionChanged(let bearer, let handle, let configuration):
        if let link = upper.id(of: bearer) { emit(.subscriptionChanged(link, handle, configuration)) }
      case .written(let bearer, let handle, let offset, let octets):
        let value = upper.keepFromServer(octets)
        if let link = upper.id(of: bearer) { emit(.written(link, handle, value, offset: Int(offset))) }
      case .readRequested(let id, let bearer, let handle, let offset):
        if let link = upper.id(of: bearer) { emit(.readRequested(id, link, handle, offset: Int(offset))) }
      case .writeRequested(let id, let bearer, let handle, let offset, let octets, let following):
        let value = upper.keepFromServer(octets)
        if let link = upper.id(of: bearer) {
          emit(.writeRequested(id, link, handle, value, offset: Int(offset), following: following))
        }
      case .store(let bond, let octets):
        store(octets, of: PeerID(rawValue: bond.rawValue))
      case .signCounterChanged(let bearer, let counter): signed(on: bearer, next: counter)
      case .signatureRefused(let bearer, let handle, let refusal):
        if let link = upper.id(of: bearer) { emit(.violation(link, .signatureRefused(handle, refusal))) }
      case .requestCancelled(let id, let bearer):
        emit(.requestCancelled(id, upper.id(of: bearer)))
      }
    }
  }
  mutating func handle(_ effect: L2CAPEffect, _ now: Instant) {
    switch effect {
    case .parameterUpdateRequested(let handle, let identifier, let request):
      answer(request, handle, identifier: identifier, now)
    case .parameterUpdateEnded(let handle, let outcome): updateAnswered(handle, outcome, now)
    case .channelsRequested(let handle, let identifier, let request):
      channelsRequested(handle, identifier: identifier, request)
    case .channelOpened(let handle, let id, let channel): channelOpened(handle, id, channel, now)
    case .channelNotOpened(let handle, let id, let end): channelNotOpened(handle, id, end, now)
    case .channelClosed(let handle, let id, let end): channelClosed(handle, id, end)
    case .channelReconfigured(let handle, let id, let channel): channelReconfigured(handle, id, channel)
    // Nobody asks for one.
    case .reconfigurationEnded: break
    case .violation(let handle, let violation):
      emit(.violation(upper.id(of: handle), .l2cap(violation)))
    }
  }
}

extension UpperLayers {
  /// Takes the effects of a link's bearers.
  fileprivate mutating func collectBearers(at index: Int) {
    let link = links[index].id
    links[index].bearers.forEach { while let effect = $0.nextEffect(of: link) { batch.append(effect) } }
  }
}

extension LinkBearer {
  /// The next effect for the application, in order.
  @inline(__always) fileprivate mutating func nextEffect(of link: LinkID) -> HostEffect? {
    while let effect = bearer.nextEffect() {
      if let effect = self.effect(effect, of: link) { return effect }
    }
    return nil
  }
  private mutating func effect(_ effect: BearerEffect, of link: LinkID) -> HostEffect? {
    switch effect {
    case .mtuChanged(let mtu): return channel == .attribute ? .mtuChanged(link, mtu: mtu) : nil
    case .ready: return .readyToSend(link)
    case .indicationConfirmed:
      defer { isIndicationRefused = false }
      if let handle = indicating.take() { return .indicationConfirmed(link, handle) }
      // Service Changed is internal; its confirmation only makes room for another indication.
      return isIndicationRefused ? .readyToSend(link) : nil
    case .indicationFailed:
      indicating = nil
      return nil
    case .answeredForApplication(_, let handle): return .violation(link, .applicationTooSlow(handle))
    case .closed(.timedOut): return .violation(link, channel == .attribute ? .transactionTimedOut : .bearerTimedOut)
    case .closed(.disconnected): return nil
    case .violation(let violation): return .violation(link, .att(violation))
    }
  }
}
