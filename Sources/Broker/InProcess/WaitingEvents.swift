import FoundationEssentials

/// # WaitingEvents
/// **Overview**: the events in an `EventQueue`, in order. The program's own requests bound their number, and not what
/// devices do, however long the program takes none: Decision 0027.
///
/// **Function**: the end of a request that the program has not taken removes the request, and vanishes with it. While
/// fewer than 1,024 events wait, all others are kept. From then on an event replaces a waiting one that it makes
/// obsolete, or is dropped:
///
/// | event | effect on what waits |
/// |---|---|
/// | new name, MTU, ready for more values, links of this machine | replaces the last one, of the same device |
/// | changed services | the same; its range then covers both |
/// | end of a subscription | removes the subscription's begin, if that waits, and vanishes with it |
/// | end of a link that is made again by itself | removes the link's begin, if an earlier end waits before it, and vanishes with it |
/// | adapter's state | of more than two in a row the most severe and the last remain |
/// | advertisement | is dropped |
/// | channel that a peer has opened | is dropped, and the channel closes |
/// | value; write without response | is dropped while 65,536 events wait |
///
/// So what remains always ends in the present state. Nothing that the program has asked for, and no request that a
/// central waits for an answer to, is dropped. Until the program has taken a first state, only the last one is kept.
struct WaitingEvents {
  fileprivate static var crowd: Int { 1024 }
  /// No known state of the adapter has been taken yet.
  private var isFirst = true
  private var isCrowded: Bool { isFirst || count >= Self.crowd }

  /// The positions that later events look up.
  private enum Key: Hashable {
    case state, links
    case name(UUID), longestWrite(UUID), longestUpdate(UUID), changedServices(UUID)
    case readyToWrite(UUID), readyToUpdate(UUID)
    case subscription(UUID, AttributeHandle)
    case request(ServerRequest)
    case connection(UUID), interruption(UUID)
  }

  /// Nil where an event was removed; the last one is never nil.
  private var items: [BrokerEvent?] = []
  private var places: [Key: Int] = [:]
  /// Events that wait; each value is one.
  private(set) var count = 0
  /// Items that are not nil.
  private var itemCount = 0
  var isEmpty: Bool { count == 0 }
  /// The first state waits, and it is not `.unknown`.
  private var hasKnownState = false

  /// The events that wait, in order; they go on waiting.
  var all: [BrokerEvent] { items.compactMap { $0 } }

  /// All events that wait; nil where one was removed.
  mutating func takeAll() -> [BrokerEvent?] {
    let all = items, isFirst = isFirst && !hasKnownState
    self = WaitingEvents()
    self.isFirst = isFirst
    return all
  }

