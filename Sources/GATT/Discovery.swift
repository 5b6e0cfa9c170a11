import BindruneATT
import BindruneWire

/// Discovers a server's attributes in as few round trips as the Specification allows.
///
/// ## Function
/// Vol 3, Part G, §4.4 … §4.7, as one walk over the whole database instead of one per service:
///
/// 1. primary services: Read By Group Type 0x2800 from 0x0001, each request starting after the last group (§4.4.1);
/// 2. secondary services: the same with 0x2801, only where no primary service lies. §2.5.3 permits both types;
///    one request that mostly finds nothing saves a Read for every included service with a 128-bit UUID. If the server
///    refuses it (0x10, or 0x06), the includes provide these services;
/// 3. includes: Read By Type 0x2802 over all services (§4.5.1). A service known only from an include has
///    its declaration read if the include cannot carry the UUID (128 bits), or if the service lies inside another one,
///    which §3.1 rules out: some servers that nest services write a wrong UUID into the include;
/// 4. characteristics: Read By Type 0x2803 over all services (§4.6.1);
/// 5. descriptors: Find Information (§4.7.1), only where handles are left between a value and the next declaration. One
///    request continues over the declarations after a gap into the next gaps, so it finds at least what a request for
///    that gap alone would. A walk that infers does not ask for a gap of one handle after a characteristic that must
///    have one certain descriptor: what is there stays unknown until somebody needs it, because servers break that
///    rule.
///
/// After a change of services the same walk goes over the changed range alone.
///
/// A walk ends because each response must bring handles that increase: at most 65,535 in each of the five.
///
/// ## Lanes
/// On several bearers requests wait side by side, so a stage has as many lanes as there are bearers, each a part of its
/// handles: for primary services 0x0001 … 0x003F and ranges of double the length, because handles are mostly low; for
/// characteristics about as many handles of services; for descriptors as many gaps. The stage ends with its last lane.
/// The other stages have one: they rarely take a second request. A response may answer a lane of a walk that has ended
/// meanwhile: its `Ticket` says so.
///
/// ## Phases
/// `Stage`. The caller takes a ticket while `hasFreeLane`, writes the request, delivers the response, and repeats until
/// the outcome is neither `.again` nor `.stale`.
@usableFromInline struct Discovery {
  enum Goal: BitwiseCopyable, Equatable {
    /// All attributes in a range, which cuts no service in two; `infersDescriptors`: the walk infers.
    case everything(HandleRange, infersDescriptors: Bool)
    case primaryServices
    case services(BluetoothUUID)
    case includedServices(HandleRange)
    case characteristics(HandleRange)
    case descriptors(HandleRange)
    var range: HandleRange {
      switch self {
      case .primaryServices, .services: .all
      case .everything(let range, _), .includedServices(let range), .characteristics(let range),
        .descriptors(let range):
        range
      }
    }
  }
  enum Stage: BitwiseCopyable, Equatable {
    case primaryServices
    case services(BluetoothUUID)
    case secondaryServices
    case includes
    /// Reading the declarations of services that are known only from an include.
    case declarations
    case characteristics
    case descriptors
    case finished
  }
  enum Outcome: BitwiseCopyable {
    case again
    /// `found` is complete.
    case finished
    case failed(ClientError)
    /// The walk of the request has ended.
    case stale
  }
  /// Names the lane of a request in flight.
  @usableFromInline struct Ticket: BitwiseCopyable {
    fileprivate var walk: UInt32 = 0
    fileprivate var lane = 0
  }
  /// A part of the handles that a stage searches.
  private struct Lane: BitwiseCopyable {
    enum Phase: BitwiseCopyable { case free, asked, done }
    /// The next handle to search, and the last one.
    var next: Int
    var last: Int
    /// Index in `gaps`.
    var gap = 0
    var phase = Phase.free
  }

