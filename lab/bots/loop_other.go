//go:build !linux

package bots

import (
	"net"
	"time"
)

// haveLoop: this platform has no event loop here; each bot has a goroutine.
const haveLoop = false

type poller struct{}

func (s *shard) open() error                   { return nil }
func (s *shard) closeLoop()                    {}
func (s *shard) wait()                         { time.Sleep(nap) }
func (s *shard) watch(*bot)                    {}
func (s *shard) forget(*socket)                {}
func (s *shard) readSome(*bot, int)            {}
func lockThread(portable bool) (unlock func()) { return func() {} }

func (s *shard) adopt(b *bot, c net.Conn, deflated bool) error {
	s.adoptNet(b, c, deflated)
	return nil
}
