import BasicContainers
import BindruneATT
import BindruneGATT
import BindruneL2CAP
import BindruneSMP
import BindruneWire

/// What must protect the link before a channel opens on it. Vol 3, Part C, §10.3.
public enum ChannelSecurity: UInt8, BitwiseCopyable, Sendable, Comparable {
  case none
  /// Encrypted.
  case encrypted
  /// Encrypted by a key that was exchanged with protection against a man in the middle.
  case authenticated
  public static func < (left: Self, right: Self) -> Bool { left.rawValue < right.rawValue }
}

/// What a listener offers under one SPSM. Vol 3, Part A, §4.22.
public struct ChannelService: BitwiseCopyable, Sendable {
  public var settings: ChannelSettings
  public var security: ChannelSecurity
  /// The least size of the key that encrypts the link, where `security` asks for one.
  public var leastKeySize: EncryptionKeySize
  public init(
    _ settings: ChannelSettings, security: ChannelSecurity = .none, leastKeySize: EncryptionKeySize = .longest
  ) {
    self.settings = settings
    self.security = security
    self.leastKeySize = leastKeySize
  }

  /// The answer to a request on a link that this protects: Vol 3, Part C, §10.3.1; the results: Vol 3, Part A, §4.23.
  public func decision(on link: LinkSecurity) -> ChannelDecision {
    guard security > .none else { return .accepted(settings) }
    guard let key = link.key else {
      return .refused(link.isBonded ? .insufficientEncryption : .insufficientAuthentication)
    }
    if security == .authenticated, !key.isAuthenticated { return .refused(.insufficientAuthentication) }
    if key.size < leastKeySize { return .refused(.encryptionKeySizeTooShort) }
    return .accepted(settings)
  }
}

/// What became of an SDU that the application sends.
public enum StreamAnswer: BitwiseCopyable, Sendable, Equatable {
  case queued
  /// Too many octets wait: `.channelReady` follows when half of them have left.
  case full
  /// The peer accepts fewer octets in one SDU.
  case tooLong(most: Int)
  /// There is no such channel, or not any more.
  case closed
}

/// # SDUQueue
/// **Overview**: the SDUs that wait to leave on one channel, in one piece of memory, which is kept when they have left:
/// once it is warm, an SDU costs no allocation.
struct SDUQueue: ~Copyable {
  /// Each SDU behind two octets with its length.
  private var octets = UniqueArray<UInt8>()
  private var head = 0
  /// Octets that may wait, two more for each SDU. An empty queue takes any SDU.
  let capacity: Int

  init(capacity: Int) { self.capacity = capacity }

  var isEmpty: Bool { head == octets.count }
  var count: Int { octets.count - head }

  mutating func append(_ sdu: Span<UInt8>) -> Bool {
    if isEmpty {
      octets.removeAll(keepingCapacity: true)
      head = 0
    } else if count + 2 + sdu.count > capacity {
      return false
    } else if head >= capacity {
      octets.removeSubrange(0..<head)
      head = 0
    }
    octets.append(UInt8(truncatingIfNeeded: sdu.count))
    octets.append(UInt8(truncatingIfNeeded: sdu.count >> 8))
    octets.append(copying: sdu)
    return true
  }
  /// Appends the first SDU to `output`; false if there is none.
  mutating func writeFirst(into output: inout OutputRawSpan) -> Bool {
    if isEmpty { return false }
    let length = Int(octets[head]) | Int(octets[head + 1]) << 8
    output.append(contentsOf: octets.span.extracting(head + 2..<head + 2 + length))
    head += 2 + length
    return true
  }
}

/// A channel that carries SDUs of the application.
struct ChannelStream: ~Copyable {
  let id: ChannelID
  var channel: OpenChannel
  var queue: SDUQueue
  /// The application has ended it: it closes when the SDUs that wait have left.
  var isClosing = false
  /// An SDU was refused, and `.channelReady` is still to come.
  var isRefused = false

  init(_ id: ChannelID, _ channel: OpenChannel) {
    self.id = id
    self.channel = channel
    // Enough for the packets of one event, and for one SDU beside the one that leaves.
    queue = SDUQueue(capacity: max(8192, 2 * (Int(channel.longestSDU) + 2)))
  }