  /// What was known before, corrected and completed.
  private(set) var found = RemoteDatabase()
  /// What was known before.
  private var known = RemoteDatabase()
  /// A violation that the walk tolerated; the caller takes it.
  var ignored: ResponseViolation?
  private var goal = Goal.primaryServices
  private var stage = Stage.finished
  /// The range of a search for everything; `nil` for any other goal.
  private var whole: HandleRange?
  /// The walk does not ask for a descriptor that it can infer.
  private var infers = false
  /// The next handle to search in this stage, or in the lane in progress, and the last one.
  private var next = 1
  private var last = 0xFFFF
  /// The lanes of this stage; empty if there is one only.
  private var lanes: [Lane] = []
  /// The lane of the response that is being read.
  private var current = 0
  /// A request may be written now.
  @usableFromInline private(set) var hasFreeLane = false
  /// Bearers that share the walk.
  var width = 1
  private var walk: UInt32 = 0
  /// The range searched for includes, finished or in progress, and then for characteristics.
  private var searched = HandleRange.all
  /// Includes of services that are not known yet.
  private var unresolved: [RemoteInclude] = []
  /// Where descriptors may be.
  private struct Gap: BitwiseCopyable {
    var range: HandleRange
    /// The place of the characteristic whose descriptor is inferred: the walk does not ask for it, but learns it where
    /// a response goes on so far.
    var inferred: Int?
  }
  /// In order; those before index `gap` are done.
  private var gaps: [Gap] = []
  private var gap = 0

  /// Begins. `remote` is what the client knows; attributes outside of `goal` remain.
  mutating func start(_ goal: Goal, knowing remote: RemoteDatabase) {
    self.goal = goal
    whole = nil
    found = remote
    known = remote
    walk &+= 1
    ignored = nil
    unresolved.removeAll()
    gaps.removeAll()
    gap = 0
    switch goal {
    case .everything(let range, let infersDescriptors):
      found.forget(range)
      whole = range
      infers = infersDescriptors
      enter(.primaryServices, range)
    case .primaryServices:
      found.services.removeAll { $0.isPrimary }
      enter(.primaryServices, .all)
    case .services(let uuid):
      found.services.removeAll { $0.isPrimary && $0.uuid == uuid }
      enter(.services(uuid.shortest), .all)
    case .includedServices(let range):
      enterIncludes(range)
    case .characteristics(let range):
      found.characteristics.removeAll { range.contains($0.handle) }
      found.descriptors.removeAll { range.contains($0.handle) }
      enter(.characteristics, range)
    case .descriptors(let range):
      found.descriptors.removeAll { range.contains($0.handle) }
      gaps.append(Gap(range: range))
      enter(.descriptors, range)
    }
  }

  private mutating func enter(_ stage: Stage, _ range: HandleRange) {
    self.stage = stage
    next = Int(range.first.rawValue)
    last = Int(range.last.rawValue)
    if !lanes.isEmpty { lanes = [] }
    hasFreeLane = true
    if width > 1 { divide() }
  }
  /// The walk is over, or nobody wants it any more.
  mutating func stop() {
    stage = .finished
    walk &+= 1
    hasFreeLane = false
  }

  // MARK: Lanes

