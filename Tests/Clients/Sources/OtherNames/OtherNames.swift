// A foreign module with common names that the layers of the stack have, or had.
public struct Host { public init() {} }
public struct List { public init() {} }
public struct Layout { public init() {} }
public struct Measure { public init() {} }
public struct Describer { public init() {} }
public struct Client { public init() {} }
public struct Server { public init() {} }
public struct ReadRequest { public init() {} }
public struct WriteRequest { public init() {} }
public struct Disconnect { public init() {} }
public struct Reset { public init() {} }
public struct World { public init() {} }
public struct Machine { public init() {} }
public struct Adapter { public init() {} }