  /// Returns how many events were dropped, because as many wait as may: 0, or 1, or of several values the last ones.
  mutating func append(_ event: BrokerEvent) -> Int {
    if case .values(let peer, let handle, let values) = event { return append(values, of: handle, from: peer) }
    if count >= event.mostWaiting { return 1 }
    switch event {
    case .adapter(let state): append(state)
    case .linkedPeers: replace(.links, event)
    case .nameChanged(let peer, _): replace(.name(peer), event)
    case .longestWriteChanged(let peer, _): replace(.longestWrite(peer), event)
    case .longestUpdateChanged(let peer, _): replace(.longestUpdate(peer), event)
    case .readyToWrite(let peer): replace(.readyToWrite(peer), event)
    case .readyToUpdate(let peer): replace(.readyToUpdate(peer), event)
    case .servicesChanged(let peer, let range):
      var range = range
      if isCrowded,
        case .servicesChanged(_, let earlier)? = places[.changedServices(peer)].flatMap({ items[$0] })
      {
        range = range.union(earlier)
      }
      replace(.changedServices(peer), .servicesChanged(peer, range))
    case .subscribed(let peer, let handle, _): add(event, as: .subscription(peer, handle))
    case .unsubscribed(let peer, let handle):
      let key = Key.subscription(peer, handle)
      if isCrowded, remove(key) { return 0 }
      places[key] = nil
      add(event)
    case .readRequested(let request, _, _, _, _): add(event, as: .request(request))
    case .writeRequested(let request, _, _, _) where !request.isCommand: add(event, as: .request(request))
    case .requestEnded(let request): if !remove(.request(request)) { add(event) }
    case .connected(let peer, _, _): add(event, as: .connection(peer))
    case .disconnected(let peer, _, let isReconnecting, _) where isReconnecting:
      if isCrowded, let begin = places[.connection(peer)], let end = places[.interruption(peer)], end < begin {
        _ = remove(.connection(peer))
      } else {
        add(event, as: .interruption(peer))
      }
    case .restored, .discovered, .scanFailed, .connectionFailed, .disconnected, .values, .completed, .writeRequested,
      .advertisingEnded, .channelAccepted:
      add(event)
    }
    return 0
  }
  private mutating func append(_ values: BrokerValues, of handle: AttributeHandle, from peer: UUID) -> Int {
    let room = max(0, 65_536 - count)
    if room >= values.count {
      add(.values(peer, handle, values), of: values.count)
      return 0
    }
    if room > 0 { add(.values(peer, handle, values.first(room)), of: room) }
    return values.count - room
  }
  private mutating func append(_ state: AdapterState) {
    // With its links, of which there are none below `.poweredOn`.
    if isCrowded { _ = remove(.links) }
    if isFirst {
      hasKnownState = state != .unknown
      return replace(.state, .adapter(state))
    }
    if !isCrowded { return add(.adapter(state)) }
    var run: [(place: Int, state: AdapterState)] = []
    for (place, item) in items.enumerated().reversed() where run.count < 2 {
      guard let item else { continue }
      guard case .adapter(let state) = item else { break }
      run.append((place, state))
    }
    guard run.count == 2 else { return add(.adapter(state)) }
    if run[0].state.severity >= run[1].state.severity { items[run[1].place] = .adapter(run[0].state) }
    items[run[0].place] = .adapter(state)
  }

  private mutating func add(_ event: BrokerEvent, of events: Int = 1) {
    items.append(event)
    itemCount += 1
    count += events
  }
  private mutating func add(_ event: BrokerEvent, as key: Key) {
    add(event)
    places[key] = items.count - 1
  }
  /// The new one goes to the end: events between the two may concern the same.
  private mutating func replace(_ key: Key, _ event: BrokerEvent) {
    if isCrowded { _ = remove(key) }
    add(event, as: key)
  }
  private mutating func remove(_ key: Key) -> Bool {
    guard let place = places.removeValue(forKey: key) else { return false }
    items[place] = nil
    count -= 1
    itemCount -= 1
    tidy()
    return true
  }
  private mutating func tidy() {
    while let last = items.last, last == nil { items.removeLast() }
    guard items.count > 64, items.count > 2 * itemCount else { return }
    var moved = [Int](repeating: 0, count: items.count), kept: [BrokerEvent?] = []
    for (place, item) in items.enumerated() where item != nil {
      moved[place] = kept.count
      kept.append(item)
    }
    items = kept
    for (key, place) in places { places[key] = moved[place] }
  }
}

extension BrokerEvent {
  /// From this number on the event is dropped: a device must not fill the memory of a program that is blocked.
  fileprivate var mostWaiting: Int {
    switch self {
    case .discovered: WaitingEvents.crowd  // the device repeats it
    case .channelAccepted: WaitingEvents.crowd  // it closes, for nobody keeps it
    case .longestUpdateChanged: WaitingEvents.crowd  // a central that has subscribed has it from its port
    case .writeRequested(let request, _, _, _) where request.isCommand: 65_536
    // Each of several values counts: see `append(_:of:from:)`.
    case .values: .max
    case .adapter, .restored, .scanFailed, .connected, .connectionFailed, .disconnected, .nameChanged,
      .longestWriteChanged,
      .servicesChanged, .readyToWrite, .linkedPeers, .completed, .subscribed, .unsubscribed, .readRequested,
      .writeRequested, .requestEnded, .readyToUpdate, .advertisingEnded:
      .max
    }
  }
}

extension AdapterState {
  /// How much ends with it. 0: nothing; 1: the links; 2: also the known devices and the published services.
  fileprivate var severity: Int {
    switch self {
    case .poweredOn: 0
    case .poweredOff: 1
    case .unknown, .resetting, .unsupported, .unauthorized: 2
    }
  }
}
