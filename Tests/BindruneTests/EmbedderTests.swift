import Bindrune
import BindruneTransport
import BindruneWire
import BindruneGAP
import BindruneHCI
import NIOCore
import Synchronization
import TestSupport
import Testing

/// What a program needs that has the library and not the tool.
@Suite("What an embedder needs", .virtualTime, .hang) struct EmbedderTests {
  // MARK: scan.first

  @Test func theFirstThatIsWanted() async throws {
    let lab = Lab(), belt = try Belt()
    let (central, peripheral) = (try await lab.host(), try await lab.host(belt.database))
    try await peripheral.advertiseFast()
    try await within {
      let heard = try await central.scan(services: ["180D"]).first(within: .seconds(10)) { $0.name == "Belt" }
      #expect(heard.address == (await peripheral.ownAddress))
      #expect(try await central.scan().first(within: .seconds(10)).address == heard.address)
    }
    await central.close()
    await peripheral.close()
  }

  /// The bound holds while others are heard, and not longer: the sequence itself has none.
  @Test func nothingIsWantedWithinTheBound() async throws {
    let lab = Lab(), belt = try Belt()
    let (central, peripheral) = (try await lab.host(), try await lab.host(belt.database))
    try await peripheral.advertiseFast()
    let scan = central.scan(), heard = Mutex(0), loop = lab.radio.eventLoop
    let start = try await loop.submit { loop.now }.get()
    do throws(BluetoothError) {
      _ = try await scan.first(within: .seconds(5)) { _ in
        heard.withLock { $0 += 1 }
        return false
      }
      Issue.record("nothing is wanted")
    } catch {
      #expect(error.code == .timedOut && error.operation == "scan")
    }
    #expect(try await loop.submit { loop.now }.get() - start >= .seconds(5))
    #expect(heard.withLock { $0 } > 0)
    // Another reader of the same sequence.
    #expect(try await within { try await scan.first(within: .seconds(5)) }.name == "Belt")
    await central.close()
    await peripheral.close()
  }

  @Test func aCancelledSearch() async throws {
    let central = try await Lab().host()
    let task = Task { () -> BluetoothError.Code? in
      do throws(BluetoothError) { _ = try await central.scan().first(within: .seconds(3_600)) } catch {
        return error.code
      }
      return nil
    }
    task.cancel()
    #expect(try await within { await task.value } == .cancelled)
    await central.close()
  }

  // MARK: withAdvertising

  @Test func anAdvertisementThatIsLent() async throws {
    let lab = Lab(), belt = try Belt()
    let (central, peripheral) = (try await lab.host(), try await lab.host(belt.database))
    let data = AdvertisingData(localName: "Belt")
    let events = await peripheral.events
    let answer = try await within {
      try await peripheral.withAdvertising(data, AdvertisingParameters(interval: .every(.milliseconds(20)))) {
        try await central.scan().first(within: .seconds(10)) { $0.name == "Belt" }.isConnectable
      }
    }
    #expect(answer)
    // Also when the body throws. Each end is reported.
    await #expect(throws: CancellationError.self) {
      try await peripheral.withAdvertising(data) { throw CancellationError() }
    }
    try await within {
      var ends = 0
      for try await case .advertisingStopped(_, let end) in events {
        #expect(end == .stopped)
        ends += 1
        if ends == 2 { break }
      }
    }
    await #expect(throws: BluetoothError.self) { try await central.scan().first(within: .seconds(5)) }
    await central.close()
    await peripheral.close()
  }

  // MARK: Errors and events as values

  /// Observers learn that the host runs, once, before everything else.
  @Test func observersLearnOfTheStart() async throws {
    let lab = Lab(), belt = try Belt(),
      recorder = Recorder { host, report in
        // From now on operations can begin.
        if case .event(.running) = report {
          _ = thrown { () throws(BluetoothError) in try host.beginAdvertising(.init()) }
        }
      }
    let host = try await lab.host(belt.database, observer: recorder)
    try await recorder.first { if case .advertisingStarted = $0 { () } else { nil } }
    let names = recorder.events.map { event in
      switch event {
      case .running: "running"
      case .advertisingStarted: "advertising"
      default: "\(event)"
      }
    }
    #expect(names == ["running", "advertising"])
    await host.close()
  }

  @Test func advertisementsCanBeMade() throws {
    let address = PeerAddress(DeviceAddress(0xC000_0000_0001), .random)
    let made = Advertisement(AdvertisingData(localName: "Belt", serviceUUIDs: ["180D"]), from: address, rssi: -40)
    #expect(made.name == "Belt" && made.peer == PeerID(address) && made.addressOnAir == address)
    let strength: Int8? = made.rssi
    #expect(strength == -40 && made.isConnectable && !made.hasScanResponse)
  }

}

/// The same, of sockets and of this machine.
@Suite("What an embedder needs, of the system", .realTime, .hang) struct EmbedderSystemTests {
  /// As a value, and in the sentence.
  @Test func whyAControllerDoesNotOpen() async throws {
    for (spec, reason) in [
      ("unix:/no/such/socket", TransportError.notFound(.unix(path: "/no/such/socket"))), ("sim:no/name", nil),
    ] {
      do throws(BluetoothError) {
        _ = try await BluetoothHost.open(spec)
        Issue.record("\(spec) opens")
      } catch {
        #expect(error.code == .transport)
        let why = try #require(error.transportError)
        if let reason { #expect(why == reason) } else if case .specification = why {} else { Issue.record("\(why)") }
        #expect(error.diagnostics == why.description)
      }
    }
    #expect(BluetoothError(.busy, "").transportError == nil)
    var error = BluetoothError(.transport, "")
    error.transportError = .adapter(.up(0, daemon: true))
    #expect(error.transportError == .adapter(.up(0, daemon: true)) && error != BluetoothError(.transport, ""))
  }

  /// What this machine has is not known here: the answers of one moment agree.
  @Test func adaptersOfThisMachine() async throws {
    let survey = BluetoothHost.surveyAdapters()
    do throws(AdapterError) {
      let usable = try BluetoothHost.firstUsableAdapter()
      #expect(survey.adapters.contains { $0.number == usable.number })
    } catch { #expect(error == survey.processChecks.lazy.compactMap(\.error).first || !survey.adapters.isEmpty) }
    #expect(BluetoothHost.checks(of: BluetoothAdapter(number: 9)).count >= 4)
    // A machine without adapters reports nothing, until the task is cancelled.
    let task = Task {
      var names: [String] = []
      for await case .added(let adapter) in BluetoothHost.adapterChanges() { names.append(adapter.name) }
      return names
    }
    task.cancel()
    _ = await task.value
  }
}
