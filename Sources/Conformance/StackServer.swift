import BindruneATT
import BindruneGATT
import BindruneHCI
import BindruneSMP
import BindruneWire

/// Our stack on a socket, for testers: the other end of `SocketTarget`. One bearer, one Security Manager channel, or
/// the channels of one link, at a time, in real time.
public final class StackServer {
  private let listener: MessageListener
  private let controlListener: MessageListener?
  private let database: DatabaseFile
  private let mtu: Int?

  private var bearer: MessageSocket?
  private var control: MessageSocket?
  private var target: any ServedTarget
  /// A tester awaits the key of the link.
  private var isKeyWanted = false
  /// Whether the database is as in the file; a tester with a control connection requests that.
  private var isFresh = true
  /// A turn ended before everything available was read.
  private var isBusy = false
  private var now = ContinuousClock.now

  /// `mtu` is the stack's receive MTU; by default any that it chooses.
  public init(
    on address: SocketAddress, control: SocketAddress?, database: DatabaseFile, mtu: Int? = nil
  ) throws(SocketError) {
    listener = try MessageListener(on: address, .pdus)
    if let control {
      controlListener = try MessageListener(on: control, .lines)
    } else {
      controlListener = nil
    }
    self.database = database
    self.mtu = mtu
    target = StackTarget(database)
  }

  /// The address for testers.
  public var address: SocketAddress { listener.address }
  public var controlAddress: SocketAddress? { controlListener?.address }

  /// Serves until `isOver` returns true, which it calls at least five times a second.
  public func run(until isOver: () -> Bool, report: (String) -> Void) throws(SocketError) {
    while !isOver() {
      let due = isBusy ? .zero : min(target.timeToDeadline ?? .milliseconds(200), .milliseconds(200))
      isBusy = false
      try MessageSocket.wait(
        for: hasUnsent ? [bearer, control].filter { $0?.hasUnsent == true } : [bearer, control],
        [bearer == nil ? listener : nil, control == nil ? controlListener : nil], within: due)
      passTime()
      try accept(report)
      try takeLines(report)
      try takePDUs(report)
    }
  }
  /// A tester has not accepted all that it was sent. Then the server reads nothing more, which could add to it.
  private var hasUnsent: Bool { bearer?.hasUnsent == true || control?.hasUnsent == true }
  /// The limit of messages read in a turn, so that a tester that never pauses does not keep the server from ending.
  private static var turn: Int { 256 }

  private func passTime() {
    let then = now
    now = ContinuousClock.now
    target.pass(now - then)
  }

  private func accept(_ report: (String) -> Void) throws(SocketError) {
    if control == nil, let socket = try controlListener?.accept(within: .zero) { control = socket }
    guard bearer == nil, let socket = try listener.accept(within: .zero) else { return }
    bearer = socket
    report("connected")
    if control == nil {
      open(database)
    } else if !isFresh {
      do throws(TargetError) { try target.reconnect() } catch {}
    }
    isFresh = false
  }
  private func open(_ roles: PairingRoles) {
    var chance = SystemRandomNumberGenerator()
    replace(PairingTarget(roles, seed: chance.next()))
  }
  private func replace(_ target: any ServedTarget) {
    self.target = target
    isFresh = true
    isKeyWanted = false
  }
  private func open(_ file: DatabaseFile) {
    replace(StackTarget(file))
    if let mtu { do throws(TargetError) { try target.perform(.mtu(mtu)) } catch {} }
  }

