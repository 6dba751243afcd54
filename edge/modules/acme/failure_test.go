package acme

import (
	"errors"
	"testing"
	"time"

	"sluice/edge/control"
)

// What another edge got ends the failure of this one.
func TestFailureEnds(t *testing.T) {
	m, err := New(Options{Config: Config{Hosts: []string{"a.example"}}, Storage: Folder(t.TempDir())})
	must(t, err)
	m.fail("a.example", errors.New("away"), true)
	if s := m.Status()[0]; s.Error != "away" {
		t.Errorf("%+v", s)
	}
	m.failed["a.example"] = control.Certificate{Until: time.Now(), Error: "of a certificate that is no longer there"}
	if s := m.Status()[0]; s != (control.Certificate{Host: "a.example"}) {
		t.Errorf("%+v", s)
	}
}
