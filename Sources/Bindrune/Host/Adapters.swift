import BindruneAdapters

// What a program asks before it opens an adapter of this machine. No host is needed for it.
extension BluetoothHost {
  /// The adapters of this machine, and what keeps one from being opened: a snapshot, read within some milliseconds.
  ///
  ///     for adapter in BluetoothHost.surveyAdapters().adapters { print(adapter.name, adapter.product ?? "") }
  public static func surveyAdapters() -> AdapterSurvey { AdapterSurvey() }
  /// What must hold to open `adapter`, in the order in which a user would fix it: this process's rights, then the
  /// adapter's state. Nothing is opened.
  public static func checks(of adapter: BluetoothAdapter) -> [AdapterCheck] {
    let survey = AdapterSurvey()
    return survey.processChecks + survey.checks(of: adapter.number)
  }
  /// The first adapter that can be opened: `open` takes its name. Throws what keeps the first adapter from it, or why
  /// there is none.
  ///
  ///     let host = try await BluetoothHost.open(BluetoothHost.firstUsableAdapter().name)
  public static func firstUsableAdapter() throws(AdapterError) -> BluetoothAdapter {
    try AdapterSurvey().firstUsable()
  }
  /// The adapters as they are plugged in, change and go: `.added` for each that is there, then each change, seen within
  /// `period`.
  ///
  ///     for await case .added(let adapter) in BluetoothHost.adapterChanges() { print(adapter.name) }
  public static func adapterChanges(every period: Duration = .seconds(1)) -> AdapterChanges {
    AdapterChanges(every: period)
  }
}
