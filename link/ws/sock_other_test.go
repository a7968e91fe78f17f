//go:build !unix

package ws

import "syscall"

func smallReceiveBuffer(string, string, syscall.RawConn) error { return nil }