  /// Divides the range of a stage among the bearers.
  private mutating func divide() {
    switch stage {
    case .primaryServices where whole == .all:
      let starts = [1] + (0..<width - 1).map { 64 << $0 }.prefix { $0 < last }
      lanes = starts.indices.map { Lane(next: starts[$0], last: $0 + 1 < starts.count ? starts[$0 + 1] - 1 : last) }
    case .characteristics where whole != nil: divideServices()
    case .descriptors where whole != nil: divideGaps()
    case .primaryServices, .services, .secondaryServices, .includes, .declarations, .characteristics, .descriptors,
      .finished:
      break
    }
    if lanes.count == 1 { lanes = [] }
  }
  private mutating func divideServices() {
    let services = services
    let share = services.reduce(0) { $0 + $1.range.count } / width
    var start = next, taken = 0
    for (service, following) in zip(services, services.dropFirst()) {
      taken += service.range.count
      // A service that begins inside another one is not at a boundary.
      guard taken >= share, lanes.count < width - 1, service.endHandle.rawValue < following.handle.rawValue else {
        continue
      }
      lanes.append(Lane(next: start, last: Int(following.handle.rawValue) - 1))
      (start, taken) = (Int(following.handle.rawValue), 0)
    }
    lanes.append(Lane(next: start, last: last))
  }
  private mutating func divideGaps() {
    let asked = gaps.indices.filter { gaps[$0].inferred == nil }, share = (asked.count + width - 1) / width
    for first in stride(from: 0, to: asked.count, by: max(share, 1)) {
      let end = min(first + share, asked.count) - 1
      lanes.append(
        Lane(
          next: Int(gaps[asked[first]].range.first.rawValue), last: Int(gaps[asked[end]].range.last.rawValue),
          gap: asked[first]))
    }
  }
  /// The lane that the next request searches; nil if all have one in flight, or are done.
  mutating func take() -> Ticket? {
    guard hasFreeLane else { return nil }
    if lanes.isEmpty {
      hasFreeLane = false
      return Ticket(walk: walk, lane: 0)
    }
    guard let lane = lanes.firstIndex(where: { $0.phase == .free }) else { return nil }
    lanes[lane].phase = .asked
    noteFreeLane()
    load(lane)
    return Ticket(walk: walk, lane: lane)
  }
  /// No response will come, or it is of no use: another bearer asks again.
  mutating func giveBack(_ ticket: Ticket) {
    guard ticket.walk == walk else { return }
    if !lanes.isEmpty { lanes[ticket.lane].phase = .free }
    hasFreeLane = true
  }
  private mutating func load(_ lane: Int) {
    (current, next, last, gap) = (lane, lanes[lane].next, lanes[lane].last, lanes[lane].gap)
  }
  private mutating func endLane() {
    if !lanes.isEmpty {
      lanes[current].phase = .done
      guard lanes.allSatisfy({ $0.phase == .done }) else { return }
      lanes = []
    }
    endStage()
  }

  // MARK: Requests

  /// The opcode of the current request.
  var opcode: ATTOpcode {
    switch stage {
    case .primaryServices, .secondaryServices: ReadByGroupTypeRequest.opcode
    case .services: FindByTypeValueRequest.opcode
    case .includes, .characteristics: ReadByTypeRequest.opcode
    case .declarations: ReadRequest.opcode
    case .descriptors, .finished: FindInformationRequest.opcode
    }
  }

  /// The next request; its ranges refer to `source`. Mutating for speed alone, because a borrowed value is copied for a
  /// call.
  mutating func request(source: inout [UInt8]) -> ATTPDU {
    let first = AttributeHandle(rawValue: UInt16(clamping: next)),
      last = AttributeHandle(rawValue: UInt16(clamping: last))
    switch stage {
    case .primaryServices, .secondaryServices:
      let request = ReadByGroupTypeRequest.with {
        $0.startingHandle = first
        $0.endingHandle = last
        $0.attributeGroupType = stage == .primaryServices ? .primaryService : .secondaryService
      }
      return .readByGroupTypeRequest(request)
    case .services(let uuid):
      let request = FindByTypeValueRequest.with {
        $0.startingHandle = first
        $0.endingHandle = last
        $0.attributeType = UUID16(rawValue: 0x2800)
        $0.attributeValue = Octets(uuid.wireForm, in: &source)
      }
      return .findByTypeValueRequest(request)
    case .includes, .characteristics:
      let request = ReadByTypeRequest.with {
        $0.startingHandle = first
        $0.endingHandle = last
        $0.attributeType = stage == .includes ? .include : .characteristic
      }
      return .readByTypeRequest(request)
    case .declarations:
      let request = ReadRequest.with { $0.attributeHandle = unresolved.last?.serviceHandle ?? first }
      return .readRequest(request)
    case .descriptors, .finished:
      let request = FindInformationRequest.with {
        $0.startingHandle = first
        $0.endingHandle = last
      }
      return .findInformationRequest(request)
    }
  }

