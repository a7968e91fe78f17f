package drumline

import "context"

// Server runs rooms and serves their seats. All methods are safe for concurrent use.
type Server struct{}

// New starts a server: its threads run until Close. It returns an error that names the option or world that is wrong.
func New(o Options) (*Server, error) { return &Server{}, nil }

// Accept takes over a new link. The adapter then calls Receive for each message and Closed at the end.
func (s *Server) Accept(l Link, p Peer) *Conn { return &Conn{} }

// Stats returns a picture of the server. It costs a little per room; call it at most a few times a second.
func (s *Server) Stats() Stats { return Stats{} }

// Window returns what was measured since the last ResetWindow, or the start.
func (s *Server) Window() Window { return Window{} }

// ResetWindow starts a new measurement window.
func (s *Server) ResetWindow() {}

// Refused counts a refusal that an adapter decided before Accept, such as ReasonOrigin.
func (s *Server) Refused(p Peer, why Reason) {}

// Worlds returns the server's worlds in the order of Options.Worlds.
func (s *Server) Worlds() []Definition { return nil }

// Drain stops admitting, tells every client why and when to come back (spread over a few seconds), closes the rooms, and
// returns when all links have ended or ctx is done.
func (s *Server) Drain(ctx context.Context) error { return nil }

// Close ends everything at once. It is idempotent and waits for the server's goroutines.
func (s *Server) Close() {}

// Conn is the engine's end of a link.
type Conn struct{}

// Receive takes one message from the client. It is called by one goroutine at a time, never after Closed, and does not
// block; msg is valid during the call. It closes the link by itself when the message breaks the protocol.
func (c *Conn) Receive(msg []byte) {}

// Closed tells the engine that the link has ended; err says why if it was not by Close (io.EOF: the peer closed it cleanly).
// Called exactly once.
func (c *Conn) Closed(err error) {}