  private func takePDUs(_ report: (String) -> Void) throws(SocketError) {
    guard let socket = bearer else { return }
    var isOpen = try socket.flush()
    if isOpen { isOpen = try answer(socket) }
    var count = 0
    receiving: while isOpen, !hasUnsent {
      count += 1
      if count > Self.turn {
        isBusy = true
        break
      }
      switch try socket.receive(within: .zero) {
      case .message(let pdu):
        do throws(TargetError) { try target.send(pdu) } catch { isOpen = false }
        if isOpen { isOpen = try answer(socket) }
      case .nothing: break receiving
      case .closed: isOpen = false
      }
    }
    if !isOpen {
      bearer = nil
      report("closed")
    }
  }
  /// Sends the stack's PDUs; false when the bearer has ended.
  private func answer(_ socket: MessageSocket) throws(SocketError) -> Bool {
    while let received = target.ready {
      switch received {
      case .pdu(let pdu): guard try socket.send(pdu) else { return false }
      case .closed: return false
      case .nothing: break
      }
    }
    if let control { try sendLines(control) } else { target.forgetLines() }
    return true
  }

  // MARK: Control

  private func takeLines(_ report: (String) -> Void) throws(SocketError) {
    guard let socket = control else { return }
    guard try socket.flush() else {
      control = nil
      return
    }
    var count = 0
    while !hasUnsent {
      count += 1
      if count > Self.turn {
        isBusy = true
        return
      }
      switch try socket.receive(within: .zero) {
      case .message(let octets):
        let line = String(decoding: octets, as: UTF8.self)
        report(line)
        guard try socket.send(Array(answer(line).utf8)) else {
          control = nil
          return
        }
      case .nothing: return try sendLines(socket)
      case .closed:
        control = nil
        return
      }
    }
  }

  private func answer(_ line: String) -> String {
    do throws(FileError) {
      if line == "open -" {
        open(DatabaseFile())
      } else if line.hasPrefix(PairingRoles.word) {
        guard let roles = PairingRoles(line: line) else {
          throw FileError("control", line: 1, "a role and two addresses belong after channel smp")
        }
        open(roles)
      } else if line.hasPrefix(LinkRole.word) {
        guard let role = LinkRole.words[String(line.dropFirst(LinkRole.word.count))] else {
          throw FileError("control", line: 1, "central or peripheral belongs after channel l2cap")
        }
        replace(ChannelTarget(role))
      } else if line == "key" {
        isKeyWanted = true
      } else if line.hasPrefix("open ") {
        open(try ScriptFile.database(String(line.dropFirst(5))))
      } else if let command = try Command(line: line, file: "control") {
        do throws(TargetError) { try target.perform(command) } catch {
          switch error {
          case .unsupported: return "unsupported"
          case .failed(let why): return "error \(why)"
          }
        }
      } else {
        return "unsupported"
      }
      return "ok"
    } catch {
      return "error \(error)"
    }
  }

  private func sendLines(_ socket: MessageSocket) throws(SocketError) {
    // The lines stay with the target until the tester has read those before them.
    guard !socket.hasUnsent else { return }
    var lines = target.takeLines()
    if isKeyWanted {
      var key: [UInt8]?
      do throws(TargetError) { key = try target.key(within: .zero) } catch {}
      if let key {
        lines.append("key \(hexText(key))")
        isKeyWanted = false
      }
    }
    for line in lines {
      guard try socket.send(Array(line.utf8)) else {
        control = nil
        return
      }
    }
  }
}

extension LinkRole {
  fileprivate static var word: String { "channel l2cap " }
  /// `channel l2cap peripheral`: the side under test.
  var line: String { Self.word + script }
}

extension PairingRoles {
  static var word: String { "channel smp " }
  /// `channel smp responder C0:00:5E:00:53:01 random 00:00:5E:00:53:02 public`: the side under test, the addresses of
  /// the initiator and of the responder.
  var line: String {
    Self.word + "\((role ?? .responder).script) \(addresses.initiator.script) \(addresses.responder.script)"
  }
  init?(line: String) {
    self.init()
    let words = line.dropFirst(Self.word.count).split(separator: " ").map(String.init)
    guard words.count == 5, let role = PairingRole.words[words[0]],
      let initiator = PairingAddress(script: "\(words[1]) \(words[2])"),
      let responder = PairingAddress(script: "\(words[3]) \(words[4])")
    else { return nil }
    self.role = role
    addresses = PairingAddresses(initiator: initiator, responder: responder)
  }
}