  // MARK: Responses

  mutating func receive(_ response: ATTPDU, in packet: Span<UInt8>, to ticket: Ticket) -> Outcome {
    guard ticket.walk == walk else { return .stale }
    let hasLanes = !lanes.isEmpty
    if hasLanes { load(ticket.lane) }
    hasFreeLane = true
    do throws(ClientError) {
      switch (stage, response) {
      case (_, .errorResponse(let error)): try refused(error)
      case (.primaryServices, .readByGroupTypeResponse(let list)): try groups(list, packet, isPrimary: true)
      case (.secondaryServices, .readByGroupTypeResponse(let list)): try groups(list, packet, isPrimary: false)
      case (.services(let uuid), .findByTypeValueResponse(let list)): try handles(list, packet, uuid)
      case (.includes, .readByTypeResponse(let list)): try includes(list, packet)
      case (.declarations, .readResponse(let value)): declaration(value.attributeValue, packet)
      case (.characteristics, .readByTypeResponse(let list)): try characteristics(list, packet)
      case (.descriptors, .findInformationResponse(let list)): try descriptors(list, packet)
      case (.primaryServices, _), (.secondaryServices, _), (.services, _), (.includes, _), (.declarations, _),
        (.characteristics, _), (.descriptors, _), (.finished, _):
        throw .malformedResponse(.unexpectedResponse)
      }
    } catch { return .failed(error) }
    if hasLanes { store(ticket.lane) }
    return stage == .finished ? .finished : .again
  }
  /// The lane continues, unless it has ended, or its stage.
  private mutating func store(_ lane: Int) {
    guard lane < lanes.count, lanes[lane].phase == .asked else { return noteFreeLane() }
    lanes[lane] = Lane(next: next, last: last, gap: gap)
  }
  private mutating func noteFreeLane() {
    if !lanes.isEmpty { hasFreeLane = lanes.contains { $0.phase == .free } }
  }

  private mutating func refused(_ error: ErrorResponse) throws(ClientError) {
    switch (stage, error.errorCode) {
    case (.declarations, _): resolved(nil)
    case (_, .attributeNotFound), (.secondaryServices, .unsupportedGroupType),
      (.secondaryServices, .requestNotSupported):
      endLane()
    case (.primaryServices, _), (.secondaryServices, _), (.services, _), (.includes, _), (.characteristics, _),
      (.descriptors, _), (.finished, _):
      throw .att(error.errorCode, opcode, error.attributeHandleInError)
    }
  }

  /// Checks a handle of a list: it must exceed the one before it and lie within the range.
  private func checked(_ handle: AttributeHandle, after previous: Int) throws(ClientError) -> Int {
    let raw = Int(handle.rawValue)
    guard raw > previous else { throw .malformedResponse(.handlesNotIncreasing(handle)) }
    guard raw <= last else { throw .malformedResponse(.handleOutOfRange(handle)) }
    return raw
  }

  private mutating func groups(
    _ response: ReadByGroupTypeResponse, _ packet: Span<UInt8>, isPrimary: Bool
  ) throws(ClientError) {
    var cursor = response.attributeDataList.cursor
    var previous = next - 1, after = next
    while let entry = cursor.next(in: packet) {
      previous = try checked(entry.attributeHandle, after: previous)
      guard let uuid = BluetoothUUID(octets: entry.attributeValue, in: packet) else {
        throw .malformedResponse(.declarationLength(entry.attributeHandle, Int(entry.attributeValue.count)))
      }
      after = max(after, try add(entry.attributeHandle, entry.endGroupHandle, uuid, isPrimary: isPrimary) + 1)
    }
    proceed(to: after)
  }

  private mutating func handles(
    _ response: FindByTypeValueResponse, _ packet: Span<UInt8>, _ uuid: BluetoothUUID
  ) throws(ClientError) {
    var cursor = response.handlesInformationList.cursor
    var previous = next - 1, after = next
    while let entry = cursor.next(in: packet) {
      previous = try checked(entry.foundAttributeHandle, after: previous)
      after = max(after, try add(entry.foundAttributeHandle, entry.groupEndHandle, uuid, isPrimary: true) + 1)
    }
    proceed(to: after)
  }

