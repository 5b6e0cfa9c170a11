// The interface of this module uses them.
@_exported import enum BindruneAdapters.AdapterError
@_exported import struct SystemPackage.Errno
@_exported import struct SystemPackage.FileDescriptor
