package linktest

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

func TestMain(m *testing.M) { Main(m) }

// notes is a testing.TB that notes failures in place of failing.
type notes struct {
	testing.TB
	errors []string
}

func (n *notes) Helper()           {}
func (n *notes) Error(args ...any) { n.errors = append(n.errors, fmt.Sprint(args...)) }

// TestRecorder: the recorder sees each breach of the contract.
func TestRecorder(t *testing.T) {
	cause := errors.New("cause")
	n := &notes{TB: t}
	r := NewRecorder(n)
	msg := []byte("abc")
	r.Receive(msg)
	clear(msg)
	r.Closed(cause)
	if len(n.errors) > 0 || string(r.WaitMessages(1)[0]) != "abc" || r.Wait() != cause {
		t.Errorf("a proper life: %q, %q, %v", n.errors, r.Messages(), r.Err())
	}
	r.Closed(nil)
	r.Receive(nil)
	if len(n.errors) != 2 || !strings.Contains(n.errors[0], "more than once") || !strings.Contains(n.errors[1], "after Closed") {
		t.Errorf("noted %q", n.errors)
	}
	if r.Err() != cause {
		t.Errorf("the second Closed replaced the first: %v", r.Err())
	}

	// A call of Receive that comes while another is inside.
	n = &notes{TB: t}
	r = NewRecorder(n)
	r.inside.Add(1)
	r.Receive(nil)
	r.Closed(nil)
	if len(n.errors) != 2 || !strings.Contains(n.errors[0], "two goroutines") || !strings.Contains(n.errors[1], "during Receive") {
		t.Errorf("noted %q", n.errors)
	}
}