  /// Adds a service and returns its last handle.
  private mutating func add(
    _ handle: AttributeHandle, _ end: AttributeHandle, _ uuid: BluetoothUUID, isPrimary: Bool
  ) throws(ClientError) -> Int {
    guard handle.rawValue <= end.rawValue else { throw .malformedResponse(.groupEnd(handle)) }
    let service = RemoteService(handle: handle, endHandle: end, uuid: uuid, isPrimary: isPrimary)
    let index = found.lowerBound(found.services, by: { $0.handle }, Int(handle.rawValue))
    if index < found.services.count, found.services[index].handle == handle {
      found.services[index] = service
    } else {
      found.services.insert(service, at: index)
    }
    return Int(end.rawValue)
  }

  private mutating func includes(_ response: ReadByTypeResponse, _ packet: Span<UInt8>) throws(ClientError) {
    var cursor = response.attributeDataList.cursor
    var previous = next - 1
    while let entry = cursor.next(in: packet) {
      previous = try checked(entry.attributeHandle, after: previous)
      let value = entry.attributeValue
      let start = Int(value.offset), end = start + Int(value.count)
      guard let declaration = try? WireDecoder.decode(IncludeDeclaration.self, packet, from: start, to: end) else {
        throw .malformedResponse(.declarationLength(entry.attributeHandle, Int(value.count)))
      }
      let service = declaration.includedServiceAttributeHandle, group = declaration.endGroupHandle
      guard service.rawValue > 0, service.rawValue <= group.rawValue else {
        ignored = .groupEnd(entry.attributeHandle)
        continue
      }
      var include = RemoteInclude(handle: entry.attributeHandle, serviceHandle: service, endHandle: group)
      include.uuid = BluetoothUUID(octets: declaration.serviceUUID, in: packet)
      if let known = found.service(at: service) {
        include.uuid = known.uuid
      } else if let uuid = include.uuid, !found.nests(service) {
        _ = try add(service, group, uuid, isPrimary: false)
      } else {
        unresolved.append(include)
      }
      found.includes.append(include)
    }
    proceed(to: previous + 1)
  }

  private mutating func declaration(_ value: Octets, _ packet: Span<UInt8>) {
    let uuid = BluetoothUUID(octets: value, in: packet)
    if uuid == nil, let handle = unresolved.last?.serviceHandle {
      ignored = .declarationLength(handle, Int(value.count))
    }
    resolved(uuid)
  }

  /// Gives the include asked for last this UUID; if the server refused, the UUID that the include itself carried.
  private mutating func resolved(_ uuid: BluetoothUUID?) {
    guard let include = unresolved.popLast() else { return endStage() }
    if let uuid = uuid ?? include.uuid {
      _ = try? add(include.serviceHandle, include.endHandle, uuid, isPrimary: false)
    }
    resolveNext()
  }

  private mutating func characteristics(_ response: ReadByTypeResponse, _ packet: Span<UInt8>) throws(ClientError) {
    var cursor = response.attributeDataList.cursor
    var previous = next - 1, after = next
    while let entry = cursor.next(in: packet) {
      previous = try checked(entry.attributeHandle, after: previous)
      let start = Int(entry.attributeValue.offset), end = start + Int(entry.attributeValue.count)
      guard let declaration = try? WireDecoder.decode(CharacteristicDeclaration.self, packet, from: start, to: end)
      else {
        throw .malformedResponse(.declarationLength(entry.attributeHandle, end - start))
      }
      let value = declaration.characteristicValueHandle
      // The value directly follows its declaration (Vol 3, Part G, §3.3.2): where that is the last handle, no
      // declaration can follow, and §4.6.1 permits the search to end.
      after = previous + (Int(value.rawValue) == previous + 1 && previous + 1 == last ? 2 : 1)
      guard Int(value.rawValue) > previous else {
        ignored = .valueHandle(entry.attributeHandle)
        continue
      }
      found.characteristics.append(
        RemoteCharacteristic(
          handle: entry.attributeHandle, valueHandle: value, endHandle: value,
          properties: declaration.characteristicProperties, uuid: declaration.characteristicUUID))
    }
    proceed(to: after)
  }