  mutating func send(_ sdu: Span<UInt8>) -> StreamAnswer {
    guard !isClosing else { return .closed }
    guard sdu.count <= Int(channel.longestSDU) else { return .tooLong(most: Int(channel.longestSDU)) }
    if queue.append(sdu) { return .queued }
    isRefused = true
    return .full
  }
  /// No more SDUs are accepted. True: the channel may be closed now.
  mutating func end(afterSending: Bool) -> Bool {
    isClosing = true
    return !afterSending || queue.isEmpty
  }
  /// There is room again after a refusal: once.
  mutating func takeReady() -> Bool {
    guard isRefused, queue.count <= queue.capacity / 2 else { return false }
    isRefused = false
    return true
  }
}

/// A request of the application for a channel.
struct ChannelOpening: BitwiseCopyable {
  enum Phase: BitwiseCopyable, Equatable {
    case asked(ChannelID)
    /// The peer wants a secured link; what secures it is in progress.
    case securing
    /// That has ended.
    case secured(Bool)
  }
  let id: RequestID
  let spsm: SPSM
  let settings: ChannelSettings
  var phase: Phase
  /// The refusal that led to it; a second one fails the request.
  var refusal: ChannelResult?

  var isSecured: Bool? { if case .secured(let isSecured) = phase { isSecured } else { nil } }
}

/// The application's channels of a link, and its requests for more.
struct LinkStreams: ~Copyable {
  private var open = UniqueArray<ChannelStream>()
  /// The channels with an SDU to send.
  private(set) var waiting = ChannelSet()
  var openings: [ChannelOpening] = []

  @inline(__always) func index(of channel: ChannelID) -> Int? {
    for index in open.indices where open[index].id == channel { return index }
    return nil
  }
  mutating func append(_ stream: consuming ChannelStream) { open.append(stream) }
  /// False if there is no such stream.
  mutating func remove(_ channel: ChannelID) -> Bool {
    guard let index = index(of: channel) else { return false }
    _ = open.remove(at: index)
    waiting.remove(channel)
    return true
  }
  /// Changes a stream, and notes whether it has an SDU to send afterwards.
  mutating func with<Result>(_ index: Int, _ body: (inout ChannelStream) -> Result) -> Result {
    let result = body(&open[index])
    if open[index].queue.isEmpty { waiting.remove(open[index].id) } else { waiting.insert(open[index].id) }
    return result
  }
  /// Nil: there is no such stream.
  @discardableResult
  mutating func with<Result>(_ channel: ChannelID, _ body: (inout ChannelStream) -> Result) -> Result? {
    index(of: channel).map { with($0, body) }
  }
  func forEach(_ body: (ChannelID) -> Void) { for index in open.indices { body(open[index].id) } }
  /// All requests, for the end of the link.
  mutating func takeRequests() -> [RequestID] {
    defer { openings = [] }
    return openings.map { $0.id }
  }
  mutating func takeOpening(of channel: ChannelID) -> ChannelOpening? {
    guard let place = openings.firstIndex(where: { $0.phase == .asked(channel) }) else { return nil }
    return openings.remove(at: place)
  }
  mutating func takeOpening(_ id: RequestID) -> ChannelOpening? {
    guard let place = openings.firstIndex(where: { $0.id == id }) else { return nil }
    return openings.remove(at: place)
  }
  /// Those whose link has been secured, or has not.
  mutating func takeSecured() -> [ChannelOpening] {
    let secured = openings.filter { $0.isSecured != nil }
    if !secured.isEmpty { openings.removeAll { $0.isSecured != nil } }
    return secured
  }
  var isSecuring: Bool { openings.contains { $0.phase == .securing } }
  mutating func securityEnded(isSecured: Bool) {
    for place in openings.indices where openings[place].phase == .securing {
      openings[place].phase = .secured(isSecured)
    }
  }
}

extension ChannelResult {
  /// The peer wants a better protected link: ATT's word for it.
  var neededSecurity: ATTError? {
    switch self {
    case .insufficientAuthentication: .insufficientAuthentication
    case .insufficientEncryption: .insufficientEncryption
    case .encryptionKeySizeTooShort: .encryptionKeySizeTooShort
    default: nil
    }
  }
}
