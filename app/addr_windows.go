package app

import "syscall"

// errAddrInUse is WSAEADDRINUSE, which package syscall's EADDRINUSE does not match.
const errAddrInUse = syscall.Errno(10048)