  private mutating func descriptors(_ response: FindInformationResponse, _ packet: Span<UInt8>) throws(ClientError) {
    var cursor = response.informationData.cursor
    var previous = next - 1
    while let entry = cursor.next(in: packet) {
      previous = try checked(entry.handle, after: previous)
      while gap < gaps.count, Int(gaps[gap].range.last.rawValue) < previous { gap += 1 }
      guard gap < gaps.count, gaps[gap].range.contains(entry.handle), !entry.uuid.isDeclaration,
        whole != nil || found.characteristic(valueHandle: entry.handle) == nil
      else { continue }
      found.descriptors.append(RemoteDescriptor(handle: entry.handle, uuid: entry.uuid))
      if let index = gaps[gap].inferred { found.characteristics[index].isSearched = true }
    }
    proceed(to: previous + 1)
  }

  /// Returns and clears what was found.
  mutating func takeFound() -> RemoteDatabase {
    defer {
      found = RemoteDatabase()
      known = RemoteDatabase()
    }
    return found
  }

  // MARK: From stage to stage

  /// Everything before `handle` is known.
  private mutating func proceed(to handle: Int) {
    guard handle > next else { return endLane() }
    next = handle
    if stage == .descriptors {
      while gap < gaps.count, gaps[gap].inferred != nil || Int(gaps[gap].range.last.rawValue) < next { gap += 1 }
      if gap < gaps.count { next = max(next, Int(gaps[gap].range.first.rawValue)) } else { next = last + 1 }
    }
    if next > last { endLane() }
  }

  private mutating func endStage() {
    switch stage {
    case .primaryServices where whole != nil:
      if let range = rangeWithoutServices() { enter(.secondaryServices, range) } else { searchIncludes() }
    case .secondaryServices: searchIncludes()
    case .includes: resolveNext()
    case .characteristics: searchDescriptors()
    case .primaryServices, .services, .declarations, .descriptors, .finished: finish()
    }
  }

  /// The services found in the range in which everything is searched.
  private var services: [RemoteService] {
    guard let whole else { return [] }
    return whole == .all ? found.services : found.services.filter { whole.contains($0.handle) }
  }

  /// From the first to the last handle of the range that no service covers; `nil` when services cover all. Definitions
  /// do not overlap (Vol 3, Part G, §3.1), so a secondary service can lie only there.
  private func rangeWithoutServices() -> HandleRange? {
    guard let whole else { return nil }
    var first = Int(whole.first.rawValue), last = Int(whole.last.rawValue)
    for service in services {
      if Int(service.handle.rawValue) > first { break }
      first = max(first, Int(service.endHandle.rawValue) + 1)
    }
    for service in services.reversed() {
      if Int(service.endHandle.rawValue) < last { break }
      last = min(last, Int(service.handle.rawValue) - 1)
    }
    return first <= last ? HandleRange(raw: first, last) : nil
  }

  /// From the first to the last handle of all services in the range.
  private var servicesRange: HandleRange? {
    let services = services
    guard let first = services.first else { return nil }
    return services.reduce(first.range) { $0.union($1.range) }
  }

  private mutating func searchIncludes() {
    guard let range = servicesRange else { return finish() }
    searched = range
    enterIncludes(range)
  }

  /// After a search for includes: first resolves services known only from an include, then searches the parts of newly
  /// found services that lie outside the searched range. No handle is searched twice.
  private mutating func resolveNext() {
    while let include = unresolved.last, found.service(at: include.serviceHandle) != nil { unresolved.removeLast() }
    if !unresolved.isEmpty {
      stage = .declarations
    } else if whole != nil, let range = servicesRange, range.last.rawValue > searched.last.rawValue {
      enterIncludes(HandleRange(raw: Int(searched.last.rawValue) + 1, Int(range.last.rawValue)))
      searched.last = range.last
    } else if whole != nil, let range = servicesRange, range.first.rawValue < searched.first.rawValue {
      enterIncludes(HandleRange(raw: Int(range.first.rawValue), Int(searched.first.rawValue) - 1))
      searched.first = range.first
    } else if whole != nil, let range = servicesRange {
      searched = range
      found.characteristics.removeAll { range.contains($0.handle) }
      found.descriptors.removeAll { range.contains($0.handle) }
      enter(.characteristics, range)
    } else {
      finish()
    }
  }
  /// Begins the search for includes. Newly found services may extend beyond the searched range; nothing is recorded
  /// twice.
  private mutating func enterIncludes(_ range: HandleRange) {
    found.includes.removeAll { range.contains($0.handle) }
    enter(.includes, range)
  }
  private mutating func searchDescriptors() {
    guard whole != nil else { return finish() }
    found.sort()
    if !found.endCharacteristics(in: .all) {
      found.characteristics.removeAll { [found] in found.service(containing: $0.handle) == nil }
    }
    gaps.reserveCapacity(found.characteristics.count)
    var asked: HandleRange?
    for index in found.characteristics.indices where searched.contains(found.characteristics[index].handle) {
      guard let range = found.characteristics[index].descriptorRange else { continue }
      if infers, range.first == range.last, found.characteristics[index].properties.onlyDescriptor != nil {
        gaps.append(Gap(range: range, inferred: index))
      } else {
        gaps.append(Gap(range: range))
        found.characteristics[index].isSearched = true
        asked = HandleRange(asked?.first ?? range.first, range.last)
      }
    }
    guard let asked else { return finish() }
    enter(.descriptors, asked)
  }

  private mutating func finish() {
    stage = .finished
    hasFreeLane = false
    found.sort()
    for index in found.includes.indices {
      if let service = found.service(at: found.includes[index].serviceHandle) {
        found.includes[index].uuid = service.uuid
      }
    }
    switch goal {
    case .characteristics(let range):
      found.endCharacteristics(in: range)
      // An unchanged characteristic keeps its descriptors.
      for index in found.characteristics.indices {
        let characteristic = found.characteristics[index]
        guard range.contains(characteristic.handle), let before = known.characteristic(at: characteristic.handle),
          before == characteristic
        else { continue }
        found.descriptors += known.descriptors(of: characteristic)
        found.characteristics[index].isSearched = before.isSearched
      }
      found.sort()
    case .descriptors(let range):
      for index in found.characteristics.indices {
        guard let inside = found.characteristics[index].descriptorRange, range.contains(inside.first),
          range.contains(inside.last)
        else { continue }
        found.characteristics[index].isSearched = true
      }
    case .primaryServices, .services: found.dropOrphans()
    case .everything, .includedServices: break
    }
  }
}

extension CharacteristicProperties {
  /// The only descriptor that a characteristic with these properties must have (Vol 3, Part G, §3.3.1.1), or nil if
  /// there is not exactly one: by the rules a single handle for descriptors then holds it.
  var onlyDescriptor: BluetoothUUID? {
    let configurable = !isDisjoint(with: [.notify, .indicate])
    switch (configurable, contains(.broadcast), contains(.extendedProperties)) {
    case (true, false, false): return .clientCharacteristicConfiguration
    case (false, true, false): return .serverCharacteristicConfiguration
    case (false, false, true): return .characteristicExtendedProperties
    default: return nil
    }
  }
}

extension BluetoothUUID {
  /// A UUID in `octets`; `nil` unless there are 2 or 16.
  init?(octets: Octets, in packet: Span<UInt8>) { self.init(packet.extracting(octets.range)) }
  /// True for a type that starts a service or characteristic, or declares an include: never a descriptor's.
  var isDeclaration: Bool {
    if case .short(let value) = shortest { return 0x2800...0x2803 ~= value }
    return false
  }
}
